"""Configuration of a model from that of its constructor, its weights, and the user's choices."""

from __future__ import annotations

from typing import Any

from keras_vit.models import ViTConfig

# Fields of a model that its weights determine.
_OF_WEIGHTS = (
    *("norm_after_pooling", "distillation_token", "distillation_head", "register_tokens"),
    *("prefix_position", "pre_norm", "patch_bias", "qkv_bias", "key_bias", "layer_scale", "gelu"),
    *("swiglu", "mlp_norm", "mask_token", "epsilon"),
    *("position_shift", "position_jitter", "position_rescale"),
)


def fields_of_source(
    published: ViTConfig,
    inferred: dict[str, Any],
    chosen: dict[str, Any],
    include_top: bool,
) -> dict[str, Any]:
    """Merges `ViTConfig` fields: the user's values override those inferred from weights."""
    fields = {name: inferred[name] for name in (*chosen, *_OF_WEIGHTS) if name in inferred}
    fields |= {name: value for name, value in chosen.items() if value is not None}
    fields["representation_size"] = fields.get("representation_size") or None
    if not inferred and fields.get("register_tokens"):
        fields["prefix_position"] = False  # registers have no position
    # These fields have no meaning with other poolings.
    pooling = fields.get("pooling", published.pooling)
    if pooling not in ("gap", "max"):
        fields["norm_after_pooling"] = False
    if pooling != "token" or not include_top:
        fields["distillation_head"] = False
    return fields
