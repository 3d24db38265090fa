"""Figures for classifiers: confusion matrix, reliability diagram and model comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from keras_vit.tasks.classification.calibration import Calibration
from keras_vit.tasks.classification.metrics import Report
from keras_vit.visualization.drawing import COLORS, GRAY, POINT, plots, shorten

_MARKERS = "osD^vPX*"


_MAX_ANNOTATED = 30  # classes; with more, the cells are too small for numbers
_MAX_DRAWN, _MOST_CONFUSED = 100, 50  # classes; of more than 100, only 50 are drawn


def confusion_matrix(report: Report) -> Figure:
    """Draws the confusion matrix of a classification report.

    Each row is a true class. A cell shows the number of examples and their fraction of the row.
    The color is the fraction, so that rare classes are as legible as common classes. With more
    than 30 classes only the colors are drawn; with more than 100, only the 50 classes with the
    most errors.

    Args:
        report: A `Report`.

    Returns:
        The figure, for `save_figure` or a notebook.

    Examples:
        >>> from keras_vit.tasks.classification.metrics import evaluate_predictions
        >>> report = evaluate_predictions([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], "ab")
        >>> confusion_matrix(report).axes[0].get_ylabel()
        'true class'
    """
    counts = report.confusion  # NumPy array or sparse
    total, support, num_total = counts.sum(), counts.sum(axis=1), counts.shape[0]
    indices, note = np.arange(num_total), ""
    if num_total > _MAX_DRAWN:
        errors = support + counts.sum(axis=0) - 2 * counts.diagonal()
        indices = np.sort(np.argsort(-errors, kind="stable")[:_MOST_CONFUSED])
        counts, note = counts[indices][:, indices], f"\n{len(indices)} most confused of {num_total}"
    counts = counts if isinstance(counts, np.ndarray) else counts.toarray()
    shares = counts / np.maximum(support[indices, None], 1)
    num_classes = len(indices)
    annotated = num_classes <= _MAX_ANNOTATED
    font = 9.0 if annotated else 6.0
    # A label needs one line of its font, an annotated cell needs two lines and four digits.
    cell = (4.6 if annotated else 1.25) * font * POINT
    side = max(num_classes * cell, 2.6)
    cell = side / num_classes
    labels = [shorten(report.per_class[index].name) for index in indices]

    # The matrix fills the figure; saving widens the picture for the labels outside.
    figure = Figure(figsize=(side, side))
    axes = figure.add_axes((0, 0, 1, 1))
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    ticks = range(num_classes)
    axes.set_yticks(ticks, labels, fontsize=font)
    widest = max(len(label) for label in labels) * 0.65 * font * POINT
    axes.set_xticks(ticks, labels, fontsize=font, rotation=0 if widest < cell else 90)
    axes.set(xlabel="predicted class", ylabel="true class")
    low, high = report.interval
    axes.set_title(
        f"accuracy {report.accuracy:.1%} of {total}\n95% interval {low:.1%} to {high:.1%}{note}",
        fontsize=10,
    )
    axes.tick_params(length=0 if annotated else 2)
    axes.spines[:].set_visible(not annotated)
    if annotated:
        _annotate(axes, counts, shares, font)
    beside = axes.inset_axes((1 + 0.15 / side, 0, 0.13 / side, 1))
    label = "fraction of the true class"
    bar = figure.colorbar(image, cax=beside, format=PercentFormatter(1), label=label)
    bar.outline.set_visible(False)
    return figure


def _annotate(axes: Axes, counts: np.ndarray, shares: np.ndarray, font: float) -> None:
    """Separates the cells of a confusion matrix by lines, and writes their numbers."""
    edges = np.arange(len(counts) + 1) - 0.5
    axes.set_xticks(edges, minor=True)
    axes.set_yticks(edges, minor=True)
    axes.grid(which="minor", color="#dfe5ec", linewidth=0.8)
    axes.tick_params(which="minor", length=0)
    for row, column in np.argwhere(counts):
        share = shares[row, column]
        color = "white" if share > 0.55 else "#22303f"
        style: dict[str, Any] = {"ha": "center", "color": color}
        axes.text(column, row - 0.02, f"{counts[row, column]}", va="bottom", fontsize=font, **style)
        axes.text(column, row + 0.06, f"{share:.0%}", va="top", fontsize=font - 2, **style)


def reliability_diagram(calibration: Calibration) -> Figure:
    """Plots accuracy against confidence, before and after temperature scaling.

    On the diagonal, confidence equals accuracy. Below each diagram is a histogram of the
    confidence.

    Args:
        calibration: A `keras_vit.evaluation.Calibration`.

    Returns:
        The figure, for `save_figure` or a notebook.

    Examples:
        >>> from keras_vit.tasks.classification.calibration import calibrate
        >>> calibration = calibrate([0, 0, 1, 1], [[0.9, 0.1]] * 3 + [[0.2, 0.8]])
        >>> len(reliability_diagram(calibration).axes)
        4
    """
    figure, grid = plots(6.4, 3.9, 2, 2, grid="y", sharex=True, height_ratios=(4, 1))
    titles = ("uncalibrated", "with temperatures fitted on the other half")
    parts = (calibration.before, calibration.after)
    for (above, below), title, part in zip(grid.T, titles, parts, strict=True):
        filled = part.counts > 0
        width = 1 / len(part.counts)
        centers = (np.arange(len(part.counts)) + 0.5) * width
        confidence, accuracy = part.confidence[filled], part.accuracy[filled]
        above.plot([0, 1], [0, 1], color=GRAY, linewidth=1, linestyle="--")
        above.bar(centers[filled], accuracy, width * 0.92, color=COLORS[0], alpha=0.35)
        above.plot(confidence, accuracy, color=COLORS[0], marker="o", markersize=4)
        above.set(xlim=(0, 1), ylim=(0, 1.02))
        above.yaxis.set_major_formatter(PercentFormatter(1))
        below.bar(centers, part.counts, width * 0.92, color=GRAY)
        below.set_xlabel("confidence")
        below.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        below.xaxis.set_major_formatter(PercentFormatter(1))
        above.set_title(f"{title}\nexpected calibration error {part.error:.3f}", fontsize=9)
    grid[0, 0].set_ylabel("fraction correct")
    grid[1, 0].set_ylabel("images")
    return figure


def comparison_curves(
    histories: Mapping[str, Sequence[tuple[float, float]]], metric: str = "accuracy"
) -> Figure:
    """Plots a validation metric of several models against epochs and against minutes."""
    curves = {name: np.array(rows, float) for name, rows in histories.items() if len(rows)}
    if not curves:
        raise ValueError(
            f"`histories` must contain at least one epoch. Received: {dict(histories)}"
        )
    figure, (by_epoch, by_time) = plots(7.6, 3.2, 1, 2, sharey=True)
    for axes in (by_epoch, by_time):
        axes.set_prop_cycle(color=COLORS, marker=list(_MARKERS))
        if metric == "accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1))
    for name, rows in curves.items():
        by_epoch.plot(1 + np.arange(len(rows)), rows[:, 1], markersize=5, label=shorten(name))
        by_time.plot(rows[:, 0], rows[:, 1], markersize=5)
    by_epoch.set(xlabel="epoch", ylabel=f"{metric} on the held-out images")
    by_epoch.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_time.set(xlabel="training time in minutes", xlim=(0, None))
    by_epoch.legend(frameon=False, loc="lower right")
    return figure
