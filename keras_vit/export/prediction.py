"""What a classifier said of an image, wherever it ran."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from keras_vit.export.predictor import Predictor
from keras_vit.preprocessing import Preprocessing

BEST = 5  # classes that an answer names


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """The answer for one image.

    Args:
        probabilities: Of each class, (R,), float32.
        top_labels: The most probable classes, best first.
        top_scores: Their probabilities.
        present: The labels with a yes, most probable first, of a model that says yes or no to each
            by itself; None where the classes exclude one another.
        message: Why the image could not be read, or nothing.

    Example:
        >>> said = Prediction(np.array([0.25, 0.75]), ("rose", "daisy"), (0.75, 0.25))
        >>> said.ok, said.label, said.text()
        (True, 'rose', 'rose 0.7500   daisy 0.2500')
    """

    probabilities: np.ndarray
    top_labels: tuple[str, ...]
    top_scores: tuple[float, ...]
    present: tuple[str, ...] | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the image could be read."""
        return not self.message

    @property
    def label(self) -> str:
        """The most probable class."""
        return self.top_labels[0]

    def text(self, top: int = 3) -> str:
        """Returns the answer as a line.

        Args:
            top: How many classes to name where they exclude one another.

        Returns:
            Labels with their probabilities, or what is wrong with the image.
        """
        if not self.ok:
            return self.message
        named = dict(zip(self.top_labels, self.top_scores, strict=True))
        shown = self.top_labels[:top] if self.present is None else self.present
        scores = [f"{label} {named[label]:.4f}" if label in named else label for label in shown]
        return "   ".join(scores) or "none of the labels"


def predictions(
    predictor: Predictor, images: Sequence[bytes], *, batch_size: int = 32, top: int = BEST
) -> list[Prediction]:
    """Classifies encoded images with an artefact of this package.

    Args:
        predictor: What `load_predictor` returned.
        images: Encoded images.
        batch_size: Images in a step.
        top: How many classes to name where they exclude one another.

    Returns:
        One answer per image.

    Raises:
        ValueError: If there is no image, or one of them does not decode.

    Example:
        >>> import tensorflow as tf
        >>> from keras_vit import models
        >>> from keras_vit.export.keras_predictor import KerasPredictor
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=3)
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 3), "uint8")).numpy()
        >>> predictions(KerasPredictor(models.build(config)), [png])[0].top_labels
        ('0', '1', '2')
    """
    contract = Preprocessing(thresholds=predictor.thresholds)
    found = []
    for row in predictor.predict(images, batch_size):
        best = np.argsort(-row, kind="stable")
        present = None
        if predictor.thresholds:
            present = tuple(predictor.labels[i] for i in best[contract.present(row)[best]])
        named = best[: max(top, len(present or ()))]
        labels, scores = (predictor.labels[i] for i in named), (float(row[i]) for i in named)
        found.append(Prediction(row, tuple(labels), tuple(scores), present))
    return found
