"""Figures of how good a model is: its confidence, and models beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from keras_vit.visualization.drawing import COLOURS, GREY, open_axes, shorten

_MARKERS = "osD^vPX*"


class _Reliability(Protocol):
    """The part of a `keras_vit.evaluation.Reliability` that is drawn."""

    @property
    def counts(self) -> np.ndarray: ...

    @property
    def confidence(self) -> np.ndarray: ...

    @property
    def accuracy(self) -> np.ndarray: ...

    @property
    def error(self) -> float: ...


class _Calibration(Protocol):
    """The part of a `keras_vit.evaluation.Calibration` that is drawn."""

    @property
    def before(self) -> _Reliability: ...

    @property
    def after(self) -> _Reliability: ...

    @property
    def temperature(self) -> float: ...


def reliability_diagram(calibration: _Calibration) -> Figure:
    """Draws how often a model is right where it is as sure as that, before and after scaling.

    On the diagonal confidence is what it says. Below each diagram stands how many images there
    are in each bin.

    Args:
        calibration: A `keras_vit.evaluation.Calibration`.

    Returns:
        The figure, for `save_figure` or a notebook.

    Example:
        >>> from keras_vit.evaluation import calibrate
        >>> calibration = calibrate([0, 0, 1, 1], [[0.9, 0.1]] * 3 + [[0.2, 0.8]])
        >>> len(reliability_diagram(calibration).axes)
        4
    """
    figure = Figure(figsize=(6.4, 3.9), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, height_ratios=(4, 1))
    for column, (title, found) in enumerate(
        (
            ("as the model is", calibration.before),
            ("with temperatures of the other half", calibration.after),
        )
    ):
        _draw_bins(grid[0, column], grid[1, column], found)
        grid[0, column].set_title(
            f"{title}\nexpected calibration error {found.error:.3f}", fontsize=9
        )
    grid[0, 0].set_ylabel("share that is right")
    grid[1, 0].set_ylabel("images")
    return figure


def _draw_bins(above: Axes, below: Axes, found: _Reliability) -> None:
    filled = found.counts > 0
    width = 1 / len(found.counts)
    centres = (np.arange(len(found.counts)) + 0.5) * width
    above.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    above.bar(centres[filled], found.accuracy[filled], width * 0.92, color=COLOURS[0], alpha=0.35)
    above.plot(
        found.confidence[filled], found.accuracy[filled], color=COLOURS[0], marker="o", markersize=4
    )
    above.set_xlim(0, 1)
    above.set_ylim(0, 1.02)
    below.bar(centres, found.counts, width * 0.92, color=GREY)
    below.set_xlabel("confidence")
    below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    below.xaxis.set_major_formatter(PercentFormatter(1))
    above.yaxis.set_major_formatter(PercentFormatter(1))
    for axes in (above, below):
        open_axes(axes, grid="y")


def comparison_curves(histories: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Draws the validation accuracy of several models over epochs, and over minutes.

    Args:
        histories: For each model, by name, the minutes that have passed and the accuracy after
            every epoch.

    Returns:
        The figure, for `save_figure` or a notebook.

    Raises:
        ValueError: If there is no model with an epoch.

    Example:
        >>> figure = comparison_curves({"ViT": [(2.0, 0.9), (4.1, 0.95)], "ResNet": [(3.0, 0.7)]})
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['ViT', 'ResNet']
    """
    drawn = {name: np.array(rows, float) for name, rows in histories.items() if len(rows)}
    if not drawn:
        raise ValueError(
            f"`histories` must have an epoch of at least one model. Received: {dict(histories)}"
        )
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    by_epoch, by_time = figure.subplots(1, 2, sharey=True)
    for index, (name, rows) in enumerate(drawn.items()):
        style = {
            "color": COLOURS[index % len(COLOURS)],
            "marker": _MARKERS[index % len(_MARKERS)],
            "markersize": 5,
            "label": shorten(name),
        }
        by_epoch.plot(1 + np.arange(len(rows)), rows[:, 1], **style)
        by_time.plot(rows[:, 0], rows[:, 1], **style)
    by_epoch.set_ylabel("accuracy on the images held out")
    by_epoch.set_xlabel("epoch")
    by_epoch.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_time.set_xlabel("minutes of training")
    by_time.set_xlim(left=0)
    for axes in (by_epoch, by_time):
        open_axes(axes)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    by_epoch.legend(frameon=False, loc="lower right")
    return figure
