from __future__ import annotations

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.data.decode_and_resize import decode, resize_and_crop
from keras_vit.export import load_predictor, onnx_openvino, runtime_worker
from keras_vit.tasks.registry import trained_model
from tests.export.conftest import PREPROCESSING, tiny

pytestmark = pytest.mark.tensorflow


def pixels_of(images: list[bytes]) -> np.ndarray:
    return np.stack([resize_and_crop(decode(i, PREPROCESSING), PREPROCESSING) for i in images])


@pytest.mark.parametrize("gelu", ["tanh", pytest.param("exact", marks=pytest.mark.slow)])
def test_onnx_computes_the_same(gelu: str, images: list[bytes], tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
    model = tiny(gelu=gelu)
    path = onnx_openvino.write_onnx(trained_model(model), tmp_path / "model.onnx")
    run, _ = runtime_worker.onnx(str(path), threads=1)
    found = run(pixels_of(images))
    # measured: 6e-7
    np.testing.assert_allclose(found, load_predictor(model).probabilities(images), atol=1e-5)
    told = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(told["preprocessing.json"])["size"] == [10, 14]


@pytest.mark.slow
def test_openvino_computes_the_same(
    model: keras.Model, images: list[bytes], tmp_path: Path
) -> None:
    pytest.importorskip("openvino", reason="needs the extra openvino")
    path = onnx_openvino.write_openvino(trained_model(model), tmp_path / "model.xml")
    assert {p.name for p in tmp_path.iterdir()} == {"model.xml", "model.bin"}
    run, _ = runtime_worker.openvino(str(path), threads=1)
    found = run(pixels_of(images))
    # measured: 6e-7
    np.testing.assert_allclose(found, load_predictor(model).probabilities(images), atol=1e-5)


def test_require_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_openvino.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ImportError, match=r"tf2onnx and onnxruntime; .*: pip install -e .*\[onnx\]"
    ):
        onnx_openvino.require("onnx")
    onnx_openvino.require("tflite")
