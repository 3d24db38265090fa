"""One TFLite file that carries its labels and its preprocessing."""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path

import keras
import tensorflow as tf

from keras_vit import files
from keras_vit.data import pixels
from keras_vit.export import contract_files
from keras_vit.export.saved_model import require_tensorflow
from keras_vit.models import inference


def write(model: keras.Model, path: str | os.PathLike[str]) -> Path:
    """Exports a classifier as a float32 TFLite file with built-in operators only.

    Input: uint8 pixels (1, h, w, C) at the model's size, [0, 255]; they are scaled inside. The
    antialiased resizing before that has no TFLite operator and is the caller's part. Output:
    float32 probabilities (1, classes). Where each label is a yes or no by itself, the thresholds
    stand in `preprocessing.json`.

    `preprocessing.json` and `labels.txt` are appended as a ZIP archive, as TFLite metadata is:
    interpreters read the model from the front, `unzip` reads the files from the back.

    Args:
        model: A classifier of keras_vit, or a Keras model that contains a keras_vit backbone.
            It is exported in float32 and with a softmax or sigmoid, even if it lacks that.
        path: The `.tflite` file to write.

    Returns:
        The path.

    Raises:
        ValueError: If the model is no image classifier, or Keras does not run on TensorFlow.

    Example:
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=3)
        >>> path = write(models.build(config), Path(tempfile.mkdtemp()) / "model.tflite")
        >>> zipfile.ZipFile(path).namelist()
        ['preprocessing.json', 'labels.txt']
    """
    require_tensorflow()
    network, contract = inference.prepare(model)

    def classify(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"probabilities": network(pixels.scale(images, contract), training=False)}

    archive = keras.export.ExportArchive()
    shape = (1, *contract.size, contract.num_channels)
    archive.add_endpoint("serving_default", classify, [tf.TensorSpec(shape, tf.uint8, "pixels")])
    with tempfile.TemporaryDirectory() as folder:
        # Converting from the function itself instead of a SavedModel loses the weights.
        archive.write_out(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        content = converter.convert()
    with files.atomic_path(path) as temporary:
        temporary.write_bytes(content)
        with zipfile.ZipFile(temporary, "a") as archive_of_texts:
            for name, text in contract_files.texts(contract).items():
                archive_of_texts.writestr(name, text)
    return Path(path)
