"""Errors of a regression, from true and predicted values, and their scatter plot.

Letters: N images; D targets.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from keras_vit.arguments import text_table
from keras_vit.visualization.drawing import plots, shorten

_MAX_TARGETS = 6  # targets


class TargetErrors(NamedTuple):
    """Errors of one target: mean absolute and root mean squared error in its units, and R2."""

    name: str
    mae: float
    rmse: float
    r2: float


@dataclasses.dataclass(frozen=True, eq=False)
class RegressionReport:
    """Evaluation result of a regression.

    Args:
        targets: True values, (N, D).
        values: Predicted values, (N, D).
        names: Name of each target.

    Examples:
        >>> report = RegressionReport(np.array([[1.0], [3.0]]), np.array([[1.5], [3.0]]), ["age"])
        >>> print(report.text())
        2 images
        target   MAE    RMSE      R2
        age     0.25  0.3536  0.8750
    """

    targets: np.ndarray
    values: np.ndarray
    names: Sequence[str]

    @functools.cached_property
    def errors(self) -> list[TargetErrors]:
        """Errors of each target."""
        columns = zip(self.names, self.targets.T, self.values.T, strict=True)
        measures = (mean_absolute_error, root_mean_squared_error, r2_score)
        return [TargetErrors(n, *(float(m(y, z)) for m in measures)) for n, y, z in columns]

    def text(self) -> str:
        """Formats the result as a table."""
        rows = [("target", "MAE", "RMSE", "R2")]
        for name, mae, rmse, r2 in self.errors:
            rows.append((shorten(name), f"{mae:.4g}", f"{rmse:.4g}", f"{r2:.4f}"))
        return "\n".join([f"{len(self.targets)} images", *text_table(rows, "<>>>")])

    def to_json(self) -> dict[str, Any]:
        """Returns the result as a dictionary, with the mean R2 of the targets."""
        errors = self.errors
        return {
            "num_examples": len(self.targets),
            "r2": float(np.mean([row.r2 for row in errors])),
            "per_target": [row._asdict() for row in errors],
        }


def scatter_plot(report: RegressionReport) -> Any:
    """Plots predicted against true values, for at most six targets; returns the figure."""
    errors = report.errors[:_MAX_TARGETS]
    figure, _ = plots(3.2 * len(errors), 3.2, 1, len(errors))
    for index, (axes, row) in enumerate(zip(figure.axes, errors, strict=True)):
        true, predicted = report.targets[:, index], report.values[:, index]
        ends = [min(true.min(), predicted.min()), max(true.max(), predicted.max())]
        axes.plot(ends, ends, color="0.7", linewidth=1)
        axes.scatter(true, predicted, s=8, alpha=0.5)
        axes.set_title(f"{shorten(row.name)}: R2 {row.r2:.3f}", fontsize=9)
        axes.set_xlabel("true value")
    figure.axes[0].set_ylabel("predicted value")
    return figure
