"""Images as a model sees them, and maps of many of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_vit.data.image_reading import fit_within
from keras_vit.models import FeatureExtractor
from keras_vit.preprocessing import Preprocessing
from keras_vit.visualization.attention_maps import OF_A_CLASS, maps_of

_BATCH = 8  # images observed at a time: the attention of all blocks is kept, and its gradients


def read_pixels(encoded: Sequence[bytes], preprocessing: Preprocessing) -> np.ndarray:
    """Returns images as a model sees them, before they are scaled.

    Args:
        encoded: Bytes of image files.
        preprocessing: The preprocessing.

    Returns:
        Pixels (N, h, w, C), uint8, channels in the preprocessing's order.

    Example:
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 1), "uint8")).numpy()
        >>> read_pixels([png], Preprocessing(size=(8, 12))).shape
        (1, 8, 12, 3)
    """
    with tf.device("CPU"):
        images = [fit_within(tf.constant(file), preprocessing) for file in encoded]
        return np.stack([np.asarray(image) for image in images]).astype(np.uint8)


def maps_in_batches(
    extractor: FeatureExtractor, images: np.ndarray, methods: Sequence[str], classes: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns maps of any number of images, a few of them in memory at a time.

    Args:
        extractor: The model, opened.
        images: Scaled as the model's preprocessing says, (N, H, W, C).
        methods: Kinds of maps, see `keras_vit.visualization.relevance_maps`.
        classes: The class that is explained in each image, (N,).

    Returns:
        Maps (N, h, w) by method.

    Example:
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(image_size=(8, 12), classes=5)
        >>> extractor = FeatureExtractor(models.build(config))
        >>> images = np.zeros((9, 8, 12, 3), "float32")
        >>> maps_in_batches(extractor, images, ["rollout"], np.zeros(9, int))["rollout"].shape
        (9, 2, 3)
    """
    found: dict[str, list[np.ndarray]] = {method: [] for method in methods}
    for begin in range(0, len(images), _BATCH):
        part = slice(begin, begin + _BATCH)
        if set(methods) & set(OF_A_CLASS):
            seen = extractor.activations_and_gradients(images[part], classes[part])
        else:
            seen = extractor.activations(images[part])
        for method, maps in found.items():
            maps.append(maps_of(extractor, seen, method))
    return {method: np.concatenate(maps) for method, maps in found.items()}
