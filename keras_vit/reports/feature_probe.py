"""Evaluation of frozen features with simple classifiers, trained on few or all labels."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit import arguments, data, evaluation, files
from keras_vit.data.pipeline import read_pixels
from keras_vit.evaluation.feature_probes import NEIGHBORS
from keras_vit.evaluation.few_shot import SEEDS, SHOTS
from keras_vit.models import features, preprocessing_of
from keras_vit.visualization import contact_sheet
from keras_vit.visualization.drawing import shorten

_QUERIES, _NEIGHBORS = 6, 5  # rows and neighbors of the contact sheet
_LONGEST_CAPTION = 18  # characters

_Parts = tuple[data.Examples, data.Examples]  # to draw examples from, and to score
_Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, eq=False)
class ProbeResult:
    """Accuracies of simple classifiers on a model's frozen features.

    Args:
        few_shot: Few-shot accuracies.
        knn_accuracy: Accuracy of nearest neighbors among all training images.
        linear_accuracy: Accuracy of logistic regression on them; None if a class has too few.
        training: Number of training images.
        test: Number of test images.

    Examples:
        >>> few_shot = evaluation.FewShot(1, (0.5, 0.7))
        >>> print(ProbeResult((few_shot,), 0.9, None, 80, 20).text())
        accuracy on 20 held-out images, from frozen features
          1 example per class   0.6000, standard deviation 0.1414 over 2 draws
          20 nearest neighbors  0.9000, of all 80 training images
          logistic regression   - (a class has fewer than three images)
    """

    few_shot: tuple[evaluation.FewShot, ...]
    knn_accuracy: float
    linear_accuracy: float | None
    training: int
    test: int

    def text(self) -> str:
        """Formats the accuracies as a table for printing."""
        rows = []
        for row in self.few_shot:
            name = f"{row.shots} example{'s' if row.shots > 1 else ''} per class"
            draws = f"standard deviation {row.spread:.4f} over {len(row.accuracies)} draws"
            rows.append((name, f"{row.mean:.4f}, {draws}"))
        note = f"of all {self.training} training images"
        linear = "- (a class has fewer than three images)"
        if self.linear_accuracy is not None:
            linear = f"{self.linear_accuracy:.4f}, {note}"
        knn = f"{min(NEIGHBORS, self.training)} nearest neighbors"
        rows += [(knn, f"{self.knn_accuracy:.4f}, {note}"), ("logistic regression", linear)]
        title = f"accuracy on {self.test} held-out images, from frozen features"
        return arguments.listed(title, arguments.text_table(rows, "<<"))

    def to_json(self) -> dict[str, Any]:
        """Returns all results as a dictionary that can be stored as JSON."""
        return {
            "few_shot": [
                {**row._asdict(), "mean": row.mean, "spread": row.spread} for row in self.few_shot
            ],
            "nearest_neighbors": self.knn_accuracy,
            "logistic_regression": self.linear_accuracy,
            "training_images": self.training,
            "test_images": self.test,
        }


def probe(
    model: keras.Model,
    training: data.Examples,
    test: data.Examples,
    *,
    cache: str | os.PathLike[str] | None = None,
    sheet: str | os.PathLike[str] | None = None,
    batch_size: int = 32,
    verbose: int = 0,
) -> ProbeResult:
    """Evaluates the frozen features of a model by training simple classifiers on them.

    Args:
        model: A model of keras_vit, or a model that contains one. The features are the inputs of
            its classifier, which is not used.
        training: Images to draw examples from.
        test: Images to score, of the same classes.
        cache: `.npz` file of the features: read if it belongs to this model and these images,
            otherwise written.
        sheet: Image file to write, with some test images beside their nearest training images.
        batch_size: Batch size.
        verbose: 0 is silent, 1 shows a progress bar.

    Returns:
        The accuracies, for numbers of examples per class up to the size of the largest class; of
        smaller classes all examples are used.

    Raises:
        ValueError: If the images are multi-label, or the classes differ.

    Examples:
        >>> from keras_vit import models
        >>> digits = data.load("digits")
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8)))
        >>> result = probe(model, digits.subset(range(300)), digits.subset(range(300, 400)))
        >>> [row.shots for row in result.few_shot], result.test
        ([1, 5, 10, 25], 100)
    """
    if training.multi_label or test.multi_label:
        raise ValueError(
            "`training` and `test` must have exactly one class per image to probe features. "
            f"Received: {training.source}, whose images may show several"
        )
    labels = evaluation.align(training.class_names, test)
    parts = _features(model, (training, test), cache, batch_size, verbose)
    training_part, test_part = (parts[0], training.targets), (parts[1], labels)
    if sheet is not None:
        _draw_neighbors(model, (training, test), parts, sheet)
    if verbose:
        print("Fitting linear classifiers ...", flush=True)
    largest = int(training.class_counts().max())
    shots = [number for number in SHOTS if number <= largest]
    return ProbeResult(
        evaluation.few_shot(training_part, test_part, shots=shots, seeds=SEEDS),
        evaluation.neighbor_accuracy(training_part, test_part),
        evaluation.linear_accuracy(training_part, test_part),
        len(training),
        len(test),
    )


def _features(
    model: keras.Model, parts: _Parts, cache: _Path | None, batch_size: int, verbose: int
) -> list[np.ndarray]:
    key = fingerprint(model, parts) if cache is not None else ""
    if cache is not None and Path(cache).is_file():
        stored = _read(cache)
        is_same = str(stored["fingerprint"]) == key
        if verbose:
            reading = "Reading cached features of the same model and images from"
            replacing = "Replacing cached features of another model or other images in"
            print(f"{reading if is_same else replacing} {cache}.")
        if is_same:
            return [stored["training"], stored["test"]]
    extracted = [
        np.asarray(features(model, part, batch_size=batch_size, verbose=verbose)) for part in parts
    ]
    if cache is not None:
        with files.atomic_path(cache) as temporary, temporary.open("wb") as file:
            np.savez(file, fingerprint=key, training=extracted[0], test=extracted[1])
    return extracted


def _read(path: _Path) -> dict[str, np.ndarray]:
    with (
        arguments.naming_place(
            "`cache` must be a file written by `keras-vit probe`, or a new file. Received: "
            f"cache={os.fspath(path)!r}"
        ),
        np.load(path) as stored,
    ):
        return {name: stored[name] for name in ("fingerprint", "training", "test")}


def fingerprint(model: keras.Model, parts: tuple[data.Examples, ...]) -> str:
    """Computes a hash of a model's architecture and weights, and of all image files."""
    digest = hashlib.sha256(model.to_json().encode())
    for weight in model.get_weights():
        digest.update(np.ascontiguousarray(weight).tobytes())
    for part in parts:
        digest.update(b"part")
        for index in range(len(part)):
            digest.update(hashlib.sha256(part.read(index)).digest())
    return digest.hexdigest()


def _draw_neighbors(
    model: keras.Model, examples: _Parts, parts: list[np.ndarray], path: _Path
) -> None:
    training, test = examples
    preprocessing = preprocessing_of(model)
    queries = np.unique(np.linspace(0, len(test) - 1, _QUERIES).round().astype(int))
    indices, similarities = evaluation.nearest(parts[0], parts[1][queries], _NEIGHBORS)
    tiles: list[tuple[data.Examples, int, str]] = []  # images, and the end of their captions
    for query, row, values in zip(queries, indices.tolist(), similarities, strict=True):
        tiles.append((test, int(query), ":"))
        tiles += [(training, i, f"\n{value:.2f}") for i, value in zip(row, values, strict=True)]
    encoded = [part.read(i) for part, i, _ in tiles]
    captions = [shorten(part.shown(i)[0], _LONGEST_CAPTION) + end for part, i, end in tiles]
    pixels = preprocessing.to_rgb(read_pixels(encoded, preprocessing))
    columns = 1 + indices.shape[1]
    contact_sheet(pixels, np.empty((len(pixels), 0)), (), path, captions, columns=columns)
