"""Scatter plot of a regression."""

from __future__ import annotations

from matplotlib.figure import Figure

from keras_vit.tasks.regression.report import RegressionReport
from keras_vit.visualization.drawing import open_axes, shorten, tiles

_DRAWN = 6  # targets


def scatter_plot(report: RegressionReport) -> Figure:
    """Plots predicted against true values, for at most six targets."""
    errors = report.errors[:_DRAWN]
    figure, grid = tiles(1, len(errors), 3.2 * len(errors), 3.2)
    for index, (axes, row) in enumerate(zip(grid.ravel(), errors, strict=True)):
        axes.axis("on")
        true, found = report.targets[:, index], report.values[:, index]
        ends = [min(true.min(), found.min()), max(true.max(), found.max())]
        axes.plot(ends, ends, color="0.7", linewidth=1)
        axes.scatter(true, found, s=8, alpha=0.5)
        axes.set_title(f"{shorten(row.name)}: R2 {row.r2:.3f}", fontsize=9)
        axes.set_xlabel("true value")
        open_axes(axes)
    grid.ravel()[0].set_ylabel("predicted value")
    return figure
