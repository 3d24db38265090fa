"""Vision Transformers as functional Keras models, and their configurations."""

from keras_vit.models.config import ViTConfig, size
from keras_vit.models.counting import count_flops, count_parameters, count_training_flops
from keras_vit.models.dense import Segmenter
from keras_vit.models.detector import Detector
from keras_vit.models.feature_extractor import Activations, FeatureExtractor
from keras_vit.models.features import features
from keras_vit.models.inference_runtime import optimize_for_inference
from keras_vit.models.memory import Memory, count_memory
from keras_vit.models.metadata import (
    config_of,
    has_config,
    preprocessing_of,
    rebuild,
    with_preprocessing,
)
from keras_vit.models.openvino_runtime import OpenVINOModel
from keras_vit.models.tiles import tiled
from keras_vit.models.token_reduction import reduce_tokens
from keras_vit.models.vit import build, default_preprocessing

__all__ = [
    "Activations",
    "Detector",
    "FeatureExtractor",
    "Memory",
    "OpenVINOModel",
    "Segmenter",
    "ViTConfig",
    "build",
    "config_of",
    "count_flops",
    "count_memory",
    "count_parameters",
    "count_training_flops",
    "default_preprocessing",
    "features",
    "has_config",
    "optimize_for_inference",
    "preprocessing_of",
    "rebuild",
    "reduce_tokens",
    "size",
    "tiled",
    "with_preprocessing",
]
