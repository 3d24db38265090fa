from __future__ import annotations

import html
import re
import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import PIL.Image
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from keras_vit.visualization import contact_sheet, drawing
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


def named(*names: str) -> Figure:
    found = Figure(figsize=(3, 2))
    found.add_subplot().barh(names, range(1, len(names) + 1))  # names of ticks are set when drawn
    found.suptitle(names[0])
    return found


def pixels(path: Path) -> np.ndarray:
    return np.asarray(PIL.Image.open(path).convert("L"))


CJK = ("\u82b1", "\u3072\u307e\u308f\u308a", "\ud574\ubc14\ub77c\uae30")
NOTE = "For Chinese, Japanese and Korean, install a font: sudo apt install fonts-noto-cjk\n"


def test_a_font_to_install_is_named_once_and_no_character(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawing._print_once.cache_clear()
    monkeypatch.setattr(drawing, "_CJK", re.compile("No Such Font"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_figure(named("daisies"), tmp_path / "a.png")
        assert capsys.readouterr().out == ""
        for name in ("a.png", "b.svg"):
            save_figure(named(*CJK), tmp_path / name)
        to_svg(named(*CJK), "flowers")
    assert capsys.readouterr().out.endswith(NOTE)


def test_other_warnings_of_a_drawing_are_passed_on(tmp_path: Path) -> None:
    found = named(*CJK)
    found.savefig = lambda *_, **__: warnings.warn("odd", stacklevel=1)  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match="^odd$"), pytest.raises(FileNotFoundError):
        save_figure(found, tmp_path / "a.png")


def test_a_font_that_has_the_characters_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drawing, "_CJK", re.compile("DejaVu Serif$|DejaVu Sans Mono$"))
    drawing._print_once.cache_clear()
    found = named(*CJK)
    save_figure(found, tmp_path / "a.png")
    families = {tuple(text.get_fontfamily()) for text in found.findobj(Text)}
    assert families == {("sans-serif", "DejaVu Sans Mono", "DejaVu Serif")}
    assert capsys.readouterr().out.endswith(NOTE)  # for these do not have them either


def test_names_are_drawn_by_an_installed_font(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    if not drawing._cjk_families():
        pytest.skip("no font with Chinese characters is installed, such as fonts-noto-cjk")
    drawing._print_once.cache_clear()
    pictures = [
        pixels(contact_sheet(np.zeros((1, 5, 7, 3)), np.eye(1), (name,), tmp_path / "a.png"))
        for name in ("\u82b1", "\u8349")
    ]
    assert pictures[0].shape != pictures[1].shape or (pictures[0] != pictures[1]).any()
    assert capsys.readouterr().out == ""
    assert caplog.records == []  # such as that a font has one weight only


@pytest.mark.parametrize("name", [r"$\frac{$", "a$x^2$b", "$"])
def test_names_are_not_formulas(name: str, tmp_path: Path) -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.set_xticks([0, 1], [name, "b"])
    axes.set_title(name)
    save_figure(figure, tmp_path / "a.png")
    assert name in html.unescape(to_svg(figure, "title"))
