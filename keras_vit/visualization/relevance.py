"""Where a model looks, or what its answer owes to where: one number for each patch.

Letters: B batch; H, W, C image height, width, channels; h, w rows and columns of patches; T
tokens; D hidden size; K heads.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_vit import checks
from keras_vit.models import Anatomy, Observation
from keras_vit.visualization.rollout import gradient_rollout, head_mean, rollout

METHODS = ("attention", "rollout", "gradient_rollout", "grad_cam")
OF_A_CLASS = ("gradient_rollout", "grad_cam")


def relevance_maps(
    model: keras.Model | Anatomy,
    images: Any,
    method: str = "gradient_rollout",
    *,
    classes: Any = None,
) -> np.ndarray:
    """Returns how relevant each patch is, by one of four methods.

    - `"attention"`: the last block's attention, mean over heads, as the answer's token has it.
    - `"rollout"`: attention followed through all blocks (`rollout`).
    - `"gradient_rollout"`: the same with each head weighted by what the class's score changes by
      with it (`gradient_rollout`): it depends on the class, and was the most faithful of the four
      where this was measured (docs/looking_inside.md).
    - `"grad_cam"`: the tokens that enter the last block, weighted by the class's mean gradient.

    The answer's token is the class token (with the distillation token, where both answer). Where
    the model averages its patches, or takes their maximum, all of them count alike; where it pools
    by attention, that attention counts.

    Args:
        model: A model of keras_vit, or one that contains one; or its `Anatomy`, which spares making
            it again.
        images: Scaled as the model's preprocessing says, (B, H, W, C).
        method: One of the four.
        classes: For each image the class that is explained, (B,); by default the most probable
            one. `"attention"` and `"rollout"` are the same for all classes.

    Returns:
        Maps (B, h, w), float32, at least 0; only their order and ratios within an image mean
        anything.

    Raises:
        ValueError: If the method is unknown, the model no Vision Transformer, or does not return
            one vector for each image and the method is of a class.

    Example:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12), classes=5))
        >>> relevance_maps(model, np.zeros((2, 8, 12, 3), "float32"), "rollout").shape
        (2, 2, 3)

    Reference: https://arxiv.org/abs/2005.00928 (rollout), https://arxiv.org/abs/2103.15679
    (gradient rollout), https://arxiv.org/abs/1610.02391 (Grad-CAM)
    """
    checks.one_of("method", method, METHODS)
    anatomy = Anatomy.of(model)
    if method in OF_A_CLASS:
        seen = anatomy.observe_gradients(images, classes)
    else:
        seen = anatomy.observe(images)
    return maps_of(anatomy, seen, method)


def maps_of(anatomy: Anatomy, seen: Observation, method: str) -> np.ndarray:
    """Returns the maps of what was observed, so that one observation serves several methods.

    Args:
        anatomy: The model, opened.
        seen: What it observed; with gradients, if the method is of a class.
        method: One of the four of `relevance_maps`.

    Returns:
        Maps (B, h, w), float32.

    Raises:
        ValueError: If the method is unknown, or of a class and there are no gradients.

    Example:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12), classes=5))
        >>> anatomy = Anatomy(model)
        >>> seen = anatomy.observe_gradients(np.zeros((2, 8, 12, 3), "float32"), [0, 4])
        >>> [maps_of(anatomy, seen, method).shape for method in METHODS]
        [(2, 2, 3), (2, 2, 3), (2, 2, 3), (2, 2, 3)]
    """
    checks.one_of("method", method, METHODS)
    if method in OF_A_CLASS and seen.token_gradients is None:
        raise ValueError(
            "`seen` must have gradients for maps of a class (`Anatomy.observe_gradients`). "
            f"Received: none, with method={method!r}"
        )
    if method == "grad_cam":
        return _grad_cam(anatomy, seen)
    batch, _, tokens, _ = seen.attention[0].shape
    read = np.tile(anatomy.reading(tokens), (batch, 1))  # (B, T)
    if seen.pooling_gradient is not None and seen.pooling is not None and method in OF_A_CLASS:
        read = head_mean(seen.pooling, seen.pooling_gradient)[:, 0]
    elif seen.pooling is not None:
        read = seen.pooling.mean(axis=1)[:, 0]
    if method == "gradient_rollout":
        passed = gradient_rollout(seen.attention, seen.attention_gradients or [])
    elif method == "rollout":
        passed = rollout(seen.attention)[-1]
    elif seen.pooling is not None:  # what pools is the last attention
        passed = np.tile(np.eye(tokens), (batch, 1, 1))
    else:
        passed = seen.attention[-1].mean(axis=1)
    relevance = np.einsum("bt,btu->bu", read, passed)
    return _on_grid(relevance, seen)


def _grad_cam(anatomy: Anatomy, seen: Observation) -> np.ndarray:
    prefix = anatomy.num_prefix_tokens
    tokens, gradients = seen.tokens[-2][:, prefix:], np.asarray(seen.token_gradients)[:, prefix:]
    weights = gradients.mean(axis=1, keepdims=True)  # (B, 1, D)
    return _on_grid(np.maximum((tokens * weights).sum(axis=-1), 0), seen)


def _on_grid(relevance: np.ndarray, seen: Observation) -> np.ndarray:
    """Returns the patches' part of (B, T) as (B, h, w)."""
    h, w = seen.grid
    return relevance[:, -h * w :].reshape(-1, h, w).astype(np.float32)
