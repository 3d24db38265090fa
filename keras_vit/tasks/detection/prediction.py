"""Prediction for one image: the objects in it.

Letters: M objects; A cells; K classes; H, W height and width of the image.
"""

from __future__ import annotations

import numpy as np

from keras_vit.data.geometry import centered_geometry, uncut_boxes
from keras_vit.preprocessing import Preprocessing

MOST = 300  # objects of an image


def found_objects(
    output: np.ndarray, preprocessing: Preprocessing, sides: tuple[int, int]
) -> np.ndarray:
    """Returns the objects (M, 6) in an image of `sides` (H, W), those with high scores first.

    Args:
        output: Boxes and scores of the model (A, 4 + K).
        preprocessing: Preprocessing of the model.
        sides: Height and width of the upright image.

    Returns:
        Box (first row, first column, last row, last column, in pixels), score and class.
    """
    scores, labels = output[:, 4:].max(axis=1), output[:, 4:].argmax(axis=1)
    best = np.argsort(-scores, kind="stable")[:MOST]
    geometry = centered_geometry(np.array(sides), preprocessing)
    boxes = uncut_boxes(output[best, :4], geometry, preprocessing.size)
    boxes = np.clip(boxes, 0, np.tile(sides, 2))
    return np.column_stack([boxes, scores[best], labels[best]]).astype(np.float32)
