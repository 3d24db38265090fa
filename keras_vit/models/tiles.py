"""Models of large images, which see them in overlapping tiles."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import keras

from keras_vit import arguments
from keras_vit.layers import ModelMetadata
from keras_vit.models.metadata import config_of, has_config, preprocessing_of

# Pixels of an image before and after a tile along one axis, and what is cut off from the tile's
# output, where a neighboring tile shows more around it.
_Tile = tuple[tuple[int, int], tuple[int, int]]


def tiled(model: keras.Model, image_size: int | tuple[int, int], overlap: int = 64) -> keras.Model:
    """Builds a model of larger images from a segmentation model, which sees them in tiles.

    The tiles have the size of the model's input. Where they overlap, each pixel is that of the tile
    in which it is farther from the border.

    Args:
        model: A segmentation model: from images to logits on a grid.
        image_size: Height and width of the images in pixels, at least those of `model`.
        overlap: Least overlap of neighboring tiles in pixels.

    Returns:
        A functional model with the weights of `model`, which is saved, evaluated and exported as
        any other.

    Raises:
        ValueError: If the sizes are no multiples of the step of the output, or `image_size` or
            `overlap` is out of range.

    Examples:
        >>> from keras_vit import models, zoo
        >>> backbone = zoo.ViTMicro4(weights=None, include_top=False, input_shape=(32, 32, 3))
        >>> models.tiled(models.Segmenter(backbone, classes=5), (48, 80), overlap=8).output_shape
        (None, 48, 80, 5)

    Reference: the overlap-tile strategy of https://arxiv.org/abs/1505.04597
    """
    size = arguments.size_pair("image_size", image_size)
    rows, columns = (
        _tiles(*sides, overlap)
        for sides in zip(size, model.input_shape[1:3], model.output_shape[1:3], strict=True)
    )
    dtype = model.inputs[0].dtype
    inputs = keras.Input((*size, model.input_shape[-1]), dtype=dtype)
    preprocessing = dataclasses.replace(preprocessing_of(model), size=size)
    architecture = config_of(model).get_config() if has_config(model) else None
    images = ModelMetadata(preprocessing, architecture, dtype=dtype)(inputs)

    def logits(row: _Tile, column: _Tile) -> Any:
        outside, cut = zip(row, column, strict=True)
        tile = keras.layers.Cropping2D(outside, dtype=dtype)(images)
        return keras.layers.Cropping2D(cut, dtype=dtype)(model(tile))

    def joined(parts: list[Any], axis: int) -> Any:
        return keras.layers.Concatenate(axis, dtype=dtype)(parts) if len(parts) > 1 else parts[0]

    bands = [joined([logits(row, column) for column in columns], 2) for row in rows]
    return keras.Model(inputs, joined(bands, 1), name=model.name)


def _tiles(side: int, tile: int, output: int, overlap: int) -> list[_Tile]:
    """Returns the tiles along one axis of an image."""
    step = tile // output
    if tile % output or side % step or side < tile or not 0 <= overlap < tile:
        raise ValueError(
            "`image_size` must be at least the model's size, both multiples of the step of its "
            "output, and `overlap` below them. Received: "
            f"{side} pixels for tiles of {tile}, outputs of {output}, overlap={overlap}"
        )
    rest, overlap = side // step - output, -(-overlap // step)
    number = -(-rest // (output - overlap)) + 1
    places = [rest * index // max(number - 1, 1) for index in range(number)]
    borders = [(last + output + first) // 2 for last, first in itertools.pairwise(places)]
    begins, ends = [0, *borders], [*borders, rest + output]
    return [
        ((step * place, step * (rest - place)), (begin - place, place + output - end))
        for place, begin, end in zip(places, begins, ends, strict=True)
    ]
