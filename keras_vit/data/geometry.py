"""Parts of images that are a model's input, in training, evaluation and serving.

Letters: H, W height and width of an upright image; h, w of the model input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.constants import CROP_RATIO
from keras_vit.data.decode_and_resize import padded_sides, scaled_size
from keras_vit.preprocessing import Preprocessing

_CANVAS = 2**12  # sides of a square, in which crops of squashed images are drawn

#: Name of each image -> height and width in pixels.
Sizes = Mapping[str, tuple[int, int]]


class Geometry(NamedTuple):
    """Part of an upright image that becomes the model's input, and whether it is flipped.

    Args:
        begin: First row and column (2,) in pixels of the image; negative in a padded border.
        size: Height and width (2,) in pixels of the image.
        flip: Whether the part is flipped horizontally, a scalar.
    """

    begin: tf.Tensor
    size: tf.Tensor
    flip: tf.Tensor


def random_box(
    sides: tf.Tensor,
    seed: tf.Tensor,
    preprocessing: Preprocessing,
    area: tuple[float, float],
    ratio: tuple[float, float] = CROP_RATIO,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first row and column of a random crop, and its height and width."""
    crops, canvas = preprocessing.resize == "crop", tf.constant([_CANVAS, _CANVAS])
    if crops:
        canvas, (height, width) = sides, preprocessing.size
        ratio = (ratio[0] * width / height, ratio[1] * width / height)
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.concat([canvas, [1]], axis=0),
        bounding_boxes=tf.zeros((0, 0, 4)),
        seed=seed,
        min_object_covered=0.0,
        aspect_ratio_range=ratio,
        area_range=area,
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    begin, size = begin[:2], size[:2]
    if not crops:
        return begin * sides // _CANVAS, tf.maximum(size * sides // _CANVAS, 1)
    # The operator returns the whole image if no crop was found.
    largest = tf.cast(tf.reverse(sides, [0]), tf.float32) * (1 / ratio[0], ratio[1])
    fitting = tf.minimum(sides, tf.maximum(tf.cast(tf.round(largest), tf.int32), 1))
    is_whole = tf.reduce_all(size == sides)
    return tf.where(is_whole, (sides - fitting) // 2, begin), tf.where(is_whole, fitting, size)


def centered_geometry(sides: tf.Tensor, preprocessing: Preprocessing) -> Geometry:
    """Returns the part of an image with `sides` (H, W) that evaluation and serving use."""
    size, sides = tf.constant(preprocessing.size), tf.cast(sides, tf.int32)
    if preprocessing.resize == "pad":
        canvas = padded_sides(sides, size)
        return Geometry(-((canvas - sides) // 2), canvas, tf.constant(False))
    scaled, offset = scaled_size(sides, preprocessing)
    factor = tf.cast(sides, tf.float32) / tf.cast(scaled, tf.float32)
    begin, part = (tf.cast(each, tf.float32) * factor for each in (offset, size))
    return Geometry(begin, part, tf.constant(False))


def cut_mask(mask: tf.Tensor, geometry: Geometry, size: tuple[int, int], outside: int) -> tf.Tensor:
    """Returns the part (h, w, ...) of a mask (H, W, ...) given by an image's `geometry`.

    Each pixel is the nearest of the mask; those in the border of a padded image are `outside`.
    """
    inside = []
    for axis, side in enumerate(size):
        centers = (tf.range(side, dtype=tf.float32) + 0.5) / side
        begin, part = (tf.cast(each[axis], tf.float32) for each in geometry[:2])
        indices = tf.cast(tf.floor(begin + centers * part), tf.int32)
        inside.append((indices >= 0) & (indices < tf.shape(mask)[axis]))
        mask = tf.gather(mask, tf.clip_by_value(indices, 0, tf.shape(mask)[axis] - 1), axis=axis)
    visible = inside[0][:, tf.newaxis] & inside[1]
    visible = tf.reshape(visible, (*size, *[1] * (len(mask.shape) - 2)))
    mask = tf.where(visible, mask, tf.cast(outside, mask.dtype))
    return tf.cond(geometry.flip, lambda: tf.reverse(mask, [1]), lambda: mask)


def cut_boxes(
    boxes: tf.Tensor, geometry: Geometry, size: tuple[int, int]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Moves boxes (n, 4) from an upright image to the model's input.

    Boxes are (first row, first column, last row, last column), in pixels, up to their outer edges.
    Also returns which boxes are `inside` (n,): those whose center is in the input.
    """
    begin, part = (tf.cast(each, tf.float32) for each in geometry[:2])
    sides = tf.constant(size, tf.float32)
    corners = (tf.reshape(boxes, (-1, 2, 2)) - begin) * sides / part
    center = tf.reduce_mean(corners, axis=1)
    inside = tf.reduce_all((center >= 0) & (center < sides), axis=1)
    clipped = tf.clip_by_value(corners, 0.0, sides)
    flipped = tf.stack([clipped[..., 0], size[1] - tf.reverse(clipped[..., 1], [1])], axis=-1)
    clipped = tf.where(geometry.flip, flipped, clipped)
    return tf.reshape(clipped, (-1, 4)), inside


def uncut_mask(
    mask: np.ndarray, geometry: Geometry, sides: tuple[int, int], outside: int
) -> np.ndarray:
    """Returns a mask (H, W, ...) in the image's own pixels, the inverse of `cut_mask`.

    Each pixel is the nearest of `mask` (h, w, ...); pixels outside of the model's
    input are `outside`.
    """
    indices = []  # the row and the column after the last ones are outside
    for side, begin, part, cells in zip(sides, *geometry[:2], mask.shape, strict=False):
        cell = np.floor((np.arange(side) + 0.5 - float(begin)) / float(part) * cells).astype(int)
        indices.append(np.where((cell >= 0) & (cell < cells), cell, cells))
    borders = [(0, 1), (0, 1), *[(0, 0)] * (mask.ndim - 2)]
    return np.pad(mask, borders, constant_values=outside)[np.ix_(*indices)]


def uncut_boxes(boxes: np.ndarray, geometry: Geometry, size: tuple[int, int]) -> np.ndarray:
    """Moves boxes (n, 4) from the model's input to the image's own pixels; see `cut_boxes`."""
    begin, part = (np.asarray(each, np.float32) for each in geometry[:2])
    return np.asarray(boxes) * np.tile(part / size, 2) + np.tile(begin, 2)


def cut_off(sizes: Sizes, preprocessing: Preprocessing, patch: int = 16) -> str:
    """Returns a sentence on images of which the center crop is a small part, or `""`.

    Args:
        sizes: Sizes of the images.
        preprocessing: Preprocessing of the model.
        patch: Patch size, of which the recommended image size is a multiple.
    """
    height, width = preprocessing.size
    sides = np.array(list(sizes.values())).reshape(-1, 2)
    relative = sides[:, 1] / sides[:, 0] * height / width  # 1 for the model's aspect ratio
    cut = np.maximum(relative, 1 / relative) > CROP_RATIO[1]
    if preprocessing.resize != "crop" or not cut.any():
        return ""
    factor = float(np.median(relative[cut]))
    share = preprocessing.crop_fraction * float(np.median(np.minimum(relative, 1 / relative)[cut]))
    high, wide = (
        math.ceil(side * max(1.0, by) / patch) * patch
        for side, by in ((height, 1 / factor), (width, factor))
    )
    return (
        f"{int(cut.sum())} of {len(cut)} images ({cut.mean():.0%}) are more than 4/3 times as wide "
        f"or as high as the model's input of {height} x {width} pixels (height x width): "
        f"evaluation and serving see their center, {share:.0%} of the longer side at the median. "
        f"To see it all, use --image-size {high}x{wide}, --set resize=squash or --set resize=pad."
    )
