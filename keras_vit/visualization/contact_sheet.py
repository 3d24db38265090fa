"""Contact sheet of images with captions."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_vit.visualization.drawing import save_figure, shorten, show, tiles

_LONGEST_CAPTION = 18  # characters, above an image 1.6 inches wide


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
        images: Pixels (B, h, w, C), clipped to [0, 255]; one channel is drawn in gray.
        labels: Fraction of each class in each image, (B, K).
        class_names: Name of each class.
        path: The file to write; its suffix (`.png`, `.svg`, `.pdf`) is the format.
        captions: Caption above each image; by default its classes, with their fractions in mixed
            images.
        columns: Images per row; by default a nearly square sheet with at most 8.

    Returns:
        The path.

    Raises:
        ValueError: If there is no image, `labels` has another shape, or matplotlib does not
            support the suffix.

    Examples:
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
    titles = captions or [_caption(label, class_names) for label in labels]
    columns = columns or min(8, math.ceil(math.sqrt(len(images))))
    rows = math.ceil(len(images) / columns)
    figure, grid = tiles(rows, columns, columns * 1.6, rows * 1.85)
    for axes, image, title in zip(grid.ravel(), images, titles, strict=False):
        show(axes, image)
        axes.set_title(title, fontsize=7)
    return save_figure(figure, path)


def _caption(label: np.ndarray, class_names: Sequence[str]) -> str:
    """Returns the class names of an image, with their fractions if images were mixed."""
    present = [index for index in np.argsort(-label, kind="stable") if label[index] > 0.005][:3]
    shares = [(shorten(class_names[index], _LONGEST_CAPTION), label[index]) for index in present]
    is_mixed = any(share <= 0.995 for _, share in shares)
    return "\n".join(f"{name} {share:.0%}" if is_mixed else name for name, share in shares)
