from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.data.masks import IGNORED
from keras_vit.tasks.segmentation.objective import SegmentationObjective
from tests.helpers import normal, numpy


def objective(weights: np.ndarray | None = None, dice: bool = False) -> SegmentationObjective:
    """Of a network whose outputs are its inputs: three logits for each pixel."""
    inputs = keras.Input((2, 3, 3))
    network = keras.Model(inputs, keras.layers.Identity()(inputs))
    return SegmentationObjective(network, weights, dice=dice)


MASKS = np.array([[[0, 1, 2], [2, 1, IGNORED]], [[IGNORED] * 3] * 2], np.uint8)


@pytest.mark.parametrize("weights", [None, np.array([1, 2, 5], "float32")])
def test_loss_is_the_mean_of_the_pixels_with_a_class(weights: np.ndarray | None) -> None:
    logits = normal(2, 2, 3, 3)
    losses, _ = objective(weights).example_losses(logits, MASKS, training=True)
    seen, logs = MASKS[0] != IGNORED, logits[0] - np.log(np.exp(logits[0]).sum(-1, keepdims=True))
    labels = MASKS[0][seen]
    each = -logs[seen][np.arange(5), labels]
    factors = np.ones(5) if weights is None else weights[labels]
    np.testing.assert_allclose(numpy(losses), [np.average(each, weights=factors), 0], rtol=1e-5)


def test_dice_is_the_mean_of_the_classes_that_occur() -> None:
    masks = np.where(MASKS == 2, 0, MASKS)  # class 2 does not occur
    logits = normal(2, 2, 3, 3)
    with_dice, without = (
        numpy(objective(dice=dice).example_losses(logits, masks, training=True)[0])
        for dice in (True, False)
    )
    seen = masks[0] != IGNORED
    exps = np.exp(logits[0][seen])
    found, true = exps / exps.sum(-1, keepdims=True), np.eye(3)[masks[0][seen]]
    scores = 2 * (found * true).sum(0) / (found + true).sum(0)
    expected = 1 - scores[:2].mean()
    np.testing.assert_allclose(with_dice - without, [expected, 0], rtol=1e-5)


def test_mean_iou_counts_pixels_of_all_images() -> None:
    found = objective()
    logits = np.eye(3, dtype="float32")[[[[0, 1, 1], [2, 2, 0]]] * 2] * 9
    _, outputs = found.example_losses(logits, MASKS, training=False)
    found.update_scores(MASKS, outputs, np.ones(2, "float32"))
    # Class 0: 1 of 1; class 1: 1 of 3; class 2: 1 of 3.
    assert float(found.iou.result()) == pytest.approx((1 + 1 / 3 + 1 / 3) / 3)
    found.update_scores(MASKS, outputs, np.zeros(2, "float32"))  # padding
    assert float(found.iou.result()) == pytest.approx(5 / 9)


def test_images_without_a_class_have_no_accuracy() -> None:
    found = objective()
    logits = np.eye(3, dtype="float32")[[[[0, 1, 2], [2, 1, 0]]] * 2] * 9  # the first is right
    _, outputs = found.example_losses(logits, MASKS, training=False)
    found.update_scores(MASKS, outputs, np.ones(2, "float32"))
    assert float(found.accuracy.result()) == 1


def test_larger_masks_are_compared_with_interpolated_logits() -> None:
    masks = np.zeros((1, 8, 12), np.uint8)
    losses, outputs = objective().example_losses(normal(1, 2, 3, 3), masks, training=True)
    assert numpy(losses).shape == (1,)
    assert numpy(outputs)[0, 1, 0] == 96
