"""What all artefacts have in common once loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from keras_vit.data.image_reading import problem


class Predictor(Protocol):
    """An image classifier loaded from a file or a folder.

    Args:
        name: Where it came from.
        labels: Name of each class, in the order of the probabilities.
        thresholds: Probability from which on each label is a yes, where each is one or not by
            itself; None where the classes exclude one another.

    Example:
        >>> from keras_vit import models
        >>> from keras_vit.export.keras_predictor import KerasPredictor
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=3)
        >>> predictor: Predictor = KerasPredictor(models.build(config))
        >>> png = tf.io.encode_png(np.zeros((5, 7, 3), "uint8")).numpy()
        >>> predictor.predict([png, png]).shape
        (2, 3)
    """

    name: str
    labels: tuple[str, ...]
    thresholds: tuple[float, ...] | None

    def predict(self, images: Sequence[bytes], batch_size: int = 32) -> np.ndarray:
        """Returns the probabilities of each class.

        Args:
            images: Encoded JPEG, PNG, GIF, BMP or WebP images, N of them.
            batch_size: How many images to compute at once.

        Returns:
            Probabilities of shape (N, classes), float32.

        Raises:
            ValueError: If there is no image, or one of them does not decode.
        """
        ...


@contextlib.contextmanager
def checked(images: Sequence[bytes]) -> Iterator[None]:
    """Names the image that does not decode, where TensorFlow says only that one did not.

    Args:
        images: The images that the block works on.

    Yields:
        Nothing.

    Raises:
        ValueError: If there is no image, or the block failed because of one of them.

    Example:
        >>> with checked([b"text"]):
        ...     tf.io.decode_image(b"text")
        Traceback (most recent call last):
        ValueError: `images[0]` must be a complete JPEG, PNG, GIF, BMP or WebP image. ...
    """
    if not images:
        raise ValueError("`images` must hold at least one encoded image. Received: images=[]")
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        for index, image in enumerate(images):
            if why := problem(image):
                raise unreadable(index, image, why) from error
        raise


def unreadable(index: int, image: bytes, why: str = "") -> ValueError:
    """Returns the error for an image that cannot be read.

    Args:
        index: Its place among the images.
        image: The file.
        why: What is wrong with it, if that is known.

    Returns:
        The error.

    Example:
        >>> str(unreadable(2, b"text"))[-41:]
        "Received: 4 bytes that start with b'text'"
    """
    return ValueError(
        f"`images[{index}]` must be a complete JPEG, PNG, GIF, BMP or WebP image. "
        f"Received: {len(image)} bytes that start with {image[:8]!r}{why and f' ({why})'}"
    )
