from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf

from keras_vit.data.image_reading import Limits, Read, read_each
from keras_vit.preprocessing import Preprocessing


@functools.cache
def reader(preprocessing: Preprocessing, limits: Limits) -> Callable[[tf.Tensor], Read]:
    """`read_each` as a graph, traced once for all tests."""
    return tf.function(
        lambda encoded: read_each(encoded, preprocessing, limits),
        input_signature=[tf.TensorSpec((None,), tf.string)],
        autograph=False,
    )
