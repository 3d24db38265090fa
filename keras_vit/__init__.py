"""Vision Transformers for Keras 3: from a folder of images to a served model.

Part of the distribution keras-vit-toolkit. `keras_vit.data`, `keras_vit.training`,
`keras_vit.tasks` and `keras_vit.export` need TensorFlow and are imported on first access; the rest
runs on any Keras backend.
"""

import importlib
from typing import TYPE_CHECKING, Any

from keras_vit import accelerators

accelerators.enable_onednn()  # before the first import of TensorFlow

from keras_vit import layers, models, weights
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
from keras_vit.zoo import (
    CLIPB16,
    CLIPB32,
    CLIPL14,
    EUPEB16,
    EUPES16,
    EVA02B14,
    EVA02L14,
    EVA02S14,
    BEiTB16,
    BEiTL16,
    BEiTv2B16,
    BEiTv2L16,
    DINOv2B14,
    DINOv2G14,
    DINOv2L14,
    DINOv2S14,
    DINOv3B16,
    DINOv3H16Plus,
    DINOv3L16,
    DINOv3S16,
    DINOv3S16Plus,
    EUPETi16,
    EVA02Ti14,
    SigLIP2B16,
    SigLIP2L16,
    SigLIP2SO400M14,
    SigLIP2SO400M16,
    SigLIPB16,
    SigLIPL16,
    SigLIPSO400M14,
    TIPSv2B14,
    TIPSv2G14,
    TIPSv2L14,
    TIPSv2SO400M14,
    ViTB8,
    ViTB16,
    ViTB32,
    ViTG14,
    ViTg14,
    ViTH14,
    ViTL16,
    ViTL32,
    ViTMicro4,
    ViTR26S32,
    ViTR50B16,
    ViTR50L32,
    ViTRTi16,
    ViTS8,
    ViTS16,
    ViTS32,
    ViTTi16,
)

if TYPE_CHECKING:
    from keras_vit.export import load_predictor as load_predictor

__all__ = [
    "CLIPB16",
    "CLIPB32",
    "CLIPL14",
    "EUPEB16",
    "EUPES16",
    "EVA02B14",
    "EVA02L14",
    "EVA02S14",
    "AdamW",
    "BEiTB16",
    "BEiTL16",
    "BEiTv2B16",
    "BEiTv2L16",
    "DINOv2B14",
    "DINOv2G14",
    "DINOv2L14",
    "DINOv2S14",
    "DINOv3B16",
    "DINOv3H16Plus",
    "DINOv3L16",
    "DINOv3S16",
    "DINOv3S16Plus",
    "Detector",
    "EUPETi16",
    "EVA02Ti14",
    "Preprocessing",
    "Segmenter",
    "SigLIP2B16",
    "SigLIP2L16",
    "SigLIP2SO400M14",
    "SigLIP2SO400M16",
    "SigLIPB16",
    "SigLIPL16",
    "SigLIPSO400M14",
    "TIPSv2B14",
    "TIPSv2G14",
    "TIPSv2L14",
    "TIPSv2SO400M14",
    "ViTB8",
    "ViTB16",
    "ViTB32",
    "ViTConfig",
    "ViTG14",
    "ViTH14",
    "ViTL16",
    "ViTL32",
    "ViTMicro4",
    "ViTR26S32",
    "ViTR50B16",
    "ViTR50L32",
    "ViTRTi16",
    "ViTS8",
    "ViTS16",
    "ViTS32",
    "ViTTi16",
    "ViTg14",
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
