"""One unit of the ResNet in a hybrid model.

Letters: B batch; H, W, C height, width and channels of the input; h, w height and width of the
output; F channels of the bottleneck.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import checks
from keras_vit.layers.group_norm import GroupNorm, channels_in_groups
from keras_vit.layers.standardized_conv import StandardizedConv2D


@keras.saving.register_keras_serializable(package="keras_vit")
class ResidualUnit(keras.layers.Layer):
    """Bottleneck of three convolutions, added to a shortcut.

    Section 4.1 of the paper: as in "Big Transfer", the batch norms of the ResNet are group norms
    and its convolutions, here of 1x1, 3x3 and 1x1 pixels, are standardised. The shortcut is the
    input, or where the shape changes a normalised 1x1 convolution of it. The last norm of a new
    unit multiplies by zero, so that at first only the shortcut counts.

    Args:
        filters: Channels F of the bottleneck, a multiple of 32; the output has 4F.
        strides: Step of the 3x3 convolution and of the shortcut in pixels.
        epsilon: Added to the variance in the group norms.

    Call arguments:
        inputs: Floating-point tensor of shape (B, H, W, C).

    Returns:
        Tensor of shape (B, h, w, 4F), where h and w are H and W divided by the stride and
        rounded up.

    Raises:
        ValueError: If an argument is out of range or the inputs are not of rank 4.

    Example:
        >>> tuple(ResidualUnit(32, strides=2)(np.ones((2, 5, 7, 64), "float32")).shape)
        (2, 3, 4, 128)

    Reference: https://arxiv.org/abs/1912.11370 and https://arxiv.org/abs/2010.11929
    """

    def __init__(
        self, filters: int, strides: int = 1, epsilon: float = 1e-6, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.filters = channels_in_groups("filters", filters)
        self.strides = checks.positive_int("strides", strides)
        self.epsilon = checks.positive("epsilon", epsilon)
        self.conv1 = self._conv(self.filters, 1, 1, "conv1")
        self.gn1 = self._norm("gn1")
        self.conv2 = self._conv(self.filters, 3, self.strides, "conv2")
        self.gn2 = self._norm("gn2")
        self.conv3 = self._conv(4 * self.filters, 1, 1, "conv3")
        self.gn3 = self._norm("gn3", gamma="zeros")
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        shape = input_shape
        for conv, norm in (
            (self.conv1, self.gn1),
            (self.conv2, self.gn2),
            (self.conv3, self.gn3),
        ):
            conv.build(shape)
            shape = conv.compute_output_shape(shape)
            norm.build(shape)
        self.projects = self.strides != 1 or input_shape[-1] != 4 * self.filters
        if self.projects:
            self.conv_proj = self._conv(4 * self.filters, 1, self.strides, "conv_proj")
            self.gn_proj = self._norm("gn_proj")
            self.conv_proj.build(input_shape)
            self.gn_proj.build(shape)

    def call(self, inputs: Any) -> Any:
        shortcut = self.gn_proj(self.conv_proj(inputs)) if self.projects else inputs
        y = ops.relu(self.gn1(self.conv1(inputs)))  # (B, H, W, F)
        y = ops.relu(self.gn2(self.conv2(y)))  # (B, h, w, F)
        y = self.gn3(self.conv3(y))  # (B, h, w, 4F)
        return ops.relu(shortcut + y)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*self.conv2.compute_output_shape(input_shape)[:-1], 4 * self.filters)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "strides": self.strides,
            "epsilon": self.epsilon,
        }

    def _conv(self, filters: int, kernel_size: int, strides: int, name: str) -> StandardizedConv2D:
        # A frozen layer out of a file freezes its parts.
        return StandardizedConv2D(
            *(filters, kernel_size, strides),
            trainable=self.trainable,
            dtype=self.dtype_policy,
            name=name,
        )

    def _norm(self, name: str, gamma: str = "ones") -> GroupNorm:
        return GroupNorm(
            self.epsilon,
            gamma_initializer=gamma,
            trainable=self.trainable,
            dtype=self.dtype_policy,
            name=name,
        )
