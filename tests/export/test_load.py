from __future__ import annotations

import dataclasses
import pickle
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import preprocessing_files
from keras_vit.data import Examples
from keras_vit.data.decode_and_resize import prepare
from keras_vit.export import Predictor, load, load_predictor, onnx_openvino, saved_model, tflite
from keras_vit.tasks.evaluate import evaluate
from keras_vit.tasks.registry import trained_model
from tests.export.conftest import LABELS, PREPROCESSING, tiny

pytestmark = pytest.mark.tensorflow


def test_predictor_of_a_model_computes_what_the_model_does(
    model: keras.Model, loaded: Predictor, images: list[bytes], expected: np.ndarray
) -> None:
    prepared = np.stack([prepare(image, PREPROCESSING) for image in images])
    # Measured: 2.4e-7.
    np.testing.assert_allclose(expected, model.predict(prepared, verbose=0), atol=1e-6)
    assert loaded.name == "vit"


@pytest.mark.slow
def test_predictor_of_a_model_does_not_compile_by_xla_for_each_batch_size(
    model: keras.Model, images: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(keras.Model, "predict_on_batch", compiled)
    predictor = load_predictor(model)
    together = predictor.probabilities(images)
    alone = np.concatenate([predictor.probabilities([image]) for image in images])
    np.testing.assert_allclose(alone, together, atol=1e-6)  # measured: 1.5e-7


@pytest.mark.slow
def test_predictor_of_one_sigmoid_output_predicts_two_classes(
    images: list[bytes], labeled: Examples, tmp_path: Path
) -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, class_names=("daisy", "rose"))
    model = tiny(preprocessing, classes=1, classifier_activation="sigmoid")
    prepared = np.stack([prepare(image, PREPROCESSING) for image in images])
    answers = model.predict(prepared, verbose=0)
    model.layers[-1].bias.assign_sub([np.median(np.log(answers / (1 - answers)))])
    expected = model.predict(prepared, verbose=0)[:, 0]
    assert 0 < np.count_nonzero(expected > 0.5) < len(images)
    model.save(tmp_path / "model.keras")
    for path in (
        tmp_path / "model.keras",
        saved_model.write(model, tmp_path / "1"),
        tflite.write(model, tmp_path / "model.tflite"),
    ):
        predictor = load_predictor(path)
        assert predictor.labels == ("daisy", "rose")
        found = predictor.predict(images)
        assert [p.label for p in found] == [("daisy", "rose")[int(p > 0.5)] for p in expected]
        rose = [p.probabilities[1] for p in found]
        np.testing.assert_allclose(rose, expected, atol=1e-5)
    targets = (expected > 0.5).astype(int)
    two = dataclasses.replace(labeled, targets=1 - targets, class_names=("rose", "daisy"))
    assert evaluate(model, two).accuracy == 1


@pytest.mark.slow
def test_models_that_scale_pixels_themselves_take_them_unscaled(
    images: list[bytes], tmp_path: Path
) -> None:
    raw = dataclasses.replace(PREPROCESSING, mean=0.0, std=1 / 255)
    front = keras.Input((*PREPROCESSING.size, 3))
    scaled = keras.layers.Rescaling(1 / 127.5, -1)(front)
    vit = tiny(classes=0)
    model = keras.Model(front, keras.layers.Dense(7, activation="softmax")(vit(scaled)))
    expected = model.predict(np.stack([prepare(image, raw) for image in images]), verbose=0)
    model.save(tmp_path / "model.keras")
    for path in (
        tmp_path / "model.keras",
        saved_model.write(model, tmp_path / "1"),
        tflite.write(model, tmp_path / "model.tflite"),
    ):
        found = load_predictor(path).probabilities(images)
        np.testing.assert_allclose(found, expected, atol=1e-5)  # measured: 3e-7


def test_load_predictor_takes_every_exported_file(
    exported: dict[str, Path], images: list[bytes], expected: np.ndarray
) -> None:
    version = exported["saved_model"]
    for path, name in (
        (exported["keras"], exported["keras"]),
        (exported["tflite"], exported["tflite"]),
        (version, version),
        (str(version.parent), version),
    ):
        predictor = load_predictor(path)
        assert predictor.labels == LABELS
        assert predictor.name == str(name)
        np.testing.assert_allclose(predictor.probabilities(images), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["onnx", pytest.param("openvino", marks=pytest.mark.slow)])
def test_load_predictor_takes_files_of_other_runtimes(
    kind: str, model: keras.Model, images: list[bytes], expected: np.ndarray, tmp_path: Path
) -> None:
    for package in onnx_openvino._NEEDED[kind]:
        pytest.importorskip(package, reason=f"needs the extra {kind}")
    write, suffix = onnx_openvino.WRITERS[kind]
    predictor = load_predictor(write(trained_model(model), tmp_path / f"model.{suffix}"))
    assert predictor.labels == LABELS
    np.testing.assert_allclose(predictor.probabilities(images), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["keras", "saved_model", "tflite"])
def test_a_predictor_is_pickled_by_its_path(
    kind: str,
    exported: dict[str, Path],
    images: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(exported[kind].parent)
    predictor = load_predictor(exported[kind].name)
    pickled = pickle.dumps(predictor)
    assert len(pickled) < 1000
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(pickled)  # noqa: S301
    assert again.name == str(exported[kind])
    np.testing.assert_array_equal(again.probabilities(images), predictor.probabilities(images))


def test_a_predictor_is_pickled_with_its_options(
    exported: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = load_predictor(exported["saved_model"], trust=True)
    checked: list[Path] = []
    monkeypatch.setattr(load, "check_operators", checked.append)
    pickle.loads(pickle.dumps(predictor))  # noqa: S301
    assert not checked


def test_a_predictor_of_a_model_is_not_pickled(loaded: Predictor) -> None:
    with pytest.raises(TypeError, match=r"must be loaded from a file .* the Keras model 'vit'"):
        pickle.dumps(loaded)


def test_load_predictor_takes_the_last_epoch_of_a_run(
    exported: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copy(exported["keras"], tmp_path / "last.keras")
    (tmp_path / "best.keras").write_bytes(b"")
    assert load_predictor(tmp_path).name == str(tmp_path / "last.keras")


def test_load_predictor_takes_the_newest_complete_version(
    exported: dict[str, Path], tmp_path: Path
) -> None:
    for number in ("9", "10"):
        shutil.copytree(exported["saved_model"], tmp_path / number)
    (tmp_path / "11").mkdir()
    assert load_predictor(tmp_path).name == str(tmp_path / "10")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing.keras", "which does not exist"),
        ("folder", "which is none of"),
        ("model.h5", "which is none of"),
    ],
)
def test_load_predictor_says_what_it_takes(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "model.h5").touch()
    with pytest.raises(
        ValueError, match=f"`source` must be a file that ends in .keras, .*{name}', {problem}"
    ):
        load_predictor(tmp_path / name)


@pytest.mark.parametrize(("kind", "size"), [("keras", 1000), ("tflite", -100)])
def test_load_predictor_says_that_a_file_is_damaged(
    kind: str, size: int, exported: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / f"model.{kind}"
    path.write_bytes(exported[kind].read_bytes()[:size])
    with pytest.raises(ValueError, match=rf"`source` must be .*complete.*model\.{kind}"):
        load_predictor(path)


@pytest.mark.parametrize("damage", [b"\0", b""])
def test_load_predictor_says_that_an_onnx_file_is_damaged(damage: bytes, tmp_path: Path) -> None:
    for package in onnx_openvino._NEEDED["onnx"]:
        pytest.importorskip(package, reason="needs the extra onnx")
    import onnx

    proto = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], []))
    onnx.helper.set_model_props(proto, preprocessing_files.texts(PREPROCESSING))
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString() + damage)
    with pytest.raises(ValueError, match=r"`source` must be .*complete.*model\.onnx"):
        load_predictor(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("labels.txt", "daisy\n", r"one line for each of the 7 classes .* 1 lines"),
        ("thresholds.txt", "0.5\n" * 6 + "half\n", r"a number in each line .* line 7 of .*'half'"),
    ],
)
def test_load_predictor_refuses_texts_of_another_saved_model(
    exported_yes_or_no: Path, tmp_path: Path, name: str, text: str, message: str
) -> None:
    folder = shutil.copytree(exported_yes_or_no, tmp_path / "1")
    (folder / "assets" / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        load_predictor(folder)


def test_load_predictor_refuses_a_saved_model_from_elsewhere(tmp_path: Path) -> None:
    tf.saved_model.save(tf.Module(), tmp_path)
    with pytest.raises(
        ValueError, match=r"exported by keras_vit that contains preprocessing\.json"
    ):
        load_predictor(tmp_path)
