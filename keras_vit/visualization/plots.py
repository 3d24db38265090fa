"""Pictures of a training run and of what a model learns from."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from keras_vit.runs import history
from keras_vit.visualization.drawing import COLOURS, GREY, open_axes, save_figure, shorten, show

_POINT = 1 / 72  # inch
_MAX_ANNOTATED = 30  # classes; above, the cells are too small for numbers
_MAX_DRAWN, _MOST_CONFUSED = 100, 50  # classes; of more than the first, the second are drawn
_LONGEST_CAPTION = 18  # characters, above an image 1.6 inches wide
_TRAINING, _VALIDATION = GREY, COLOURS[0]


class _ClassRow(Protocol):
    @property
    def name(self) -> str: ...


class _Report(Protocol):
    """The part of a `keras_vit.evaluation.Report` that is drawn."""

    @property
    def accuracy(self) -> float: ...

    @property
    def interval(self) -> tuple[float, float]: ...

    @property
    def per_class(self) -> Sequence[_ClassRow]: ...

    @property
    def confusion(self) -> Any: ...


def confusion_matrix(report: _Report, path: str | os.PathLike[str]) -> Path:
    """Draws the confusion matrix of a report.

    Each row is a true class. A cell holds the number of examples and their share of the row,
    which is also its colour, so that rare classes are as legible as common ones. With more
    than 30 classes only the colours remain; of more than 100 the 50 are drawn that are confused
    with others most.

    Args:
        report: A `keras_vit.evaluation.Report`.
        path: The file to write; its suffix (`.png`, `.svg`, `.pdf`) is the format.

    Returns:
        The path.

    Raises:
        ValueError: If matplotlib does not know the suffix.

    Example:
        >>> import tempfile
        >>> from keras_vit.evaluation import evaluate_predictions
        >>> report = evaluate_predictions([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], "ab")
        >>> confusion_matrix(report, Path(tempfile.mkdtemp()) / "confusion_matrix.png").name
        'confusion_matrix.png'
    """
    return save_figure(confusion_figure(report), path)


def training_curves(history_csv: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    r"""Draws the metrics of a training run, each with its validation counterpart.

    Args:
        history_csv: A file as a run writes it: a column `epoch` counted from 0, and a column per
            metric (`loss`, `val_loss`, ...).
        path: The file to write; its suffix (`.png`, `.svg`, `.pdf`) is the format.

    Returns:
        The path.

    Raises:
        ValueError: If the history has no epoch or no metric.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> text = "epoch,loss,val_loss\n0,1.7,1.5\n1,0.9,1.1\n"
        >>> _ = (folder / "history.csv").write_text(text)
        >>> training_curves(folder / "history.csv", folder / "curves.png").name
        'curves.png'
    """
    return save_figure(_training_figure(_read_history(history_csv)), path)


def contact_sheet(
    images: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    path: str | os.PathLike[str],
    captions: Sequence[str] | None = None,
    columns: int | None = None,
) -> Path:
    """Draws a batch of images with their labels.

    Args:
        images: Pixels (B, h, w, C), [0, 255]; what is outside is cut off. One channel is grey.
        labels: Share of each class in each image, (B, K).
        class_names: Name of each class.
        path: The file to write; its suffix (`.png`, `.svg`, `.pdf`) is the format.
        captions: What stands above each image; by default its classes, with their shares where
            it is mixed.
        columns: Images in a row; by default as many as make the sheet nearly square, at most 8.

    Returns:
        The path.

    Raises:
        ValueError: If there is no image, `labels` is of another shape, or matplotlib does not know
            the suffix.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "sheet.png"
        >>> contact_sheet(np.zeros((2, 5, 7, 3)), np.eye(2), ["daisy", "rose"], path).name
        'sheet.png'
    """
    if len(images) == 0 or np.shape(labels) != (len(images), len(class_names)):
        raise ValueError(
            "`labels` must have shape (images, classes), for at least one image. Received: labels "
            f"of shape {np.shape(labels)} for {len(images)} images, {len(class_names)} class names"
        )
    return save_figure(_sheet_figure(images, labels, class_names, captions, columns), path)


def _sheet_figure(
    images: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    captions: Sequence[str] | None = None,
    columns: int | None = None,
) -> Figure:
    titles = captions or [_caption(label, class_names) for label in labels]
    columns = columns or min(8, math.ceil(math.sqrt(len(images))))
    rows = math.ceil(len(images) / columns)
    figure = Figure(figsize=(columns * 1.6, rows * 1.85), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid:
        axes.set_axis_off()
    for axes, image, title in zip(grid, images, titles, strict=False):
        show(axes, image)
        axes.set_title(title, fontsize=7)
    return figure


def reconstruction_sheet(
    original: np.ndarray,
    masked: np.ndarray,
    reconstruction: np.ndarray,
    path: str | os.PathLike[str],
) -> Path:
    """Draws images, what was left of them, and what a masked autoencoder completes.

    Args:
        original: Pixels (B, h, w, C), [0, 255]; what is outside is cut off. One channel is grey.
        masked: The same with some patches masked.
        reconstruction: The same with these patches filled in.
        path: The file to write; its suffix (`.png`, `.svg`, `.pdf`) is the format.

    Returns:
        The path.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "reconstruction.png"
        >>> images = np.zeros((2, 5, 7, 3))
        >>> reconstruction_sheet(images, images, images, path).name
        'reconstruction.png'
    """
    return save_figure(_reconstruction_figure(original, masked, reconstruction), path)


def _reconstruction_figure(*columns: np.ndarray) -> Figure:
    rows = len(columns[0])
    figure = Figure(figsize=(len(columns) * 2.1, rows * 2.1 + 0.3), layout="constrained")
    grid = figure.subplots(rows, len(columns), squeeze=False)
    for place, (title, images) in enumerate(
        zip(("original", "masked", "reconstruction"), columns, strict=True)
    ):
        grid[0, place].set_title(title, fontsize=10)
        for axes, image in zip(grid[:, place], images, strict=True):
            axes.set_axis_off()
            show(axes, image, interpolation="nearest")
    return figure


def _caption(label: np.ndarray, class_names: Sequence[str]) -> str:
    """Names the classes of an image, with their shares where it was mixed."""
    present = [index for index in np.argsort(-label, kind="stable") if label[index] > 0.005][:3]
    names = [shorten(class_names[index], _LONGEST_CAPTION) for index in present]
    if all(label[index] > 0.995 for index in present):
        return "\n".join(names)
    shares = [f"{label[index]:.0%}" for index in present]
    return "\n".join(f"{name} {share}" for name, share in zip(names, shares, strict=True))


def confusion_figure(report: _Report) -> Figure:
    """Draws the confusion matrix of a report, as `confusion_matrix` does, to put it elsewhere.

    Args:
        report: A `keras_vit.evaluation.Report`.

    Returns:
        The figure.

    Example:
        >>> from keras_vit.evaluation import evaluate_predictions
        >>> report = evaluate_predictions([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], "ab")
        >>> confusion_figure(report).axes[0].get_ylabel()
        'true class'
    """
    counts = report.confusion  # of NumPy or sparse
    total, support, everything = counts.sum(), counts.sum(axis=1), counts.shape[0]
    shown, chosen = np.arange(everything), ""
    if everything > _MAX_DRAWN:
        wrong = support + counts.sum(axis=0) - 2 * counts.diagonal()
        shown = np.sort(np.argsort(-wrong, kind="stable")[:_MOST_CONFUSED])
        counts, chosen = counts[shown][:, shown], f"\n{len(shown)} most confused of {everything}"
    counts = counts if isinstance(counts, np.ndarray) else counts.toarray()
    shares = counts / np.maximum(support[shown, None], 1)
    num_classes = len(shown)
    annotated = num_classes <= _MAX_ANNOTATED
    font = 9.0 if annotated else 6.0
    # A label needs one line of its font, an annotated cell needs two lines and four digits.
    cell = (4.6 if annotated else 1.25) * font * _POINT
    side = max(num_classes * cell, 2.6)
    cell = side / num_classes
    labels = [shorten(report.per_class[index].name) for index in shown]

    # The matrix fills the figure; labels lie outside it and saving widens the picture for them.
    figure = Figure(figsize=(side, side))
    axes = figure.add_axes((0, 0, 1, 1))
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    ticks = range(num_classes)
    axes.set_yticks(ticks, labels, fontsize=font)
    widest = max(len(label) for label in labels) * 0.65 * font * _POINT
    axes.set_xticks(ticks, labels, fontsize=font, rotation=0 if widest < cell else 90)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    low, high = report.interval
    axes.set_title(
        f"accuracy {report.accuracy:.1%} of {total}\n95% interval {low:.1%} to {high:.1%}{chosen}",
        fontsize=10,
    )
    axes.tick_params(length=0 if annotated else 2)
    axes.spines[:].set_visible(not annotated)
    if annotated:
        _separate_cells(axes, num_classes)
        _annotate(axes, counts, shares, font)
    beside = axes.inset_axes((1 + 0.15 / side, 0, 0.13 / side, 1))
    bar = figure.colorbar(image, cax=beside, format=PercentFormatter(1))
    bar.set_label("share of the true class")
    bar.outline.set_visible(False)
    return figure


def _separate_cells(axes: Axes, num_classes: int) -> None:
    edges = np.arange(num_classes + 1) - 0.5
    axes.set_xticks(edges, minor=True)
    axes.set_yticks(edges, minor=True)
    axes.grid(which="minor", color="#dfe5ec", linewidth=0.8)
    axes.tick_params(which="minor", length=0)


def _annotate(axes: Axes, counts: np.ndarray, shares: np.ndarray, font: float) -> None:
    for row, column in np.argwhere(counts):
        share = shares[row, column]
        color = "white" if share > 0.55 else "#22303f"
        place: dict[str, Any] = {"ha": "center", "color": color}
        axes.text(column, row - 0.02, f"{counts[row, column]}", va="bottom", fontsize=font, **place)
        axes.text(column, row + 0.06, f"{share:.0%}", va="top", fontsize=font - 2, **place)


def _training_figure(history: dict[str, np.ndarray]) -> Figure:
    epochs = history["epoch"] + 1
    metrics = [name for name in history if name != "epoch" and not name.startswith("val_")]
    columns = min(len(metrics), 3)
    rows = math.ceil(len(metrics) / columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    for place, metric in enumerate(metrics, start=1):
        axes = figure.add_subplot(rows, columns, place)
        curves = [("training", metric, _TRAINING), ("validation", f"val_{metric}", _VALIDATION)]
        for name, column, color in curves:
            if column in history:
                axes.plot(
                    epochs, history[column], color=color, marker="o", markersize=3, label=name
                )
        axes.set_title(metric.replace("_", " "), fontsize=11)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        open_axes(axes)
        if len(axes.lines) > 1:
            axes.legend(frameon=False)
    return figure


def _read_history(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    rows = history.read(path)
    if not rows or "epoch" not in rows[0] or len(rows[0]) < 2:
        raise ValueError(
            "`history_csv` must have a column 'epoch', a column per metric and a row per epoch, "
            f"as keras.callbacks.CSVLogger writes it. Received: history_csv={os.fspath(path)!r} "
            f"with the columns {list(rows[0]) if rows else []} and {len(rows)} rows"
        )
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
