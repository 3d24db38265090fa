"""Functional Keras models of the Vision Transformer, and their configuration."""

from keras_vit.models.anatomy import Anatomy, Observation
from keras_vit.models.config import ViTConfig, size
from keras_vit.models.features import features
from keras_vit.models.inspection import (
    config_of,
    preprocessing_of,
    rebuild,
    tells_config,
    with_preprocessing,
)
from keras_vit.models.memory import Memory, count_memory
from keras_vit.models.openvino_model import OpenVINOModel
from keras_vit.models.optimization import optimize_for_inference
from keras_vit.models.reduction import reduce_tokens
from keras_vit.models.sizing import count_flops, count_parameters, count_training_flops
from keras_vit.models.vit import build, default_preprocessing

__all__ = [
    "Anatomy",
    "Memory",
    "Observation",
    "OpenVINOModel",
    "ViTConfig",
    "build",
    "config_of",
    "count_flops",
    "count_memory",
    "count_parameters",
    "count_training_flops",
    "default_preprocessing",
    "features",
    "optimize_for_inference",
    "preprocessing_of",
    "rebuild",
    "reduce_tokens",
    "size",
    "tells_config",
    "with_preprocessing",
]
