"""Vision Transformers for Keras 3: from a folder of images to a served model.

Part of the distribution keras-vit-toolkit. `keras_vit.data`, `keras_vit.training`,
`keras_vit.tasks` and `keras_vit.export` need TensorFlow and are imported on first access; the rest
runs on any Keras backend.
"""

import importlib
from typing import TYPE_CHECKING, Any

from keras_vit import accelerators

accelerators.enable_onednn()  # before the first import of TensorFlow

from keras_vit import layers, models, weights, zoo
from keras_vit._version import __version__
from keras_vit.adamw import AdamW
from keras_vit.models import (
    Detector,
    Segmenter,
    ViTConfig,
    features,
    optimize_for_inference,
    reduce_tokens,
)
from keras_vit.preprocessing import Preprocessing, decode_predictions, preprocess_input
from keras_vit.weights import list_weights, load_weights, save_weights
from keras_vit.zoo import *  # noqa: F403

if TYPE_CHECKING:
    from keras_vit.export import load_predictor as load_predictor

__all__ = [
    "AdamW",
    "Detector",
    "Preprocessing",
    "Segmenter",
    "ViTConfig",
    "__version__",
    "decode_predictions",
    "features",
    "layers",
    "list_weights",
    "load_predictor",
    "load_weights",
    "models",
    "optimize_for_inference",
    "preprocess_input",
    "reduce_tokens",
    "save_weights",
    "weights",
]
__all__ += zoo.__all__


# Imported on first access, because most need TensorFlow.
_LAZY = ("data", "doctor", "evaluation", "export", "reports", "tasks", "training", "visualization")


def __getattr__(name: str) -> Any:
    if name == "load_predictor":
        return importlib.import_module("keras_vit.export").load_predictor
    if name in _LAZY:
        return importlib.import_module(f"keras_vit.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_LAZY]
