"""Parameters and operations of a configuration in closed form, without building the model.

Letters: D hidden size; M width of the perceptron; N patches; T tokens; F values in a patch or
filters of a convolution; R width of the representation layer.
"""

from __future__ import annotations

import math

from keras_vit.models.config import ViTConfig


def count_parameters(config: ViTConfig) -> int:
    """Returns the number of trainable parameters of a model.

    Args:
        config: The configuration.

    Returns:
        The number.

    Example:
        >>> from keras_vit.models.config import size
        >>> f"{count_parameters(size('B/16')):,}"
        '86,567,656'
    """
    d, m = config.hidden_size, config.mlp_dim
    norm = 2 * d
    mlp = _dense(d, m) + _dense(m, d)
    attention = _dense(d, 3 * d, bias=config.qkv_bias) + _dense(d, d)
    scales = 0 if config.layer_scale is None else 2 * d
    stem, channels = _stem(config)
    features = math.prod(config.patch) * channels
    encoder = _dense(features, d, bias=config.patch_bias) + _positions(config)
    encoder += config.num_prefix_tokens * d + config.pre_norm * norm
    total = stem + encoder + config.num_layers * (2 * norm + attention + mlp + scales) + norm
    if config.pooling == "map":
        total += d + 4 * _dense(d, d) + norm + mlp
    r = config.representation_size
    if r:
        total += _dense(d, r)
    if config.classes:
        total += _dense(r or d, config.classes)
        total += config.distillation_head * _dense(d, config.classes)
    return total


def count_flops(config: ViTConfig) -> int:
    """Returns the floating-point operations of one image's forward pass.

    Those of products of matrices and of convolutions, a multiplication and an addition counted as
    two; norms, activations and softmax, a few per cent, are left out.

    Args:
        config: The configuration; a side of unknown length counts with that of its position grid.

    Returns:
        The number.

    Example:
        >>> from keras_vit.models.config import size
        >>> f"{count_flops(size('B/16')) / 1e9:.1f}"
        '35.1'
    """
    d, m = config.hidden_size, config.mlp_dim
    n, features, total = _patches(config)
    t = n + config.num_prefix_tokens
    block = t * (4 * d * d + 2 * d * m) + 2 * t * t * d  # multiplications
    total += n * features * d + config.num_layers * block
    if config.pooling == "map":
        total += 2 * t * d * d + 2 * d * d + 2 * t * d + 2 * d * m
    r = config.representation_size or 0
    total += d * r + (r or d) * config.classes + d * config.classes * config.distillation_head
    return 2 * total


def _patches(config: ViTConfig) -> tuple[int, int, int]:
    """Returns the patches, the values in one, and multiplications of the ResNet before them."""
    sides, total, channels = config.usual_size, 0, config.channels
    if config.stem_blocks is not None:
        sides = _halved(sides)
        total, channels = math.prod(sides) * 49 * channels * config.stem_width, config.stem_width
        sides = _halved(sides)
        for stage, units in enumerate(config.stem_blocks):
            f = config.stem_width * 2**stage
            for unit in range(units):
                total += math.prod(sides) * channels * f
                if unit == 0 and stage > 0:
                    sides = _halved(sides)
                # The shortcut has a projection where it changes shape.
                per_pixel = 9 * f * f + f * 4 * f + (channels * 4 * f if unit == 0 else 0)
                total, channels = total + math.prod(sides) * per_pixel, 4 * f
    p, q = config.patch
    return (sides[0] // p) * (sides[1] // q), p * q * channels, total


def _halved(sides: tuple[int, int]) -> tuple[int, int]:
    """Returns the sides of a feature map after a stride of two."""
    return -(-sides[0] // 2), -(-sides[1] // 2)


def _stem(config: ViTConfig) -> tuple[int, int]:
    """Returns the parameters of the ResNet, and the channels that the patches are cut from."""
    if config.stem_blocks is None:
        return 0, config.channels
    width = config.stem_width
    total, channels = 7 * 7 * config.channels * width + 2 * width, width
    for stage, units in enumerate(config.stem_blocks):
        f = width * 2**stage
        for unit in range(units):
            total += channels * f + 9 * f * f + f * 4 * f  # three convolutions without bias
            total += 2 * (f + f + 4 * f)  # a group norm after each
            if unit == 0:  # the shortcut changes shape
                total += channels * 4 * f + 2 * 4 * f
            channels = 4 * f
    return total, channels


def _dense(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + bias * outputs


def _positions(config: ViTConfig) -> int:
    d, (h, w) = config.hidden_size, config.grid
    table = {"learned": h * w * d, "learned_2d": (h + w) * (d // 2)}
    if config.position_embedding not in table:
        return 0
    prefix = config.prefix_position * config.num_prefix_tokens
    return table[config.position_embedding] + prefix * d
