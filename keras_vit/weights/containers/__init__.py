"""Weight file formats: arrays by name, read from and written to files."""

from keras_vit.weights.containers.formats import format_of
from keras_vit.weights.containers.h5 import read_h5, read_legacy_h5
from keras_vit.weights.containers.npz import read_npz, write_npz
from keras_vit.weights.containers.safetensors import (
    read_metadata,
    read_safetensors,
    write_safetensors,
)
from keras_vit.weights.containers.torch import need_torch, read_torch

__all__ = [
    "format_of",
    "need_torch",
    "read_h5",
    "read_legacy_h5",
    "read_metadata",
    "read_npz",
    "read_safetensors",
    "read_torch",
    "write_npz",
    "write_safetensors",
]
