"""Attention as it is: from one token to the patches, for every block and head.

Letters: B batch; H, W, C image height, width, channels; h, w rows and columns of patches; T
tokens; K heads; L blocks.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_vit.models import Anatomy


def attention_maps(
    model: keras.Model | Anatomy, images: Any, *, query: tuple[int, int] | None = None
) -> np.ndarray:
    """Returns where a token looks, in every block and head.

    Args:
        model: A model of keras_vit, or one that contains one; or its `Anatomy`.
        images: Scaled as the model's preprocessing says, (B, H, W, C).
        query: Row and column of the patch that looks. By default the token that the answer is
            made of, or where that is several, the mean over them (`Anatomy.reading`).

    Returns:
        Attention weights (L, B, K, h, w), float32. What goes to class, distillation and register
        tokens is left out, so that a map need not sum to 1.

    Raises:
        ValueError: If there is no such patch.

    Example:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12)))
        >>> images = np.zeros((2, 8, 12, 3), "float32")
        >>> attention_maps(model, images).shape
        (4, 2, 3, 2, 3)
        >>> attention_maps(model, images, query=(1, 2)).shape
        (4, 2, 3, 2, 3)
    """
    anatomy = Anatomy.of(model)
    seen = anatomy.observe(images)
    h, w = seen.grid
    tokens = seen.attention[0].shape[-1]
    if query is None:
        reading = anatomy.reading(tokens)
    elif 0 <= query[0] < h and 0 <= query[1] < w:
        reading = np.eye(tokens, dtype="float32")[tokens - h * w + query[0] * w + query[1]]
    else:
        raise ValueError(
            f"`query` must be the row and column of one of the {h} x {w} patches, from 0 on. "
            f"Received: query={query}"
        )
    maps = np.einsum("t,lbktu->lbku", reading, np.stack(seen.attention))
    return maps[..., -h * w :].reshape(*maps.shape[:-1], h, w)
