from __future__ import annotations

from pathlib import Path

import keras
import pytest

from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding
from keras_vit.doctor.frozen import check_frozen
from keras_vit.training import Recipe, Run, RunConfig
from tests.doctor.conftest import DIGITS, only, solve, tiny_vit

pytestmark = pytest.mark.tensorflow

FEW = DIGITS.subset(range(40))
HIDDEN, HEAD = 192 * 83 + 83, 83 * 10 + 10


def check(model: keras.Model, run: Run | None = None) -> Finding:
    return only(check_frozen(DoctorContext(model, FEW, run=run)))


def test_all_parameters_are_counted() -> None:
    found = check(solve())
    assert (found.name, found.severity) == ("trainable parameters", "fine")
    assert (found.numbers["trained"], found.numbers["total"]) == (HIDDEN + HEAD, HIDDEN + HEAD)
    assert "16,859 of 16,859 parameters are trained (100.0%)." in found.evidence


def test_what_is_frozen_on_purpose_is_a_note() -> None:
    model = solve()
    model.get_layer("hidden").trainable = False
    found = check(model)
    assert (found.name, found.severity) == ("frozen parameters", "note")
    assert found.numbers["trained"] == HEAD
    assert [name.rpartition("/")[2] for name in found.numbers["frozen_layers"]] == ["hidden"]


def test_a_frozen_classifier_is_found() -> None:
    model = solve()
    model.get_layer("head").trainable = False
    found = check(model)
    assert (found.name, found.severity) == ("classifier frozen", "serious")
    assert "/head' is frozen" in found.evidence


def test_a_frozen_model_is_found() -> None:
    model = solve()
    model.trainable = False
    found = check(model)
    assert (found.name, found.severity) == ("no trainable parameters", "serious")
    assert found.numbers["trained"] == 0


def test_statistics_are_not_parameters() -> None:
    layers = keras.layers
    normalization = layers.Normalization()
    normalization.adapt(keras.ops.ones((2, 8, 8, 3)))
    model = keras.Sequential([
        keras.Input((8, 8, 3)), normalization, layers.Flatten(), layers.BatchNormalization(),
        layers.Dropout(0.5), layers.Dense(10),
    ])  # fmt: skip
    found = check(model)
    assert found.severity == "fine"
    assert found.numbers["total"] == 2 * 192 + 192 * 10 + 10  # gamma and beta alone


@pytest.mark.parametrize(
    ("trainable", "name"),
    [
        (("*",), "trainable parameters"),
        (("head/*",), "frozen parameters"),
        (("block_*",), "classifier frozen"),
    ],
)
def test_a_run_is_looked_at_as_its_recipe_trains_it(
    tmp_path: Path, trainable: tuple[str, ...], name: str
) -> None:
    run = Run(tmp_path)
    run.write_config(RunConfig("digits", "ViTMicro4", recipe=Recipe(trainable=trainable)), {})
    model = tiny_vit()
    assert check(model, run).name == name
    assert all(variable.trainable for variable in model.weights)  # as it was


def test_low_rank_updates_of_a_run_count_as_trained(tmp_path: Path) -> None:
    run, model = Run(tmp_path), tiny_vit()
    recipe = Recipe(trainable=("head/*",), lora_rank=2, lora_layers=("*/qkv",))
    run.write_config(RunConfig("digits", "ViTMicro4", recipe=recipe), {})
    found = check(model, run)
    updates, head = 2 * (15 + 45), 15 * 10 + 10
    assert (found.name, found.numbers["trained"]) == ("frozen parameters", updates + head)
    assert found.numbers["total"] == model.count_params() + updates
    assert ", with low-rank updates (LoRA) of rank 2; frozen layers: " in found.evidence
