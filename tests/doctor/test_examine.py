from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import models, training, zoo
from keras_vit.data import prepare
from keras_vit.doctor import examine
from keras_vit.doctor.examine import CHECKS
from keras_vit.preprocessing import Preprocessing
from tests.doctor.conftest import (
    DIGITS,
    PREPROCESSING,
    RAW,
    alarms,
    change,
    several,
    solve,
)

pytestmark = pytest.mark.tensorflow

L = keras.layers


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A short healthy run on scikit-learn's digits."""
    config = models.size("Micro/2").replace(
        hidden_size=24, num_layers=1, num_heads=3, mlp_dim=38, image_size=(8, 8)
    )
    recipe = training.recipe("from_scratch").replace(
        epochs=4, batch_size=32, learning_rate=8e-3, precision="float32", crop_area=(0.95, 1.0)
    )
    out = tmp_path_factory.mktemp("runs") / "digits"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(zoo.CONSTRUCTORS, "ViTNano", zoo.Constructor("ViTNano", config))
        report = training.train(
            training.RunConfig("digits", "ViTNano", recipe=recipe), out, tensorboard=False
        )
        assert report is not None
        assert report.accuracy > 0.6
        yield out


@pytest.mark.slow
def test_a_healthy_run_has_no_alarms(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    lines: list[str] = []
    findings = examine(run, progress=lines.append)
    assert {f.name: f.severity for f in findings if f.severity != "fine"} == {}
    assert len(findings) == len(CHECKS) == len(lines) == 10
    assert lines[0] == "1/10 weights and activations"
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    rate = next(f for f in findings if f.name == "learning rate")
    assert rate.numbers["rate"] == 8e-3
    assert "steps of AdamW, with a new classifier" in rate.evidence
    # Of the images that were held out, and only of them.
    loss = next(f for f in findings if f.name == "loss")
    assert "on 256 images" in loss.evidence


@pytest.mark.slow
def test_a_runs_model_is_examined_without_the_run(run: Path) -> None:
    findings = examine(run / "last.keras", DIGITS, range_steps=0, batch_size=64)
    assert alarms(findings) == {}


@pytest.mark.slow
def test_a_healthy_model_of_keras_alone_has_no_alarms(tmp_path: Path) -> None:
    model = keras.Sequential([
        keras.Input((8, 8, 1)), L.Rescaling(1 / 255), L.Conv2D(13, 3, activation="relu"),
        L.Flatten(), L.Dense(10, activation="softmax"),
    ])  # fmt: skip
    gray = dataclasses.replace(RAW, channels="grayscale", mean=0.0, std=1 / 255)
    model.compile(keras.optimizers.Adam(5e-3), "sparse_categorical_crossentropy")
    images = np.stack([_read(i, gray) for i in range(len(DIGITS))])
    model.fit(images, DIGITS.targets, epochs=10, verbose=0)
    model.save(tmp_path / "cnn.keras")
    findings = examine(tmp_path / "cnn.keras", DIGITS)
    assert {f.name: f.severity for f in findings if f.severity != "fine"} == {
        "classes without names": "note"
    }
    assert next(f for f in findings if f.name == "loss").numbers["accuracy"] > 0.9


@pytest.mark.slow
def test_a_healthy_model_of_several_classes_has_no_alarms() -> None:
    model = solve(ending="sigmoid")
    model.compile(keras.optimizers.Adam(3e-3), "binary_crossentropy")
    assert alarms(examine(model, several())) == {}


def _read(index: int, preprocessing: Preprocessing) -> np.ndarray:
    return prepare(tf.constant(DIGITS.read(index)), preprocessing).numpy()


def test_serious_findings_come_first() -> None:
    model = solve(RAW, PREPROCESSING, front=[L.Rescaling(1 / 127.5, -1)])
    model.get_layer("head").trainable = False
    model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    severities = [f.severity for f in examine(model, DIGITS, range_steps=0)]
    order = ["serious", "warning", "note", "fine"]
    assert severities == sorted(severities, key=order.index)
    assert severities.count("serious") == 3


def test_checks_that_need_answers_are_left_out_where_there_are_none() -> None:
    model = solve()
    change(model.get_layer("hidden"), 0, np.nan, (3, 5))
    findings = examine(model, DIGITS.subset(range(30)))
    notes = [f.name for f in findings if f.severity == "note"]
    assert notes == [what for what, _, needs_answers in CHECKS if needs_answers]
    assert "Not checked: the outputs are NaN or infinite." in {f.evidence for f in findings}


@pytest.mark.slow
def test_findings_become_json() -> None:
    findings = examine(solve(), DIGITS.subset(range(60)), range_steps=11)
    text = json.dumps([finding.to_json() for finding in findings], allow_nan=False)
    assert [row["name"] for row in json.loads(text)] == [finding.name for finding in findings]


@pytest.mark.slow
def test_pixels_of_another_library_can_be_named() -> None:
    unit = dataclasses.replace(PREPROCESSING, mean=0.0, std=1.0)
    few, model = DIGITS.subset(range(150)), solve(unit, None)
    other = dataclasses.replace(unit, mean=0.7)
    findings = examine(model, few, preprocessing=other, pixels="0..1", range_steps=0)
    assert alarms(findings) == {}
    found = alarms(examine(model, few, pixels="-1..1", range_steps=0))
    assert found["pixels scaled differently"] == "serious"


def test_examples_are_needed_unless_a_run_is_examined(tmp_path: Path) -> None:
    solve().save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match=r"`examples` must be given unless a run is examined\."):
        examine(tmp_path / "m.keras")


def test_learning_rate_must_be_a_positive_number(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`learning_rate` must be a positive number"):
        examine(tmp_path / "m.keras", learning_rate=float("nan"))
