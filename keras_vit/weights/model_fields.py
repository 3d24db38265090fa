"""Configuration of a model from that of its constructor, its weights, and the user's choices."""

from __future__ import annotations

from typing import Any

from keras_vit.models import ViTConfig

# Fields of a model that its weights determine.
_FIELDS_OF_WEIGHTS = (
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
    fields = {name: inferred[name] for name in (*chosen, *_FIELDS_OF_WEIGHTS) if name in inferred}
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


def image_fields(
    published: ViTConfig,
    config: ViTConfig,
    inferred: dict[str, Any],
    input_tensor: Any,
    input_shape: tuple[int | None, int | None, int] | None,
) -> dict[str, Any]:
    """Returns the image size, channels and position grid set by the user or by the weights."""
    if input_shape is None and input_tensor is not None:
        input_shape = tuple(input_tensor.shape[1:])
    if input_shape is not None and (
        not (isinstance(input_shape, (tuple, list)) and len(input_shape) == 3)
        or (input_shape[0] in (1, 3) and input_shape[0] % config.stride[0])  # channels first
    ):
        raise ValueError(
            "`input_shape` must be (height, width, channels), the channels last, such as "
            "(224, 224, 3); height and width may be None. Received: "
            f"input_shape={input_shape!r}"
        )
    grid = inferred.get("position_grid")
    if input_shape is not None:
        size, channels = tuple(input_shape[:2]), input_shape[2]
    else:
        channels = inferred.get("channels", config.channels)
        p, q = config.stride
        rows, columns = grid or published.grid
        size = (rows * published.stride[0], columns * published.stride[1])
        if rows * published.stride[0] % p or columns * published.stride[1] % q:
            size = (rows * p, columns * q) if grid else (None, None)  # of another patch size
        size = inferred.get("image_size", size)
    # A graph for any image size stores the positions of the weights and resizes them.
    position_grid = (grid or config.grid) if None in size else None
    return {"image_size": size, "channels": channels, "position_grid": position_grid}
