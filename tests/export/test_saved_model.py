from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_vit.data.decode_and_resize import decode, prepare, resize_and_crop, scale
from keras_vit.export import load_predictor, saved_model
from keras_vit.models import last_activation
from tests.export.conftest import LABELS, PREPROCESSING, tiny

pytestmark = pytest.mark.tensorflow

# What a server is: TensorFlow, a folder and image files.
CLIENT = """
import json, sys
class WithoutKeras:
    finders = list(sys.meta_path)
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in ("keras", "tf_keras", "keras_vit"):
            specs = (finder.find_spec(name, path, target) for finder in self.finders)
            return next((spec for spec in specs if spec), None)
sys.meta_path[:] = [WithoutKeras()]
import tensorflow as tf
folder, *images = sys.argv[1:]
answer = tf.saved_model.load(folder).signatures["serving_default"](
    image_bytes=tf.constant([open(image, "rb").read() for image in images])
)
assert not {"keras", "tf_keras", "keras_vit"} & set(sys.modules)
plain = {name: value.numpy() for name, value in answer.items()}
plain = {name: value.astype(str) if value.dtype == object else value
         for name, value in plain.items()}
print(json.dumps({name: value.tolist() for name, value in plain.items()}))
"""


def run_client(folder: Path, encoded: list[bytes], tmp_path: Path) -> dict[str, np.ndarray]:
    paths = [tmp_path / str(index) for index in range(len(encoded))]
    for path, image in zip(paths, encoded, strict=True):
        path.write_bytes(image)
    result = subprocess.run(
        [sys.executable, "-c", CLIENT, str(folder), *map(str, paths)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert "optimizer" not in result.stderr  # no error logged by the graph optimizer
    return {key: np.array(value) for key, value in json.loads(result.stdout).items()}


def test_write_serves_mixed_images_where_keras_is_absent(
    model: keras.Model, exported: dict[str, Path], images: list[bytes], tmp_path: Path
) -> None:
    answer = run_client(exported["saved_model"], images, tmp_path)
    prepared = np.stack([prepare(image, PREPROCESSING) for image in images])
    expected = model.predict(prepared, verbose=0)
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)  # measured: 0.0
    best = np.argsort(-expected, axis=1)[:, :5]
    np.testing.assert_array_equal(answer["top_indices"], best)
    np.testing.assert_array_equal(answer["top_labels"], np.array(LABELS)[best])
    np.testing.assert_allclose(
        answer["top_scores"], np.take_along_axis(expected, best, axis=1), atol=1e-6
    )
    assert len(set(best[:, 0])) > 1, "images that all get one label prove little"


def test_write_has_signatures_that_agree(exported: dict[str, Path], images: list[bytes]) -> None:
    signatures = tf.saved_model.load(exported["saved_model"]).signatures
    assert set(signatures) == {
        *("serving_default", "classify_bytes", "classify_pixels", "classify_float"),
        *("embed", "explain", "preprocess"),
    }
    fitted = tf.stack([resize_and_crop(decode(i, PREPROCESSING), PREPROCESSING) for i in images])
    answers = [
        signatures["serving_default"](image_bytes=tf.constant(images)),
        signatures["classify_pixels"](pixels=fitted),
        signatures["classify_float"](images=scale(fitted, PREPROCESSING)),
    ]
    for answer in answers:
        told = {n: (v.dtype.name, tuple(v.shape)) for n, v in answer.items()}
        assert {n: t for n, t in told.items() if n not in ("ok", "message")} == {
            "probabilities": ("float32", (10, 7)),
            "top_scores": ("float32", (10, 5)),
            "top_indices": ("int32", (10, 5)),
            "top_labels": ("string", (10, 5)),
        }
        np.testing.assert_allclose(answer["probabilities"], answers[0]["probabilities"], atol=1e-7)


@pytest.mark.slow
def test_write_answers_batches_of_one_and_none(
    exported: dict[str, Path], images: list[bytes]
) -> None:
    serve = tf.saved_model.load(exported["saved_model"]).signatures["serving_default"]
    whole = serve(image_bytes=tf.constant(images))["probabilities"]
    one = serve(image_bytes=tf.constant(images[3:4]))["probabilities"]
    np.testing.assert_allclose(one, whole[3:4], atol=1e-6)
    none = serve(image_bytes=tf.constant([], tf.string))
    assert none["probabilities"].shape == (0, 7)


def test_write_carries_labels_and_preprocessing_as_text(exported: dict[str, Path]) -> None:
    assets = exported["saved_model"] / "assets"
    assert (assets / "labels.txt").read_text().split() == list(LABELS)
    assert json.loads((assets / "preprocessing.json").read_text())["size"] == [10, 14]


def test_write_leaves_no_path_of_the_machine_in_the_files(exported: dict[str, Path]) -> None:
    files = [path for path in exported["saved_model"].rglob("*") if path.is_file()]
    folder = f"{tempfile.gettempdir()}/".encode()
    assert [path.name for path in files if folder in path.read_bytes()] == []


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_write_stores_each_weight_once(
    model: keras.Model, exported: dict[str, Path], precision: str, tmp_path: Path
) -> None:
    folder = exported["saved_model"]  # in the precision of the model: float32
    if precision != "float32":
        folder = saved_model.write(model, tmp_path / "1", precision=precision)
    content = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    nodes = [n for f in content.meta_graphs[0].graph_def.library.function for n in f.node_def]
    stored = [
        tf.make_ndarray(node.attr["value"].tensor)
        for node in nodes
        if node.op == "Const" and node.attr["dtype"].type == tf.float32.as_datatype_enum
    ]
    numbers = sum(array.size for array in stored if array.size > 3)
    # Besides them: an identity matrix of the rollout.
    assert model.count_params() <= numbers < 1.05 * model.count_params()
    assert not [node for node in nodes if node.op == "ReadVariableOp"]
    assert sum(file.stat().st_size for file in (folder / "variables").iterdir()) < 2000


def test_versions_are_the_numbers_and_the_next_one_is_free(tmp_path: Path) -> None:
    for name in ("2", "9", "notes", ".10.partial"):
        (tmp_path / name).mkdir()
    assert saved_model.versions(tmp_path) == [2, 9]
    assert saved_model.next_version(tmp_path) == tmp_path / "10"


@pytest.mark.slow
def test_write_that_fails_leaves_nothing(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(trackable, path, **kwargs) -> None:
        Path(path).mkdir()
        (Path(path) / "saved_model.pb").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        saved_model.write(model, tmp_path / "served" / "1")
    assert list((tmp_path / "served").iterdir()) == []


@pytest.mark.slow
def test_write_of_logits_serves_probabilities(images: list[bytes], tmp_path: Path) -> None:
    folder = saved_model.write(tiny(classifier_activation=None), tmp_path / "1")
    answer = tf.saved_model.load(folder).signatures["serving_default"](
        image_bytes=tf.constant(images)
    )
    np.testing.assert_allclose(np.sum(answer["probabilities"], axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(
        answer["probabilities"], load_predictor(tiny()).probabilities(images), atol=1e-6
    )


@pytest.mark.slow
def test_write_serves_a_mixed_precision_model_of_any_size_in_float32(
    images: list[bytes], expected: np.ndarray, tmp_path: Path
) -> None:
    trained = tiny(
        dtype="mixed_bfloat16", image_size=(None, None), position_grid=(5, 7), dropout_rate=0.1
    )
    folder = saved_model.write(trained, tmp_path / "1")
    answer = tf.saved_model.load(folder).signatures["serving_default"](
        image_bytes=tf.constant(images)
    )
    # The weights are those of `model`, which is in float32 and has a fixed size.
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)


@pytest.mark.slow
def test_write_serves_a_users_model_on_a_backbone(images: list[bytes], tmp_path: Path) -> None:
    grayscale = dataclasses.replace(
        PREPROCESSING, channels="grayscale", mean=0.5, std=0.5, class_names=None
    )
    backbone = tiny(grayscale, channels=1, classes=0)
    backbone.trainable = False
    inputs = keras.Input((10, 14, 1))
    user = keras.Model(inputs, keras.layers.Dense(3)(backbone(inputs)))
    user.layers[-1].kernel.assign(np.random.default_rng(2).normal(size=(24, 3)))
    folder = saved_model.write(user, tmp_path / "1")
    answer = tf.saved_model.load(folder).signatures["serving_default"](
        image_bytes=tf.constant(images)
    )
    prepared = np.stack([prepare(image, grayscale) for image in images])
    expected = last_activation.with_probabilities(user)[0].predict(prepared, verbose=0)
    # 1.2e-6 measured, with AVX-512.
    np.testing.assert_allclose(answer["probabilities"], expected, atol=3e-6)
    assert set(answer["top_labels"].numpy().ravel()) == {b"0", b"1", b"2"}


@pytest.mark.slow
def test_write_needs_no_xla(tmp_path: Path) -> None:
    compiled = tiny()
    compiled.compile(loss="categorical_crossentropy", jit_compile=True)
    folder = saved_model.write(compiled, tmp_path / "1")
    content = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    graph = content.meta_graphs[0].graph_def
    functions = graph.library.function
    operators = {node.op for function in functions for node in function.node_def}
    assert "BatchMatMulV2" in operators
    assert not [name for name in operators if "Xla" in name]
    assert not [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
    # TensorFlow 1 and TF Serving find every operator by name in what TensorFlow itself brings.
    assert operators <= set(tf.raw_ops.__dict__) | {f.signature.name for f in functions}


def test_write_needs_the_tensorflow_backend(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"must be 'tensorflow' to export.*KERAS_BACKEND='jax'"):
        saved_model.write(model, tmp_path / "served")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_write_tells_which_labels_are_present(
    yes_or_no: keras.Model, exported_yes_or_no: Path, images: list[bytes]
) -> None:
    signatures = tf.saved_model.load(exported_yes_or_no).signatures
    answer = signatures["serving_default"](image_bytes=tf.constant(images))
    assert set(answer) == {
        *("probabilities", "top_scores", "top_indices", "top_labels", "present", "ok", "message")
    }
    assert answer["top_labels"].shape == (10, 7)  # all of them, for all may be a yes
    prepared = np.stack([prepare(image, PREPROCESSING) for image in images])
    expected = yes_or_no.predict(prepared, verbose=0)
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)
    thresholds = np.array([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], "float32")
    np.testing.assert_array_equal(answer["present"], expected >= thresholds)
    assert set(answer["present"].numpy().sum(axis=1)) != {1}, "not one label each"
    assert 0 < np.mean(answer["present"]) < 1
    text = (exported_yes_or_no / "assets" / "preprocessing.json").read_text()
    assert json.loads(text)["thresholds"] == [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    assert load_predictor(exported_yes_or_no).thresholds == (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@pytest.mark.slow
def test_labels_and_thresholds_can_be_changed_without_another_export(
    exported_yes_or_no: Path, images: list[bytes], tmp_path: Path
) -> None:
    folder = shutil.copytree(exported_yes_or_no, tmp_path / "1")
    before = tf.saved_model.load(folder).signatures["serving_default"]
    named = before(image_bytes=tf.constant(images))["top_labels"].numpy()
    labels = folder / "assets" / "labels.txt"
    labels.write_text(labels.read_text().replace("daisy", "Gänseblümchen"), encoding="utf-8")
    (folder / "assets" / "thresholds.txt").write_text("0.999999\n" * 7)
    after = tf.saved_model.load(folder).signatures["serving_default"]
    answer = after(image_bytes=tf.constant(images))
    np.testing.assert_array_equal(
        answer["top_labels"], np.where(named == b"daisy", "Gänseblümchen".encode(), named)
    )
    assert not answer["present"].numpy().any()
    predictor = load_predictor(folder)
    assert predictor.labels[0] == "Gänseblümchen"
    assert predictor.thresholds == (0.999999,) * 7


@pytest.mark.slow
def test_answers_are_the_same_every_time(exported: dict[str, Path], images: list[bytes]) -> None:
    serve = tf.saved_model.load(exported["saved_model"]).signatures["explain"]
    first, second = (serve(image_bytes=tf.constant(images)) for _ in range(2))
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])
