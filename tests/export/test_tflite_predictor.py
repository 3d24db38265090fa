from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.export import KerasPredictor, TFLitePredictor

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("litert", [True, False])
def test_tflite_predictor_equals_the_model(
    litert: bool,
    model: keras.Model,
    exported: dict[str, Path],
    images: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if litert:
        pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    else:
        monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    predictor = TFLitePredictor(exported["tflite"])
    kind = type(predictor._interpreter).__module__.split(".")[0]
    assert kind == ("ai_edge_litert" if litert else "tensorflow")
    expected = KerasPredictor(model).predict(images)
    np.testing.assert_allclose(predictor.predict(images), expected, atol=1e-5)


def test_tflite_predictor_rejects_a_truncated_file(
    exported: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(exported["tflite"].read_bytes()[:-100])
    with pytest.raises(ValueError, match="`path` must be a complete TFLite file exported by"):
        TFLitePredictor(path)
