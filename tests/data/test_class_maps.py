from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data.class_maps import class_map
from keras_vit.data.geometry import centered_geometry, uncut_mask
from keras_vit.data.masks import IGNORED
from keras_vit.preprocessing import Preprocessing
from tests.helpers import normal

pytestmark = pytest.mark.tensorflow


def test_logits_are_interpolated_as_by_tensorflow() -> None:
    logits = normal(6, 9, 4)
    preprocessing = Preprocessing(size=(24, 36), resize="squash")
    classes, sure = class_map(tf.constant(logits), tf.constant([31, 57]), preprocessing, True)
    expected = tf.image.resize(logits[None], (31, 57))[0]
    agree = classes.numpy() == tf.argmax(expected, axis=-1).numpy()
    assert agree.mean() > 0.998  # but for ties
    probabilities = tf.reduce_max(tf.nn.softmax(expected), axis=-1).numpy()
    assert np.abs(sure.numpy() - 255 * probabilities)[agree].max() < 1


@pytest.mark.parametrize("resize", ["crop", "squash", "squash_crop", "pad"])
def test_map_lies_where_the_model_sees_the_image(resize: str) -> None:
    preprocessing = Preprocessing(size=(24, 24), resize=resize, crop_fraction=0.75)
    labels = np.random.default_rng(0).integers(0, 5, (4, 4)).astype(np.uint8)
    labels = labels.repeat(6, axis=0).repeat(6, axis=1)
    logits = tf.one_hot(labels, 5)
    sides = (40, 70)
    (found,) = class_map(logits, tf.constant(sides), preprocessing)
    geometry = centered_geometry(sides, preprocessing)
    nearest = uncut_mask(labels, geometry, sides, IGNORED)
    np.testing.assert_array_equal(found.numpy() == IGNORED, nearest == IGNORED)
    assert (found.numpy() == nearest).mean() > 0.97  # the edges are a part of a pixel apart
