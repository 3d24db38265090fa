"""Addition of classes to an exported classifier, from a few images, without training."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import tensorflow as tf

from keras_vit import files
from keras_vit.export import predictor
from keras_vit.export.load import newest_saved_model, run_signature, signatures_of
from keras_vit.export.saved_model import ASSETS, EXTRA
from keras_vit.preprocessing_files import LABELS
from keras_vit.tasks.class_rows import FILE, ClassRows


def add_class(
    source: str | os.PathLike[str],
    name: str,
    images: Sequence[predictor.Image],
    *,
    trust: bool = False,
) -> Path:
    """Adds a class to the file `classes.pb` of an exported classifier.

    The row of the class in the classifier is that of a linear discriminant analysis with the mean
    of the images' features, scaled to the trained rows, which do not change; its boundary with the
    most similar class passes through the middle of both means. A program that sends the file with
    its requests (docs/serving.md) uses the class from then on.

    Args:
        source: A SavedModel exported with `prototypes`, the folder of its versions, or of the
            export.
        name: Name of the new class.
        images: Images of the class, as for `Predictor.predict`; five or more are recommended.
        trust: As for `load_predictor`.

    Returns:
        The file, which is replaced by renaming.

    Raises:
        ValueError: If the model was exported without `prototypes`, the name is empty or that of
            another class, or an image cannot be read.

    Examples:
        >>> add_class("serving/vit", "tulip", ["1.jpg", "2.jpg", "3.jpg"])  # doctest: +SKIP
        PosixPath('serving/vit/1/assets.extra/classes.pb')
    """
    folder = newest_saved_model(Path(source)) if os.path.isdir(source) else None
    path = (folder or Path(source)) / EXTRA / FILE
    if folder is None or not path.is_file():
        raise ValueError(
            "`source` must be a model exported with `prototypes` (`keras-vit export "
            f"--prototypes`). Received: {os.fspath(source)}, without {EXTRA}/{FILE}"
        )
    name = " ".join(name.split())

    def others() -> ClassRows:
        classes = ClassRows.parse(path.read_bytes(), path)
        # The text file, whose names predictions have, may have been edited after the export.
        labels = (folder / ASSETS / LABELS).read_text(encoding="utf-8").split("\n")
        names = dict.fromkeys([*filter(None, labels), *classes.names])
        if not name or name in names:
            raise ValueError(
                f"`name` must not be empty, or one of the classes {', '.join(names)}. "
                f"Received: name={name!r}"
            )
        return classes

    others()
    if not images:
        raise ValueError("`images` must contain at least one image. Received: none")
    signatures = signatures_of(folder, trust)
    features = partial(run_signature, signatures["features"], "features")
    vectors = []
    outputs = predictor.compute_outputs(images, 32, list, features)
    for index, (vector, message) in enumerate(outputs):
        if message:
            raise ValueError(
                f"`images` must be images that can be read. Received: {images[index]!s}: {message}"
            )
        vectors.append(vector)
    row = _row(np.array(vectors, np.float64), signatures["class_rows"])
    with filelock.FileLock(path.with_name(f".{FILE}.lock")):
        classes = others()  # another process may have added a class meanwhile
        extended = ClassRows((*classes.names, name), np.concatenate([classes.rows, row]))
        files.write_bytes(path, extended.to_bytes())
    return path


def _row(features: np.ndarray, class_rows: Callable[..., Any]) -> np.ndarray:
    """Returns the row (1, D + 1) of a class from the features (N, D) of its images.

    The squared mean of N images exceeds that of the true mean by their variance / N; the bias is
    corrected for it.
    """
    mean, number = features.mean(axis=0, keepdims=True), len(features)
    stacked = tf.constant(np.concatenate([features, mean]), tf.float32)
    rows = class_rows(features=stacked)["rows"].numpy().astype(np.float64)
    products = np.sum(rows[:, :-1] * stacked.numpy(), axis=1)
    row = rows[-1:]
    row[0, -1] += (products[:-1].mean() - products[-1]) / 2 / max(number - 1, 1)
    return row.astype(np.float32)
