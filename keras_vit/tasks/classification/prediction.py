"""Predictions of a classifier for single images, and tables of predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks import task
from keras_vit.tasks.classification.conformal import prediction_set
from keras_vit.tasks.classification.out_of_distribution import split

BEST = 5  # classes of a prediction


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction(task.Prediction):
    """A classifier's prediction for one image.

    Args:
        probabilities: Probability of each class, (R,), float32.
        top_labels: The most probable classes, best first; empty for an image that cannot be read.
        top_scores: Their probabilities.
        present: The labels above their thresholds, most probable first; None for exclusive classes.
        message: Reason why the image cannot be read; empty if it can.
        set: The classes of the prediction set, most probable first; None without a coverage.
        ood_score: Out-of-distribution score, about 1 for images like the training images; None
            without scores.
        in_distribution: Whether the score is at most the threshold; None without scores.
        nearest: Names of the most similar training images; None if they are not searched.

    Examples:
        >>> result = Prediction(np.array([0.25, 0.75]), ("rose", "daisy"), (0.75, 0.25))
        >>> result.ok, result.label, result.score, result.text()
        (True, 'rose', 0.75, 'rose 0.7500   daisy 0.2500')
    """

    probabilities: np.ndarray
    top_labels: tuple[str, ...]
    top_scores: tuple[float, ...]
    present: tuple[str, ...] | None = None
    message: str = ""
    set: tuple[str, ...] | None = None
    ood_score: float | None = None
    in_distribution: bool | None = None
    nearest: tuple[str, ...] | None = None

    @property
    def label(self) -> str | None:
        """The most probable class; None if the image could not be read."""
        return self.top_labels[0] if self.ok else None

    @property
    def score(self) -> float | None:
        """The probability of `label`; None if the image could not be read."""
        return self.top_scores[0] if self.ok else None

    def text(self, top: int = 3) -> str:
        """Returns the prediction as one line of text.

        Args:
            top: Number of classes to list if they are exclusive.

        Returns:
            Labels with their probabilities, or the error message of the image.
        """
        if not self.ok:
            return self.message
        best = [f"{n} {p:.4f}" for n, p in zip(self.top_labels, self.top_scores, strict=True)]
        texts = dict(zip(self.top_labels, best, strict=True))
        present = [texts.get(name, name) for name in self.present or ()]
        scores = best[:top] if self.present is None else present
        if self.set is not None:
            scores.append(f"set: {', '.join(self.set)}")
        if self.in_distribution is False:
            scores.append(f"out of distribution (score {self.ood_score:.2f})")
        if self.nearest is not None:
            scores.append(f"like {', '.join(self.nearest)}")
        return "   ".join(scores) or "none of the labels"


def prediction(
    output: np.ndarray, preprocessing: Preprocessing, message: str = "", top: int = BEST
) -> Prediction:
    """Creates the prediction for an image from a row of outputs (see `out_of_distribution`)."""
    output, score, neighbors = split(output, preprocessing)
    if message:
        return Prediction(np.zeros_like(output), (), (), message=message)
    labels = preprocessing.class_names or ()
    if len(labels) != len(output):
        raise ValueError(
            f"`class_names` must contain one name for each of the {len(output)} outputs of "
            f"the model. Received: {len(labels)} class names"
        )
    order = np.argsort(-output, kind="stable")

    def names_of(mask: np.ndarray) -> tuple[str, ...]:
        return tuple(labels[i] for i in order[mask[order]])

    present = names_of(preprocessing.present(output)) if preprocessing.thresholds else None
    has_set = preprocessing.set_threshold is not None
    set_classes = names_of(prediction_set(output, preprocessing)) if has_set else None
    listed = order[: max(top, len(present or ()))]
    threshold, images = preprocessing.ood_threshold, preprocessing.training_images
    nearest = neighbors[len(neighbors) // 2 :].astype(int)
    return Prediction(
        output,
        tuple(labels[i] for i in listed),
        tuple(float(output[i]) for i in listed),
        present,
        set=set_classes,
        ood_score=None if score is None else float(score),
        in_distribution=None if score is None else bool(score <= threshold),
        nearest=None if images is None else tuple(images[index] for index in nearest),
    )


def served_predictions(response: Mapping[str, np.ndarray]) -> list[Prediction]:
    """Creates predictions from a server's response (see docs/serving.md)."""
    predictions = []
    for index, ok in enumerate(response["ok"]):
        probabilities = np.asarray(response["probabilities"][index], np.float32)
        if not ok:
            message = str(response["message"][index]) or "refused by the server"
            predictions.append(Prediction(np.zeros_like(probabilities), (), (), message=message))
            continue
        labels, scores = response["top_labels"][index], response["top_scores"][index]
        further: dict[str, Any] = {}  # what only some classifiers predict
        if "present" in response:
            candidates = zip(labels, response["top_indices"][index], strict=True)
            present = response["present"][index]
            further["present"] = tuple(str(label) for label, i in candidates if present[i])
        if "set" in response:
            names = dict(zip(response["top_indices"][index], labels, strict=True))
            order = np.argsort(-probabilities, kind="stable")
            inside = [i for i in order if response["set"][index][i]]
            further["set"] = tuple(str(names.get(i, f"class {i}")) for i in inside)
        if "ood_score" in response:
            further["ood_score"] = float(response["ood_score"][index])
            further["in_distribution"] = bool(response["in_distribution"][index])
        if "nearest_images" in response:
            further["nearest"] = tuple(map(str, response["nearest_images"][index]))
        best = tuple(map(str, labels)), tuple(map(float, scores))
        predictions.append(Prediction(probabilities, *best, **further))
    return predictions


def optional_cells(found: Prediction) -> dict[str, Any]:
    """Returns the cells of what only some classifiers predict, by column."""
    cells: dict[str, Any] = {}
    if found.present is not None:
        cells["present"] = "|".join(found.present)
    if found.set is not None:
        cells |= {"set": "|".join(found.set), "set_size": len(found.set)}
    if found.ood_score is not None:
        cells |= {"ood_score": found.ood_score, "in_distribution": found.in_distribution}
    return cells | {f"nearest_{rank}": name for rank, name in enumerate(found.nearest or (), 1)}


class Scores(task.Table):
    """Table of predictions, with one row per image."""

    def __init__(
        self,
        labels: Sequence[str] = (),
        every_class: bool = False,
        further: Sequence[str] = (),
    ) -> None:
        ranks = range(2, min(BEST, len(labels) or BEST) + 1)
        scores = [f"{what}_{rank}" for rank in ranks for what in ("label", "score")]
        self._every = [f"probability_{label}" for label in labels] if every_class else None
        scores = scores if self._every is None else self._every
        super().__init__(["label", "score", *further, *scores])

    def rows(self, file: str, found: Prediction) -> list[dict[str, Any]]:
        """Returns the table row of one image."""
        row = {"file": file, "label": found.label, "score": found.score, **optional_cells(found)}
        if self._every is None:
            best = zip(found.top_labels, found.top_scores, strict=True)
            for rank, (label, score) in list(enumerate(best, 1))[1:BEST]:
                row |= {f"label_{rank}": label, f"score_{rank}": score}
        elif found.ok:
            row |= zip(self._every, map(float, found.probabilities), strict=True)
        return [row | {"message": found.message or None}]
