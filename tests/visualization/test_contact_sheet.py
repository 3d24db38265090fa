from __future__ import annotations

import itertools
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from keras_vit.visualization.contact_sheet import contact_sheet
from tests.visualization.pictures import boxes, drawn


def sheet(labels: list[list[float]], channels: int = 3) -> Figure:
    count, names = len(labels), ["daisy", "rose", "an_extraordinarily_long_class_name"]
    images = np.random.default_rng(3).uniform(-40, 300, (count, 11, 7, channels))
    return figure_of(images, np.array(labels), names)


def figure_of(images: np.ndarray, labels: np.ndarray, names: list[str]) -> Figure:
    """The figure that `contact_sheet` saves."""
    with mock.patch.object(sys.modules[contact_sheet.__module__], "save_figure") as save:
        contact_sheet(images, labels, names, "sheet.png")
    return save.call_args.args[0]


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
    figure = figure_of(images, labels, names)
    first, second = (axes.images[0] for axes in figure.axes)
    assert first.get_array().shape == ((3, 5) if channels == 1 else (3, 5, 3))
    assert np.unique(first.get_array()).tolist() == [0, 97]
    assert np.unique(second.get_array()).tolist() == [0, 255]
    assert first.get_clim() == (0, 255)  # gray is not stretched


def test_contact_sheet_titles_do_not_overlap_their_neighbors() -> None:
    figure = drawn(sheet([[0.3, 0.3, 0.4]] * 12))
    extents = boxes([axes.title for axes in figure.axes])
    assert len(extents) == 12
    assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))


def test_contact_sheet_writes_a_picture(tmp_path: Path) -> None:
    images = np.full((3, 8, 8, 3), 255.0)
    path = contact_sheet(images, np.eye(3), ["a", "b", "c"], tmp_path / "sheet.png")
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
        contact_sheet(images, np.zeros(labels), list(names), tmp_path / "sheet.png")
    assert list(tmp_path.iterdir()) == []
