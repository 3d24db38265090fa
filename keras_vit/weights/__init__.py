"""Checkpoint reading, loading, conversion and saving."""

from keras_vit.weights.adapters import load_adapter
from keras_vit.weights.convert import convert
from keras_vit.weights.load import load_weights
from keras_vit.weights.load_report import LoadReport, TensorReport
from keras_vit.weights.registry import PublishedWeights, list_weights
from keras_vit.weights.resolve import read_checkpoint
from keras_vit.weights.save import save_weights

__all__ = [
    "LoadReport",
    "PublishedWeights",
    "TensorReport",
    "convert",
    "list_weights",
    "load_adapter",
    "load_weights",
    "read_checkpoint",
    "save_weights",
]
