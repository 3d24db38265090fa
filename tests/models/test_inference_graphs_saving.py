from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest

from keras_vit.models import optimize_for_inference
from keras_vit.models.inference_graphs import InferenceLayer, InferenceModel, without_xla
from tests.helpers import tiny_model

on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="elsewhere a plain copy"
)
ENTRIES = {
    "model.keras": keras.saving.save_model,
    "model.h5": keras.saving.save_model,
    "legacy.hdf5": keras.models.save_model,
    "m.weights.h5": keras.saving.save_weights,
    "m.weights.json": lambda model, path: keras.saving.save_weights(model, path, max_shard_size=1),
}
WRITERS = ("keras.src.saving.saving_lib", "keras.src.legacy.saving.legacy_h5_format")
each_entry = pytest.mark.parametrize(("name", "save"), ENTRIES.items(), ids=ENTRIES)


def dense() -> keras.Model:
    inputs = keras.Input((5,))
    return keras.Model(inputs, keras.layers.Dense(3)(inputs))


def refused(save: Callable[..., Any], model: Any, path: Path) -> None:
    path.write_text("of the user")
    with pytest.raises(ValueError, match=r"its process: use"):
        save(model, path)
    assert path.read_text() == "of the user"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("method", ["save", "save_weights", "load_weights", "export"])
@pytest.mark.parametrize("name", ["m.weights.h5", "m.keras", "m.h5"])
def test_a_file_that_is_there_stays(method: str, name: str, tmp_path: Path) -> None:
    inputs = keras.Input((5,))
    model = InferenceModel(inputs=inputs, outputs=keras.layers.Dense(3)(inputs))
    refused(lambda model, path: getattr(model, method)(path), model, tmp_path / name)


@on_tensorflow
@each_entry
def test_functions_of_keras_raise_the_same_error(
    name: str, save: Callable[..., Any], tmp_path: Path
) -> None:
    inputs = keras.Input((5,))
    copy = InferenceModel(inputs=inputs, outputs=InferenceLayer(dense(), without_xla)(inputs))
    nested = keras.Sequential([keras.Input((5,)), copy])
    part = keras.Model(inputs, InferenceLayer(dense(), without_xla)(inputs))
    for model in (copy, nested, part):
        with pytest.raises(ValueError, match=r"its process: use"):
            save(model, tmp_path / name)


@pytest.mark.slow
@on_tensorflow
@pytest.mark.parametrize(
    ("runtime", "precision"),
    [("keras", "float32"), ("keras", "bfloat16"), ("openvino", "float32")],
)
def test_keras_is_left_as_it_is(runtime: str, precision: str, tmp_path: Path) -> None:
    if runtime == "openvino":
        pytest.importorskip("openvino", reason="needs the extra openvino")
    modules = [importlib.import_module(name) for name in WRITERS]
    before = [dict(vars(module)) for module in modules]
    copy = optimize_for_inference(tiny_model(num_layers=1), runtime, precision)
    assert [dict(vars(module)) for module in modules] == before
    refused(lambda model, path: model.save(path), copy, tmp_path / "model.keras")
    if runtime == "openvino":
        refused(keras.saving.save_model, copy, tmp_path / "model.keras")
