from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from PIL import Image

from keras_vit.tasks.multi_label import figures
from keras_vit.tasks.multi_label.metrics import LabelScores, MultiLabelReport
from keras_vit.visualization.drawing import save_figure
from tests.visualization.pictures import boxes, drawn


def report(number: int, name: str = "label_{}") -> MultiLabelReport:
    rows = tuple(
        LabelScores(name.format(k), 0.5, 0.5, 0.25, (number - k) / number, 7 + k, 0.5)
        for k in range(number)
    )
    return MultiLabelReport(53, 0.75, 0.625, 0.5, 0.25, rows)


def test_bar_is_average_precision_and_dot_is_f1_hardest_first() -> None:
    axes = drawn(figures.label_scores(report(4))).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["label_3 (10)", "label_2 (9)", "label_1 (8)", "label_0 (7)"]
    assert [bar.get_width() for bar in axes.patches] == [0.25, 0.5, 0.75, 1.0]
    assert axes.lines[0].get_xdata().tolist() == [0.25] * 4
    assert axes.get_title() == "mean average precision 75.0% on 53 images\nmicro F1 62.5%"
    low, high = axes.get_ylim()
    assert low > high  # the first row is on top


def test_label_without_images_has_no_bar() -> None:
    rows = (LabelScores("ant", 0.5, 1.0, 2 / 3, 0.5, 3, 0.5), LabelScores(
        "bee", 0.0, 0.0, 0.0, None, 0, 0.5))  # fmt: skip
    axes = figures.label_scores(MultiLabelReport(5, None, 0.5, 0.5, 0.5, rows)).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [0.0, 0.5]
    assert axes.get_title().startswith("mean average precision - on 5 images")


@pytest.mark.parametrize("number", [1, 2, 30, 100])
def test_nothing_overlaps(number: int) -> None:
    figure = drawn(figures.label_scores(report(number, "a_rather_long_name_of_label_{}")))
    axes = figure.axes[0]
    labels = boxes(axes.get_yticklabels())
    assert len(labels) == number
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(labels))
    legend = axes.get_legend().get_window_extent()
    assert not any(legend.overlaps(box) for box in (*boxes(axes.get_xticklabels()), axes.bbox))


def test_of_many_labels_the_hardest_are_drawn() -> None:
    axes = figures.label_scores(report(131)).axes[0]
    assert len(axes.patches) == 100
    assert axes.get_yticklabels()[0].get_text() == "label_130 (137)"
    assert axes.get_title().endswith("; 31 labels with higher scores are not shown")


def test_no_label_at_all_can_be_drawn(tmp_path: Path) -> None:
    path = save_figure(
        figures.label_scores(MultiLabelReport(3, None, 0.0, 0.0, 1.0, ())), tmp_path / "empty.png"
    )
    assert Image.open(path).size[0] > 200


@pytest.mark.slow
def test_label_scores_writes_the_format_of_the_suffix(tmp_path: Path) -> None:
    assert (
        save_figure(figures.label_scores(report(3)), tmp_path / "a.png")
        .read_bytes()
        .startswith(b"\x89PNG")
    )
    assert (
        save_figure(figures.label_scores(report(3)), tmp_path / "a.pdf")
        .read_bytes()
        .startswith(b"%PDF")
    )
    with pytest.raises(ValueError, match="xyz"):
        save_figure(figures.label_scores(report(3)), tmp_path / "a.xyz")
