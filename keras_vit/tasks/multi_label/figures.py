"""Figure with the scores of each label in a multi-label evaluation."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from keras_vit.tasks.multi_label.metrics import MultiLabelReport
from keras_vit.visualization.drawing import COLORS, GRAY, open_axes, shorten

_MAX_LABELS = 100  # of more labels, only those with the lowest average precision are drawn
_ROW = 0.24  # inch


def label_scores(report: MultiLabelReport) -> Figure:
    """Plots the scores of each label, with the lowest average precision at the top.

    A bar is the average precision, a dot the F1 at the label's threshold; the number of images
    with the label is beside its name. At most 100 labels are drawn, those with the lowest scores.

    Args:
        report: The report.

    Returns:
        The figure, for `save_figure` or a notebook.

    Examples:
        >>> from keras_vit.tasks.multi_label.metrics import evaluate_labels
        >>> report = evaluate_labels([[1], [0]], [[0.9], [0.2]], ["daisy"], [0.5])
        >>> len(label_scores(report).axes)
        1
    """
    # A label without images has no average precision; all its predictions are wrong.
    rows = sorted(report.per_label, key=lambda row: row.average_precision or 0.0)[:_MAX_LABELS]
    height = max(len(rows), 3) * _ROW
    figure = Figure(figsize=(5.2, height))
    axes = figure.add_axes((0, 0, 1, 1))
    positions = np.arange(len(rows))
    precisions = [row.average_precision or 0.0 for row in rows]
    axes.barh(positions, precisions, height=0.6, color=COLORS[0], label="average precision")
    axes.plot(
        [row.f1 for row in rows],
        positions,
        "o",
        markersize=5,
        color=GRAY,
        markeredgecolor="white",
        label="F1 at the threshold",
    )
    axes.set_yticks(positions, [f"{shorten(row.name)} ({row.support})" for row in rows], fontsize=8)
    axes.set(xlim=(0, 1.02), ylim=(max(len(rows), 3) - 0.5, -0.5))
    open_axes(axes, grid="x")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    mean = report.mean_average_precision
    mean_text = "-" if mean is None else f"{mean:.1%}"
    num_omitted = len(report.per_label) - len(rows)
    axes.set_title(
        f"mean average precision {mean_text} on {report.num_examples} images\n"
        f"micro F1 {report.micro_f1:.1%}"
        + (f"; {num_omitted} labels with higher scores are not shown" if num_omitted else ""),
        fontsize=10,
    )
    # Below the axis, by a distance in inches, so that the legend hides no bar at any height.
    axes.legend(
        frameon=False,
        fontsize=8,
        ncols=2,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.3 / height),
    )
    return figure
