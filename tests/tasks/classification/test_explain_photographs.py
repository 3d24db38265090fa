from __future__ import annotations

import os
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.data.pipeline import read_pixels
from keras_vit.preprocessing import Preprocessing
from keras_vit.reports import explain
from keras_vit.tasks.classification.explain import find_class
from keras_vit.visualization import overlay, relevance_maps
from tests.helpers import randomise, tiny_model

pytestmark = pytest.mark.tensorflow

LABELS = ("ant", "bee", "cow")
PREPROCESSING = Preprocessing(size=(15, 14), class_names=LABELS)


@pytest.fixture(scope="module")
def model() -> object:
    keras.utils.set_random_seed(7)  # with some weights the maps of two classes are all zero
    config = models.config_of(tiny_model()).replace(classes=3)
    return randomise(models.build(config, preprocessing=PREPROCESSING))


@pytest.mark.slow
def test_explanation_has_a_row_for_each_image_and_says_the_answer(
    model: object, photos: Path
) -> None:
    paths = sorted((photos / "ant").iterdir())
    figure = explain(model, paths)  # nine: more than are looked at together
    assert len(figure.axes) == 9 * 5
    pixels = read_pixels([path.read_bytes() for path in paths], PREPROCESSING)
    scores = model.predict(PREPROCESSING.scale(pixels), verbose=0)
    for row, path in enumerate(paths):
        best = scores[row].argmax()
        said = figure.axes[5 * row].texts[0].get_text()
        assert said == f"{path.name}\n{LABELS[best]} {scores[row, best]:.0%}"
    maps = relevance_maps(model, PREPROCESSING.scale(pixels), "grad_cam")
    shown = [figure.axes[5 * row + 4].images[0].get_array() for row in range(9)]
    # Batches of other sizes differ in the last digits, and a color by a step.
    assert np.abs(np.stack(shown).astype(int) - overlay(pixels, maps)).max() <= 2


@pytest.mark.slow
def test_explanation_of_a_class_of_ones_own(model: object, photos: Path) -> None:
    path = photos / "ant" / "00.jpg"
    figures = [explain(model, [path], methods=["grad_cam"], of_class=name) for name in LABELS]
    texts = [figure.axes[0].texts[0].get_text() for figure in figures]
    assert sum("explained" in text for text in texts) == 2
    pictures = [figure.axes[1].images[0].get_array() for figure in figures]
    assert not np.array_equal(pictures[0], pictures[1])


@pytest.mark.parametrize(("name", "expected"), [("bee", 1), ("2", 2), ("0", 0)])
def test_classes_are_found_by_name_or_number(name: str, expected: int) -> None:
    assert find_class(name, LABELS) == expected


def test_a_class_called_by_a_number_is_that_one() -> None:
    assert find_class("1", ("1", "0")) == 0


@pytest.mark.parametrize("name", ["bees", "3", "-1"])
def test_a_class_that_is_not_there(name: str) -> None:
    with pytest.raises(ValueError, match=rf"one of the model's 3 classes: ant, .*'{name}'"):
        find_class(name, LABELS)


def test_what_is_no_image_is_named(model: object, tmp_path: Path) -> None:
    (tmp_path / "no.jpg").write_text("no image")
    with pytest.raises(ValueError, match=r"`paths` must be images that can be decoded .*no\.jpg"):
        explain(model, [tmp_path / "no.jpg"])
    os.mkfifo(tmp_path / "pipe.jpg")  # whoever opens it waits for a writer
    with pytest.raises(ValueError, match=r"`paths` must be a regular file, .*pipe\.jpg"):
        explain(model, [tmp_path / "pipe.jpg"])
    with pytest.raises(ValueError, match="`paths` must contain 1 to 100 image files"):
        explain(model, [])
    with pytest.raises(ValueError, match="`methods` must be one of"):
        explain(model, [tmp_path / "no.jpg"], methods=["smoothgrad"])
