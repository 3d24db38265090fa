"""Image sizes and pictures of tasks whose targets are masks or boxes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_vit import data
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig

SHOWN = 8  # images


def with_image_size(
    config: RunConfig,
    sides: Callable[[], Sequence[Any]],
    largest: int,
    multiples: Sequence[int],
) -> RunConfig:
    """Returns a configuration in which a model sees whole images, by default at their median size.

    Args:
        config: The configuration.
        sides: Function that returns the heights and widths of some images, (N, 2).
        largest: Longer side of the default size.
        multiples: Numbers of pixels of which the default height and width are multiples.
    """
    recipe = config.recipe.replace(resize=config.recipe.resize or "squash")
    if recipe.image_size is None:
        median = np.median(sides(), axis=0)
        median *= min(1.0, largest / median.max())
        size = tuple(
            int(max(1, round(side / step)) * step)
            for side, step in zip(median, multiples, strict=True)
        )
        recipe = recipe.replace(image_size=size)
        print(f"Image size: {size[0]} x {size[1]} (height x width); see --image-size.")
    return dataclasses.replace(config, recipe=recipe)


def some(examples: data.Examples, number: int = SHOWN) -> data.Examples:
    """Returns a few of the images, evenly spaced."""
    return examples.subset(np.unique(np.linspace(0, len(examples) - 1, number).astype(int)))


def upright_pixels(examples: data.Examples) -> list[np.ndarray]:
    """Returns the upright pixels of images, each (H, W, C), in [0, 255]."""
    images = (data.decode(examples.read(i), Preprocessing()) for i in range(len(examples)))
    return [image.numpy() for image in images]
