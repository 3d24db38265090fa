from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import models, optimize_for_inference
from keras_vit.layers import TransformerBlock
from keras_vit.models import cloning
from tests.helpers import assert_close, normal, tiny_model

IMAGES = normal(3, 15, 14, 3)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 5e-6), ("bfloat16", 0.06)])
def test_the_copy_answers_the_same(precision: str, tolerance: float) -> None:
    model = tiny_model()
    copy = optimize_for_inference(model, precision=precision)
    assert copy is not model
    # measured: 3e-7; 0.017
    assert_close(copy(IMAGES), model(IMAGES), tolerance)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_the_precision_is_the_model_s(dtype: str) -> None:
    model = tiny_model(dtype=dtype)
    copy = optimize_for_inference(model)
    found = [layer for layer in cloning.layers_of(copy) if isinstance(layer, TransformerBlock)]
    assert {block.dtype_policy.name for block in found} == {dtype}
    assert all(block.norm_1.compiled and block.norm_2.compiled for block in found)
    # Left to oneDNN in float32, which adds bias and GELU in the product.
    assert {block.mlp.expand.compiled for block in found} == {dtype == "mixed_bfloat16"}
    assert not any(
        block.norm_1.compiled for block in model.layers if isinstance(block, TransformerBlock)
    )


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="elsewhere a plain copy")
def test_chains_are_compiled_in_the_graph() -> None:
    import tensorflow as tf

    def calls(model: keras.Model) -> int:
        forward = tf.function(lambda images: model(images, training=False), autograph=False)
        graph = forward.get_concrete_function(tf.constant(IMAGES)).graph
        return sum("PartitionedCall" in operation.type for operation in graph.get_operations())

    model = tiny_model()
    assert calls(model) == 0
    assert calls(optimize_for_inference(model)) == 5  # two norms in two blocks, one behind them


def test_arguments_are_checked() -> None:
    model = tiny_model()
    with pytest.raises(ValueError, match=r"`runtime` must be one of 'keras', 'openvino'\. Rec"):
        optimize_for_inference(model, runtime="onnx")
    with pytest.raises(ValueError, match=r"`precision` must be one of 'float32', 'bfloat16'\."):
        optimize_for_inference(model, precision="float16")
    with pytest.raises(ValueError, match=r"`threads` must be None where `runtime` is 'keras'.*=3"):
        optimize_for_inference(model, threads=3)


def test_openvino_is_one_of_the_runtimes() -> None:
    pytest.importorskip("openvino", reason="needs the extra openvino")
    pytest.importorskip("tensorflow", reason="Keras exports to OpenVINO through TensorFlow")
    model = tiny_model()
    found = optimize_for_inference(model, runtime="openvino", threads=1)
    assert found.precision == "float32"
    np.testing.assert_allclose(found(IMAGES), model.predict(IMAGES), atol=5e-6)  # measured: 3e-7


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="elsewhere a plain copy")
@pytest.mark.parametrize("runtime", ["keras", "openvino"])
def test_photographs_keep_their_classes_in_bfloat16(test_data: Path, runtime: str) -> None:
    if runtime == "openvino":
        pytest.importorskip("openvino", reason="needs the extra openvino")
    from keras_vit import data

    model = keras_vit.ViTTi16(
        weights=test_data / "weights" / "Ti_16-augreg-i21k-imagenet2012-res_224.npz"
    )
    photographs = data.evaluation_dataset(
        data.load(test_data / "data" / "imagenet_sample"),
        models.preprocessing_of(model),
        batch_size=16,
    )
    expected = model.predict(photographs, verbose=0)
    found = np.asarray(optimize_for_inference(model, runtime, "bfloat16").predict(photographs))
    # measured: 0.027 in Keras, 0.023 in OpenVINO
    assert_close(found.astype("float32"), expected, 0.05)
    assert np.array_equal(found.argmax(-1), expected.argmax(-1))
