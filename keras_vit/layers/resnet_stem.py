"""ResNet stem of hybrid models: standardized convolutions, residual units and stages.

Letters: B batch; H, W, C height, width and channels of the input; h, w height and width of the
output; R, S strides over rows and columns; F filters: channels of a bottleneck or of the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.base import BaseLayer
from keras_vit.layers.group_norm import GroupNorm, channels_in_groups

_MOST_UNITS = 1000  # of all stages; R50 has 16


@keras.saving.register_keras_serializable(package="keras_vit")
class ResidualUnit(BaseLayer):
    """Residual unit: a bottleneck of three convolutions, added to a shortcut.

    Section 4.1 of the paper: as in "Big Transfer", group norms replace the batch norms of the
    ResNet, and the convolutions, here 1x1, 3x3 and 1x1, are standardized. The shortcut is the
    input, or, if the shape changes, a normalized 1x1 convolution of the input. The last norm
    starts with a scale of zero, so that a new unit returns only the shortcut.

    Args:
        filters: Channels F of the bottleneck, a multiple of 32; the output has 4F channels.
        strides: Stride of the 3x3 convolution and of the shortcut.
        epsilon: Added to the variance in the group norms.

    Call arguments:
        inputs: Floating-point tensor of shape (B, H, W, C).

    Returns:
        Tensor of shape (B, h, w, 4F), where h and w are H and W divided by the stride and
        rounded up.

    Raises:
        ValueError: If an argument is out of range or the inputs are not of rank 4.

    Examples:
        >>> tuple(ResidualUnit(32, strides=2)(np.ones((2, 5, 7, 64), "float32")).shape)
        (2, 3, 4, 128)

    Reference: https://arxiv.org/abs/1912.11370 and https://arxiv.org/abs/2010.11929
    """

    def __init__(
        self, filters: int, strides: int = 1, epsilon: float = 1e-6, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.filters = channels_in_groups("filters", filters)
        self.strides = arguments.positive_int("strides", strides)
        self.epsilon = arguments.positive("epsilon", epsilon)
        self.conv1 = self._sublayer(StandardizedConv2D, self.filters, 1, name="conv1")
        self.gn1 = self._sublayer(GroupNorm, self.epsilon, name="gn1")
        self.conv2 = self._sublayer(StandardizedConv2D, self.filters, 3, self.strides, name="conv2")
        self.gn2 = self._sublayer(GroupNorm, self.epsilon, name="gn2")
        self.conv3 = self._sublayer(StandardizedConv2D, 4 * self.filters, 1, name="conv3")
        self.gn3 = self._sublayer(GroupNorm, self.epsilon, gamma_initializer="zeros", name="gn3")
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        shape = input_shape
        for conv, norm in ((self.conv1, self.gn1), (self.conv2, self.gn2), (self.conv3, self.gn3)):
            conv.build(shape)
            shape = conv.compute_output_shape(shape)
            norm.build(shape)
        self.projects = self.strides != 1 or input_shape[-1] != 4 * self.filters
        if self.projects:
            self.conv_proj = self._sublayer(
                StandardizedConv2D, 4 * self.filters, 1, self.strides, name="conv_proj"
            )
            self.gn_proj = self._sublayer(GroupNorm, self.epsilon, name="gn_proj")
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


EPSILON = 1e-5  # added to the standard deviation of a filter, as in the official code


@keras.saving.register_keras_serializable(package="keras_vit")
class StandardizedConv2D(BaseLayer):
    """Convolution whose filters are standardized to mean 0 and variance 1 in every call.

    Weight Standardization replaces each filter w by (w - mean(w)) / std(w), over its rows,
    columns and input channels. All convolutions of the Vision Transformer's ResNet use this
    (section 4.1), with `"same"` padding and without a bias, because a group norm follows.

    Args:
        filters: Channels F of the output.
        kernel_size: Side of the filters in pixels, or (height, width).
        strides: Stride in pixels, or (rows, columns).

    Call arguments:
        inputs: Floating-point tensor of shape (B, H, W, C).

    Returns:
        Tensor of shape (B, H/R, W/S, F), where a division rounds up.

    Raises:
        ValueError: If an argument is out of range or the inputs are not of rank 4.

    Examples:
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
        self.filters = arguments.positive_int("filters", filters)
        self.kernel_size = arguments.size_pair("kernel_size", kernel_size)
        self.strides = arguments.size_pair("strides", strides)
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*self.kernel_size, input_shape[-1], self.filters),
            initializer="lecun_normal",
            autocast=False,  # mean and deviation need the float32 values
        )

    def call(self, inputs: Any) -> Any:
        kernel = ops.cast(self.kernel, keras.backend.result_type(self.variable_dtype, "float32"))
        mean, variance = ops.moments(kernel, axes=(0, 1, 2), keepdims=True)  # (1, 1, 1, F)
        kernel = (kernel - mean) / (ops.sqrt(variance) + EPSILON)
        return ops.conv(
            inputs,
            ops.cast(kernel, self.compute_dtype),
            strides=self.strides,
            padding="same",
            data_format="channels_last",
        )

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        batch, *size, _ = input_shape
        pairs = zip(size, self.strides, strict=True)
        sides = (None if side is None else -(-side // stride) for side, stride in pairs)
        return (batch, *sides, self.filters)


def resnet_stride(num_blocks: Sequence[int]) -> int:
    """Returns the total stride of the ResNet stem."""
    return 4 * 2 ** max(0, len(num_blocks) - 1)


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetStem(BaseLayer):
    """ResNet (BiT) stem of a hybrid model; patches are cut from its feature map.

    "As an alternative to raw image patches, the input sequence can be formed from feature maps
    of a CNN" (section 3.1 of the paper). The ResNet has group norms and standardized
    convolutions (section 4.1): a root of a 7x7 convolution and a max pooling, which divide the
    size of the image by 4, then stages of residual units. Each stage after the first halves the
    size and doubles the channels.

    Args:
        num_blocks: Number of residual units per stage: (3, 4, 9) in R50+B/16, (2, 2, 2, 2) in
            R26+S/32, () for the root only, as in R+Ti/16.
        width: Channels F of the root, a multiple of 32.
        epsilon: Added to the variance in the group norms.

    Call arguments:
        images: Floating-point tensor of shape (B, H, W, C), any value range.

    Returns:
        Tensor of shape (B, h, w, F) from the root only, or (B, h, w, 4F * 2^(stages - 1)).

    Raises:
        ValueError: If an argument is out of range or the images do not have rank 4.

    Examples:
        >>> tuple(ResNetStem((1, 1), width=32)(np.ones((2, 40, 63, 3), "float32")).shape)
        (2, 5, 8, 256)

    Reference: https://arxiv.org/abs/2010.11929 and https://arxiv.org/abs/1912.11370
    """

    def __init__(
        self, num_blocks: Sequence[int], width: int = 64, epsilon: float = 1e-6, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(num_blocks, (tuple, list)):
            raise ValueError(
                "`num_blocks` must be a tuple with the number of units of each stage. "
                f"Received: num_blocks={num_blocks!r}"
            )
        self.num_blocks = tuple(
            arguments.positive_int(f"num_blocks[{i}]", units) for i, units in enumerate(num_blocks)
        )
        if sum(self.num_blocks) > _MOST_UNITS:
            raise ValueError(
                f"`num_blocks` must have a sum of at most {_MOST_UNITS}. "
                f"Received: num_blocks={num_blocks!r}"
            )
        self.width = channels_in_groups("width", width)
        self.epsilon = arguments.positive("epsilon", epsilon)
        self.conv_root = self._sublayer(StandardizedConv2D, self.width, 7, 2, name="conv_root")
        self.gn_root = self._sublayer(GroupNorm, epsilon, name="gn_root")
        self.units = [
            self._sublayer(
                ResidualUnit,
                self.width * 2**stage,
                strides=2 if stage and unit == 0 else 1,
                epsilon=epsilon,
                name=f"block{stage + 1}_unit{unit + 1}",
            )
            for stage, units in enumerate(self.num_blocks)
            for unit in range(units)
        ]
        self.input_spec = keras.layers.InputSpec(ndim=4)

    @property
    def stride(self) -> int:
        """Total stride of the stem (see `resnet_stride`)."""
        return resnet_stride(self.num_blocks)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.conv_root.build(input_shape)
        # The weights do not depend on the size of the feature maps.
        shape: tuple[int | None, ...] = (input_shape[0], None, None, self.width)
        self.gn_root.build(shape)
        for unit in self.units:
            unit.build(shape)
            shape = unit.compute_output_shape(shape)

    def call(self, images: Any) -> Any:
        x = ops.relu(self.gn_root(self.conv_root(images)))  # (B, H/2, W/2, F)
        x = ops.max_pool(x, 3, 2, padding="same", data_format="channels_last")  # (B, H/4, W/4, F)
        for unit in self.units:
            x = unit(x)
        return x

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        batch, *size, _ = input_shape
        sides = (None if side is None else -(-side // self.stride) for side in size)
        return (batch, *sides, self.units[-1].filters * 4 if self.units else self.width)
