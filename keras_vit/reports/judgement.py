"""Everything that is asked of a trained classifier, answered on labelled images."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit import data, models
from keras_vit.data.pipeline import read_pixels
from keras_vit.evaluation import Slice, slice_accuracies
from keras_vit.models import classifier
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.calibration import Calibration, calibrate
from keras_vit.tasks.classification.explain import maps_in_batches
from keras_vit.tasks.classification.metrics import Report, evaluate_predictions
from keras_vit.tasks.classification.mistakes import surest_mistakes
from keras_vit.tasks.classification.predict import predict
from keras_vit.tasks.multi_label.metrics import MultiLabelReport, evaluate_labels
from keras_vit.visualization import overlay

_MISTAKES = 12
_METHOD = "gradient_rollout"


@dataclasses.dataclass(frozen=True, eq=False)
class Mistake:
    """An image that was classified wrongly, with what the model looked at.

    Args:
        name: Of the image.
        true: Its class.
        predicted: What the model said.
        confidence: How sure it was, in [0, 1].
        pixels: What it saw, (h, w, C), uint8.
        explained: The same under the map of the class that it said, (h, w, 3), uint8; None for a
            model that is no Vision Transformer.

    Example:
        >>> Mistake("a.jpg", "daisy", "rose", 0.9, np.zeros((4, 4, 3), "uint8"), None).confidence
        0.9
    """

    name: str
    true: str
    predicted: str
    confidence: float
    pixels: np.ndarray
    explained: np.ndarray | None


@dataclasses.dataclass(frozen=True, eq=False)
class Judgement:
    """What was found out about a model.

    Args:
        scores: Accuracy and the scores of each class, or of each label.
        calibration: Of its confidence; None where images may show several classes, or the
            classes do not exclude one another.
        mistakes: The most confident ones.
        slices: Accuracy on the values of each column of the data.
        checked: What is wrong with the images.

    Example:
        >>> digits = data.load("digits").subset(range(50))
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=10)
        >>> judgement = judge(models.build(config), digits)
        >>> judgement.scores.num_examples, len(judgement.mistakes)
        (50, 12)
    """

    scores: Report | MultiLabelReport
    calibration: Calibration | None
    mistakes: tuple[Mistake, ...]
    slices: tuple[Slice, ...]
    checked: data.DatasetReport

    def to_json(self) -> dict[str, Any]:
        """Returns all but the pictures as a dictionary of lists, numbers and strings."""
        mistakes = [
            {f.name: getattr(m, f.name) for f in dataclasses.fields(m)[:4]} for m in self.mistakes
        ]
        return {
            "scores": self.scores.to_json(),
            "calibration": _calibration_json(self.calibration),
            "mistakes": mistakes,
            "slices": [row._asdict() for row in self.slices],
            "data": self.checked.to_json(),
        }


def judge(
    model: keras.Model,
    examples: data.Examples,
    *,
    batch_size: int = 32,
    verbose: int = 0,
) -> Judgement:
    """Evaluates a model on labelled images in every respect.

    Args:
        model: As for `keras_vit.tasks.evaluate`.
        examples: The images; those that do not decode have to be left out before.
        batch_size: Images in a step.
        verbose: 0 is silent, 1 shows a progress bar.

    Returns:
        The judgement.

    Raises:
        ValueError: As `evaluate`.

    Example:
        >>> digits = data.load("digits").subset(range(50))
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=10)
        >>> round(judge(models.build(config), digits).calibration.before.error, 2) < 0.2
        True
    """
    labels, probabilities, preprocessing = predict(
        model, examples, batch_size=batch_size, verbose=verbose
    )
    names = preprocessing.labels or ()
    # Without its folders, and without an opinion on whether these images could be trained on.
    told = dataclasses.replace(
        examples, source=Path(examples.source).name or examples.source, notes=(), ignored={}
    )
    checked = dataclasses.replace(data.check(told, progress=bool(verbose)), refused="")
    if examples.multi_label:
        scores = evaluate_labels(labels, probabilities, names, preprocessing.thresholds or ())
        return Judgement(scores, None, (), (), checked)
    predicted = probabilities.argmax(axis=1)
    exclusive = preprocessing.thresholds is None and len(labels) > 1
    return Judgement(
        scores=evaluate_predictions(labels, probabilities, names),
        calibration=calibrate(labels, probabilities) if exclusive else None,
        mistakes=_mistakes(model, examples, labels, probabilities, preprocessing),
        slices=slice_accuracies(labels, predicted, examples.columns),
        checked=checked,
    )


def _mistakes(
    model: keras.Model,
    examples: data.Examples,
    labels: np.ndarray,
    probabilities: np.ndarray,
    preprocessing: Preprocessing,
) -> tuple[Mistake, ...]:
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    chosen = surest_mistakes(labels, probabilities, _MISTAKES)
    if not len(chosen):
        return ()
    pixels = read_pixels([examples.read(int(i)) for i in chosen], preprocessing)
    shown = preprocessing.to_rgb(pixels)
    explained: list[np.ndarray | None] = [None] * len(chosen)
    with contextlib.suppress(ValueError):  # no Vision Transformer, or none that can be opened
        extractor = models.FeatureExtractor(classifier.with_probabilities(model)[0])
        images = preprocessing.scale(pixels)
        maps = maps_in_batches(extractor, images, [_METHOD], predicted[chosen])[_METHOD]
        explained = list(overlay(shown, maps))
    names = preprocessing.labels or ()
    return tuple(
        Mistake(
            examples.names[i], names[labels[i]], names[predicted[i]], float(confidence[i]), *both
        )
        for i, *both in zip(chosen, shown, explained, strict=True)
    )


def _calibration_json(calibration: Calibration | None) -> dict[str, Any] | None:
    if calibration is None:
        return None

    def reliability(found: Any) -> dict[str, Any]:
        filled = found.counts > 0
        return {
            "expected_calibration_error": found.error,
            "counts": found.counts.tolist(),
            "confidence": np.where(filled, found.confidence, 0).tolist(),
            "accuracy": np.where(filled, found.accuracy, 0).tolist(),
        }

    return {
        "temperature": calibration.temperature,
        "before": reliability(calibration.before),
        "after": reliability(calibration.after),
    }
