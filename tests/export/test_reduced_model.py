"""What `reduce_tokens` returns goes wherever the model goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorflow.lite.python import schema_py_generated as schema

from keras_vit.export import (
    load_predictor,
    saved_model,
    tflite,
)
from keras_vit.export.tflite import quantizations_of
from keras_vit.layers import TransformerBlock
from keras_vit.models import reduce_tokens
from tests.export.conftest import tiny
from tests.helpers import assert_close

pytestmark = pytest.mark.tensorflow


@pytest.mark.slow
@pytest.mark.parametrize(("method", "pooling"), [("merge", "gap"), ("prune", "token")])
def test_reduced_model_is_exported(
    method: str, pooling: str, images: list[bytes], tmp_path: Path
) -> None:
    model = reduce_tokens(tiny(num_layers=2, pooling=pooling), 4, method)
    expected = load_predictor(model).probabilities(images)
    path = tflite.write(model, tmp_path / "model.tflite")
    # Measured: 1e-7.
    assert_close(load_predictor(path).probabilities(images), expected, 1e-6)
    flatbuffer = schema.Model.GetRootAsModel(path.read_bytes())
    codes = [flatbuffer.OperatorCodes(i) for i in range(flatbuffer.OperatorCodesLength())]
    assert [code.CustomCode() for code in codes if code.CustomCode()] == []  # all built in
    folder = saved_model.write(model, tmp_path / "saved")
    assert_close(load_predictor(folder).probabilities(images), expected, 1e-6)
    blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    assert blocks
    assert not any(block.norm_1.fused or block.norm_1.folded for block in blocks)


def test_ranges_are_not_measured_where_tokens_go(images: list[bytes], tmp_path: Path) -> None:
    model = tiny()
    assert quantizations_of(model) == ("float32", "float16", "int16x8", "int8", "dynamic_range")
    reduced = reduce_tokens(model, 1)
    assert quantizations_of(reduced) == ("float32", "float16", "dynamic_range")
    for quantization in ("int8", "int16x8"):
        with pytest.raises(ValueError, match="one of 'float32', 'float16', 'dynamic_range' for a"):
            tflite.write(reduced, tmp_path / "model.tflite", quantization, images=images)
    assert not list(tmp_path.iterdir())
