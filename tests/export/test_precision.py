"""SavedModels whose products are computed in bfloat16."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_vit import accelerators
from keras_vit.data import Examples
from keras_vit.export import VerificationError, bundle, chosen_precision, saved_model
from keras_vit.export import bundle as bundle_function
from keras_vit.export.compare_artifacts import Artifact, compared
from keras_vit.layers import layer_norm
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks import serving_graph
from keras_vit.tasks.task import Predictions
from tests.export.conftest import tiny

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def written(model: keras.Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("precision")
    return {
        precision: saved_model.write(model, folder / precision, precision=precision)
        for precision in ("float32", "bfloat16")
    }


def functions_of(folder: Path) -> list[tf.compat.v1.NodeDef]:
    content = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    return [n for f in content.meta_graphs[0].graph_def.library.function for n in f.node_def]


@pytest.mark.slow
def test_every_signature_agrees_with_that_in_float32(
    written: dict[str, Path], images: list[bytes]
) -> None:
    loaded = {name: tf.saved_model.load(path).signatures for name, path in written.items()}
    files = tf.constant(images)
    pixels = loaded["float32"]["preprocess"](image_bytes=files)["pixels"]
    for name in ("classify_bytes", "classify_pixels", "embed", "explain"):
        given = {"pixels": pixels} if "pixels" in name else {"image_bytes": files}
        exact, found = (signatures[name](**given) for signatures in loaded.values())
        assert exact.keys() == found.keys()
        for key in exact:
            assert exact[key].dtype == found[key].dtype
            if exact[key].dtype == tf.float32:
                # Measured: 0.008 on probabilities, 0.03 on features.
                np.testing.assert_allclose(found[key], exact[key], atol=0.1, err_msg=name + key)


@pytest.mark.slow
def test_products_are_in_bfloat16_and_softmax_is_in_float32(written: dict[str, Path]) -> None:
    products = ("MatMul", "BatchMatMulV2")
    for name, folder in written.items():
        nodes = functions_of(folder)
        kinds = {node.attr["T"].type for node in nodes if node.op in products}
        wanted = tf.bfloat16 if name == "bfloat16" else tf.float32
        assert wanted.as_datatype_enum in kinds
        softmax = {node.attr["T"].type for node in nodes if node.op == "Softmax"}
        assert softmax == {tf.float32.as_datatype_enum}
        assert not [node.op for node in nodes if "Xla" in node.op]


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False])
def test_norms_are_one_operator_and_stay_right_without_onednn(
    model: keras.Model, fused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_norm, "_FUSED", -1 if fused else 10**6)
    written = saved_model.write(model, tmp_path / "1")
    program = """
import sys, numpy as np, tensorflow as tf
signatures = tf.saved_model.load(sys.argv[1]).signatures
pixels = np.random.default_rng(3).integers(0, 256, (5, 10, 14, 3), np.uint8)
for number in (5, 1, 0):
    found = signatures["classify_pixels"](pixels=tf.constant(pixels[:number]))["probabilities"]
    print(found.shape[0], np.round(found.numpy().astype(float), 4).ravel().tolist()[:7])
"""
    answers = []
    for enabled in ("1", "0"):
        environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": enabled, "TF_CPP_MIN_LOG_LEVEL": "2"}
        command = [sys.executable, "-c", program, str(written)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answers.append([json.loads(line.partition(" ")[2]) for line in done.stdout.splitlines()])
    assert [len(row) for row in answers[0]] == [7, 7, 0]
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_of_a_large_model_stay_variables(
    model: keras.Model, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(serving_graph._LARGEST_CONSTANTS, precision, 100)
    folder = saved_model.write(model, tmp_path / "1", precision=precision)
    assert [node for node in functions_of(folder) if node.op == "ReadVariableOp"]
    other = {"float32": "bfloat16", "bfloat16": "float32"}[precision]
    folder = saved_model.write(model, tmp_path / "2", precision=other)
    assert not [node for node in functions_of(folder) if node.op == "ReadVariableOp"]


@pytest.mark.slow
def test_other_networks_are_served_in_bfloat16(images: list[bytes], tmp_path: Path) -> None:
    inner = tiny()
    preprocessing = inner.get_layer("image_contract")
    inputs = keras.Input((10, 14, 3))
    x = keras.layers.Conv2D(8, 3)(preprocessing(inputs))
    outputs = keras.layers.Dense(7, activation="softmax")(keras.layers.Flatten()(x))
    model = keras.Model(inputs, outputs)
    answers = []
    for precision in ("float32", "bfloat16"):
        folder = saved_model.write(model, tmp_path / precision, precision=precision)
        loaded = tf.saved_model.load(folder).signatures
        answers.append(loaded["classify_bytes"](image_bytes=tf.constant(images))["probabilities"])
        assert set(loaded) >= {"classify_bytes", "classify_pixels"}
    np.testing.assert_allclose(answers[1], answers[0], atol=0.1)


@pytest.mark.slow
def test_bundle_says_its_precision_and_how_it_agrees(
    model: keras.Model, labeled: Examples, tmp_path: Path
) -> None:
    options = {"examples": labeled, "quantizations": [], "warm_up": False, "verbose": 0}
    done = bundle(model, tmp_path, precision="bfloat16", **options)
    path = done.saved_model / "assets.extra/manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    assert manifest["precision"] == "bfloat16"
    (result,) = manifest["verification"]["artefacts"]
    assert result["agreement"] == 1
    assert 1e-5 < result["largest_difference"] < 0.1  # more than float32 may differ by


@pytest.mark.slow
def test_bundle_that_names_other_classes_is_refused(
    model: keras.Model, labeled: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[bundle_function.__module__]
    real = module.verify

    def verify(artifacts, images, expected, *args, **kwargs):
        wrong = expected.outputs.copy()
        wrong[0] = np.roll(wrong[0], 1)  # one of ten
        return real(artifacts, images, expected._replace(outputs=wrong), *args, **kwargs)

    monkeypatch.setattr(module, "verify", verify)
    options = {"examples": labeled, "quantizations": [], "warm_up": False, "verbose": 0}
    with pytest.raises(VerificationError, match=r"it predicts the same for 0\.9000 of the images"):
        bundle(model, tmp_path, precision="bfloat16", min_agreement=0.5, **options)
    assert not (tmp_path / "vit").exists()


def test_an_artifact_has_to_agree_on_as_many_images_as_it_needs(tmp_path: Path) -> None:
    scores = np.tile([[0.6, 0.4]], (200, 1)).astype("float32")
    found = scores.copy()
    found[:2] = found[:2, ::-1]
    expected = Predictions(np.zeros(200, int), scores, Preprocessing())
    for count, ok in ((2, False), (1, True)):
        found[:2] = scores[:2]
        found[:count] = scores[:count, ::-1]
        artifact = Artifact("saved_model", "saved_model", tmp_path, min_agreement=0.995)
        assert compared(artifact, {}, found, expected).ok == ok


def test_auto_is_bfloat16_where_the_processor_multiplies_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for processor, precision in (
        ("amx_bf16", "bfloat16"),
        ("avx512_bf16", "bfloat16"),
        ("other", "float32"),
    ):
        assert chosen_precision("auto", processor) == precision
        monkeypatch.setattr(accelerators, "cpu_features", lambda name=processor: {"avx2", name})
        assert chosen_precision("auto") == precision
        assert chosen_precision("float32", processor) == "float32"
    with pytest.raises(ValueError, match=r"`precision` must be one of .* Options: 'float32', 'bf"):
        chosen_precision("float16")
