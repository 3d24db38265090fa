"""Command-line interface `keras-vit`."""

from keras_vit.cli.app import app as app
from keras_vit.cli.app import main as main
