from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_vit.visualization import (
    attention_distance_plot,
    attention_sheet,
    faithfulness_plot,
    relevance_sheet,
    save_figure,
)
from tests.visualization.pictures import boxes, drawn

RNG = np.random.default_rng(3)


def test_attention_distance_has_a_dot_for_each_head_and_block() -> None:
    distances = RNG.uniform(0, 90, (5, 7, 3))
    axes = drawn(attention_distance_plot(distances, (96, 160))).axes[0]
    heads = [line for line in axes.lines if len(line.get_xdata()) == 5][:3]
    for head, line in enumerate(heads):
        np.testing.assert_allclose(line.get_ydata(), distances.mean(axis=1)[:, head])
        assert list(line.get_xdata()) == [1, 2, 3, 4, 5]
    assert axes.get_title() == "images of 96 x 160 pixels"
    assert axes.get_ylim()[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_relevance_sheet_has_a_row_for_each_image(channels: int, tmp_path: Path) -> None:
    pixels = RNG.uniform(0, 255, (3, 24, 36, channels))
    maps = {name: RNG.random((3, 2, 3)) for name in ("rollout", "grad_cam", "own")}
    figure = drawn(relevance_sheet(pixels, maps, ["a.jpg\ndaisy 97%", "b", "c"]))
    assert len(figure.axes) == 12
    assert [axes.get_title() for axes in figure.axes[:4]] == [
        *("", "attention\nrollout", "Grad-CAM\nof tokens", "own")
    ]
    assert [axes.texts[0].get_text() for axes in figure.axes[::4]] == ["a.jpg\ndaisy 97%", "b", "c"]
    extents = boxes([axes.title for axes in figure.axes])
    assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))
    with Image.open(save_figure(figure, tmp_path / "sheet.png")) as image:
        assert image.width > image.height


def test_relevance_sheet_needs_maps_and_titles() -> None:
    with pytest.raises(ValueError, match="Received: 0 methods, 0 titles for 1 images"):
        relevance_sheet(np.zeros((1, 4, 4, 3)), {})
    with pytest.raises(ValueError, match="Received: 1 methods, 2 titles for 1 images"):
        relevance_sheet(np.zeros((1, 4, 4, 3)), {"rollout": np.ones((1, 2, 2))}, ["a", "b"])


def test_attention_sheet_has_a_column_for_each_head() -> None:
    figure = drawn(attention_sheet(np.zeros((8, 12, 3)), RNG.random((2, 3, 2, 3))))
    assert [axes.get_title() for axes in figure.axes] == ["head 1", "head 2", "head 3", "", "", ""]
    assert [figure.axes[0].get_ylabel(), figure.axes[3].get_ylabel()] == ["block 1", "block 2"]


def test_faithfulness_plot_draws_means() -> None:
    curves = {name: RNG.random((4, 6)) for name in ("grad_cam", "center", "random")}
    figure = drawn(faithfulness_plot(curves, curves))
    for axes in figure.axes:
        for line, values in zip(axes.lines, curves.values(), strict=True):
            np.testing.assert_allclose(line.get_ydata(), values.mean(axis=0))
            np.testing.assert_allclose(line.get_xdata(), np.linspace(0, 1, 6))
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert names == ["grad cam", "center", "random"]


def test_faithfulness_plot_needs_the_same_kinds() -> None:
    one = {"a": np.ones((1, 2))}
    with pytest.raises(ValueError, match=r"Received: \['a'\] and \['b'\]"):
        faithfulness_plot(one, {"b": np.ones((1, 2))})
    with pytest.raises(ValueError, match="at least one"):
        faithfulness_plot({}, {})
