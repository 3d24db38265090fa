"""SavedModel export with encoded images as input and class labels as output."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_vit import accelerators, arguments, files, preprocessing_files
from keras_vit.data.image_reading import Limits
from keras_vit.tasks.registry import TrainedModel, trained_model

PRECISIONS = ("float32", "bfloat16", "auto")
_MULTIPLY_BFLOAT16 = {"amx_bf16", "avx512_bf16"}  # features of processors
# Folder of a SavedModel for additional files, which TensorFlow does not read.
EXTRA = "assets.extra"
# Folder of the files that the graph of a SavedModel reads on loading.
ASSETS = "assets"


def write(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    limits: Limits | None = None,
    precision: str = "float32",
) -> Path:
    """Exports a trained model as a SavedModel for serving.

    Signatures of a classifier (inputs and outputs in docs/serving.md): `serving_default` and
    `classify_bytes`, `embed`, `explain` and `preprocess` accept image files, JPEG, PNG, GIF (first
    frame), BMP or WebP of any size; `classify_pixels` and `classify_float` accept pixels at the
    model's size. An unreadable image does not affect the other images. `embed` and `explain`
    require a Vision Transformer of this package. Models of other tasks have `serving_default`,
    `preprocess`, and signatures of the task.

    Labels, and thresholds of multi-label models, are text files in `assets/`, read when the model
    is loaded: editing them requires no training and no export. The weights are constants of the
    graph if they take less than 128 MiB (in bfloat16 2 GiB), and variables otherwise.

    Loading requires only TensorFlow: neither Keras, nor this package, nor custom operators.

    Args:
        model: A classifier of keras_vit, or a Keras model that contains a keras_vit backbone.
            A missing softmax or sigmoid is added.
        path: The folder to write, which must not exist; created atomically.
        limits: Limits of the images; by default `Limits()`.
        precision: `"float32"`; `"bfloat16"` for matrix products, with sums, norms, softmax and
            outputs in float32; or `"auto"`, see `chosen_precision`.

    Returns:
        The folder.

    Raises:
        ValueError: If the model is not an image classifier, or Keras does not run on TensorFlow.

    Examples:
        >>> import tensorflow as tf
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=3)
        >>> path = write(models.build(config), Path(tempfile.mkdtemp()) / "1")
        >>> list(tf.saved_model.load(path).signatures)[:2]
        ['serving_default', 'classify_bytes']
    """
    require_tensorflow()
    limits, precision = limits or Limits(), chosen_precision(precision)
    return write_saved_model(trained_model(model), path, limits=limits, precision=precision)


def write_saved_model(
    exported: TrainedModel, path: str | os.PathLike[str], *, limits: Limits, precision: str
) -> Path:
    """Writes the SavedModel of a trained model, in float32 or bfloat16."""
    network, preprocessing = exported.network, exported.preprocessing
    with tempfile.TemporaryDirectory() as texts, files.atomic_path(path) as temporary:
        preprocessing_files.write_preprocessing(preprocessing, Path(texts))
        served = exported.task.served_model(
            network, preprocessing, exported.task.output, Path(texts), limits, precision
        )
        # The endpoints contain their weights. Tracking the model as well, as in the Keras guide,
        # would store each weight twice.
        archive = keras.export.ExportArchive()
        constants = served.without_variables()
        for resource in served.resources:
            archive.track(resource)
        for name, (function, *specs) in served.signatures().items():
            archive.add_endpoint(name, function, specs)
        archive.write_out(str(temporary), verbose=False)
        _fill(temporary, constants, os.fsencode(texts))
        # Also the files that the graph does not read.
        preprocessing_files.write_preprocessing(preprocessing, temporary / ASSETS)
        for file, content in served.extra_files().items():
            files.write_bytes(temporary / EXTRA / file, content)
    return Path(path)


def chosen_precision(precision: str, processor: str | None = None) -> str:
    """Selects the precision of the matrix products in an exported SavedModel.

    Args:
        precision: `"float32"`, `"bfloat16"`, or `"auto"`: bfloat16 if the processor supports it.
        processor: Instruction set of the serving machine, such as `"amx_bf16"`; None for those
            of this machine.

    Returns:
        `"float32"` or `"bfloat16"`.

    Raises:
        ValueError: If the precision is unknown.

    Examples:
        >>> chosen_precision("auto", "avx512_bf16"), chosen_precision("auto", "avx2")
        ('bfloat16', 'float32')
    """
    arguments.one_of("precision", precision, PRECISIONS)
    if precision != "auto":
        return precision
    features = {processor} if processor else accelerators.cpu_features()
    return "bfloat16" if features & _MULTIPLY_BFLOAT16 else "float32"


def _fill(path: Path, constants: dict[str, np.ndarray], texts: bytes) -> None:
    """Replaces the zeros that stand for constants in a SavedModel with the actual values.

    In the names of lookup tables, only the last part of the temporary folder `texts` is kept.
    """
    file = path / "saved_model.pb"
    content = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for function in content.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if node.op == "Const" and node.name in constants:
                value = tf.make_tensor_proto(constants[node.name])
                node.attr["value"].tensor.CopyFrom(value)
    # Of the same length, as the format requires, and unique: TensorFlow shares tables by name.
    unique = os.path.basename(texts).rjust(len(texts), b"_")
    file.write_bytes(content.SerializeToString().replace(texts, unique))
    (path / "fingerprint.pb").unlink(missing_ok=True)  # checksum of the previous graph


def next_version(directory: str | os.PathLike[str]) -> Path:
    """Returns the path for the next version folder in `directory`.

    Args:
        directory: Folder of the versions of a model; may not exist.

    Returns:
        The path of a folder that does not exist.

    Examples:
        >>> next_version("nowhere").name
        '1'
    """
    directory = Path(directory)
    existing = versions(directory) if directory.is_dir() else []
    return directory / str(max(existing, default=0) + 1)


def versions(directory: str | os.PathLike[str]) -> list[int]:
    """Returns the numbers of the version folders in `directory`, in ascending order.

    Args:
        directory: Folder of the versions.

    Returns:
        The numbers, including those of incomplete or foreign folders.

    Examples:
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
    """Raises `ValueError` if the Keras backend is not TensorFlow.

    Models on JAX can only be exported with XLA operators, which TensorFlow Serving refuses by
    default and TFLite does not support.

    Raises:
        ValueError: If Keras runs on another backend.

    Examples:
        >>> require_tensorflow()
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "The Keras backend must be 'tensorflow' to export. Save the model as .keras and "
            "export that file in a process with KERAS_BACKEND=tensorflow. Received: "
            f"KERAS_BACKEND={keras.backend.backend()!r}"
        )
