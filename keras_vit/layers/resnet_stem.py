"""The ResNet in front of a hybrid model's Transformer.

Letters: B batch; H, W, C image height, width, channels; h, w height and width of the feature
map; F channels of the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit import checks
from keras_vit.layers.group_norm import GroupNorm, channels_in_groups
from keras_vit.layers.residual_unit import ResidualUnit
from keras_vit.layers.standardized_conv import StandardizedConv2D


def resnet_stride(num_blocks: Sequence[int]) -> int:
    """Returns how many pixels of the image one of the feature map stands for, in each direction.

    Args:
        num_blocks: Residual units of each stage, see `ResNetStem`.

    Returns:
        4 for the root and the first stage; each further stage doubles it.

    Example:
        >>> resnet_stride((3, 4, 9))
        16
    """
    return 4 * 2 ** max(0, len(num_blocks) - 1)


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetStem(keras.layers.Layer):
    """ResNet (BiT) whose feature map a hybrid model cuts into patches in place of the image.

    "As an alternative to raw image patches, the input sequence can be formed from feature maps
    of a CNN" (section 3.1 of the paper). The ResNet has group norms and standardised
    convolutions (section 4.1): a root of a 7x7 convolution and a max pooling, which divide the
    size of the image by 4, then stages of residual units. Each stage but the first halves the
    size and doubles the channels.

    Args:
        num_blocks: Residual units of each stage: (3, 4, 9) in R50+B/16, (2, 2, 2, 2) in
            R26+S/32, () for the root alone, as in R+Ti/16.
        width: Channels F of the root, a multiple of 32.
        epsilon: Added to the variance in the group norms.

    Call arguments:
        images: Floating-point tensor of shape (B, H, W, C), any value range.

    Returns:
        Tensor of shape (B, h, w, F) from the root alone, or (B, h, w, 4F * 2^(stages - 1)).

    Raises:
        ValueError: If an argument is out of range or the images are not of rank 4.

    Example:
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
            checks.positive_int(f"num_blocks[{i}]", units) for i, units in enumerate(num_blocks)
        )
        self.width = channels_in_groups("width", width)
        self.epsilon = checks.positive("epsilon", epsilon)
        # A frozen layer out of a file freezes its parts.
        common = {"dtype": self.dtype_policy, "trainable": self.trainable}
        self.conv_root = StandardizedConv2D(self.width, 7, strides=2, name="conv_root", **common)
        self.gn_root = GroupNorm(epsilon, name="gn_root", **common)
        self.units = [
            ResidualUnit(
                self.width * 2**stage,
                strides=2 if stage and unit == 0 else 1,
                epsilon=epsilon,
                name=f"block{stage + 1}_unit{unit + 1}",
                **common,
            )
            for stage, units in enumerate(self.num_blocks)
            for unit in range(units)
        ]
        self.input_spec = keras.layers.InputSpec(ndim=4)

    @property
    def stride(self) -> int:
        """Pixels of the image to one of the feature map, see `resnet_stride`."""
        return resnet_stride(self.num_blocks)

    def output_size(self, image_size: tuple[Any, Any]) -> tuple[Any, Any]:
        """Returns the size of the feature map of an image of this size.

        Args:
            image_size: Height and width in pixels; an entry may be None or a tensor where it
                is only known when the model runs.

        Returns:
            The pair (h, w), with None or a tensor where the size is unknown.

        Example:
            >>> ResNetStem((3, 4, 9)).output_size((224, 390))
            (14, 25)
        """
        height, width = (None if side is None else -(-side // self.stride) for side in image_size)
        return height, width

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
        batch, height, width, _ = input_shape
        channels = self.units[-1].filters * 4 if self.units else self.width
        return (batch, *self.output_size((height, width)), channels)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_blocks": self.num_blocks,
            "width": self.width,
            "epsilon": self.epsilon,
        }
