"""Drawing a figure without a file, and the places of its texts."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def drawn(figure: Figure) -> Figure:
    FigureCanvasAgg(figure).draw()
    return figure


def boxes(texts: list[Text]) -> list[Bbox]:
    return [text.get_window_extent() for text in texts if text.get_text()]
