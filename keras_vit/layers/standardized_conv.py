"""Convolution with standardised weights.

Letters: B batch; H, W, C height, width and channels of the input; R, S strides over rows and
columns; F filters.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import checks

EPSILON = 1e-5  # added to the standard deviation of a filter, as in the official code


@keras.saving.register_keras_serializable(package="keras_vit")
class StandardizedConv2D(keras.layers.Layer):
    """Convolution whose filters have mean 0 and variance 1 whenever they are used.

    Weight Standardization replaces each filter w by (w - mean(w)) / std(w), over its rows,
    columns and input channels. The Vision Transformer's ResNet has it in every convolution
    (section 4.1), with `"same"` padding and without a bias, for a group norm follows.

    Args:
        filters: Channels F of the output.
        kernel_size: Side of the filters in pixels, or (height, width).
        strides: Step between neighbouring outputs in pixels, or (rows, columns).

    Call arguments:
        inputs: Floating-point tensor of shape (B, H, W, C).

    Returns:
        Tensor of shape (B, H/R, W/S, F), where a division rounds up.

    Raises:
        ValueError: If an argument is out of range or the inputs are not of rank 4.

    Example:
        >>> tuple(StandardizedConv2D(8, 3, strides=2)(np.ones((2, 5, 7, 3), "float32")).shape)
        (2, 3, 4, 8)

    Reference: https://arxiv.org/abs/1903.10520 and https://arxiv.org/abs/2010.11929
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, int],
        strides: int | tuple[int, int] = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.filters = checks.positive_int("filters", filters)
        self.kernel_size = checks.size_pair("kernel_size", kernel_size)
        self.strides = checks.size_pair("strides", strides)
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*self.kernel_size, input_shape[-1], self.filters),
            initializer="lecun_normal",
            autocast=False,  # mean and deviation need the float32 values
        )

    def call(self, inputs: Any) -> Any:
        return ops.conv(
            inputs,
            ops.cast(self._standardized(), self.compute_dtype),
            strides=self.strides,
            padding="same",
            data_format="channels_last",
        )

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        batch, *size, _ = input_shape
        h, w = (
            None if side is None else -(-side // stride)
            for side, stride in zip(size, self.strides, strict=True)
        )
        return (batch, h, w, self.filters)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
        }

    def _standardized(self) -> Any:
        """Returns the filters as the convolution uses them, in float32 at least."""
        dtype = keras.backend.result_type(self.variable_dtype, "float32")
        kernel = ops.cast(self.kernel, dtype)
        mean, variance = ops.moments(kernel, axes=(0, 1, 2), keepdims=True)  # (1, 1, 1, F)
        return (kernel - mean) / (ops.sqrt(variance) + EPSILON)
