"""Published checkpoints to named variables."""

from keras_vit.weights.load import LoadReport, load_weights, read_checkpoint

__all__ = ["LoadReport", "load_weights", "read_checkpoint"]
