from __future__ import annotations

import numpy as np
import pytest

from keras_vit import models
from keras_vit.models.detector import detector_logits
from keras_vit.tasks.detection.objective import DetectionObjective, cell_centers, cells_loss
from tests.helpers import normal, numpy, randomise, tiny_config
from tests.tasks.detection.test_assignment import CENTERS, both, drawn, reference


@pytest.mark.parametrize("cells", [1, 10])
def test_loss_equals_the_reference(cells: int) -> None:
    boxes, scores, objects = drawn(3)
    logits = np.log(scores) - np.log1p(-scores)
    found = numpy(cells_loss(np.concatenate([boxes, logits], -1), objects, CENTERS, cells))
    true, target = reference(boxes, scores, objects, cells)
    for image, rows in enumerate(objects):
        total, weight = 0.0, target[image].sum(axis=-1)
        for cell, (y, x) in enumerate(CENTERS):
            inside = rows[1, 0] < y < rows[1, 2] and rows[1, 1] < x < rows[1, 3]
            if not inside or weight[cell] > 0:
                p, t = scores[image, cell].astype(float), target[image, cell]
                total -= (t * np.log(p) + (1 - t) * np.log(1 - p)).sum()
            if weight[cell] > 0:
                total += 2.5 * weight[cell] * (1 - both(boxes[image, cell], true[image, cell])[1])
        # Measured: a relative difference of 1e-6.
        assert found[image] == pytest.approx(total / max(weight.sum(), 1), rel=1e-4)


def test_images_without_objects_have_a_loss() -> None:
    boxes, scores, objects = drawn(3)
    outputs = np.concatenate([boxes, scores], -1)
    found = numpy(cells_loss(outputs, np.full_like(objects, -1), CENTERS, 1))
    expected = np.log1p(np.exp(scores)).sum(axis=(1, 2))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_centers_are_those_of_the_decoder() -> None:
    config = tiny_config(image_size=(48, 72), patch_size=8, classes=0, pooling="none")
    model = detector_logits(models.build(config), classes=3, width=8)
    boxes = numpy(model(normal(1, 48, 72, 3)))[0, :, :4]
    centers = cell_centers((48, 72))
    assert (boxes[:, :2] < centers).all()
    assert (boxes[:, 2:] > centers).all()


def test_objective_has_the_loss_of_ten_cells() -> None:
    config = tiny_config(image_size=(32, 64), patch_size=8, classes=0, pooling="none")
    network = randomise(detector_logits(models.build(config), classes=3, width=8))
    _, _, objects = drawn(1)
    images = normal(2, 32, 64, 3)
    losses, _ = DetectionObjective(network).example_losses(images, objects, training=False)
    expected = cells_loss(network(images), objects, CENTERS, 10)
    # Measured: a relative difference of 1e-7.
    np.testing.assert_allclose(numpy(losses), numpy(expected), rtol=1e-5)
