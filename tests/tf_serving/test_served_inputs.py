from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from keras_vit.tf_serving import served_inputs

pytestmark = pytest.mark.tensorflow


def signature(**inputs: tf.TensorSpec) -> meta_graph_pb2.SignatureDef:
    found = meta_graph_pb2.SignatureDef()
    for name, spec in inputs.items():
        found.inputs[name].dtype = spec.dtype.as_datatype_enum
        found.inputs[name].tensor_shape.CopyFrom(spec.shape.as_proto())
    return found


SIGNATURES = {
    "__saved_model_init_op": signature(),
    "embed": signature(image_bytes=tf.TensorSpec((None,), tf.string)),
    "classify_pixels": signature(pixels=tf.TensorSpec((None, 10, 14, 3), tf.uint8)),
    "classify_float": signature(images=tf.TensorSpec((None, 10, 14, 3), tf.float32)),
    "anything": signature(values=tf.TensorSpec(None, tf.float32)),
}


@pytest.mark.parametrize(
    ("signature", "inputs", "message"),
    [
        ("serving", {"image_bytes": [b"image"]}, "`signature` must be one of 'anything', 'clas"),
        ("embed", {}, "`inputs` of the signature 'embed' must be image_bytes. Received: none"),
        ("embed", {"images": [b"image"]}, "'embed' must be image_bytes. Received: images"),
        (
            *("embed", {"image_bytes": []}),
            "`image_bytes` must be bytes of shape (B,), for at least one image (B >= 1). "
            "Received: image_bytes is bytes of shape (0,)",
        ),
        ("embed", {"image_bytes": ["photo.jpg"]}, "image_bytes is str of shape (1,)"),
        ("embed", {"image_bytes": np.zeros(2)}, "image_bytes is float of shape (2,)"),
        ("embed", {"image_bytes": b"image"}, "image_bytes is bytes of shape ()"),
        (
            *("classify_pixels", {"pixels": np.zeros((2, 10, 14, 3), "float32")}),
            "`pixels` must be uint8 of shape (B, 10, 14, 3), for at least one image (B >= 1). "
            "Received: pixels is float32 of shape (2, 10, 14, 3)",
        ),
        ("classify_pixels", {"pixels": np.zeros((2, 14, 10, 3), "uint8")}, "(2, 14, 10, 3)"),
        ("classify_pixels", {"pixels": np.zeros((10, 14, 3), "uint8")}, "(10, 14, 3)"),
        ("classify_pixels", {"pixels": np.zeros((0, 10, 14, 3), "uint8")}, "(0, 10, 14, 3)"),
        ("classify_float", {"images": np.zeros((2, 10, 14, 3))}, "images is float64"),
    ],
)
def test_check_refuses_what_does_not_fit(
    signature: str, inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        served_inputs.check(SIGNATURES, signature, inputs)


def test_check_returns_arrays() -> None:
    (read,) = served_inputs.check(SIGNATURES, "embed", {"image_bytes": [b"a\0", b""]}).values()
    assert read.tolist() == [b"a\0", b""]
    pixels = np.zeros((2, 10, 14, 3), "uint8")
    (same,) = served_inputs.check(SIGNATURES, "classify_pixels", {"pixels": pixels}).values()
    assert same is pixels
    values = np.zeros((2, 3), "float32")
    assert served_inputs.check(SIGNATURES, "anything", {"values": values})["values"] is values
