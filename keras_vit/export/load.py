"""Loading of predictors from models, training runs and exported files."""

from __future__ import annotations

import dataclasses
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit import preprocessing_files, training
from keras_vit.export import onnx_openvino, runtime_worker, saved_model
from keras_vit.export.predictor import (
    Image,
    Outputs,
    Predictor,
    check_process,
    compute_outputs,
    pixel_functions,
)
from keras_vit.export.saved_model_operators import check_operators
from keras_vit.models import preprocessing_of
from keras_vit.models.features import representation
from keras_vit.models.inference_runtime import predictor_graph
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks import class_rows
from keras_vit.tasks.registry import task_of, trained_model
from keras_vit.tasks.task import Table
from keras_vit.weights.containers.guards import MAX_JSON_BYTES
from keras_vit.weights.whole_models import load_model

_MAX_THREADS = 4  # of runtimes other than TensorFlow


def load_predictor(
    source: str | os.PathLike[str] | keras.Model, *, trust: bool = False
) -> Predictor:
    """Creates a predictor from a training run, a `.keras` file, an exported file or a Keras model.

    Args:
        source: The folder of a training run, with the weights of the last epoch; a `.keras`,
            `.tflite`, `.onnx` or OpenVINO `.xml` file; a SavedModel, the folder of its versions,
            of which the newest is loaded, or the folder of an export; or a Keras model.
        trust: Whether a SavedModel may contain operators other than those of exported models,
            which can read and write any file.

    Returns:
        A `Predictor`, independent of later changes to a model.

    Raises:
        ValueError: If `source` does not exist, is none of these, or has other operators.
        ImportError: If the package that runs the file is not installed.
        RuntimeError: In a process that was forked after its parent had loaded a predictor.

    Examples:
        >>> import tempfile
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=3)
        >>> path = tempfile.mkdtemp() + "/model.keras"
        >>> models.build(config).save(path)
        >>> load_predictor(path).labels
        ('0', '1', '2')
    """
    check_process()
    if isinstance(source, keras.Model):
        return _model_predictor(source, source.name)
    predictor = _path_predictor(Path(source), trust)
    predictor.reload = partial(load_predictor, os.path.abspath(source), trust=trust)
    return predictor


def _path_predictor(path: Path, trust: bool) -> Predictor:
    if path.is_dir():
        last_model = training.Run(path).last
        if last_model.is_file():
            path = last_model
        elif folder := newest_saved_model(path):
            return _saved_model_predictor(folder, trust)
    load = _LOADERS.get(path.suffix)
    if load and path.is_file():
        return load(path)
    problem = "which is none of these" if path.exists() else "which does not exist"
    raise ValueError(
        f"`source` must be a file that ends in {', '.join(_LOADERS)}, a SavedModel folder (or "
        "the folder that contains its versions), the folder of a complete training run, or a "
        f"Keras model. Received: source={os.fspath(path)!r}, {problem}"
    )


def newest_saved_model(path: Path) -> Path | None:
    """Returns the SavedModel in a folder, of its newest version, or of the model in an export."""
    if newest := _newest_version(path):
        return newest
    models = [child for child in path.iterdir() if child.is_dir() and _newest_version(child)]
    if len(models) > 1:
        raise ValueError(
            f"`source` must be one model. Received: source={os.fspath(path)!r}, with the models "
            f"{', '.join(sorted(map(str, models)))}"
        )
    return _newest_version(models[0]) if models else None


def embed(
    source: str | os.PathLike[str] | keras.Model, images: Iterable[Image], batch_size: int = 32
) -> Iterator[tuple[np.ndarray, str]]:
    """Computes features of images: the values that the classifier receives as input.

    Args:
        source: The folder of a training run, a `.keras` file, or a Keras model, with or without
            a classifier.
        images: As for `Predictor.predict`; any iterable.
        batch_size: Batch size.

    Yields:
        Features (D,), float32, and an error message, empty for a readable image.

    Raises:
        ValueError: If `source` is anything else, or does not return one vector for each image.

    Examples:
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=3)
        >>> [(row, message)] = embed(models.build(config), [np.zeros((5, 7, 3), "uint8")])
        >>> row.shape, message
        ((96,), '')
    """
    check_process()
    if not isinstance(source, keras.Model):
        path = Path(source)
        path = training.Run(path).last if path.is_dir() else path
        if path.suffix != ".keras" or not path.is_file():
            raise ValueError(
                "`source` must be the folder of a complete training run, a .keras file, or a "
                f"Keras model. Received: source={os.fspath(source)!r}"
            )
        source = _load_keras(path)
    network, preprocessing = representation(source), preprocessing_of(source)
    if len(network.output_shape) != 2:
        raise ValueError(
            "`source` must return one vector for each image. "
            f"Received: outputs of the shape {network.output_shape}"
        )
    return compute_outputs(images, batch_size, *_network_functions(network, preprocessing))


class Embeddings(Table):
    """Table of image features."""

    def __init__(self) -> None:
        super().__init__(["embedding"])

    def rows(self, file: str, found: tuple[np.ndarray, str]) -> list[dict[str, Any]]:
        """Returns the table row of one image."""
        vector, message = found
        # The shortest decimals that give the float32 values.
        embedding = None if message else [float(str(value)) for value in vector]
        return [{"file": file, "embedding": embedding, "message": message or None}]


def _newest_version(folder: Path) -> Path | None:
    """Returns the SavedModel in a folder, or in the newest of its version folders."""
    versions = reversed(saved_model.versions(folder))
    candidates = (*(folder / str(version) for version in versions), folder)
    return next((path for path in candidates if (path / "saved_model.pb").is_file()), None)


def _model_predictor(model: keras.Model, name: str) -> Predictor:
    trained = trained_model(model)
    preprocessing = trained.preprocessing
    return Predictor(name, preprocessing, *_network_functions(trained.network, preprocessing))


def _network_functions(network: keras.Model, preprocessing: Preprocessing) -> tuple[Any, Any]:
    """Returns the `read` and `run` functions of a network's predictor."""
    compute = predictor_graph(network)
    return pixel_functions(
        preprocessing, lambda pixels: np.asarray(compute(preprocessing.scale(pixels)))
    )


def _load_keras(path: Path) -> keras.Model:
    # For damaged files, Keras raises errors of many types.
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"`source` must be a complete .keras file. Received: {str(path)!r}, which is damaged"
        )
    return load_model(path)


def _saved_model_predictor(folder: Path, trust: bool) -> Predictor:
    assets = folder / saved_model.ASSETS
    path = assets / preprocessing_files.PREPROCESSING
    if not path.is_file():
        raise _invalid_export_error(folder)
    preprocessing = preprocessing_files.parse(path.read_bytes(), str(folder))
    # The text files, which the graph reads, may have been edited after the export.
    labels = preprocessing.class_names or ()
    if num_classes := len(labels):
        labels = preprocessing_files.lines(assets / preprocessing_files.LABELS, num_classes)
    if preprocessing.thresholds:
        path = assets / preprocessing_files.THRESHOLDS
        thresholds = preprocessing_files.numbers(path, num_classes)
        preprocessing = dataclasses.replace(preprocessing, thresholds=thresholds)
    task, signatures = task_of(preprocessing), signatures_of(folder, trust)
    predict: Callable[..., Any] = signatures[task.compared_signature]
    if (path := folder / saved_model.EXTRA / class_rows.FILE).is_file():
        content = path.read_bytes()
        labels += class_rows.ClassRows.parse(content, path).names[num_classes:]
        predict = runtime_worker.with_classes(signatures, content)
    preprocessing = dataclasses.replace(preprocessing, class_names=labels or None)
    return Predictor(str(folder), preprocessing, list, partial(run_signature, predict, task.output))


def run_signature(predict: Callable[..., Any], output: str, images: list[bytes]) -> Outputs:
    """Runs a signature of a SavedModel on encoded images; returns its output and messages."""
    tensors = predict(image_bytes=tf.constant(images))
    outputs = {name: tensor.numpy() for name, tensor in tensors.items()}
    messages = [message.decode() for message in outputs["message"]]
    return runtime_worker.joined(outputs, output), messages


def signatures_of(folder: Path, trust: bool) -> Any:
    """Returns the signatures of a SavedModel, after a check of its operators."""
    if not trust:
        check_operators(folder)
    try:
        return tf.saved_model.load(str(folder)).signatures
    except Exception as error:  # errors of many types, for damaged files
        raise _invalid_export_error(folder) from error


def _runtime_predictor(path: Path, kind: str, read_json: Callable[[Path], Any]) -> Predictor:
    onnx_openvino.require(kind)
    try:
        preprocessing = preprocessing_files.parse(read_json(path), str(path))
        num_threads = min(_MAX_THREADS, os.cpu_count() or 1)
        run, batch_size = getattr(runtime_worker, kind)(str(path), num_threads)
    except ValueError:
        raise
    except Exception as error:  # each runtime has its own error types
        raise _invalid_export_error(path) from error
    return Predictor(str(path), preprocessing, *pixel_functions(preprocessing, run, batch_size))


def _invalid_export_error(path: Path) -> ValueError:
    return ValueError(
        "`source` must be a complete file exported by keras_vit that contains "
        f"{preprocessing_files.PREPROCESSING}. Received: {str(path)!r}"
    )


def _read_tflite_json(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive, archive.open(preprocessing_files.PREPROCESSING) as file:
        return file.read(MAX_JSON_BYTES)


def _read_onnx_json(path: Path) -> str:
    import onnx

    properties = onnx.load(path, load_external_data=False).metadata_props
    return {entry.key: entry.value for entry in properties}[preprocessing_files.PREPROCESSING]


def _read_openvino_json(path: Path) -> str:
    import openvino

    keys = ["keras_vit", Path(preprocessing_files.PREPROCESSING).stem]
    return openvino.Core().read_model(path).get_rt_info(keys).value


_LOADERS: dict[str, Callable[[Path], Predictor]] = {
    ".keras": lambda path: _model_predictor(_load_keras(path), str(path)),
    ".tflite": partial(_runtime_predictor, kind="tflite", read_json=_read_tflite_json),
    ".onnx": partial(_runtime_predictor, kind="onnx", read_json=_read_onnx_json),
    ".xml": partial(_runtime_predictor, kind="openvino", read_json=_read_openvino_json),
}
