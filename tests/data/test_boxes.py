from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import Examples
from keras_vit.data.boxes import ABSENT, Boxes, Objects, usable
from keras_vit.data.geometry import Geometry

pytestmark = pytest.mark.tensorflow

ROWS = np.array([[2, 6, 6, 16, 1, 0], [0, 0, 4, 8, 0, 1]], "f")
EXAMPLES = Examples(
    names=("a", "b", "c"),
    targets=[Objects(ROWS, (20, 30)), Objects(ROWS[:0], (9, 9)), Objects(ROWS[:1], (20, 30))],
    class_names=("cat", "dog", "ant"),
    source="memory",
    encoded=(b"1", b"2", b"3"),
    target_kind=Boxes(),
)
KIND = EXAMPLES.kind


def test_objects_are_padded_to_the_most_of_an_image() -> None:
    read = KIND.reader(EXAMPLES)
    np.testing.assert_array_equal(read(tf.constant(0)), ROWS)
    np.testing.assert_array_equal(read(tf.constant(2)), [ROWS[0], [ABSENT] * 6])
    np.testing.assert_array_equal(read(tf.constant(1)), np.full((2, 6), ABSENT))
    assert [len(target.rows) for target in KIND.loaded(EXAMPLES)] == [2, 0, 1]


def test_objects_follow_their_image() -> None:
    geometry = Geometry(tf.constant([0, 10]), tf.constant([20, 20]), tf.constant(True))
    padded = np.concatenate([ROWS, np.full((1, 6), ABSENT, "f")])
    found = KIND.follow(tf.constant(padded), geometry, (40, 40)).numpy()
    # Twice as large, from column 10 on, and flipped; the second is outside.
    np.testing.assert_allclose(found[0], [4, 28, 12, 40, 1, 0])
    assert found[1:, 4].tolist() == [ABSENT, ABSENT]


def test_crowd_is_kept_if_a_part_of_it_is_in_the_input() -> None:
    rows = np.array([[0, 0, 90, 400, 1, 1], [0, 150, 90, 160, 1, 1], [0, 0, 90, 400, 2, 0]], "f")
    geometry = Geometry(tf.constant([0, 0]), tf.constant([100, 150]), tf.constant(False))
    found = KIND.follow(tf.constant(rows), geometry, (100, 150)).numpy()
    np.testing.assert_allclose(found[0], [0, 0, 90, 150, 1, 1])
    assert found[1:, 4].tolist() == [ABSENT, ABSENT]  # beside the input; an object


def test_classes_are_those_of_the_objects() -> None:
    assert EXAMPLES.shown(0) == ("cat", "dog")
    assert KIND.indicators(EXAMPLES).tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert KIND.counts(EXAMPLES).tolist() == [1, 2, 0]
    texts = [KIND.text(EXAMPLES, index) for index in range(3)]
    assert (len(set(texts)), texts[1][:2]) == (3, "0:")
    assert KIND.agree(EXAMPLES.targets[:1])
    assert not KIND.agree(EXAMPLES.targets)


def test_image_of_another_size_is_a_problem() -> None:
    assert KIND.problem(EXAMPLES, 0, (20, 30)) is None
    assert KIND.problem(EXAMPLES, 0, (40, 60)).endswith("20 x 30, not 40 x 60 (height x width)")
    assert "must be upright, as the image is shown" in KIND.problem(EXAMPLES, 0, (30, 20))


def test_training_needs_a_box() -> None:
    KIND.check_trainable(EXAMPLES)
    with pytest.raises(ValueError, match="Training needs images with objects"):
        KIND.check_trainable(EXAMPLES.subset([1]))


def test_boxes_that_cannot_be_used_are_named() -> None:
    boxes = [[1, 2, 3, 4], [-5, -5, 2, 2], [3, 3, 3, 9], [50, 1, 60, 4], [np.nan, 0, 1, 1]]
    clipped, reasons = usable(np.array(boxes, "f"), (20, 30))
    assert reasons == [
        *(None, None, "it has no area", "it is outside of the image"),
        "its numbers are not finite",
    ]
    assert clipped[1].tolist() == [0, 0, 2, 2]


def test_objects_of_a_dataset_get_the_classes_of_a_model() -> None:
    aligned = EXAMPLES.with_classes(["dog", "owl", "cat"])  # without ants, of which there are none
    assert [aligned.shown(index) for index in range(3)] == [("dog", "cat"), (), ("dog",)]
    assert aligned.targets[0].rows[:, 4].tolist() == [0, 2]
    np.testing.assert_array_equal(EXAMPLES.targets[0].rows, ROWS)
    assert EXAMPLES.with_classes(None) is EXAMPLES.with_classes(EXAMPLES.class_names) is EXAMPLES
    with pytest.raises(ValueError, match="the model lacks: dog"):
        EXAMPLES.with_classes(["cat", "owl"])
