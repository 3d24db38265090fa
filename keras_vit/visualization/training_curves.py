"""Figure of the training and validation metrics of a run by epoch."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from keras_vit.runs import history
from keras_vit.visualization.drawing import COLORS, GRAY, open_axes, save_figure


def training_curves(history_csv: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    r"""Plots the metrics of a training run, each with its validation counterpart.

    Args:
        history_csv: History file of a run: a column `epoch` counted from 0, and a column per
            metric (`loss`, `val_loss`, ...).
        path: The file to write; its suffix (`.png`, `.svg`, `.pdf`) is the format.

    Returns:
        The path.

    Raises:
        ValueError: If the history has no epoch or no metric.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> text = "epoch,loss,val_loss\n0,1.7,1.5\n1,0.9,1.1\n"
        >>> _ = (folder / "history.csv").write_text(text)
        >>> training_curves(folder / "history.csv", folder / "curves.png").name
        'curves.png'
    """
    return save_figure(_training_figure(history_csv), path)


def _training_figure(history_csv: str | os.PathLike[str]) -> Figure:
    rows = history.read_rows(history_csv)
    if not rows or "epoch" not in rows[0] or len(rows[0]) < 2:
        raise ValueError(
            "`history_csv` must have a column 'epoch', a column per metric and a row per epoch, as "
            "written by keras.callbacks.CSVLogger. Received: "
            f"history_csv={os.fspath(history_csv)!r} with the columns "
            f"{list(rows[0]) if rows else []} and {len(rows)} rows"
        )
    values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    epochs = values["epoch"] + 1
    # A run of 0 epochs has validation metrics only.
    metrics = list(dict.fromkeys(name.removeprefix("val_") for name in values if name != "epoch"))
    num_columns = min(len(metrics), 3)
    num_rows = math.ceil(len(metrics) / num_columns)
    figure = Figure(figsize=(4.2 * num_columns, 3.2 * num_rows), layout="constrained")
    for index, metric in enumerate(metrics, start=1):
        axes = figure.add_subplot(num_rows, num_columns, index)
        curves = [("training", metric, GRAY), ("validation", f"val_{metric}", COLORS[0])]
        for name, column, color in curves:
            if column in values:
                axes.plot(epochs, values[column], color=color, marker="o", markersize=3, label=name)
        axes.set_title(metric.replace("_", " "), fontsize=11)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        open_axes(axes)
        if len(axes.lines) > 1:
            axes.legend(frameon=False)
    return figure
