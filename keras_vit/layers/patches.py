"""Splitting of images into patches.

Letters: B batch; H, W, C image height, width, channels; h, w rows and columns of the grid of
patches; P, Q patch height and width.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.base import BaseLayer


@keras.saving.register_keras_serializable(package="keras_vit")
class Patches(BaseLayer):
    """Splits images into non-overlapping patches and flattens each patch.

    The paper reshapes the image x of shape (H, W, C) into a sequence of flattened patches
    x_p (section 3.1). Here the patches stay on their grid until position embeddings have been
    added, so that non-square images and images of any size need no extra arguments; in row-major
    order, the grid is the paper's sequence. A patch is flattened row, column, channel.

    Args:
        patch_size: Side of a patch in pixels, or (height, width).
        remainder: Treatment of an image whose size is not a multiple of the patch: `"error"`
            raises, `"drop"` crops the remainder at the right and at the bottom, as the
            convolution of the official code does.

    Call arguments:
        images: Floating-point tensor of shape (B, H, W, C), any value range.

    Returns:
        Tensor of shape (B, H/P, W/Q, P*Q*C).

    Raises:
        ValueError: If an argument is out of range, the images do not have rank 4, or a side is
            not a multiple of the patch.

    Examples:
        >>> tuple(Patches(2)(np.ones((2, 4, 6, 3), "float32")).shape)
        (2, 2, 3, 12)

    Reference: https://arxiv.org/abs/2010.11929
    """

    def __init__(
        self, patch_size: int | tuple[int, int], remainder: str = "error", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        arguments.one_of("remainder", remainder, ("error", "drop"))
        self.patch_size = arguments.size_pair("patch_size", patch_size)
        self.remainder = remainder
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def call(self, images: Any) -> Any:
        batch, height, width, channels = ops.shape(images)
        h, w = self.grid_size((height, width))
        p, q = self.patch_size
        if self.remainder == "drop":
            images = images[:, : h * p, : w * q]  # (B, hP, wQ, C)
        # With -1 for the batch, leftover pixels of a size that is only known at run time would
        # become additional images. TensorFlow's error of a graph contains the operator's name.
        with keras.name_scope("image_sides_must_be_multiples_of_the_patch_size"):
            patches = ops.reshape(images, (batch, h, p, w, q * channels))  # (B, h, P, w, QC)
        patches = ops.transpose(patches, (0, 1, 3, 2, 4))  # (B, h, w, P, QC)
        return ops.reshape(patches, (batch, h, w, p * q * channels))  # (B, h, w, PQC)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        batch, height, width, channels = input_shape
        p, q = self.patch_size
        features = None if channels is None else p * q * channels
        return (batch, *self.grid_size((height, width)), features)

    def grid_size(self, image_size: tuple[Any, Any]) -> tuple[Any, Any]:
        """Returns the number of rows and columns of patches for an image size.

        Args:
            image_size: Height and width in pixels; an entry may be None or a tensor if it is
                only known at run time.

        Returns:
            The pair (h, w), with None or a tensor where the size is unknown.

        Raises:
            ValueError: If a known side is smaller than a patch, or is not a multiple of the patch
                and `remainder="error"`.

        Examples:
            >>> Patches(16).grid_size((224, 320))
            (14, 20)
        """
        sides = list(zip(image_size, self.patch_size, strict=True))
        for side, patch in sides:
            is_static = isinstance(side, int)
            if is_static and (side < patch or (side % patch and self.remainder == "error")):
                raise ValueError(self._size_message(image_size))
        h, w = (None if side is None else side // patch for side, patch in sides)
        return h, w

    def _size_message(self, image_size: tuple[Any, Any]) -> str:
        def multiple(side: Any, patch: int, offset: int) -> Any:
            return max(1, (side + offset) // patch) * patch if isinstance(side, int) else side

        sides = list(zip(image_size, self.patch_size, strict=True))
        below = tuple(multiple(side, patch, 0) for side, patch in sides)
        above = tuple(multiple(side, patch, patch - 1) for side, patch in sides)
        nearest = f"size is {below}" if below == above else f"sizes are {below} and {above}"
        return (
            f"The image size must be a multiple of the patch size {self.patch_size} in height "
            f"and width; the nearest {nearest}. Received: image_size={image_size}"
        )
