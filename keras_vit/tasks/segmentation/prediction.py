"""Prediction for one image: the class of each pixel.

Letters: H, W height and width of the image; h, w of the network's output; K classes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import PIL.Image

from keras_vit.data.class_maps import found_classes
from keras_vit.data.masks import IGNORED
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.dense import PictureTable
from keras_vit.tasks.segmentation.figures import overlay
from keras_vit.tasks.task import Prediction
from keras_vit.visualization.drawing import palette


@dataclasses.dataclass(frozen=True, eq=False)
class SegmentationPrediction(Prediction):
    """Class of each pixel of one image, or the reason why it cannot be read.

    Args:
        logits: Logits of the classes (h, w, K).
        preprocessing: Preprocessing of the model.
        message: Why the image could not be read; empty for a readable image.
    """

    logits: np.ndarray
    preprocessing: Preprocessing
    message: str = ""

    @property
    def shares(self) -> dict[str, float]:
        """Fraction of the pixels of the model's input of each class, by name."""
        return self.shares_in(self.logits.argmax(axis=-1))

    def class_map(self, height: int, width: int) -> np.ndarray:
        """Returns the class of each pixel (H, W), uint8, of an upright image of this size."""
        return found_classes(self.logits, (height, width), self.preprocessing)

    def text(self, top: int = 3) -> str:
        """Returns the largest fractions as one line of text."""
        if self.message:
            return self.message
        largest = sorted(self.shares.items(), key=lambda pair: -pair[1])[:top]
        return ", ".join(f"{name} {share:.1%}" for name, share in largest)

    def shares_in(self, classes: np.ndarray) -> dict[str, float]:
        """Returns the fraction of the pixels of each class in a class map, by name."""
        names = self.preprocessing.class_names or ()
        counts = np.bincount(classes[classes != IGNORED], minlength=len(names))
        return dict(zip(names, (counts / counts.sum()).tolist(), strict=True))


class ShareTable(PictureTable):
    """Table of the fractions of pixels of each class, with pictures of the masks."""

    def cells(self, found: SegmentationPrediction) -> dict[str, Any]:
        """Returns the fractions by name."""
        return found.shares

    def rows(self, file: Any, found: SegmentationPrediction) -> list[dict[str, Any]]:
        """Returns the row of one image; the border of a padded image does not count."""
        (row,) = super().rows(file, found)
        if found.ok and found.preprocessing.resize == "pad":
            sides = self.pixels_of(file, found.preprocessing).shape[:2]
            row |= found.shares_in(found.class_map(*sides))
        return [row]

    def pictures(self, file: Any, found: SegmentationPrediction) -> dict[str, PIL.Image.Image]:
        """Returns the mask of an image, with a palette, and the image with its mask on it."""
        image = self.pixels_of(file, found.preprocessing)
        classes, num_classes = found.class_map(*image.shape[:2]), len(self.columns) - 2
        mask = PIL.Image.fromarray(classes)
        mask.putpalette(palette(num_classes).ravel().tolist())
        overlaid = PIL.Image.fromarray(overlay(image, classes, num_classes))
        return {".png": mask, "_overlay.jpg": overlaid}
