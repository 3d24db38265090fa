"""Class maps in the images' own size.

Letters: H, W height and width of an upright image; h, w of the network's output; K classes.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_vit.data.geometry import centered_geometry
from keras_vit.data.masks import IGNORED
from keras_vit.preprocessing import Preprocessing


def class_map(
    logits: tf.Tensor, sides: tf.Tensor, preprocessing: Preprocessing, confident: bool = False
) -> tuple[tf.Tensor, ...]:
    """Returns the class of each pixel of an image (H, W), uint8, from logits (h, w, K).

    The logits are interpolated; pixels outside of the model's input are `IGNORED`. If `confident`,
    also returns the probability of each pixel's class (H, W), uint8, in units of 1/255.
    """
    begin, part, _ = centered_geometry(sides, preprocessing)
    positions, visible = [], []
    for axis in range(2):
        first, size = (tf.cast(each[axis], tf.float32) for each in (begin, part))
        position = (tf.cast(tf.range(sides[axis]), tf.float32) + 0.5 - first) / size
        visible.append((position >= 0) & (position < 1))
        num_cells = logits.shape[axis]
        positions.append(tf.clip_by_value(position * num_cells - 0.5, 0, num_cells - 1))

    def row(row_inputs: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        # Row by row: the logits of all pixels of a photograph take gigabytes.
        position, row_visible = row_inputs
        values = _interpolate(_interpolate(logits, position[tf.newaxis])[0], positions[1])  # (W, K)
        row_visible = row_visible & visible[1]
        classes = tf.where(row_visible, tf.cast(tf.argmax(values, axis=-1), tf.uint8), IGNORED)
        if not confident:
            return (classes,)
        confidence = tf.round(255 * tf.reduce_max(tf.nn.softmax(values), axis=-1))
        return classes, tf.where(row_visible, tf.cast(confidence, tf.uint8), 0)

    signature = (tf.TensorSpec((None,), tf.uint8),) * (1 + confident)
    return tf.map_fn(row, (positions[0], visible[0]), fn_output_signature=signature)


_compiled = tf.function(class_map, autograph=False, reduce_retracing=True)


def found_classes(
    logits: np.ndarray, sides: tuple[int, int], preprocessing: Preprocessing
) -> np.ndarray:
    """Returns the class of each pixel of an image with `sides` (H, W), uint8; see `class_map`."""
    return _compiled(tf.constant(logits), tf.constant(sides), preprocessing)[0].numpy()


def _interpolate(values: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Returns the linear interpolation along the first axis at fractional positions."""
    low = tf.cast(positions, tf.int32)
    high = tf.minimum(low + 1, tf.shape(values)[0] - 1)
    weight = positions - tf.cast(low, tf.float32)
    weight = tf.reshape(weight, [-1] + [1] * (values.shape.rank - 1))
    return tf.gather(values, low) * (1 - weight) + tf.gather(values, high) * weight
