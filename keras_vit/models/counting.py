"""Parameters and operations of a configuration in closed form, without building the model.

Letters: D hidden size; M width of the perceptron; N patches; T tokens; F values in a patch or
filters of a convolution; R width of the representation layer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from keras_vit.models.config import ViTConfig


class Convolution(NamedTuple):
    """A convolution of a hybrid's ResNet.

    Args:
        sides: Height and width of what it returns.
        kernel: Side of its kernel.
        inputs: Channels of what it takes.
        filters: Channels of what it returns.
    """

    sides: tuple[int, int]
    kernel: int
    inputs: int
    filters: int

    @property
    def multiplications(self) -> int:
        """Multiplications of one image."""
        return math.prod(self.sides) * self.kernel**2 * self.inputs * self.filters


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
    # A convolution has no bias; a group norm comes after each.
    stem = sum(c.kernel**2 * c.inputs * c.filters + 2 * c.filters for c in convolutions(config))
    features = math.prod(config.patch) * _channels(config)
    encoder = _dense(features, d, bias=config.patch_bias) + _positions(config)
    encoder += config.num_prefix_tokens * d + config.pre_norm * norm
    total = stem + encoder + config.num_layers * (2 * norm + attention + mlp + scales) + norm
    if config.pooling == "map":
        total += d + 4 * _dense(d, d) + norm + mlp
    return total + _dense(d, config.representation_size or 0) + count_head(config)


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
    """Returns the floating-point operations of one image in a training step.

    The gradient of a product of matrices is two such products: of its input, which the pixels do
    not need, and of its weights, or of its other input.

    Args:
        config: The configuration, as for `count_flops`.
        remat: Whether the blocks are computed a second time on the way back.
        head_only: Whether just the classifier learns.

    Returns:
        The number; the optimizer's, some ten for each weight and step, are left out.

    Example:
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
    """Returns the multiplications of a block."""
    d, m = config.hidden_size, config.mlp_dim
    t = count_tokens(config)
    return t * (4 * d * d + 2 * d * m) + 2 * t * t * d


def convolutions(config: ViTConfig) -> list[Convolution]:
    """Returns the convolutions of a hybrid's ResNet."""
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
            if unit == 0:  # the shortcut has a projection where it changes shape
                found.append(Convolution(sides, 1, channels, 4 * f))
            channels = 4 * f
    return found


def count_tokens(config: ViTConfig) -> int:
    """Returns the number of tokens that a block sees of one image."""
    return _patches(config)[0] + config.num_prefix_tokens


def _patches(config: ViTConfig) -> tuple[int, int]:
    """Returns the patches, and the values in one."""
    stride, channels = config.stem_stride, _channels(config)
    height, width = (-(-side // stride) for side in config.usual_size)
    p, q = config.patch
    return (height // p) * (width // q), p * q * channels


def _channels(config: ViTConfig) -> int:
    """Returns the channels that the patches are cut from."""
    return max((c.filters for c in convolutions(config)), default=config.channels)


def _halved(sides: tuple[int, int]) -> tuple[int, int]:
    """Returns the sides of a feature map after a stride of two."""
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
