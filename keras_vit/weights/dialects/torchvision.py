"""Weight names and layouts of torchvision, including its SWAG weights."""

from __future__ import annotations

import re

from keras_vit.weights.dialects.dialect import Dialect, exact_gelu, renamed
from keras_vit.weights.dialects.rows import ALL_IN_PROJ, ALL_TORCH, group

_LAYER = "encoder.layers.encoder_layer_{block}."
# Without queries, keys and values, whose variables do not belong to a layer.
_LAYERS = ("ln_1", "", "self_attention.out_proj", "ln_2", "mlp.0", "mlp.3")
# Files of 2021 and 2022 have other names for the layers of the MLP (`MLPBlock`, version 1).
_OLD_MLP = re.compile(r"(encoder\.layers\.encoder_layer_\d+\.mlp)\.linear_([12])\.(\w+)")


def _published(name: str) -> str:
    """Converts the old names of the MLP's layers to the current names."""
    return _OLD_MLP.sub(lambda m: f"{m[1]}.{'0' if m[2] == '1' else '3'}.{m[3]}", name)


# torchvision/models/vision_transformer.py (`norm_layer`, `interpolate_embeddings`) of
# https://github.com/pytorch/vision, release 0.28.
TORCHVISION = Dialect(
    "torchvision",
    "torchvision",
    (
        *group("embedding", ("class_token", "encoder.pos_embedding", "conv_proj"), ALL_TORCH),
        *group("block", _LAYERS, ALL_TORCH, scope=_LAYER),
        *group("block", ("", "self_attention.in_proj"), ALL_IN_PROJ, scope=_LAYER),
        *group("top", ("encoder.ln", "heads.pre_logits", "heads.head"), ALL_TORCH),
    ),
    required_names=("conv_proj.weight", "encoder.ln.weight"),
    implied_fields=exact_gelu(epsilon=1e-6, position_interpolation="bicubic_aligned"),
    normalize=renamed(_published),
)
