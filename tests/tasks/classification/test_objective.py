from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_vit.tasks.classification.objective import ClassificationObjective
from tests.helpers import numpy
from tests.training.replicas import CLASSES, network


def loss_of(logits: list[float], label: list[float], **settings: Any) -> float:
    objective = ClassificationObjective(network(), **settings)
    found = objective.losses_of(
        ops.convert_to_tensor([logits]), ops.convert_to_tensor([label]), training=True
    )
    assert found.shape == (1,)
    return float(found[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "sigmod"}, "`loss` must be one of .* Options: 'softmax', 'sigmoid'.*sigmod"),
        ({"label_smoothing": 1.5}, r"`label_smoothing` must be a number in \[0, 1\).*1.5"),
    ],
)
def test_classifier_checks(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassificationObjective(network(), **settings)


def test_losses_by_hand() -> None:
    logits, label = [0.0, np.log(3.0), 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0]
    # Softmax: 3 / 7. Sigmoid: 3 / 4 for the class, 1 / 2 for the four others.
    assert loss_of(logits, label) == pytest.approx(-np.log(3 / 7))
    sigmoid = (-np.log(3 / 4) - 4 * np.log(1 / 2)) / 5
    assert loss_of(logits, label, loss="sigmoid") == pytest.approx(sigmoid)
    smoothed = -(0.92 * np.log(3 / 7) + 4 * 0.02 * np.log(1 / 7))
    assert loss_of(logits, label, label_smoothing=0.1) == pytest.approx(smoothed)
    weights = [1.0, 2.5, 1.0, 1.0, 1.0]
    assert loss_of(logits, label, class_weights=weights) == pytest.approx(-2.5 * np.log(3 / 7))
    weighted = (-2.5 * np.log(3 / 4) - 4 * np.log(1 / 2)) / 5
    assert loss_of(logits, label, loss="sigmoid", class_weights=weights) == pytest.approx(weighted)


def test_unequal_classes_by_hand() -> None:
    logits, label = [0.0, np.log(3.0), 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0]
    focal = (4 / 7) ** 2 * -np.log(3 / 7)
    assert loss_of(logits, label, focal_gamma=2.0) == pytest.approx(focal)
    sigmoid = (-np.log(3 / 4) / 4**2 - 4 * np.log(1 / 2) / 2**2) / 5
    assert loss_of(logits, label, loss="sigmoid", focal_gamma=2.0) == pytest.approx(sigmoid)
    # The logit of a class of frequency 1/2 rises by log(1/2), of the others by log(1/8).
    offsets = np.log([1 / 8, 1 / 2, 1 / 8, 1 / 8, 1 / 8])
    adjusted = -np.log(3 / 2 / (3 / 2 + 4 / 8))
    assert loss_of(logits, label, logit_offsets=offsets) == pytest.approx(adjusted)


@pytest.mark.tensorflow
@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_focal_loss_of_a_confident_example_has_finite_gradients(loss: str) -> None:
    objective = ClassificationObjective(network(), loss=loss, focal_gamma=0.5)
    logits = tf.constant([[20.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        losses = objective.losses_of(logits, tf.constant([[1.0, 0.0]]), training=True)
    assert np.isfinite(tape.gradient(losses, logits)).all()


def test_validation_is_without_smoothing_and_weights() -> None:
    objective = ClassificationObjective(
        network(),
        label_smoothing=0.2,
        class_weights=[3.0] * CLASSES,
        logit_offsets=[-1.0, 0.0, 1.0, 0.0, 0.0],
        focal_gamma=2.0,
    )
    logits = ops.convert_to_tensor([[0.0, np.log(3.0), 0.0, 0.0, 0.0]])
    label = ops.convert_to_tensor([[0.0, 1.0, 0.0, 0.0, 0.0]])
    assert float(objective.losses_of(logits, label, training=False)[0]) == pytest.approx(
        -np.log(3 / 7)
    )


def test_mixed_labels_count_as_what_they_show_most_of() -> None:
    objective = ClassificationObjective(network(), loss="sigmoid", multi_label=True)
    y = np.array([[0.7, 0.3, 1.0, 0.0, 0.2]], "float32")
    objective.update_scores(y, np.array([[2, -2, 2, -2, 2]], "float32"), np.ones(1, "float32"))
    assert float(numpy(objective.accuracy.result())) == pytest.approx(4 / 5)
