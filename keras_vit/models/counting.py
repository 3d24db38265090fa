"""Parameter and FLOP counts of a model, computed from its configuration without building it.

Letters: D hidden size; M width of the MLP; N patches; T tokens; F values in a patch or filters of
a convolution; R width of the representation layer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from keras_vit.models.config import ViTConfig


class Convolution(NamedTuple):
    """Dimensions of one convolution in the ResNet of a hybrid model.

    Args:
        sides: Height and width of the output.
        kernel: Side of the kernel.
        inputs: Channels of the input.
        filters: Channels of the output.
    """

    sides: tuple[int, int]
    kernel: int
    inputs: int
    filters: int

    @property
    def multiplications(self) -> int:
        """Number of multiplications for one image."""
        return math.prod(self.sides) * self.kernel**2 * self.inputs * self.filters


def count_parameters(config: ViTConfig) -> int:
    """Returns the number of trainable parameters of a model.

    Args:
        config: The configuration.

    Returns:
        The number of parameters.

    Examples:
        >>> from keras_vit.models.config import size
        >>> f"{count_parameters(size('B/16')):,}"
        '86,567,656'
    """
    d, m = config.hidden_size, config.mlp_dim
    norm = 2 * d
    mlp = _dense(d, m) + _dense(m, d)
    attention = _dense(d, 3 * d, bias=config.qkv_bias) + _dense(d, d)
    scales = 0 if config.layer_scale is None else 2 * d
    # Convolutions have no bias; each is followed by a group norm.
    stem = sum(c.kernel**2 * c.inputs * c.filters + 2 * c.filters for c in convolutions(config))
    _, features = _patches(config)
    encoder = _dense(features, d, bias=config.patch_bias) + _positions(config)
    encoder += config.num_prefix_tokens * d + config.pre_norm * norm
    total = stem + encoder + config.num_layers * (2 * norm + attention + mlp + scales) + norm
    if config.pooling == "map":
        total += d + 4 * _dense(d, d) + norm + mlp
    return total + _dense(d, config.representation_size or 0) + count_head(config)


def count_flops(config: ViTConfig) -> int:
    """Returns the number of floating-point operations in the forward pass of one image.

    Counts matrix products and convolutions, with a multiplication and an addition as two
    operations; norms, activations and softmax, a few per cent, are excluded.

    Args:
        config: The configuration; an unknown side counts as that of the position grid.

    Returns:
        The number of operations.

    Examples:
        >>> from keras_vit.models.config import size
        >>> f"{count_flops(size('B/16')) / 1e9:.1f}"
        '35.1'
    """
    d, m = config.hidden_size, config.mlp_dim
    n, features = _patches(config)
    t = count_tokens(config)
    total = sum(c.multiplications for c in convolutions(config))
    total += n * features * d + config.num_layers * _block(config)
    if config.pooling == "map":
        total += 2 * t * d * d + 2 * d * d + 2 * t * d + 2 * d * m
    r = config.representation_size or 0
    total += d * r + (r or d) * config.classes + d * config.classes * config.distillation_head
    return 2 * total


def count_training_flops(config: ViTConfig, *, remat: bool = False, head_only: bool = False) -> int:
    """Returns the number of floating-point operations per image in a training step.

    The backward pass of a matrix product is two matrix products: for the gradient of the input,
    which the pixels do not need, and for the gradient of the weights or of the second input.

    Args:
        config: The configuration, as for `count_flops`.
        remat: Whether the blocks are recomputed in the backward pass (rematerialization).
        head_only: Whether only the classifier is trained.

    Returns:
        The number, without the optimizer's operations, about ten for each weight and step.

    Examples:
        >>> from keras_vit.models.config import size
        >>> f"{count_training_flops(size('B/16')) / 1e9:.1f}"
        '105.2'
    """
    forward = count_flops(config)
    if head_only:
        return forward + 2 * (count_head(config) - config.classes * (1 + config.distillation_head))
    n, features = _patches(config)
    stem = convolutions(config)
    first = stem[0].multiplications if stem else n * features * config.hidden_size
    return 3 * forward - 2 * first + remat * 2 * config.num_layers * _block(config)


def count_head(config: ViTConfig) -> int:
    """Returns the number of parameters of the classifier."""
    d = config.hidden_size
    head = _dense(config.representation_size or d, config.classes)
    return head + config.distillation_head * _dense(d, config.classes)


def _block(config: ViTConfig) -> int:
    """Returns the number of multiplications in one Transformer block for one image."""
    d, m = config.hidden_size, config.mlp_dim
    t = count_tokens(config)
    return t * (4 * d * d + 2 * d * m) + 2 * t * t * d


def convolutions(config: ViTConfig) -> list[Convolution]:
    """Lists the convolutions in the ResNet of a hybrid model."""
    if config.stem_blocks is None:
        return []
    sides, channels = _halved(config.usual_size), config.stem_width
    found = [Convolution(sides, 7, config.channels, channels)]
    sides = _halved(sides)  # the pooling
    for stage, units in enumerate(config.stem_blocks):
        f = config.stem_width * 2**stage
        for unit in range(units):
            found.append(Convolution(sides, 1, channels, f))
            if unit == 0 and stage > 0:
                sides = _halved(sides)
            found += [Convolution(sides, 3, f, f), Convolution(sides, 1, f, 4 * f)]
            if unit == 0:  # the shortcut has a projection if the shape changes
                found.append(Convolution(sides, 1, channels, 4 * f))
            channels = 4 * f
    return found


def count_tokens(config: ViTConfig) -> int:
    """Returns the number of tokens per image, including the class token and other prefix tokens."""
    return _patches(config)[0] + config.num_prefix_tokens


def _patches(config: ViTConfig) -> tuple[int, int]:
    """Returns the number of patches per image and the number of values per patch."""
    channels = max((c.filters for c in convolutions(config)), default=config.channels)
    height, width = (-(-side // config.stem_stride) for side in config.usual_size)
    p, q = config.patch
    return (height // p) * (width // q), p * q * channels


def _halved(sides: tuple[int, int]) -> tuple[int, int]:
    """Returns the height and width of a feature map after a layer of stride 2."""
    return -(-sides[0] // 2), -(-sides[1] // 2)


def _dense(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + bias * outputs


def _positions(config: ViTConfig) -> int:
    d, (h, w) = config.hidden_size, config.grid
    table = {"learned": h * w * d, "learned_2d": (h + w) * (d // 2)}
    if config.position_embedding not in table:
        return 0
    prefix = config.prefix_position * config.num_prefix_tokens
    return table[config.position_embedding] + prefix * d
