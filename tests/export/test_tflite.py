from __future__ import annotations

import json
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from keras_vit.data.decode_and_resize import decode, resize_and_crop
from keras_vit.export import load_predictor, tflite
from keras_vit.export.tflite import quantizable
from tests.export.conftest import LABELS, PREPROCESSING, randomise, tiny

pytestmark = pytest.mark.tensorflow

IMAGES = np.random.default_rng(5).normal(size=(3, 10, 14, 3)).astype("float32")


def interpreters() -> list[type]:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="needs the extra litert")
    return [litert.Interpreter, tf.lite.Interpreter]


def test_write_takes_pixels_and_gives_probabilities(
    model: keras.Model, exported: dict[str, Path], images: list[bytes]
) -> None:
    fitted = np.stack([resize_and_crop(decode(i, PREPROCESSING), PREPROCESSING) for i in images])
    expected = model.predict(PREPROCESSING.scale(fitted), verbose=0)
    for interpreter_type in interpreters():
        interpreter = interpreter_type(model_path=str(exported["tflite"]))
        interpreter.allocate_tensors()
        (given,), (returned,) = interpreter.get_input_details(), interpreter.get_output_details()
        assert (given["dtype"], given["shape"].tolist()) == (np.uint8, [1, 10, 14, 3])
        assert (returned["dtype"], returned["shape"].tolist()) == (np.float32, [1, 7])
        for image, row in zip(fitted, expected, strict=True):
            interpreter.set_tensor(given["index"], image[np.newaxis])
            interpreter.invoke()
            answer = interpreter.get_tensor(returned["index"])[0]
            np.testing.assert_allclose(answer, row, atol=1e-5)  # measured: 3e-7


def test_write_uses_built_in_operators_only(exported: dict[str, Path]) -> None:
    flatbuffer = schema.Model.GetRootAsModel(exported["tflite"].read_bytes())
    codes = [flatbuffer.OperatorCodes(i) for i in range(flatbuffer.OperatorCodesLength())]
    assert len(codes) > 10
    assert [code.CustomCode() for code in codes if code.CustomCode()] == []
    assert schema.BuiltinOperator.CUSTOM not in {code.BuiltinCode() for code in codes}


def test_write_appends_labels_and_preprocessing(exported: dict[str, Path]) -> None:
    with zipfile.ZipFile(exported["tflite"]) as archive:
        assert archive.testzip() is None
        assert archive.read("labels.txt").decode().split() == list(LABELS)
        assert json.loads(archive.read("preprocessing.json"))["size"] == [10, 14]


@pytest.mark.slow
def test_write_converts_a_mixed_precision_model_of_any_size(
    images: list[bytes], expected: np.ndarray, tmp_path: Path
) -> None:
    trained = tiny(
        dtype="mixed_bfloat16",
        image_size=(None, None),
        position_grid=(5, 7),
        classifier_activation=None,
    )
    path = tflite.write(trained, tmp_path / "model.tflite")
    np.testing.assert_allclose(load_predictor(path).probabilities(images), expected, atol=1e-5)
    test_write_uses_built_in_operators_only({"tflite": path})


@pytest.mark.slow
def test_write_that_fails_keeps_the_earlier_file(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"earlier")

    def full_disk(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full_disk)
    with pytest.raises(OSError, match="No space left"):
        tflite.write(model, path)
    assert path.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_write_needs_the_tensorflow_backend(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="must be 'tensorflow' to export"):
        tflite.write(model, tmp_path / "model.tflite")


@pytest.mark.slow
def test_write_carries_the_thresholds(
    yes_or_no: keras.Model, images: list[bytes], tmp_path: Path
) -> None:
    path = tflite.write(yes_or_no, tmp_path / "model.tflite")
    predictor = load_predictor(path)
    assert predictor.thresholds == (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    expected = load_predictor(yes_or_no)
    assert expected.thresholds == predictor.thresholds
    np.testing.assert_allclose(
        predictor.probabilities(images), expected.probabilities(images), atol=1e-5
    )


def operators(path: Path) -> dict[str, set[str]]:
    """The types that each built-in operator of a file computes in."""
    names = {number: name for name, number in vars(schema.BuiltinOperator).items()}
    types = {number: name for name, number in vars(schema.TensorType).items()}
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(path.read_bytes()))
    graph, found = model.subgraphs[0], {}
    for operator in graph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        kind = names[max(code.builtinCode, code.deprecatedBuiltinCode)]
        found.setdefault(kind, set()).add(types[graph.tensors[operator.outputs[0]].type])
    return found


@pytest.mark.parametrize("quantization", tflite.QUANTIZATIONS)
def test_every_rung_takes_bytes_of_pixels_and_knows_its_labels(
    quantizations: dict[str, Path], images: list[bytes], expected: np.ndarray, quantization: str
) -> None:
    test_write_uses_built_in_operators_only({"tflite": quantizations[quantization]})
    predictor = load_predictor(quantizations[quantization])
    assert predictor.labels == LABELS
    # measured: 2e-7 (float32), 2e-4 (float16), 3e-3 (int16x8), 0.05 (int8), 0.02 (dynamic_range)
    limits = {"float32": 1e-5, "float16": 2e-3, "int16x8": 0.02}
    assert np.abs(predictor.probabilities(images) - expected).max() < limits.get(quantization, 0.2)


def test_whole_numbers_stay_whole(quantizations: dict[str, Path]) -> None:
    eight = set().union(*operators(quantizations["int8"]).values())
    assert eight <= {"INT8", "UINT8", "INT32"}
    sixteen = operators(quantizations["int16x8"])
    floats = {kind for kind, types in sixteen.items() if "FLOAT32" in types}
    assert floats == {"CAST", "DEQUANTIZE"}  # the pixels that come, the probabilities that go
    for quantization in quantizations.values():
        assert "NEG" not in operators(quantization)


@pytest.mark.slow
def test_bytes_go_in_as_they_are_also_after_dark_images(model: keras.Model, tmp_path: Path) -> None:
    dark = [tf.io.encode_png(np.full((20, 20, 3), level, np.uint8)).numpy() for level in (9, 40)]
    path = tflite.write(model, tmp_path / "model.tflite", "int8", images=dark)
    (given,) = tf.lite.Interpreter(str(path)).get_input_details()
    assert (given["dtype"], given["quantization"]) == (np.uint8, (1.0, 0))


def test_calibrated_rungs_need_images(model: keras.Model, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"`images` must contain images .* the quantization 'int8'"
    ):
        tflite.write(model, tmp_path / "model.tflite", "int8")
    with pytest.raises(ValueError, match=r"`quantization` must be one of .*int4"):
        tflite.write(model, tmp_path / "model.tflite", "int4")


@pytest.mark.slow
def test_a_file_for_several_images_answers_for_any_number(
    model: keras.Model, images: list[bytes], expected: np.ndarray, tmp_path: Path
) -> None:
    predictor = load_predictor(tflite.write(model, tmp_path / "three.tflite", batch_size=3))
    for count in (1, 3, 10):
        np.testing.assert_allclose(
            predictor.probabilities(images[:count]), expected[:count], atol=1e-5
        )


@pytest.mark.slow
def test_features_that_are_hundreds_of_times_as_large_spoil_no_16_bits(
    images: list[bytes], tmp_path: Path
) -> None:
    """As in the last blocks of real ViTs, whose layer norms would lose all other tokens."""
    model = tiny(num_layers=2)
    encoder = next(layer for layer in model.layers if hasattr(layer, "class_token"))
    token = next(v for v in encoder.weights if "class" in v.path)
    value = np.array(token)
    value[..., 3] = 600
    token.assign(value)
    predictor = load_predictor(tflite.write(model, tmp_path / "m.tflite", "int16x8", images=images))
    expected = load_predictor(model).probabilities(images)
    # measured: 1.0e-3; with Keras' form 5.5e-3
    assert np.abs(predictor.probabilities(images) - expected).max() < 3e-3


@pytest.mark.slow
@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize(
    "changes",
    [{}, {"pooling": "map"}, {"layer_scale": 0.5, "norm_after_pooling": True, "pooling": "gap"}],
)
def test_the_copy_computes_the_same(changes: dict, measured: bool) -> None:
    model = tiny(**changes)
    before = model.get_weights()
    copy = quantizable(model, measured)
    # measured: 2.4e-7
    np.testing.assert_allclose(copy(IMAGES), model(IMAGES), atol=1e-6)
    for mine, its in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_norms_of_other_kinds_stay() -> None:
    inputs = keras.Input((5, 7))
    normed = keras.layers.LayerNormalization(axis=(1, 2), name="both")(inputs)
    normed = keras.layers.LayerNormalization(scale=False, name="plain")(normed)
    model = randomise(keras.Model(inputs, normed))
    copy = quantizable(model)
    assert [type(layer) for layer in copy.layers] == [type(layer) for layer in model.layers]
    images = IMAGES[:, :5, :7, 0]
    np.testing.assert_allclose(copy(images), model(images), atol=1e-6)


def test_a_token_that_is_constant_stays_finite() -> None:
    inputs = keras.Input((5, 7))
    model = keras.Model(inputs, keras.layers.LayerNormalization()(inputs))
    images = np.zeros((1, 5, 7), np.float32)
    images[0, 1] = IMAGES[0, 0, :7, 0] * 1000
    found = quantizable(model, measured=True)(images)
    np.testing.assert_allclose(found, model(images), atol=1e-5)
