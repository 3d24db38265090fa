from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from keras_vit.evaluation import Report, evaluate_predictions
from keras_vit.visualization import confusion_matrix, plots, training_curves
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
    matrix = drawn(plots.confusion_figure(report(num_classes, 3, long_names))).axes[0]
    for labels in (matrix.get_xticklabels(), matrix.get_yticklabels()):
        extents = boxes(labels)
        assert len(extents) == (num_classes if num_classes <= 100 else 50)
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(extents))


def test_confusion_matrix_shows_counts_and_shares_of_the_row() -> None:
    scores = np.eye(3)[[0, 0, 0, 1, 1, 2]]
    small = evaluate_predictions([0, 0, 0, 0, 1, 2], scores, ["daisy", "rose", "tulip"])
    matrix = drawn(plots.confusion_figure(small)).axes[0]
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
        monkeypatch.setattr("keras_vit.evaluation.metrics.DENSE_CLASSES", limit)
        found = evaluate_predictions(labels, np.eye(120)[taken], [f"{i}" for i in range(120)])
        axes = plots.confusion_figure(found).axes[0]
        names = {int(label.get_text()) for label in axes.get_yticklabels()}
        assert len(names) == 50
        assert names <= set(range(40, 120))  # what is taken for another, or is what it is taken for
        titles.append(axes.get_title())
    assert titles[0] == titles[1]
    assert titles[0].endswith("50 most confused of 120")


def test_confusion_matrix_numbers_stay_in_their_cells() -> None:
    matrix = drawn(plots.confusion_figure(report(13, 150_000))).axes[0]
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


def sheet(labels: list[list[float]], channels: int = 3) -> Figure:
    count, names = len(labels), ["daisy", "rose", "an_extraordinarily_long_class_name"]
    images = np.random.default_rng(3).uniform(-40, 300, (count, 11, 7, channels))
    return plots._sheet_figure(images, np.array(labels), names)


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes if axes.images]


def test_contact_sheet_names_the_classes_of_each_image() -> None:
    figure = sheet([[1, 0, 0], [0, 0, 1], [0.25, 0.75, 0], [0.5, 0.3, 0.2], [0.998, 0.002, 0]])
    assert titles(figure) == [
        "daisy",
        "an_extraordinaril…",
        "rose 75%\ndaisy 25%",
        "daisy 50%\nrose 30%\nan_extraordinaril… 20%",
        "daisy",
    ]


def test_contact_sheet_names_several_labels_and_none() -> None:
    assert titles(sheet([[0, 1, 0], [1, 1, 0], [0, 0, 0]])) == ["rose", "daisy\nrose", ""]


@pytest.mark.parametrize(("count", "grid"), [(1, (1, 1)), (2, (1, 2)), (5, (2, 3)), (70, (9, 8))])
def test_contact_sheet_is_nearly_square(count: int, grid: tuple[int, int]) -> None:
    figure = sheet([[1, 0, 0]] * count)
    assert len(figure.axes) == grid[0] * grid[1]
    assert len(titles(figure)) == count
    assert not any(axes.axison for axes in figure.axes)


@pytest.mark.parametrize("channels", [1, 3])
def test_contact_sheet_shows_pixels_as_they_are(channels: int) -> None:
    names, labels = ["a", "b"], np.eye(2)
    images = np.zeros((2, 3, 5, channels))
    images[0, 1, 2], images[1, 0, 0] = 97.4, 500.0
    figure = plots._sheet_figure(images, labels, names)
    first, second = (axes.images[0] for axes in figure.axes)
    assert first.get_array().shape == ((3, 5) if channels == 1 else (3, 5, 3))
    assert np.unique(first.get_array()).tolist() == [0, 97]
    assert np.unique(second.get_array()).tolist() == [0, 255]
    assert first.get_clim() == (0, 255)  # grey is not stretched


def test_contact_sheet_titles_do_not_overlap_their_neighbours() -> None:
    figure = drawn(sheet([[0.3, 0.3, 0.4]] * 12))
    extents = boxes([axes.title for axes in figure.axes])
    assert len(extents) == 12
    assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))


def test_contact_sheet_writes_a_picture(tmp_path: Path) -> None:
    images = np.full((3, 8, 8, 3), 255.0)
    path = plots.contact_sheet(images, np.eye(3), ["a", "b", "c"], tmp_path / "sheet.png")
    with Image.open(path) as image:
        assert 200 < min(image.size) <= max(image.size) < 900
    assert [file.name for file in tmp_path.iterdir()] == ["sheet.png"]


@pytest.mark.parametrize(
    ("count", "labels", "names"), [(0, (0, 2), "ab"), (3, (2, 2), "ab"), (3, (3, 2), "abc")]
)
def test_contact_sheet_needs_a_label_for_each_image(
    count: int, labels: tuple[int, int], names: str, tmp_path: Path
) -> None:
    images = np.zeros((count, 5, 7, 3))
    message = (
        rf"`labels` must have shape .*of shape \({labels[0]}, 2\) for {count} images, {len(names)}"
    )
    with pytest.raises(ValueError, match=message):
        plots.contact_sheet(images, np.zeros(labels), list(names), tmp_path / "sheet.png")
    assert list(tmp_path.iterdir()) == []


def test_reconstruction_sheet_has_three_columns_and_a_row_for_each_image(tmp_path: Path) -> None:
    parts = [np.full((2, 5, 7, 3), value) for value in (300.0, 127.6, -9.0)]
    figure = drawn(plots._reconstruction_figure(*parts))
    titles = [axes.get_title() for axes in figure.axes[:3]]
    assert titles == ["original", "masked", "reconstruction"]
    assert len(figure.axes) == 6
    values = [np.unique(axes.images[0].get_array()).tolist() for axes in figure.axes]
    assert values == [[255], [128], [0]] * 2
    with Image.open(plots.reconstruction_sheet(*parts, tmp_path / "sheet.png")) as image:
        assert image.width > image.height


def test_reconstruction_sheet_of_grey_images(tmp_path: Path) -> None:
    part = np.zeros((1, 5, 7, 1))
    figure = drawn(plots._reconstruction_figure(part, part, part + 255))
    assert figure.axes[2].images[0].get_array().shape == (5, 7)
    assert figure.axes[2].images[0].get_clim() == (0, 255)
