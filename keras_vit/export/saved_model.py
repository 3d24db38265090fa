"""A SavedModel that takes image files and answers with labels."""

from __future__ import annotations

import os
from pathlib import Path

import keras
import tensorflow as tf

from keras_vit import files
from keras_vit.data import pixels
from keras_vit.export import contract_files
from keras_vit.models import inference
from keras_vit.preprocessing import Preprocessing

# Where a SavedModel keeps files of its makers; TensorFlow carries the folder along unread.
EXTRA = "assets.extra"
_DECODED_AT_ONCE = 16  # images; more gains nothing


def write(model: keras.Model, directory: str | os.PathLike[str]) -> Path:
    """Exports a classifier as a SavedModel in a new version folder.

    Three signatures, for B images of any number, answer with the same outputs:

    - `serving_default`: `image_bytes`, string (B,), encoded JPEG, PNG, GIF, BMP or WebP images
      of any sizes;
    - `classify_pixels`: `pixels`, uint8 (B, h, w, C) at the model's size, [0, 255];
    - `classify_float`: `images`, float32 (B, h, w, C), scaled as the preprocessing says.

    Outputs: `probabilities`, float32 (B, classes); `top_scores`, float32, `top_indices`, int32, and
    `top_labels`, string, (B, k) each, best first, with k = min(5, number of classes). A model that
    says yes or no to each label by itself also answers with `present`, bool (B, classes): which of
    them reach the thresholds of its preprocessing.

    TensorFlow alone loads it: neither Keras nor this package is needed, nor a custom operator.
    The folder appears under its number only when complete, so that a server which watches
    `directory` never sees half a model.

    Args:
        model: A classifier of keras_vit, or a Keras model that contains a keras_vit backbone.
            It is exported in float32 and with a softmax or sigmoid, even if it lacks that.
        directory: Where the versions 1, 2, ... of this model live; created if needed.

    Returns:
        The new version folder.

    Raises:
        ValueError: If the model is no image classifier, or Keras does not run on TensorFlow.

    Example:
        >>> import tempfile
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=3)
        >>> version = write(models.build(config), tempfile.mkdtemp())
        >>> version.name, sorted(tf.saved_model.load(version).signatures)
        ('1', ['classify_float', 'classify_pixels', 'serving_default'])
    """
    require_tensorflow()
    network, contract = inference.prepare(model)
    archive = _archive(network, contract)
    version = next_version(directory)
    with files.atomic_path(version) as temporary:
        archive.write_out(str(temporary), verbose=False)
        (temporary / EXTRA).mkdir()
        for name, text in contract_files.texts(contract).items():
            (temporary / EXTRA / name).write_text(text, encoding="utf-8")
    return version


def next_version(directory: str | os.PathLike[str]) -> Path:
    """Returns the version folder that comes after those in `directory`.

    Args:
        directory: Where the versions of a model live; it need not exist.

    Returns:
        The path, of a folder that does not exist.

    Example:
        >>> next_version("nowhere").name
        '1'
    """
    directory = Path(directory)
    taken = versions(directory) if directory.is_dir() else []
    return directory / str(max(taken, default=0) + 1)


def versions(directory: str | os.PathLike[str]) -> list[int]:
    """Returns the numbers of the version folders in `directory`, in ascending order.

    Args:
        directory: The folder to look into.

    Returns:
        The numbers, those of incomplete or foreign folders included.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "10").mkdir(), (folder / "2").mkdir(), (folder / "latest").mkdir()
        (None, None, None)
        >>> versions(folder)
        [2, 10]
    """
    names = (path.name for path in Path(directory).iterdir())
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def require_tensorflow() -> None:
    """Raises `ValueError` unless Keras runs on TensorFlow.

    Models computed by JAX can only be exported with XLA operators, which TensorFlow Serving
    refuses by default and TFLite does not know.

    Raises:
        ValueError: If Keras runs on another backend.

    Example:
        >>> require_tensorflow()
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "The backend of Keras must be 'tensorflow' to export. Save the model as .keras and "
            "export that file in a process with KERAS_BACKEND=tensorflow. "
            f"Received: KERAS_BACKEND={keras.backend.backend()!r}"
        )


def _archive(network: keras.Model, contract: Preprocessing) -> keras.export.ExportArchive:
    shape = (*contract.size, contract.num_channels)
    labels = tf.constant(contract.labels)

    def classify(images: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = network(images, training=False)  # (B, classes)
        top = tf.math.top_k(probabilities, k=min(5, probabilities.shape[1]))  # (B, k)
        several = {"present": contract.present(probabilities)} if contract.thresholds else {}
        return {
            "probabilities": probabilities,
            "top_scores": top.values,
            "top_indices": top.indices,
            "top_labels": tf.gather(labels, top.indices),
            **several,
        }

    # The endpoints hold the weights that they use. Tracking the model as well, as the Keras
    # guide does, would store each weight twice.
    archive = keras.export.ExportArchive()
    float_images = tf.TensorSpec((None, *shape), tf.float32, "images")
    # The other two call this one: the model is traced and stored once.
    classify_float = archive.add_endpoint("classify_float", classify, [float_images])

    def classify_pixels(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return classify_float(pixels.scale(images, contract))

    def classify_encoded(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return classify_float(
            tf.map_fn(
                lambda encoded: pixels.prepare(encoded, contract),
                images,
                fn_output_signature=tf.TensorSpec(shape, tf.float32),
                parallel_iterations=_DECODED_AT_ONCE,
            )
        )

    uint8_images = tf.TensorSpec((None, *shape), tf.uint8, "pixels")
    archive.add_endpoint("classify_pixels", classify_pixels, [uint8_images])
    encoded_images = tf.TensorSpec((None,), tf.string, "image_bytes")
    archive.add_endpoint("serving_default", classify_encoded, [encoded_images])
    return archive
