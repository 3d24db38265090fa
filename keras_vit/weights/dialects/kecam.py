"""Weight names and layouts of keras_cv_attention_models (kecam), including FlexiViT and EVA-L."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from keras_vit.weights.dialects.dialect import Dialect, exact_gelu
from keras_vit.weights.dialects.keras_names import IGNORED, normalize
from keras_vit.weights.dialects.rows import NORM, group, norm

_OPTIONAL = ("class token", "patch bias", "qkv bias")
_EMBEDDING = ("cls_token/tokens", "positional_embedding/positional_embedding", "stem_conv")
_LAYERS = ("attn_ln", "attn_qkv", "attn_output", "mlp_ln", "mlp_dense_1", "mlp_dense_2")

# Releases differ in the variable name of layers with a single variable.
_PATTERNS = {
    r"cls_token/\w+": "cls_token/tokens",
    r"positional_embedding/\w+": "positional_embedding/positional_embedding",
    r"(block\d+_(?:attn|mlp)_gamma)/\w+": r"\1/weight",
    r"(stem_conv|block\d+_\w+|pre_ln|out_ln|predictions)/(\w+)": r"\1/\2",
}


def read_layers(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Infers `ViTConfig` fields from layers that have no weights, such as activations."""
    config_fields: dict[str, Any] = {}
    names = {str(layer.get("name")) for layer in layers}
    names |= {re.sub(r"_\d+\Z", "", name) for name in names}
    if "block0_mlp_gelu" in names:
        config_fields["gelu"] = "exact"
    elif "tf.nn.gelu" in names:  # "gelu/approximate" is not a separate layer
        config_fields["gelu"] = "tanh"
    elif "block0_mlp_dense_1" in names:
        raise ValueError(
            "A model of keras_cv_attention_models must be built with activation='gelu' or "
            "'gelu/approximate'. Received: a model whose MLPs use another activation"
        )
    # DINOv2 also appends the class token.
    if "tf.math.reduce_mean" in names and "tf.concat" not in names:
        config_fields |= {"pooling": "gap", "norm_after_pooling": True}
    for layer in layers:
        config = layer.get("config", {})
        shape = config.get("target_shape")
        if layer.get("name") == "out_ln" and "epsilon" in config:
            config_fields["epsilon"] = config["epsilon"]
        if layer.get("class_name") == "Reshape" and isinstance(shape, list) and len(shape) == 3:
            config_fields["num_heads"] = shape[1]  # (positions, heads, size of a head)
    return config_fields


# beit/beit.py, beit/vit.py and volo/volo.py (`PositionalEmbedding`) of
# https://github.com/leondgarse/keras_cv_attention_models, release 1.4.3.
KECAM = Dialect(
    "kecam",
    "keras_cv_attention_models",
    (
        *group("embedding", _EMBEDDING, optional=_OPTIONAL),
        *norm("pre_norm", "pre_ln", NORM, "norm before the blocks"),
        *group("block", _LAYERS, scope="block{block}_", optional=_OPTIONAL),
        *group("scales", ("attn_gamma/weight", "mlp_gamma/weight"), scope="block{block}_"),
        *group("top", ("out_ln", "", "predictions")),
    ),
    required_names=("stem_conv/kernel", _EMBEDDING[1], "block0_attn_ln/gamma"),
    implied_fields=exact_gelu(epsilon=1e-6, position_interpolation="bilinear"),
    ignored=IGNORED,
    normalize=lambda tensors: normalize(tensors, _PATTERNS, "stem_conv/kernel", "predictions"),
    optional_prefix=True,
)
