from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image

from keras_vit.evaluation import Report, evaluate_predictions
from keras_vit.visualization import confusion_matrix, plots, training_curves


def report(num_classes: int, num_examples: int = 0, long_names: bool = True) -> Report:
    generator = np.random.default_rng(3)
    extra = generator.integers(0, num_classes, size=num_examples)
    labels = np.concatenate([np.arange(num_classes), extra])
    scores = generator.random((len(labels), num_classes)) + 0.5 * np.eye(num_classes)[labels]
    name = "a_rather_long_name_of_class_{}" if long_names else "{}"
    return evaluate_predictions(labels, scores, [name.format(i) for i in range(num_classes)])


def drawn(figure: Figure) -> Figure:
    FigureCanvasAgg(figure).draw()
    return figure


def boxes(texts: list[Text]) -> list[Bbox]:
    return [text.get_window_extent() for text in texts if text.get_text()]


@pytest.mark.parametrize("num_classes", [2, 5, 10, 30, 31, 200, 600])
@pytest.mark.parametrize("long_names", [False, True])
def test_confusion_matrix_labels_do_not_overlap(num_classes: int, long_names: bool) -> None:
    matrix = drawn(plots._confusion_figure(report(num_classes, 3, long_names))).axes[0]
    for labels in (matrix.get_xticklabels(), matrix.get_yticklabels()):
        extents = boxes(labels)
        assert len(extents) >= min(num_classes, 150)
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(extents))


def test_confusion_matrix_shows_counts_and_shares_of_the_row() -> None:
    scores = np.eye(3)[[0, 0, 0, 1, 1, 2]]
    small = evaluate_predictions([0, 0, 0, 0, 1, 2], scores, ["daisy", "rose", "tulip"])
    matrix = drawn(plots._confusion_figure(small)).axes[0]
    assert [text.get_text() for text in matrix.texts] == (
        ["3", "75%", "1", "25%", "1", "100%", "1", "100%"]
    )
    assert [label.get_text() for label in matrix.get_yticklabels()] == ["daisy", "rose", "tulip"]
    assert matrix.get_title() == "accuracy 83.3% of 6\n95% interval 43.6% to 97.0%"


def test_confusion_matrix_numbers_stay_in_their_cells() -> None:
    matrix = drawn(plots._confusion_figure(report(13, 150_000))).axes[0]
    assert max(len(text.get_text()) for text in matrix.texts) == 4
    extents = boxes(matrix.texts)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))


@pytest.mark.parametrize("num_classes", [2, 200])
def test_confusion_matrix_writes_a_picture_with_all_its_labels(
    num_classes: int, tmp_path: Path
) -> None:
    path = confusion_matrix(report(num_classes), tmp_path / "confusion_matrix.png")
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"))
    assert 300 < min(pixels.shape) <= max(pixels.shape) < 4000
    # A white border: no label is cut off.
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 255).all()


def test_confusion_matrix_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown"):
        confusion_matrix(report(3), tmp_path / "matrix.unknown")
    assert list(tmp_path.iterdir()) == []


HISTORY = """epoch,accuracy,loss,learning_rate,val_accuracy,val_loss
0,0.5,1.25,0.001,NA,NA
1,0.75,0.5,0.002,0.625,0.75
"""


def test_training_curves_have_a_panel_for_each_metric(tmp_path: Path) -> None:
    history = tmp_path / "history.csv"
    history.write_text(HISTORY)
    figure = drawn(plots._training_figure(plots._read_history(history)))
    assert [axes.get_title() for axes in figure.axes] == ["accuracy", "loss", "learning rate"]
    training, validation = figure.axes[0].lines
    assert training.get_xdata().tolist() == [1, 2]
    assert training.get_ydata().tolist() == [0.5, 0.75]
    np.testing.assert_array_equal(validation.get_ydata(), [np.nan, 0.625])
    assert len(figure.axes[2].lines) == 1
    with Image.open(training_curves(history, tmp_path / "curves.png")) as image:
        assert image.width > 2 * image.height


@pytest.mark.parametrize("text", ["", "epoch,loss\n", "step,loss\n0,1\n", "epoch\n0\n"])
def test_training_curves_need_a_history(text: str, tmp_path: Path) -> None:
    history = tmp_path / "history.csv"
    history.write_text(text)
    with pytest.raises(ValueError, match="`history_csv` must have a column 'epoch', a column per"):
        training_curves(history, tmp_path / "curves.png")
