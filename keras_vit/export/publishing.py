"""Artefacts that appear under their names only after they have been proven."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import keras

from keras_vit import files
from keras_vit.export import saved_model, tflite
from keras_vit.export.comparison import Comparison
from keras_vit.export.verification import VerificationError, verify


def publish(
    model: keras.Model,
    images: Sequence[bytes],
    *,
    directory: str | os.PathLike[str] | None = None,
    file: str | os.PathLike[str] | None = None,
) -> tuple[Comparison, ...]:
    """Exports a classifier, verifies what was written, and only then puts it in place.

    A SavedModel or TFLite file that disagrees with the model never appears under its name, and
    leaves earlier ones as they are.

    Args:
        model: A classifier of keras_vit, or a Keras model that contains a keras_vit backbone.
        images: Encoded images to verify with, at least one; real ones tell most.
        directory: Where the versions of the SavedModel live; None for no SavedModel.
        file: The `.tflite` file; None for none.

    Returns:
        One `Comparison` per artefact, by its final path.

    Raises:
        VerificationError: If an artefact disagrees with the model.
        ValueError: If the model is no image classifier, an image does not decode, or there is
            nothing to export.
        OSError: If an artefact cannot be written.

    Example:
        >>> import tensorflow as tf
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=3))
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 3), "uint8")).numpy()
        >>> comparisons = publish(model, [png], directory=tempfile.mkdtemp())
        >>> Path(comparisons[0].path).name
        '1'
    """
    if directory is None and file is None:
        raise ValueError("`directory` or `file` must be given. Received: directory=None, file=None")
    with tempfile.TemporaryDirectory() as folder:
        staged: list[tuple[Path, Path]] = []  # where it is, and where it goes
        if directory is not None:
            version = saved_model.next_version(directory)
            staged.append((saved_model.write(model, Path(folder) / "saved_model"), version))
        if file is not None:
            staged.append((tflite.write(model, Path(folder) / "model.tflite"), Path(file)))
        try:
            comparisons = verify(model, [source for source, _ in staged], images)
        except VerificationError as error:
            message = str(error)
            for source, target in staged:
                message = message.replace(str(source), str(target))
            raise VerificationError(f"{message} Nothing was written.") from error
        for source, target in staged:
            with files.atomic_path(target) as temporary:
                shutil.move(source, temporary)
    return tuple(
        dataclasses.replace(comparison, path=str(target))
        for comparison, (_, target) in zip(comparisons, staged, strict=True)
    )
