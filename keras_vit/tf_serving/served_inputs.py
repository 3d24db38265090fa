"""Input validation for requests, based on the signatures of the served model.

TensorFlow Serving merges requests into batches, in which a request of a wrong dtype or shape fails
the other requests; a request without images can stop the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit import arguments

Signatures = Mapping[str, Mapping[str, tf.TensorSpec]]  # inputs of each signature


def check(
    signatures: Signatures, signature: str, inputs: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Converts inputs to arrays; raises `ValueError` if they do not match the signature."""
    # The signatures include the initialization of a SavedModel, which has no inputs.
    names = sorted(name for name, specs in signatures.items() if specs)
    arguments.one_of("signature", signature, names)
    specs = signatures[signature]
    if inputs.keys() != specs.keys():
        raise ValueError(
            f"`inputs` of the signature {signature!r} must be {', '.join(sorted(specs))}. "
            f"Received: {', '.join(sorted(inputs)) or 'none'}"
        )
    arrays = {key: _checked(key, value, specs[key]) for key, value in inputs.items()}
    if len({len(array) for array in arrays.values()}) > 1:
        numbers = ", ".join(f"{key} {len(array)}" for key, array in arrays.items())
        raise ValueError(f"All `inputs` must have the same number of images. Received: {numbers}")
    return arrays


def _checked(name: str, value: Any, spec: tf.TensorSpec) -> np.ndarray:
    if spec.dtype == tf.string:
        expected = "bytes"
        array = np.asarray(value, object)  # NumPy's bytes dtype strips trailing zeros
        kinds = {type(item).__name__ for item in array.ravel()} - {"bytes"}
        received = min(kinds, default="bytes")
    else:
        expected = spec.dtype.name
        array = np.asarray(value)
        received = array.dtype.name
    fits = array.ndim and array.size and spec.shape.is_compatible_with(array.shape)
    if received != expected or not fits:
        raise ValueError(
            f"`{name}` must be {expected} of shape {str(spec.shape).replace('None', 'B')}, for "
            f"at least one image (B >= 1). Received: {name} is {received} of shape {array.shape}"
        )
    return array
