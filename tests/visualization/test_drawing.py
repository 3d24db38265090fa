from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from keras_vit.visualization.drawing import open_axes, save_figure, show, to_svg


def figure() -> Figure:
    found = Figure(figsize=(2, 2))
    axes = found.add_subplot()
    axes.plot([0, 1], [1, 0], color="#1f5fa8")
    axes.set_title("daisies & <roses>")
    return found


def test_svg_has_the_pages_ink_and_no_address() -> None:
    text = to_svg(figure(), 'a "title" & more')
    ElementTree.fromstring(text)
    assert 'aria-label="a &quot;title&quot; &amp; more"' in text
    assert "currentColor" in text
    assert "#000000" not in text
    assert "daisies &amp; &lt;roses&gt;" in text
    assert set(re.findall(r"https?://[\w./]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_svgs_of_one_page_share_no_names() -> None:
    names = [set(re.findall(r' id="([^"]+)"', to_svg(figure(), title))) for title in ("a b", "c")]
    assert names[0]
    assert not names[0] & names[1]
    text = to_svg(figure(), "a b")
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    assert used
    assert used <= names[0]


def test_svg_is_the_same_each_time() -> None:
    assert to_svg(figure(), "a") == to_svg(figure(), "a")


def test_open_axes_has_two_sides() -> None:
    axes = Figure().add_subplot()
    open_axes(axes, grid="y")
    assert [name for name, spine in axes.spines.items() if spine.get_visible()] == [
        "left",
        "bottom",
    ]


@pytest.mark.parametrize("channels", [1, 3])
def test_show_cuts_off_what_is_no_pixel(channels: int) -> None:
    axes = Figure().add_subplot()
    show(axes, np.array([[[-7.0] * channels, [300.0] * channels]]))
    assert np.unique(axes.images[0].get_array()).tolist() == [0, 255]


def test_save_figure_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown"):
        save_figure(figure(), tmp_path / "figure.unknown")
    assert list(tmp_path.iterdir()) == []
