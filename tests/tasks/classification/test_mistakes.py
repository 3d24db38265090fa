from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import data, models
from keras_vit.tasks.classification import mistakes
from keras_vit.tasks.classification.mistakes import draw_mistakes, most_confident_mistakes
from keras_vit.tasks.classification.predict import predict
from keras_vit.training.progress import log_pictures
from keras_vit.visualization.contact_sheet import contact_sheet


def test_mistakes_are_ordered_by_how_sure_the_model_was() -> None:
    probabilities = [[0.6, 0.4], [0.1, 0.9], [0.7, 0.3], [0.2, 0.8], [0.9, 0.1]]
    assert most_confident_mistakes([1, 0, 1, 1, 0], probabilities, 9).tolist() == [1, 2, 0]
    assert most_confident_mistakes([1, 0, 1, 1, 0], probabilities, 2).tolist() == [1, 2]


def test_rounding_errors_do_not_change_the_order() -> None:
    probabilities = [[0.99, 0.01], [0.99 + 1e-7, 0.01], [0.99 - 1e-7, 0.01]]
    assert most_confident_mistakes([1, 1, 1], probabilities, 9).tolist() == [0, 1, 2]


def test_no_mistakes() -> None:
    assert len(most_confident_mistakes([0, 1], np.eye(2), 3)) == 0


pytestmark = pytest.mark.tensorflow


def always(index: int) -> keras.Model:
    """A model that is sure of one digit, whatever it sees."""
    model = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=10))
    head = model.get_layer("head")
    head.set_weights([np.zeros(head.kernel.shape), 9.0 * np.eye(10)[index]])
    return model


@pytest.mark.slow
def test_mistakes_are_drawn_with_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    original = contact_sheet

    def sheet(images, shares, names, path, captions):  # type: ignore[no-untyped-def]
        seen.extend(captions)
        assert images.shape == (len(captions), 8, 8, 3)
        return original(images, shares, names, path, captions)

    monkeypatch.setattr(mistakes, "contact_sheet", sheet)
    digits = data.load("digits").subset(range(12))
    predictions = predict(always(3), digits, verbose=0)
    path = draw_mistakes(digits, predictions, tmp_path / "mistakes.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert len(seen) == 11  # of 0 ... 9, 0, 1
    assert seen[0] == "0, predicted\n3 (100%)"


@pytest.mark.slow
def test_no_mistake_no_picture(tmp_path: Path) -> None:
    digits = data.load("digits")
    threes = digits.subset(np.flatnonzero(digits.targets == 3)[:5])
    predictions = predict(always(3), threes, verbose=0)
    assert draw_mistakes(threes, predictions, tmp_path / "mistakes.png") is None
    assert not (tmp_path / "mistakes.png").exists()


def test_pictures_reach_tensorboard(tmp_path: Path) -> None:
    png = tf.io.encode_png(tf.fill((5, 7, 3), tf.constant(90, tf.uint8))).numpy()
    (tmp_path / "a.png").write_bytes(png)
    log_pictures(tmp_path / "logs", {"confusion": tmp_path / "a.png"})
    (file,) = (tmp_path / "logs").iterdir()
    tags = [
        value.tag
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
    ]
    assert tags == ["confusion"]
