"""Entry point of `python -m keras_vit`, which runs the `keras-vit` command."""

from __future__ import annotations

from keras_vit.cli import main

main()
