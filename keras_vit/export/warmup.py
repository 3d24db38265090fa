"""Warm-up requests for TensorFlow Serving.

The first request of a signature and batch size waits for TensorFlow to optimize the graph and to
choose kernels. The server runs the requests in `assets.extra` before a version is in use.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit import arguments
from keras_vit.export.saved_model import EXTRA
from keras_vit.tasks import class_rows
from keras_vit.tf_serving.batching import MAX_BATCH_SIZE

FILE = "tf_serving_warmup_requests"  # below saved_model.EXTRA
NEEDED = f"they need tensorflow-serving-api ({arguments.install_hint('serving')})"
BATCH_SIZES = tuple(2**power for power in range(MAX_BATCH_SIZE.bit_length()))


def is_possible() -> bool:
    """Returns whether tensorflow-serving-api, which defines the request format, is installed."""
    return importlib.util.find_spec("tensorflow_serving") is not None


def require() -> None:
    """Raises `ImportError` unless tensorflow-serving-api is installed."""
    if not is_possible():
        raise ImportError(f"Warm-up requests cannot be written: {NEEDED}")


def write_requests(folder: Path, *, name: str, batch_sizes: Sequence[int] = BATCH_SIZES) -> Path:
    """Writes one warm-up request per signature and batch size into a SavedModel folder."""
    require()
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    # Not an image of the data, since bundles are shared: a color gradient.
    image = tf.io.encode_jpeg(np.uint8(np.indices((480, 640, 3)).sum(axis=0) // 5)).numpy()
    signatures = tf.saved_model.load(str(folder)).signatures
    path, classes = folder / EXTRA / FILE, folder / EXTRA / class_rows.FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as records:
        for (signature, function), size in itertools.product(signatures.items(), batch_sizes):
            request = predict_pb2.PredictRequest()
            request.model_spec.name, request.model_spec.signature_name = name, signature
            for key, spec in function.structured_input_signature[1].items():
                value = classes.read_bytes() if key == "classes" else image
                request.inputs[key].CopyFrom(_tensor(spec, value, size))
            log = prediction_log_pb2.PredictLog(request=request)
            records.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())
    return path


def _tensor(spec: tf.TensorSpec, value: bytes, size: int) -> Any:
    if spec.dtype == tf.string:
        return tf.make_tensor_proto([value] * size, tf.string, [size])
    # Uniform pixels: TensorFlow repeats the last value in a tensor proto.
    tensor = tf.make_tensor_proto(0, spec.dtype, [1])
    tensor.tensor_shape.CopyFrom(tf.TensorShape([size, *spec.shape[1:]]).as_proto())
    return tensor
