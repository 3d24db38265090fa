"""Models for large images, which are divided into overlapping tiles."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import keras

from keras_vit import arguments
from keras_vit.layers import ModelMetadata
from keras_vit.models.cloning import require_graph
from keras_vit.models.metadata import config_of, has_config, preprocessing_of

# Pixels of an image before and after a tile along one axis, and pixels to crop at both ends of the
# tile's output, where the border of a neighboring tile is farther away.
_Tile = tuple[tuple[int, int], tuple[int, int]]


def tiled(model: keras.Model, image_size: int | tuple[int, int], overlap: int = 64) -> keras.Model:
    """Builds a segmentation model for larger images, which applies `model` to overlapping tiles.

    The tiles have the size of the model's input. Where two tiles overlap, a pixel's output is that
    of the tile whose border is farther away.

    Args:
        model: A segmentation model: from images to logits on a grid.
        image_size: Height and width of the images in pixels, at least those of `model`.
        overlap: Least overlap of neighboring tiles in pixels.

    Returns:
        A functional model with the weights of `model`, which is saved, evaluated and exported as
        any other.

    Raises:
        ValueError: If the sizes are not multiples of the step of the output, or `image_size` or
            `overlap` is out of range.

    Examples:
        >>> from keras_vit import models, zoo
        >>> backbone = zoo.ViTMicro4(weights=None, include_top=False, input_shape=(32, 32, 3))
        >>> models.tiled(models.Segmenter(backbone, classes=5), (48, 80), overlap=8).output_shape
        (None, 48, 80, 5)

    Reference: the overlap-tile strategy of https://arxiv.org/abs/1505.04597
    """
    require_graph(model)
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
        image_crop, output_crop = zip(row, column, strict=True)
        tile = keras.layers.Cropping2D(image_crop, dtype=dtype)(images)
        return keras.layers.Cropping2D(output_crop, dtype=dtype)(model(tile))

    def concatenate(parts: list[Any], axis: int) -> Any:
        return keras.layers.Concatenate(axis, dtype=dtype)(parts) if len(parts) > 1 else parts[0]

    row_logits = [concatenate([logits(row, column) for column in columns], 2) for row in rows]
    return keras.Model(inputs, concatenate(row_logits, 1), name=model.name)


def _tiles(side: int, tile: int, output: int, overlap: int) -> list[_Tile]:
    """Returns the tiles along one axis of an image."""
    step = tile // output  # which `overlap` is rounded up to
    if tile % output or side % step or side < tile or not 0 <= overlap <= tile - step:
        raise ValueError(
            "`image_size` must be at least the model's size, both multiples of the step of its "
            "output, and `overlap` at least one step smaller. Received: "
            f"{side} pixels for tiles of {tile}, outputs of {output}, overlap={overlap}"
        )
    rest, overlap = side // step - output, -(-overlap // step)
    number = -(-rest // (output - overlap)) + 1
    starts = [rest * index // max(number - 1, 1) for index in range(number)]
    borders = [(first + output + second) // 2 for first, second in itertools.pairwise(starts)]
    begins, ends = [0, *borders], [*borders, rest + output]
    return [
        ((step * start, step * (rest - start)), (begin - start, start + output - end))
        for start, begin, end in zip(starts, begins, ends, strict=True)
    ]
