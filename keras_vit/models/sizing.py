"""Parameters of a configuration in closed form, without building the model.

Letters: D hidden size; M width of the perceptron; N patches; F values in a patch; R width of the
representation layer.
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
    features = math.prod(config.patch) * config.channels
    encoder = _dense(features, d) + _positions(config) + config.class_token * d
    total = encoder + config.num_layers * (2 * norm + attention + mlp) + norm
    if config.pooling == "map":
        total += d + 4 * _dense(d, d) + norm + mlp
    if config.classes:
        r = config.representation_size
        total += (_dense(d, r) if r else 0) + _dense(r or d, config.classes)
    return total


def _dense(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + bias * outputs


def _positions(config: ViTConfig) -> int:
    d, (h, w) = config.hidden_size, config.grid
    table = {"learned": h * w * d, "learned_2d": (h + w) * (d // 2)}
    if config.position_embedding not in table:
        return 0
    return table[config.position_embedding] + config.class_token * d
