"""Common colors, axis styles and file output for all figures.

Figures are created without `pyplot`, which keeps every figure in a global list and needs a display
on some machines.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import findSystemFonts, fontManager
from matplotlib.text import Text

from keras_vit import files

# Warnings about fonts with a single weight are irrelevant.
logging.getLogger("matplotlib.font_manager").addFilter(lambda r: "font weight" not in r.msg)

POINT = 1 / 72  # inch
COLORS = ("#1f5fa8", "#d9822b", "#2f9e6e", "#b04a8f", "#7a6ff0", "#c23b3b", "#0f8a9d", "#8a6d3b")
GRAY = "#9aa5b1"  # secondary elements
LINE = "#e6e9ee"  # grid lines
_SOFTWARE = "keras_vit"  # in the metadata of pictures
_INK = "#000000"  # matplotlib's text and frames; replaced by the page's color in HTML
_LONGEST_NAME = 28  # characters
_MISSING = r"Glyph \d+ "  # in matplotlib's warnings about missing characters
# Families with Chinese, Japanese or Korean characters.
_CJK = re.compile(
    "Noto Sans (CJK|[STHJK][CKPR]$)|Source Han|WenQuanYi|Droid Sans Fall|Arial Uni|Microsoft [YJ]"
    "|SimHei|PingFang|Heiti|Hiragino|Yu Go|Meiryo|IPA|Takao|Malgun|Apple ?SD|Nanum|UnDotum"
)
_print_once = cache(print)


def palette(classes: int) -> np.ndarray:
    """Returns a color (K, 3), uint8, for each class; more than 20 have colors of equal distance."""
    if classes <= 20:
        colors = colormaps["tab10" if classes <= 10 else "tab20"](np.arange(classes))
    else:
        colors = colormaps["hsv"](np.arange(classes) / classes)
    return (255 * colors[:, :3]).round().astype(np.uint8)


def open_axes(axes: Axes, grid: str = "both") -> None:
    """Removes the top and right spines of axes and draws a light grid."""
    axes.grid(axis=grid, color=LINE, linewidth=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def plots(
    width: float, height: float, *shape: int, grid: str = "both", **options: Any
) -> tuple[Figure, Any]:
    """Creates a figure with axes in the style of `open_axes`, as `pyplot.subplots` does."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(*shape, **options)
    for each in figure.axes:
        open_axes(each, grid)
    return figure, axes


def tiles(rows: int, columns: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    """Creates a figure with a grid of axes for images, without frames or ticks."""
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    return figure, grid


def show(axes: Axes, image: np.ndarray, **options: Any) -> None:
    """Shows an image with pixels in [0, 255], in gray if it has a single channel."""
    pixels = np.clip(np.round(image), 0, 255).astype(np.uint8)
    gray = pixels.shape[-1] == 1
    axes.imshow(pixels[..., 0] if gray else pixels, cmap="gray", vmin=0, vmax=255, **options)


def to_svg(figure: Figure, title: str) -> str:
    """Converts a figure to SVG for an HTML page, replacing black with the page's text color."""
    FigureCanvasSVG(figure)
    buffer = io.StringIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": title}
    with _plain_text(figure), matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", _MISSING)  # a browser uses its own fonts
        figure.savefig(
            buffer, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.1,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )  # fmt: skip
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # All pictures of a page share one namespace of ids, so the ids receive a prefix.
    salt = re.sub(r"\W", "_", title)
    text = re.sub(r'(id="|url\(#|xlink:href="#|href="#)', rf"\g<1>{salt}-", text)
    text = text.replace(_INK, "currentColor")
    # Elements without a color are black in SVG.
    escaped = title.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg", f'<svg role="img" aria-label="{escaped}" fill="currentColor"', 1)


def _plain_text(figure: Figure) -> contextlib.AbstractContextManager[None]:
    """Draws names such as `$x$` as they are, not as formulas, which fail if they are invalid."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    return matplotlib.rc_context({"text.parse_math": False})  # for labels of ticks, created now


def check_picture(path: str | os.PathLike[str]) -> None:
    """Raises `ValueError` if a figure cannot be written to a path."""
    known = FigureCanvasAgg.get_supported_filetypes()
    if Path(path).suffix.removeprefix(".").lower() not in known:
        raise ValueError(
            "`path` must end in an image format, such as .png, .svg or .pdf. Received: "
            f"path={os.fspath(path)!r}"
        )
    if Path(path).exists() and _SOFTWARE.encode() not in Path(path).read_bytes():
        raise ValueError(
            "`path` must be a new file, or a figure written by keras_vit; other files are not "
            f"overwritten. Received: path={os.fspath(path)!r}"
        )


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Writes a figure to a file, including any text outside its axes.

    Args:
        figure: The figure.
        path: The file to write; its suffix (`.png`, `.svg`, `.pdf`) is the format.

    Returns:
        The path.

    Raises:
        ValueError: If matplotlib does not support the suffix.

    Examples:
        >>> import tempfile
        >>> save_figure(Figure(figsize=(1, 1)), tempfile.mkdtemp() + "/empty.png").name
        'empty.png'
    """
    FigureCanvasAgg(figure)
    with _plain_text(figure), files.atomic_path(path) as temporary:
        keys = {".png": "Software", ".svg": "Creator", ".pdf": "Creator"}
        key = keys.get(Path(path).suffix.lower())
        metadata = {key: _SOFTWARE} if key else None
        _save(figure, temporary, dpi=130, bbox_inches="tight", pad_inches=0.15, metadata=metadata)
    return Path(path)


def _save(figure: Figure, path: Path, **options: Any) -> None:
    """Saves a figure with fonts that contain all its characters, or prints a note."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", _MISSING)
        with contextlib.suppress(UserWarning):
            return figure.savefig(path, **options)
        families = _cjk_families()
        for text in figure.findobj(Text):
            text.set_fontfamily([*text.get_fontfamily(), *families])
        with contextlib.suppress(UserWarning):
            return figure.savefig(path, **options)
        warnings.filterwarnings("ignore", _MISSING)
        _print_once(
            "Note: characters that are missing from all installed fonts are drawn as boxes. For "
            "Chinese, Japanese and Korean, install a font: sudo apt install fonts-noto-cjk"
        )
        figure.savefig(path, **options)


def _cjk_families() -> list[str]:
    """Returns the installed CJK font families, including fonts not yet known to matplotlib."""
    for path in {*findSystemFonts()} - {font.fname for font in fontManager.ttflist}:
        with contextlib.suppress(OSError, RuntimeError):  # a damaged file
            fontManager.addfont(path)
    return sorted({font.name for font in fontManager.ttflist if _CJK.match(font.name)})


def shorten(name: str, longest: int = _LONGEST_NAME) -> str:
    """Truncates a name to a maximum number of characters."""
    return name if len(name) <= longest else name[: longest - 1] + "…"
