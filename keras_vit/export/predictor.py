"""Predictor that accepts image files, arrays and PIL images."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import tensorflow as tf

from keras_vit import arguments
from keras_vit.data.image_reading import LOCAL, read_each
from keras_vit.files import read_file
from keras_vit.image_formats import CONVERTIBLE, DECODED, image_format, text_format
from keras_vit.models.inference_runtime import two_at_a_time
from keras_vit.preprocessing import Preprocessing
from keras_vit.storage.paths import StoredFile
from keras_vit.tasks.registry import task_of

Image = str | os.PathLike[str] | bytes | np.ndarray | PIL.Image.Image | StoredFile
# Outputs (B, ...) of a model, and an error message for each image.
Outputs = tuple[np.ndarray, list[str]]


class Predictor:
    """Trained model with its preprocessing, as returned by `keras_vit.load_predictor`.

    Args:
        name: File or folder of the model.
        preprocessing: The complete preprocessing.
        read: Function from a list of B image files as bytes to the input of `run`.
        run: Function that returns outputs (B, ...) and an error message for each image, empty
            for a readable image. Two threads call both functions.

    Examples:
        >>> from keras_vit import models
        >>> from keras_vit.export import load_predictor
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=3)
        >>> predictor = load_predictor(models.build(config))
        >>> predictor.labels
        ('0', '1', '2')
        >>> predictor.predict([np.zeros((5, 7, 3), "uint8")])[0].ok
        True
    """

    def __init__(
        self,
        name: str,
        preprocessing: Preprocessing,
        read: Callable[[list[bytes]], Any],
        run: Callable[[Any], Outputs],
    ) -> None:
        self.name = name
        self.preprocessing = preprocessing
        self.task = task_of(preprocessing)
        self._read = read
        self._run = run
        #: Function that loads the predictor again, for pickle; None for one of a Keras model.
        self.reload: Callable[[], Predictor] | None = None

    def __reduce__(self) -> tuple[Callable[[], Predictor], tuple[()]]:
        if self.reload is None:
            raise TypeError(
                "A predictor must be loaded from a file or folder to be pickled or copied. Save "
                "the model, and pass the path to `load_predictor`. Received: the predictor of the "
                f"Keras model {self.name!r}"
            )
        return self.reload, ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names, in the order of the predicted probabilities."""
        return self.preprocessing.class_names or ()

    @property
    def thresholds(self) -> tuple[float, ...] | None:
        """Probability threshold of each label; None if the classes are mutually exclusive."""
        return self.preprocessing.thresholds

    def predict(self, images: Iterable[Image], batch_size: int = 32, top: int = 5) -> list[Any]:
        """Predicts the classes of a list of images.

        Args:
            images: Paths, image files as bytes, PIL images, or arrays (H, W), (H, W, 1), (H, W, 3)
                or (H, W, 4) of uint8 or uint16, N of any of these, in a list or another iterable.
                As in files, the alpha channel and the lower half of 16 bits are dropped.
            batch_size: Batch size.
            top: Number of classes in each prediction, for exclusive classes.

        Returns:
            N predictions, each a `Prediction` for classifiers; for an unreadable image, `ok` is
            False and `message` contains the reason.

        Raises:
            ValueError: If `images` is empty, a single image, or contains other objects, or a number
                is not positive.
            RuntimeError: In a process that was forked after its parent had loaded a predictor.

        Examples:
            >>> from keras_vit import models
            >>> from keras_vit.export import load_predictor
            >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=3)
            >>> predictor = load_predictor(models.build(config))
            >>> predictor.predict(["nowhere.jpg"])[0].message
            'cannot be read: No such file or directory'
        """
        if predictions := list(self.iterate(images, batch_size, top)):
            return predictions
        raise ValueError("`images` must contain at least one image. Received: images=[]")

    def iterate(self, images: Iterable[Image], batch_size: int = 32, top: int = 5) -> Iterator[Any]:
        """Yields predictions one image at a time, using constant memory.

        Args:
            images: As for `predict`.
            batch_size: As for `predict`.
            top: As for `predict`.

        Yields:
            A prediction for each image, in their order.

        Raises:
            ValueError, RuntimeError: As `predict` does.
        """
        arguments.positive_int("top", top)
        for output, message in compute_outputs(images, batch_size, self._read, self._run):
            yield self.task.prediction(output, self.preprocessing, message, top)

    def probabilities(self, images: Iterable[Image], batch_size: int = 32) -> np.ndarray:
        """Returns the predicted class probabilities of images.

        Args:
            images: As for `predict`.
            batch_size: As for `predict`.

        Returns:
            Probabilities (N, R), float32.

        Raises:
            ValueError: As `predict` does, or if an image cannot be read.

        Examples:
            >>> from keras_vit import models
            >>> from keras_vit.export import load_predictor
            >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=3)
            >>> predictor = load_predictor(models.build(config))
            >>> predictor.probabilities([np.zeros((5, 7, 3), "uint8")]).round(3)
            array([[0.333, 0.333, 0.333]], dtype=float32)
        """
        predictions = self.predict(images, batch_size)
        for index, prediction in enumerate(predictions):
            if not prediction.ok:
                raise ValueError(
                    f"`images[{index}]` must be a complete JPEG, PNG, GIF, BMP or WebP image. "
                    f"Received: {prediction.message}"
                )
        return np.stack([prediction.probabilities for prediction in predictions])


def check_process() -> None:
    """Raises `RuntimeError` in a fork of a process with predictors, where TensorFlow would hang."""
    if _first_process_id() != os.getpid():
        raise RuntimeError(
            "A predictor must be loaded after the fork, in the process that calls it, or in "
            "processes started by multiprocessing's 'spawn'. Received: a process that was forked "
            "after its parent had loaded a predictor"
        )


@functools.cache
def _first_process_id() -> int:
    """Returns the process that called this function first, also in its forks."""
    return os.getpid()


def compute_outputs(
    images: Iterable[Image],
    batch_size: int,
    read: Callable[[list[bytes]], Any],
    run: Callable[[Any], Outputs],
) -> Iterator[tuple[np.ndarray, str]]:
    """Yields a network's output and an error message, empty if readable, for each image."""
    shape = images.shape if isinstance(images, np.ndarray) else (0,)
    # Paths have one axis. The third is the width of several gray images, the channels of one image.
    is_image = len(shape) != 1 and shape[2:] in ((), (1,), (3,), (4,))
    if is_image or isinstance(images, (str, bytes, os.PathLike, PIL.Image.Image, StoredFile)):
        raise ValueError(
            "`images` must be a list, even for a single image. Received: a single "
            f"{type(images).__name__}"
        )
    image_iterator = iter(images)
    arguments.positive_int("batch_size", batch_size)
    check_process()

    def compute(batch: list[Image]) -> list[tuple[np.ndarray, str]]:
        contents, encoding_messages = zip(*map(encode, batch), strict=True)
        outputs, reading_messages = run(read(list(contents)))
        pairs = zip(encoding_messages, reading_messages, strict=True)
        return list(zip(outputs, (first or second for first, second in pairs), strict=True))

    batches = iter(lambda: list(islice(image_iterator, batch_size)), [])
    for results in two_at_a_time(compute, batches):
        yield from results


def pixel_functions(
    preprocessing: Preprocessing,
    run: Callable[[np.ndarray], np.ndarray],
    max_batch_size: int | None = None,
) -> tuple[Callable[[list[bytes]], Any], Callable[[Any], Outputs]]:
    """Returns the `read` and `run` functions of a `Predictor` whose network takes pixels."""

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)], autograph=False)
    def read_batch(encoded: tf.Tensor) -> Any:
        return read_each(encoded, preprocessing, LOCAL)

    def read(encoded: list[bytes]) -> Any:
        with tf.device("CPU"):
            return read_batch(tf.constant(encoded))

    def run_batch(batch: Any) -> Outputs:
        pixels = batch.pixels.numpy()
        step = max_batch_size or len(pixels)
        outputs = [run(pixels[start : start + step]) for start in range(0, len(pixels), step)]
        return np.concatenate(outputs), [message.decode() for message in batch.message.numpy()]

    return read, run_batch


def encode(image: Image) -> tuple[bytes, str]:
    """Returns the encoded bytes of an image, and an error message or an empty string."""
    if isinstance(image, bytes):
        return _check_format(image)
    if isinstance(image, (str, os.PathLike, StoredFile)):
        try:
            content = image.read() if isinstance(image, StoredFile) else read_file("images", image)
            return _check_format(content)
        except OSError as error:
            return b"", f"cannot be read: {error.strerror}"
        except ValueError as error:
            return b"", str(error)
    description = type(image).__name__
    if isinstance(image, PIL.Image.Image):
        description = f"a PIL image of mode {image.mode}"
        image = PIL.ImageOps.exif_transpose(image)
        exceeds_8_bits = image.mode.startswith(("I", "F"))  # `convert` would clip the values at 255
        image = np.asarray(image if exceeds_8_bits else image.convert("RGB"))
    elif isinstance(image, np.ndarray):
        description = f"an array of {image.dtype} and shape {image.shape}"
    if isinstance(image, np.ndarray) and image.dtype.kind == "u" and image.dtype.itemsize <= 2:
        pixels = image[..., np.newaxis] if image.ndim == 2 else image
        if pixels.ndim == 3 and pixels.shape[-1] in (1, 3, 4) and pixels.size:
            pixels = pixels.astype(pixels.dtype.newbyteorder("="))  # native byte order
            return tf.io.encode_png(pixels, compression=0).numpy(), ""
    raise ValueError(
        "`images` must contain paths, image files as bytes, PIL images of 8 or 16 bits, or arrays "
        "(H, W), (H, W, 1), (H, W, 3) or (H, W, 4) of uint8 or uint16. Received: " + description
    )


def _check_format(content: bytes) -> tuple[bytes, str]:
    """Returns encoded bytes, or no bytes and an error message if their format is not supported."""
    format = image_format(content) or text_format(content)
    if format is None or format in DECODED:
        return content, ""
    remedy = ", which `keras-vit data convert` can convert to JPEG" if format in CONVERTIBLE else ""
    supported = f"{', '.join(DECODED[:-1])} or {DECODED[-1]}"
    return b"", f"The image is not a {supported}, but {format}{remedy}"
