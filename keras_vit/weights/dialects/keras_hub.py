"""Weight names and layouts of KerasHub: ViT and DeiT with numbered variables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.weights.dialects.dialect import Dialect, Named, Row, exact_gelu
from keras_vit.weights.dialects.rows import ALL_NUMBERED, QKV, group

_TOKENS = "vit_patching_and_embedding"
_EMBEDDING = (f"{_TOKENS}/0", "", f"{_TOKENS}/patch_embedding", "distillation_token/0")
_BLOCK = "vit_encoder/transformer_block_{block1}/"
_ATTENTION = (tuple(f"mha/{x}" for x in QKV), "mha/attention_output")
_LAYERS = ("ln_1", *_ATTENTION, "ln_2", "mlp/dense_1", "mlp/dense_2")

_PATH = re.compile(
    r"(?:.*/)?(?:(?:vit|deit)_(patching_and_embedding|encoder)|(predictions|pre_logits))/(.+)"
)
# Names that differ in DeiT; its mask token, which is never saved, would be variable 0.
_DEIT = {
    rf"{_TOKENS}/1": "distillation_token/0",
    rf"{_TOKENS}/2": f"{_TOKENS}/position_embedding/0",
    r"(vit_encoder/transformer_block_\d+)/mlp/dense/(\d)": r"\1/mlp/dense_1/\2",
    r"(vit_encoder/transformer_block_\d+)/output_layer/output/(\d)": r"\1/mlp/dense_2/\2",
}


def _normalize(tensors: dict[str, np.ndarray]) -> Named:
    """Removes the backbone's name, and renames DeiT tensors as in ViT."""
    normalized: Named = {}
    for name, tensor in tensors.items():
        path = name
        if match := _PATH.fullmatch(name):
            path = f"vit_{match[1]}/{match[3]}" if match[1] else f"{match[2]}/{match[3]}"
            for theirs, new in _DEIT.items():
                path = re.sub(f"^{theirs}$", new, path)
            if path == f"{_TOKENS}/position_embedding/0" and tensor.ndim == 3:
                tensor = tensor.reshape(tensor.shape[1:])  # (1, T, D)
        normalized[name if path in normalized else path] = (name, tensor)
    return normalized


BACKBONES = ("ViTBackbone", "DeiTBackbone")


def read_layers(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Reads `ViTConfig` fields from the configurations of a KerasHub backbone and task."""
    config_fields: dict[str, Any] = {}
    class_token = True
    for layer in layers:
        config = layer.get("config", {})
        if layer.get("class_name") in BACKBONES:
            class_token = config.get("use_class_token", True)
            if "layer_norm_epsilon" in config:
                config_fields["epsilon"] = config["layer_norm_epsilon"]
        elif "pooling" in config:
            config_fields["pooling"] = config["pooling"]
    pooling = "token" if class_token else "gap"  # KerasHub's mean is over all tokens
    if config_fields.get("pooling", pooling) != pooling:
        raise ValueError(
            "A KerasHub classifier must pool by the class token, or by the mean of the patch "
            "tokens if there is no class token. Received: "
            f"pooling={config_fields['pooling']!r}, use_class_token={class_token}"
        )
    return config_fields


# models/vit/vit_layers.py and models/deit/deit_layers.py of
# https://github.com/keras-team/keras-hub, release 0.32.0, which does not resize positions; a
# preset's config.json overrides these.
KERAS_HUB = Dialect(
    "keras_hub",
    "KerasHub",
    (
        *group("embedding", _EMBEDDING, ALL_NUMBERED, optional=("class token", "patch bias")),
        Row("patch_encoder/positions", f"{_TOKENS}/position_embedding/0", "TD"),
        *group("block", _LAYERS, ALL_NUMBERED, scope=_BLOCK, heads_apart=True),
        *group("top", ("vit_encoder/ln", "pre_logits", "predictions"), ALL_NUMBERED),
    ),
    required_names=(f"{_TOKENS}/patch_embedding/0", "vit_encoder/ln/0"),
    implied_fields=exact_gelu(epsilon=1e-6),
    normalize=_normalize,
)
