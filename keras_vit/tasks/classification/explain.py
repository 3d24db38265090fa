"""Relevance maps of image files: the regions that a prediction is based on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit import arguments
from keras_vit.data.pipeline import read_files
from keras_vit.files import read_file
from keras_vit.models import FeatureExtractor, last_activation, preprocessing_of
from keras_vit.tasks.registry import check_command
from keras_vit.visualization import relevance_sheet
from keras_vit.visualization.attention_maps import METHODS, activations_for, maps_of
from keras_vit.visualization.drawing import shorten

_BATCH = 8  # images at a time: the attention of all blocks and its gradients are in memory


def maps_in_batches(
    extractor: FeatureExtractor, images: np.ndarray, methods: Sequence[str], classes: np.ndarray
) -> dict[str, np.ndarray]:
    """Computes relevance maps with each method, in small batches to limit memory use."""
    maps_by_method: dict[str, list[np.ndarray]] = {method: [] for method in methods}
    for begin in range(0, len(images), _BATCH):
        part = slice(begin, begin + _BATCH)
        activations = activations_for(extractor, images[part], methods, classes[part])
        for method, maps in maps_by_method.items():
            maps.append(maps_of(extractor, activations, method))
    return {method: np.concatenate(maps) for method, maps in maps_by_method.items()}


_MOST_IMAGES = 100  # in one figure; matplotlib draws at most 65,536 pixels a side


def explain(
    model: keras.Model,
    paths: Sequence[str | os.PathLike[str]],
    *,
    methods: Sequence[str] = METHODS,
    of_class: str | None = None,
) -> Any:
    """Draws images with their relevance maps and predicted classes.

    Args:
        model: A classifier of keras_vit, or a Keras model that contains a keras_vit backbone.
        paths: Image files.
        methods: Kinds of maps, see `keras_vit.visualization.relevance_maps`.
        of_class: Name of the class to explain, or its index where no class has this name; by
            default the predicted class of each image.

    Returns:
        A matplotlib figure with a row for each image, for `keras_vit.visualization.save_figure`
        or a notebook.

    Raises:
        ValueError: If a method or class is unknown, a file is not an image or not a regular file,
            or the model is not a Vision Transformer with a classifier.

    Examples:
        >>> import PIL.Image
        >>> from keras_vit import models
        >>> PIL.Image.new("RGB", (20, 30)).save("black.png")
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=3))
        >>> len(explain(model, ["black.png"], of_class="2").axes)
        5
    """
    for method in methods:
        arguments.one_of("methods", method, METHODS)
    check_command("explain", preprocessing_of(model))
    if not 1 <= len(paths) <= _MOST_IMAGES:
        raise ValueError(
            f"`paths` must contain 1 to {_MOST_IMAGES} image files. Received: {len(paths)}"
        )
    encoded = [read_file("paths", path) for path in paths]
    network, preprocessing = last_activation.with_probabilities(model)
    extractor = FeatureExtractor(network)
    labels = preprocessing.class_names or ()
    class_index = None if of_class is None else find_class(of_class, labels)
    pixels = read_files(paths, encoded, preprocessing)
    scores = network.predict(preprocessing.scale(pixels), verbose=0)
    classes = scores.argmax(axis=1) if class_index is None else np.full(len(paths), class_index)
    maps = maps_in_batches(extractor, preprocessing.scale(pixels), methods, classes)
    titles = [
        _title(shorten(Path(path).name), labels, row, explained)
        for path, row, explained in zip(paths, scores, classes, strict=True)
    ]
    return relevance_sheet(preprocessing.to_rgb(pixels), maps, titles)


def find_class(name: str, labels: Sequence[str]) -> int:
    """Returns the index of a class that is given by its name or its index."""
    if name in labels:
        return list(labels).index(name)
    if name.isdecimal() and int(name) < len(labels):
        return int(name)
    raise ValueError(
        f"`of_class` must be one of the model's {len(labels)} classes: "
        f"{arguments.shortlist(labels, shown=20)}.{arguments.nearest(name, labels)} "
        f"Received: of_class={name!r}"
    )


def _title(name: str, labels: Sequence[str], scores: np.ndarray, explained: int) -> str:
    best = int(scores.argmax())
    lines = [name, f"{labels[best]} {scores[best]:.0%}"]
    if explained != best:
        lines.append(f"explained: {labels[explained]} {scores[explained]:.0%}")
    return "\n".join(lines)
