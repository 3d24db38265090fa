"""Faithfulness of relevance maps, measured by deletion and insertion curves.

Letters: B batch; H, W, C image height, width, channels; h, w rows and columns of patches; N = hw
patches; S steps.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
import PIL.Image
import PIL.ImageFilter

from keras_vit import arguments
from keras_vit.models import last_activation

_BLUR = 0.05  # radius of the initial blur of insertion, as a fraction of the longer side


@dataclasses.dataclass(frozen=True, eq=False)
class Curves:
    """Probabilities of a class while patches are deleted from or inserted into images.

    Args:
        deletion: Probabilities while patches are replaced by gray, most relevant first,
            (B, S + 1), from the original image to an all-gray image.
        insertion: Probabilities while patches of a blurred image become sharp, most relevant
            first, (B, S + 1), from an all-blurred image to the original image.

    Examples:
        >>> curves = Curves(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
        >>> curves.deletion_area.tolist(), curves.insertion_area.tolist()
        ([0.5], [0.5])
    """

    deletion: np.ndarray
    insertion: np.ndarray

    @property
    def deletion_area(self) -> np.ndarray:
        """Areas (B,) under the images' deletion curves, in [0, 1]; lower is more faithful."""
        return np.trapezoid(self.deletion, axis=1) / (self.deletion.shape[1] - 1)

    @property
    def insertion_area(self) -> np.ndarray:
        """Areas (B,) under the images' insertion curves, in [0, 1]; higher is more faithful."""
        return np.trapezoid(self.insertion, axis=1) / (self.insertion.shape[1] - 1)


def faithfulness(
    model: keras.Model,
    images: Any,
    maps: np.ndarray,
    classes: Any,
    *,
    steps: int = 14,
    batch_size: int = 64,
) -> Curves:
    """Measures the faithfulness of relevance maps by deletion and insertion curves.

    Patches change in descending order of relevance, equally many at each step. Deleted patches
    become gray, the middle of the pixel range; inserted patches are blurred at first, which gives
    the model fewer false edges.

    Args:
        model: A classifier of keras_vit, or a Keras model that contains a keras_vit backbone.
        images: Images scaled by the model's preprocessing, (B, H, W, C).
        maps: Relevance of each patch, (B, h, w), highest for the most relevant patch.
        classes: The class whose probability is measured, (B,).
        steps: Number S of steps.
        batch_size: Batch size of the model's predictions.

    Returns:
        The curves.

    Raises:
        ValueError: If the numbers of images, maps and classes differ.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12), classes=5))
        >>> images = np.random.default_rng(0).normal(size=(2, 8, 12, 3)).astype("float32")
        >>> curves = faithfulness(model, images, np.ones((2, 2, 3)), [0, 1], steps=3)
        >>> curves.deletion.shape
        (2, 4)

    Reference: section 4.3 of https://arxiv.org/abs/1806.07421
    """
    arguments.positive_int("steps", steps)
    images, classes = np.asarray(images, np.float32), np.ravel(np.asarray(classes))
    if not len(images) == len(maps) == len(classes):
        raise ValueError(
            "`maps` and `classes` must have one entry for each image. Received: "
            f"{len(images)} images, {len(maps)} maps, {len(classes)} classes"
        )
    network, preprocessing = last_activation.with_probabilities(model)
    gray = preprocessing.scale(np.full((1, 1, images.shape[-1]), 127.5))
    blurred = np.stack([_blur(image, preprocessing) for image in images])
    ranks = np.stack([_pixel_ranks(m, images.shape[1:3]) for m in maps])[..., None]  # (B, H, W, 1)
    curves = np.zeros((2, len(images), steps + 1))  # deletion, insertion
    indices = np.arange(len(images))
    for step in range(steps + 1):
        is_changed = ranks < round(step / steps * np.size(maps[0]))
        changed_images = np.where(is_changed, gray, images), np.where(is_changed, images, blurred)
        for curve, changed in zip(curves, changed_images, strict=True):
            probabilities = network.predict(changed.astype("float32"), batch_size, verbose=0)
            curve[:, step] = probabilities[indices, classes]
    return Curves(*curves)


def center_map(grid: tuple[int, int]) -> np.ndarray:
    """Returns a baseline map in which patches near the center are the most relevant.

    Args:
        grid: Rows and columns h, w of patches.

    Returns:
        A Gaussian at the center, standard deviation a quarter of each side, (h, w), in (0, 1].

    Examples:
        >>> int(center_map((3, 3)).argmax())
        4
    """
    rows, columns = (np.exp(-(((np.arange(n) - (n - 1) / 2) / (n / 4)) ** 2) / 2) for n in grid)
    return np.outer(rows, columns)


def random_map(grid: tuple[int, int], seed: int) -> np.ndarray:
    """Returns a baseline map of random values.

    Args:
        grid: Rows and columns h, w of patches.
        seed: Seed of the random numbers.

    Returns:
        Random numbers in [0, 1), (h, w).

    Examples:
        >>> random_map((2, 3), seed=0).shape
        (2, 3)
    """
    return np.random.default_rng(seed).random(grid)


def _pixel_ranks(relevance: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns, for each pixel (H, W), the rank of its patch by relevance; 0 is the highest."""
    order = np.argsort(-relevance, axis=None, kind="stable")
    ranks = np.argsort(order).reshape(relevance.shape)
    (h, w), (height, width) = relevance.shape, size
    return ranks[np.ix_(np.arange(height) * h // height, np.arange(width) * w // width)]


def _blur(image: np.ndarray, preprocessing: Any) -> np.ndarray:
    pixels = np.clip(np.round(preprocessing.unscale(image)), 0, 255).astype(np.uint8)
    blur = PIL.ImageFilter.GaussianBlur(_BLUR * max(image.shape[:2]))
    bands = [PIL.Image.fromarray(band).filter(blur) for band in np.moveaxis(pixels, -1, 0)]
    return preprocessing.scale(np.stack([np.asarray(band) for band in bands], axis=-1))
