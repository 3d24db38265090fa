"""`python -m keras_vit` is the command `keras-vit`."""

from __future__ import annotations

from keras_vit.cli import main

main()
