"""Which parameters are trained, decay, and how fast each layer learns."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

import keras

from keras_vit.models import ViTConfig
from keras_vit.models.cloning import layers_of

_BLOCK = re.compile(r"^block_(\d+)$")
# What stands in front of the first block.
_EMBEDDING = ("stem", "patch_encoder", "pre_norm")
# What Keras' normalizations gather and do not learn: networks of `keras.applications` have them.
_STATISTICS = ("moving_mean", "moving_variance", "mean", "variance", "count")


def set_trainable(model: keras.Model, patterns: Sequence[str]) -> int:
    """Makes parameters trainable by shell patterns of their paths, and freezes the rest."""
    weights = model.weights
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(v.path, pattern) for v in weights):
            names = sorted({v.path.partition("/")[0] for v in weights})
            raise ValueError(
                "Every pattern of `trainable` must match a parameter. "
                f"Received: {pattern!r}; the layers with parameters are {', '.join(names)}"
            )

    def matches(variable: keras.Variable) -> bool:
        return any(fnmatch.fnmatchcase(variable.path, pattern) for pattern in patterns)

    for layer in layers_of(model):
        if isinstance(layer, keras.layers.BatchNormalization):
            # A frozen one uses what it has gathered, and gathers no more.
            layer.trainable = any(map(matches, layer.weights))
    for variable in weights:
        if variable.name not in _STATISTICS:
            variable.trainable = matches(variable)
    return sum(int(keras.ops.size(v)) for v in model.trainable_variables)


def decays(variable: keras.Variable, which: str) -> bool:
    """Returns whether weight decay shrinks a parameter."""
    return which == "all" or variable.name == "kernel"


def layer_rates(
    variables: Sequence[keras.Variable], config: ViTConfig | None, decay: float
) -> list[float]:
    """Returns what layer-wise decay multiplies the learning rate of each parameter with.

    The depth of stem, patches, tokens and positions is 0, that of block i (from 1 on) is i, the
    final norm belongs to the last block, and what follows it comes after: the classifier, and a
    norm behind the pooling. The last depth that is there learns at the full rate, each one
    before it at `decay` times the next one's.

    Reference: `param_groups_layer_decay` of https://github.com/huggingface/pytorch-image-models,
    after appendix A.2 of https://arxiv.org/abs/2111.06377
    """
    if config is None:
        return [1.0] * len(variables)
    depths = [_depth(v, config) for v in variables]
    deepest = max(depths, default=0)
    return [decay ** (deepest - depth) for depth in depths]


def _depth(variable: keras.Variable, config: ViTConfig) -> int:
    layer = variable.path.partition("/")[0]
    block = _BLOCK.match(layer)
    if block:
        return int(block[1]) + 1
    if layer in _EMBEDDING:
        return 0
    if layer == "encoder_norm" and not config.norm_after_pooling:
        return config.num_layers
    return config.num_layers + 1
