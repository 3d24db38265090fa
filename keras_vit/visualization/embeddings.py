"""What a model has learnt before its first block: positions and filters; and its tokens as colours.

Letters: B batch; h, w rows and columns of patches; P, Q patch height and width; C channels; N
patches; D hidden size.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from sklearn.decomposition import PCA

from keras_vit import checks, layers
from keras_vit.models import Anatomy
from keras_vit.models.cloning import layers_of


def position_similarity(model: keras.Model) -> np.ndarray:
    """Returns how alike the position embeddings of every two patches are.

    Args:
        model: A model of keras_vit, or one that contains one.

    Returns:
        Cosine similarities (h, w, h, w) in [-1, 1], on the grid of the stored table; [i, j] is a
        picture of what is like patch (i, j).

    Raises:
        ValueError: If there is no Vision Transformer, or it has no position embeddings.

    Example:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12)))
        >>> position_similarity(model).shape
        (2, 3, 2, 3)

    Reference: Figure 7 (centre) of https://arxiv.org/abs/2010.11929
    """
    encoder = _only(model, layers.PatchEncoder)
    table = keras.ops.convert_to_numpy(encoder.positions()).astype(np.float64)  # (h, w, D)
    unit = table / np.maximum(np.linalg.norm(table, axis=-1, keepdims=True), 1e-12)
    return np.einsum("ijd,kld->ijkl", unit, unit)


def filter_components(model: keras.Model, number: int = 28) -> tuple[np.ndarray, np.ndarray]:
    """Returns the principal components of the filters that embed a patch.

    Args:
        model: A model of keras_vit, or one that contains one, without a ResNet in front.
        number: How many components; fewer, if there are no more.

    Returns:
        Components (number, P, Q, C), each of length 1, and the share of the variance of each,
        (number,), the largest first.

    Raises:
        ValueError: If there is no Vision Transformer, or a ResNet comes before its patches.

    Example:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12)))
        >>> components, shares = filter_components(model, number=5)
        >>> components.shape
        (5, 4, 4, 3)

    Reference: Figure 7 (left) of https://arxiv.org/abs/2010.11929
    """
    checks.positive_int("number", number)
    encoder, patches = _only(model, layers.PatchEncoder), _only(model, layers.Patches)
    if any(isinstance(layer, layers.ResNetStem) for layer in layers_of(model)):
        raise ValueError(
            "`model` must embed pixels: filters of a ResNet's feature map are no picture. "
            f"Received: the hybrid {model.name!r}"
        )
    kernel = keras.ops.convert_to_numpy(encoder.projection.kernel)  # (PQC, D)
    pca = PCA(min(number, *kernel.shape)).fit(kernel.T)
    shape = (*patches.patch_size, -1)
    components = np.stack([component.reshape(shape) for component in pca.components_])
    return components, pca.explained_variance_ratio_


def token_colours(model: keras.Model | Anatomy, images: Any, *, block: int = -1) -> np.ndarray:
    """Returns patch tokens as colours: what the model holds for alike looks alike.

    The three directions in which the tokens of all the images differ most become red, green and
    blue, each from its lowest to its highest value.

    Args:
        model: A model of keras_vit, or one that contains one; or its `Anatomy`.
        images: Scaled as the model's preprocessing says, (B, H, W, C).
        block: Whose tokens, as they leave it, after the encoder's last norm; from 0 on, or from -1
            back.

    Returns:
        Colours (B, h, w, 3) in [0, 1]. Their signs mean nothing: another set of images may come
        out in other colours.

    Raises:
        ValueError: If there is no such block.

    Example:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12)))
        >>> images = np.random.default_rng(0).normal(size=(2, 8, 12, 3))
        >>> token_colours(model, images).shape
        (2, 2, 3, 3)

    Reference: after Figure 1 of https://arxiv.org/abs/2304.07193
    """
    anatomy = Anatomy.of(model)
    depth = len(anatomy.blocks)
    if not -depth <= block < depth:
        raise ValueError(f"`block` must be in [{-depth}, {depth}). Received: block={block}")
    seen = anatomy.observe(images)
    tokens = seen.tokens[1:][block]
    if anatomy.norm is not None:
        tokens = keras.ops.convert_to_numpy(anatomy.norm(tokens))
    h, w = seen.grid
    patches = tokens[:, -h * w :].reshape(-1, tokens.shape[-1])  # (BN, D)
    colours = np.zeros((len(patches), 3))
    found = PCA(min(3, *patches.shape)).fit_transform(patches)
    colours[:, : found.shape[1]] = found
    colours -= colours.min(axis=0)
    colours /= np.maximum(colours.max(axis=0), 1e-12)
    return colours.reshape(-1, h, w, 3)


def _only(model: keras.Model, kind: type) -> Any:
    found = [layer for layer in layers_of(model) if isinstance(layer, kind)]
    if len(found) != 1:
        raise ValueError(
            "`model` must be a Vision Transformer of keras_vit, or contain one. "
            f"Received: model={model.name!r} with {len(found)} layers {kind.__name__}"
        )
    return found[0]
