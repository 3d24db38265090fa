"""Proof that an exported file computes what the model computes."""

from __future__ import annotations

import os
from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.export.comparison import Comparison
from keras_vit.export.keras_predictor import KerasPredictor
from keras_vit.export.load import load_predictor


class VerificationError(RuntimeError):
    """An exported artefact disagrees with its model.

    Args:
        message: Which one, by how much, and where.

    Example:
        >>> str(VerificationError("model.tflite: the labels differ"))
        'model.tflite: the labels differ'
    """


def verify(
    model: keras.Model, artefacts: Sequence[str | os.PathLike[str]], images: Sequence[bytes]
) -> tuple[Comparison, ...]:
    """Loads each artefact from disk and compares its probabilities with the model's.

    The same encoded images go through each of them, and through decoding, resizing, scaling
    and `model.predict`.

    Args:
        model: The model that was exported.
        artefacts: Whatever `load_predictor` takes.
        images: Encoded images to compare on, at least one; real ones tell most.

    Returns:
        One `Comparison` per artefact.

    Raises:
        VerificationError: If labels or thresholds differ, or probabilities by more than 1e-5
            (TFLite: 1e-4).
        ValueError: If there is no image, or one does not decode.

    Example:
        >>> import tempfile
        >>> import tensorflow as tf
        >>> from keras_vit import models
        >>> from keras_vit.export import saved_model
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=3)
        >>> model = models.build(config)
        >>> folder = saved_model.write(model, tempfile.mkdtemp())
        >>> png = tf.io.encode_png(np.zeros((5, 7, 3), "uint8")).numpy()
        >>> [comparison.ok for comparison in verify(model, [folder], [png])]
        [True]
    """
    reference = KerasPredictor(model)
    expected = reference.predict(images)
    comparisons = []
    for path in artefacts:
        predictor = load_predictor(path)
        if predictor.labels != reference.labels:
            raise VerificationError(
                f"{predictor.name}: its labels differ from those of the model. Received: "
                f"{predictor.labels[:5]} ... instead of {reference.labels[:5]} ..."
            )
        if predictor.thresholds != reference.thresholds:
            raise VerificationError(
                f"{predictor.name}: its thresholds differ from those of the model. Received: "
                f"{predictor.thresholds} instead of {reference.thresholds}"
            )
        differences = np.abs(predictor.predict(images) - expected).max(axis=1)  # (N,)
        worst = int(differences.argmax())  # NaN counts as the largest
        comparisons.append(
            Comparison(predictor.name, float(differences[worst]), worst, predictor.tolerance)
        )
    failed = [comparison for comparison in comparisons if not comparison.ok]
    if failed:
        raise VerificationError(
            "\n".join(
                f"{c.path}: its probabilities differ from those of the model by "
                f"{c.largest_difference:.1e}, more than the tolerance of {c.tolerance:.0e}, most "
                f"for image {c.worst_image} of 0 to {len(images) - 1}."
                for c in failed
            )
        )
    return tuple(comparisons)


def table(comparisons: Sequence[Comparison]) -> str:
    """Returns comparisons as lines to print.

    Args:
        comparisons: What `verify` returned.

    Returns:
        A heading and a line per artefact.

    Example:
        >>> print(table([Comparison("model.tflite", 3.14e-7, worst_image=2, tolerance=1e-4)]))
        artefact      largest difference  tolerance
        model.tflite             3.1e-07      1e-04  ok
    """
    width = max(map(len, ("artefact", *(c.path for c in comparisons))))
    lines = [f"{'artefact':<{width}}  largest difference  tolerance"]
    lines += [
        f"{c.path:<{width}}  {c.largest_difference:>18.1e}  {c.tolerance:>9.0e}  "
        f"{'ok' if c.ok else 'DIFFERS'}"
        for c in comparisons
    ]
    return "\n".join(lines)
