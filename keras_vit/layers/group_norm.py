"""Group normalization for the ResNet stem of hybrid models.

Letters: B batch; H, W, C height, width and channels of a feature map; G groups.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.base import BaseLayer

GROUPS = 32  # as in the official code


def channels_in_groups(name: str, value: object) -> int:
    """Returns `value` as an integer; raises `ValueError` unless it is a multiple of `GROUPS`."""
    channels = arguments.positive_int(name, value)
    if channels % GROUPS:
        raise ValueError(
            f"`{name}` must be a multiple of {GROUPS}, the number of groups of GroupNorm. "
            f"Received: {name}={value!r}"
        )
    return channels


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupNorm(BaseLayer):
    """Group normalization with 32 groups of adjacent channels.

    Computes the same values as `keras.layers.GroupNormalization`, several times as fast on the
    TensorFlow CPU backend: the feature map keeps its rank of 4, and rows, columns and channels
    are averaged in turn.

    Args:
        epsilon: Added to the variance.
        gamma_initializer: Initializer of the learned scale, one value per channel.

    Call arguments:
        inputs: Floating-point tensor of shape (B, H, W, C), where C is a multiple of 32.

    Returns:
        Tensor of shape (B, H, W, C).

    Raises:
        ValueError: If `epsilon` is not positive, C is not a multiple of 32 or the inputs do not
            have rank 4.

    Examples:
        >>> tuple(GroupNorm()(np.ones((2, 5, 7, 64), "float32")).shape)
        (2, 5, 7, 64)

    Reference: https://arxiv.org/abs/1803.08494
    """

    def __init__(
        self, epsilon: float = 1e-6, gamma_initializer: Any = "ones", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.epsilon = arguments.positive("epsilon", epsilon)
        self.gamma_initializer = keras.initializers.get(gamma_initializer)
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        shape = (channels_in_groups("channels", input_shape[-1]),)
        self.gamma = self.add_weight(
            name="gamma", shape=shape, initializer=self.gamma_initializer, autocast=False
        )
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros", autocast=False)

    def call(self, inputs: Any) -> Any:
        # Squares overflow in float16, and bfloat16 is too coarse for sums.
        x = ops.cast(inputs, keras.backend.result_type(self.compute_dtype, "float32"))
        x = x - _group_means(x)
        gamma, beta = (ops.cast(weight, x.dtype) for weight in (self.gamma, self.beta))
        scale = gamma * ops.rsqrt(_group_means(ops.square(x)) + self.epsilon)  # (B, 1, 1, C)
        return ops.cast(x * scale + beta, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        initializer = keras.initializers.serialize(self.gamma_initializer)
        return super().get_config() | {"gamma_initializer": initializer}


def _group_means(x: Any) -> Any:
    """Returns the mean over each channel's group, of shape (B, 1, 1, C)."""
    channels = x.shape[-1]
    # One sum over all pixels would be slower, and would accumulate more rounding error.
    means = ops.mean(ops.mean(x, axis=2), axis=1)  # (B, C)
    means = ops.reshape(means, (-1, GROUPS, channels // GROUPS))  # (B, G, C/G)
    means = ops.mean(means, axis=2, keepdims=True)  # (B, G, 1)
    means = ops.tile(means, (1, 1, channels // GROUPS))  # (B, G, C/G)
    return ops.reshape(means, (-1, 1, 1, channels))
