"""Entry point of `python -m keras_vit`, the command `keras-vit`."""

from __future__ import annotations

from keras_vit.cli import main

main()
