"""Prediction for one image: the class of each pixel.

Letters: H, W height and width of the image; h, w of the network's output; K classes.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from keras_vit import files
from keras_vit.data.class_maps import found_classes
from keras_vit.data.decode_and_resize import decode
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.segmentation.figures import overlay
from keras_vit.tasks.task import Prediction, Table
from keras_vit.visualization.drawing import palette


@dataclasses.dataclass(frozen=True, eq=False)
class SegmentationPrediction(Prediction):
    """Class of each pixel of one image, or the reason why it cannot be read.

    Args:
        logits: Logits of the classes (h, w, K).
        preprocessing: Preprocessing of the model.
        message: The reason, or an empty string.
    """

    logits: np.ndarray
    preprocessing: Preprocessing
    message: str = ""

    @property
    def shares(self) -> dict[str, float]:
        """Fraction of the pixels of each class, by name."""
        names = self.preprocessing.class_names or ()
        counts = np.bincount(self.logits.argmax(axis=-1).ravel(), minlength=len(names))
        return dict(zip(names, (counts / counts.sum()).tolist(), strict=True))

    def class_map(self, height: int, width: int) -> np.ndarray:
        """Returns the class of each pixel (H, W), uint8, of an upright image of this size."""
        return found_classes(self.logits, (height, width), self.preprocessing)

    def text(self, top: int = 3) -> str:
        """Returns the largest fractions as one line of text."""
        if self.message:
            return self.message
        largest = sorted(self.shares.items(), key=lambda pair: -pair[1])[:top]
        return ", ".join(f"{name} {share:.1%}" for name, share in largest)


class ShareTable(Table):
    """Table of the fractions of pixels of each class, with pictures of the masks."""

    _written = 0  # images

    def cells(self, found: SegmentationPrediction) -> dict[str, Any]:
        """Returns the fractions by name."""
        return found.shares

    def write_pictures(self, folder: Path, file: str, found: SegmentationPrediction) -> None:
        """Writes the mask of an image, with a palette, and the image with its mask on it."""
        self._written += 1
        if not found.ok:
            return
        image = decode(files.read_file("file", file), found.preprocessing).numpy()
        classes, number = found.class_map(*image.shape[:2]), len(self.columns) - 2
        mask = PIL.Image.fromarray(classes)
        mask.putpalette(palette(number).ravel().tolist())
        shown = PIL.Image.fromarray(overlay(image, classes, number))
        stem = f"{self._written:05d}_{Path(file).stem}"
        for picture, suffix in ((mask, ".png"), (shown, "_overlay.jpg")):
            with files.atomic_path(folder / f"{stem}{suffix}") as temporary:
                picture.save(temporary)
