"""Tables of the tensor names and layouts of other libraries, for reading and writing."""

from keras_vit.models import ViTConfig
from keras_vit.weights.dialects.dialect import Dialect, Row
from keras_vit.weights.dialects.flax import FLAX
from keras_vit.weights.dialects.huggingface import HUGGING_FACE
from keras_vit.weights.dialects.huggingface_backbones import BEIT, CLIP, DINOV2, DINOV3
from keras_vit.weights.dialects.kecam import KECAM
from keras_vit.weights.dialects.keras_hub import KERAS_HUB
from keras_vit.weights.dialects.keras_vit_pypi import KERAS_VIT_PYPI
from keras_vit.weights.dialects.open_clip import OPEN_CLIP
from keras_vit.weights.dialects.tf_transformers import TF_TRANSFORMERS
from keras_vit.weights.dialects.timm import TIMM
from keras_vit.weights.dialects.timm_eva import TIMM_EVA
from keras_vit.weights.dialects.torchvision import TORCHVISION
from keras_vit.weights.dialects.vit_keras import VIT_KERAS

_PYTORCH = (TIMM_EVA, TIMM, DINOV2, DINOV3, CLIP, BEIT, HUGGING_FACE, OPEN_CLIP, TORCHVISION)
_KERAS = (VIT_KERAS, KERAS_VIT_PYPI, KECAM, TF_TRANSFORMERS, KERAS_HUB)
# A file is read in the first dialect that `matches` its names.
DIALECTS = {dialect.name: dialect for dialect in (FLAX, *_PYTORCH, *_KERAS)}


def dialect_for(format: str, config: ViTConfig) -> Dialect:
    """Returns the dialect in which a format writes models of this configuration.

    Args:
        format: Format of `save_weights`, such as `"timm"`.
        config: The model's configuration.

    Returns:
        The first dialect of the format that supports the configuration.

    Examples:
        >>> from keras_vit.models import size
        >>> dialect_for("timm", size("Ti/16").replace(key_bias=False)).name
        'timm_eva'
    """
    of_format = (d for d in DIALECTS.values() if (d.format or d.name) == format)
    return next(dialect for dialect in of_format if dialect.supports(config))


__all__ = ["DIALECTS", "TIMM", "TIMM_EVA", "Dialect", "Row", "dialect_for"]
