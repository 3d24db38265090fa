from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_vit.tasks.classification.figures import confusion_matrix
from keras_vit.tasks.classification.metrics import Report, evaluate_predictions
from keras_vit.visualization.drawing import save_figure
from tests.visualization.pictures import boxes, drawn


def report(num_classes: int, num_examples: int = 0, long_names: bool = True) -> Report:
    generator = np.random.default_rng(3)
    extra = generator.integers(0, num_classes, size=num_examples)
    labels = np.concatenate([np.arange(num_classes), extra])
    scores = generator.random((len(labels), num_classes)) + 0.5 * np.eye(num_classes)[labels]
    name = "a_rather_long_name_of_class_{}" if long_names else "{}"
    return evaluate_predictions(labels, scores, [name.format(i) for i in range(num_classes)])


@pytest.mark.parametrize(
    "num_classes",
    [2, 5, 10, 30, 31, pytest.param(100, marks=pytest.mark.slow), 101],
)
@pytest.mark.parametrize("long_names", [False, True])
def test_confusion_matrix_labels_do_not_overlap(num_classes: int, long_names: bool) -> None:
    matrix = drawn(confusion_matrix(report(num_classes, 3, long_names))).axes[0]
    for labels in (matrix.get_xticklabels(), matrix.get_yticklabels()):
        extents = boxes(labels)
        assert len(extents) == (num_classes if num_classes <= 100 else 50)
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(extents))


def test_confusion_matrix_shows_counts_and_shares_of_the_row() -> None:
    scores = np.eye(3)[[0, 0, 0, 1, 1, 2]]
    small = evaluate_predictions([0, 0, 0, 0, 1, 2], scores, ["daisy", "rose", "tulip"])
    matrix = drawn(confusion_matrix(small)).axes[0]
    assert [text.get_text() for text in matrix.texts] == (
        ["3", "75%", "1", "25%", "1", "100%", "1", "100%"]
    )
    assert [label.get_text() for label in matrix.get_yticklabels()] == ["daisy", "rose", "tulip"]
    assert matrix.get_title() == "accuracy 83.3% of 6\n95% interval 43.6% to 97.0%"


def test_confusion_matrix_of_many_classes_shows_those_that_are_confused_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = np.arange(1200) % 120
    taken = np.where((labels >= 40) & (labels < 90), (labels + 1200 // 120 * 3) % 120, labels)
    taken[(labels < 40) | (labels >= 90)] = labels[(labels < 40) | (labels >= 90)]
    titles = []
    for limit in (1000, 100):
        monkeypatch.setattr("keras_vit.tasks.classification.metrics.DENSE_CLASSES", limit)
        found = evaluate_predictions(labels, np.eye(120)[taken], [f"{i}" for i in range(120)])
        axes = confusion_matrix(found).axes[0]
        names = {int(label.get_text()) for label in axes.get_yticklabels()}
        assert len(names) == 50
        assert names <= set(range(40, 120))  # what is taken for another, or is what it is taken for
        titles.append(axes.get_title())
    assert titles[0] == titles[1]
    assert titles[0].endswith("50 most confused of 120")


@pytest.mark.slow
def test_confusion_matrix_numbers_stay_in_their_cells() -> None:
    matrix = drawn(confusion_matrix(report(13, 150_000))).axes[0]
    assert max(len(text.get_text()) for text in matrix.texts) == 4
    extents = boxes(matrix.texts)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [2, 200])
def test_confusion_matrix_writes_a_picture_with_all_its_labels(
    num_classes: int, tmp_path: Path
) -> None:
    picture = tmp_path / "confusion_matrix.png"
    path = save_figure(confusion_matrix(report(num_classes)), picture)
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"))
    assert 300 < min(pixels.shape) <= max(pixels.shape) < 4000
    # A white border: no label is cut off.
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 255).all()


def test_confusion_matrix_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown"):
        save_figure(confusion_matrix(report(3)), tmp_path / "matrix.unknown")
    assert list(tmp_path.iterdir()) == []
