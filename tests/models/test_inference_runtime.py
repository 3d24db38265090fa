from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit import accelerators, models, optimize_for_inference
from keras_vit.layers import TransformerBlock
from keras_vit.models import cloning, inference_runtime
from keras_vit.models.inference_graphs import compiled_for_few
from tests.helpers import assert_close, normal, tiny_model

IMAGES = normal(3, 15, 14, 3)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 5e-6), ("bfloat16", 0.06)])
def test_the_copy_answers_the_same(precision: str, tolerance: float) -> None:
    model = tiny_model()
    copy = optimize_for_inference(model, precision=precision)
    assert copy is not model
    # measured: 3e-7; 0.017
    assert_close(copy(IMAGES), model(IMAGES), tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_the_precision_is_the_model_s(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = []
    for name in ("with_dtype", "to_bfloat16"):
        copied = getattr(cloning, name)
        monkeypatch.setattr(
            cloning,
            name,
            lambda *of, copied=copied, name=name: policies.append(name) or copied(*of),
        )
    optimize_for_inference(tiny_model(dtype=dtype))
    assert policies[0] == {"float32": "with_dtype", "mixed_bfloat16": "to_bfloat16"}[dtype]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_the_answer_is_not_rounded(dtype: str) -> None:
    model = tiny_model(dtype=dtype, classifier_activation="softmax")
    found = optimize_for_inference(model, precision="bfloat16").predict(IMAGES, verbose=0)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)  # measured: 1.2e-7; rounded: 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("method", ["merge", "prune"])
def test_a_model_with_fewer_tokens_answers_the_same(method: str) -> None:
    model = models.reduce_tokens(tiny_model(), 2, method=method)
    assert_close(optimize_for_inference(model)(IMAGES), model(IMAGES), 5e-6)  # measured: 3e-7


def mean_of_tokens(model: keras.Model) -> keras.Model:
    return keras.Model(model.input, ops.mean(model.get_layer("block_01").output, axis=1))


def with_its_mean(model: keras.Model) -> keras.Model:
    """A model of two that share their blocks; one uses all tokens."""
    images = keras.Input(model.input_shape[1:])
    return keras.Model(
        images, ops.concatenate([model(images), mean_of_tokens(model)(images)], axis=-1)
    )


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="elsewhere a plain copy")
@pytest.mark.parametrize(
    ("changes", "around", "used"),
    [
        ({}, None, 1),
        ({"layer_scale": 0.5, "register_tokens": 2, "representation_size": 5}, None, 1),
        ({"distillation_token": True, "distillation_head": True}, None, 2),
        ({}, lambda m: keras.Sequential([keras.Input((15, 14, 3)), m]), 1),
        ({"pooling": "gap"}, None, None),
        ({"pooling": "map"}, None, None),
        ({"pooling": "none", "classes": 0}, None, None),
        ({}, mean_of_tokens, None),
        ({}, with_its_mean, None),
        ({}, lambda m: keras.Model(m.input, [*m.outputs, m.get_layer("block_01").output]), None),
    ],
)
def test_last_block_computes_only_tokens_that_are_used(
    changes: dict[str, Any],
    around: Callable[[keras.Model], keras.Model] | None,
    used: int | None,
) -> None:
    model = tiny_model(**changes)
    model = around(model) if around else model
    folded = cloning.clone(model)
    inference_runtime.fold(folded)
    blocks = [layer for layer in cloning.layers_of(folded) if isinstance(layer, TransformerBlock)]
    assert [block.num_queries for block in blocks[:2]] == [None, used]
    # measured: 1.4e-5 for tokens of up to 10, 2e-6 otherwise
    for found, expected in zip(
        *(keras.tree.flatten(m(IMAGES)) for m in (folded, model)), strict=True
    ):
        assert_close(found, expected, 5e-5)


@pytest.mark.slow
def test_a_quantized_model_answers_the_same() -> None:
    model = tiny_model()
    model.quantize("int8")
    images = normal(2, 15, 14, 3)
    # measured: 3e-8
    assert_close(optimize_for_inference(model)(images), model(images), 1e-6)


@pytest.mark.slow
def test_the_model_stays_as_it_was() -> None:
    model = tiny_model()
    before = model(IMAGES)
    copy = optimize_for_inference(model)
    assert_close(model(IMAGES), before, 0)
    found = copy(IMAGES)
    model.set_weights([weight * 0 for weight in model.get_weights()])
    assert_close(copy(IMAGES), found, 0)


@pytest.mark.slow
def test_the_copy_is_a_functional_model_of_the_same_shapes() -> None:
    model = tiny_model()
    copy = optimize_for_inference(model)
    assert isinstance(copy, keras.Model)
    assert (copy.input_shape, copy.output_shape) == (model.input_shape, model.output_shape)
    # measured: 3e-7
    assert_close(copy.predict(IMAGES, verbose=0), model.predict(IMAGES, verbose=0), 5e-6)


@pytest.mark.slow
def test_the_copy_carries_the_preprocessing() -> None:
    model = tiny_model()
    copy = optimize_for_inference(model)
    assert models.preprocessing_of(copy) == models.preprocessing_of(model)


# Before Keras 3.14 an input cannot be an output.
through = pytest.param(
    lambda x: x, marks=pytest.mark.skipif(keras.__version__ < "3.14", reason="needs Keras 3.14")
)


@pytest.mark.parametrize("layer", [keras.layers.Identity(), through])
def test_inputs_and_outputs_may_have_names(layer: Any) -> None:
    inputs = {"a": keras.Input((5,), name="a"), "b": keras.Input((5,), name="b", dtype="int32")}
    hidden = keras.layers.Dense(3)(inputs["a"])
    model = keras.Model(inputs, {"sum": hidden, "b": layer(inputs["b"])})
    given = {"a": normal(2, 5), "b": np.arange(10, dtype="int32").reshape(2, 5)}
    found, expected = optimize_for_inference(model)(given), model(given)
    assert set(found) == {"sum", "b"}
    assert_close(found["sum"], expected["sum"], 5e-6)
    assert_close(found["b"], expected["b"], 0)


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="elsewhere a plain copy")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_large_models_are_left_as_they_are(
    precision: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = tiny_model()
    monkeypatch.setattr(accelerators, "lacks_avx512", lambda: False)
    for name in ("MAX_CONSTANT_BYTES", "MAX_CONSTANT_BYTES_BFLOAT16", "frozen", "compiled_for_few"):
        monkeypatch.setattr(inference_runtime, name, 1000 if name.isupper() else None)
    copy = optimize_for_inference(model, precision=precision)
    assert_close(copy(IMAGES), model(IMAGES), 0.06)  # measured: 3e-7; 0.017
    # A scale that is in its weights would be applied again.
    for refused in (copy.save, copy.save_weights, copy.load_weights, copy.export):
        with pytest.raises(ValueError, match="cannot be saved"):
            refused(tmp_path / "m.weights.h5")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="copied"):
        optimize_for_inference(copy)


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="elsewhere a plain copy")
@pytest.mark.parametrize(
    ("lacks", "large", "optimized", "predictor"),
    [
        (False, False, (4, True), None),
        (False, True, None, None),
        pytest.param(True, False, (16, True), (4, True), marks=pytest.mark.slow),
        pytest.param(True, True, (4, False), (4, False), marks=pytest.mark.slow),
    ],
)
def test_xla_is_used_for_as_many_images_as_it_is_faster_for(
    lacks: bool,
    large: bool,
    optimized: tuple[int, bool] | None,
    predictor: tuple[int, bool] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[tuple[int, bool]] = []

    def record(model: keras.Model, few: int, constants: bool) -> Any:
        compiled.append((few, constants))
        return compiled_for_few(model, few, constants)

    monkeypatch.setattr(accelerators, "lacks_avx512", lambda: lacks)
    monkeypatch.setattr(inference_runtime, "compiled_for_few", record)
    monkeypatch.setattr(inference_runtime, "MAX_CONSTANT_BYTES", 1000 if large else 2**30)
    model = tiny_model()
    for prepare, expected in (
        (optimize_for_inference, optimized),
        (inference_runtime.predictor_graph, predictor),
    ):
        compute = prepare(model)
        assert compiled == ([expected] if expected else [])
        compiled.clear()
        assert_close(compute(IMAGES), model(IMAGES), 5e-6)  # measured: 3e-7
    plain = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])  # no Vision Transformer
    inference_runtime.predictor_graph(plain)
    assert compiled == []


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="elsewhere a plain copy")
def test_what_xla_does_not_know_is_not_compiled() -> None:
    words = keras.Input((1,), dtype="string")
    found = keras.layers.StringLookup(vocabulary=["cat", "dog"])(words)
    model = keras.Model(words, keras.layers.Embedding(3, 5)(found))
    given = keras.ops.convert_to_tensor([["dog"], ["bird"]])
    assert_close(optimize_for_inference(model)(given), model(given), 0)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="models of JAX are called from one thread only"
)
def test_two_batches_are_computed_at_a_time_in_their_order() -> None:
    both = threading.Barrier(2, timeout=60)

    def compute(batch: int) -> int:
        if batch < 2:
            both.wait()  # fails if one waits alone
        return batch * batch

    assert list(inference_runtime.two_at_a_time(compute, range(5))) == [0, 1, 4, 9, 16]


def test_a_predictor_does_not_follow_the_model() -> None:
    model = tiny_model()
    compute = inference_runtime.predictor_graph(model)
    before = np.asarray(compute(IMAGES))
    assert_close(before, model(IMAGES), 5e-6)  # measured: 3e-7
    model.set_weights([0 * weight for weight in model.get_weights()])
    np.testing.assert_array_equal(np.asarray(compute(IMAGES)), before)


def test_arguments_are_checked() -> None:
    model = tiny_model()
    with pytest.raises(ValueError, match=r"`runtime` must be one of 'keras', 'openvino'\. Rec"):
        optimize_for_inference(model, runtime="onnx")
    with pytest.raises(ValueError, match=r"`precision` must be one of .*'float32', 'bfloat16'\."):
        optimize_for_inference(model, precision="float16")
    with pytest.raises(
        ValueError, match=r"`threads` must be None with `runtime='keras'`, because the Keras.*=3"
    ):
        optimize_for_inference(model, threads=3)


@pytest.mark.slow
def test_openvino_is_one_of_the_runtimes() -> None:
    pytest.importorskip("openvino", reason="needs the extra openvino")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("OpenVINO reads TensorFlow's graphs")
    model = tiny_model()
    with pytest.raises(ValueError, match="exported"):
        optimize_for_inference(optimize_for_inference(model), runtime="openvino")
    found = optimize_for_inference(model, runtime="openvino", threads=1)
    assert found.precision == "float32"
    with pytest.raises(ValueError, match="cannot be saved"):
        found.save("m.keras")
    with pytest.raises(ValueError, match="`training` must be False"):
        found(IMAGES, training=True)
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
    # measured: 0.022 in Keras, 0.023 in OpenVINO
    assert_close(found.astype("float32"), expected, 0.05)
    assert np.array_equal(found.argmax(-1), expected.argmax(-1))
