"""Input validation for requests, based on the signatures of the served model.

TensorFlow Serving merges requests into batches, in which a request of a wrong dtype or shape fails
the other requests; a request without images can stop the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from keras_vit import arguments

Signatures = Mapping[str, meta_graph_pb2.SignatureDef]


def check(
    signatures: Signatures, signature: str, inputs: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Converts inputs to arrays; raises `ValueError` if they do not match the signature."""
    # The signatures include the initialization of a SavedModel, which has no inputs.
    names = sorted(name for name, definition in signatures.items() if definition.inputs)
    arguments.one_of("signature", signature, names)
    specs = signatures[signature].inputs
    if inputs.keys() != specs.keys():
        raise ValueError(
            f"`inputs` of the signature {signature!r} must be {', '.join(sorted(specs))}. "
            f"Received: {', '.join(sorted(inputs)) or 'none'}"
        )
    return {key: _array(key, value, specs[key]) for key, value in inputs.items()}


def _array(name: str, value: Any, spec: meta_graph_pb2.TensorInfo) -> np.ndarray:
    dtype, shape = tf.as_dtype(spec.dtype), tf.TensorShape(spec.tensor_shape)
    is_text = dtype == tf.string
    expected = "bytes" if is_text else dtype.name
    # NumPy's bytes dtype strips trailing zeros.
    array = np.asarray(value, object if is_text else None)
    types = {type(item).__name__ for item in array.flat} if is_text else {array.dtype.name}
    has_shape = array.ndim and array.size and shape.is_compatible_with(array.shape)
    if types - {expected} or not has_shape:
        raise ValueError(
            f"`{name}` must be {expected} of shape {str(shape).replace('None', 'B')}, for at least "
            f"one image (B >= 1). Received: {name} is {', '.join(sorted(types)) or expected} of "
            f"shape {array.shape}"
        )
    return array
