from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import data, zoo
from keras_vit.training import Recipe, Run, RunConfig
from tests.cli.commands import Call
from tests.doctor.conftest import DIGITS, PREPROCESSING, RAW, solve

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits as a folder."""
    folder = tmp_path_factory.mktemp("data") / "digits"
    for index in range(150):
        path = folder / DIGITS.class_names[DIGITS.targets[index]] / DIGITS.names[index]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DIGITS.read(index))
    return folder


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "healthy.keras"
    model = solve()
    model.compile(keras.optimizers.Adam(3e-3), "categorical_crossentropy")
    model.optimizer.build(model.trainable_variables)  # or loading it warns
    model.save(path)
    return path


def test_doctor_of_a_healthy_model_ends_with_0(call: Call, healthy: Path, photos: Path) -> None:
    before = healthy.read_bytes()
    code, output, messages = call("doctor", healthy, "--data", photos)
    assert code == 0
    assert output.endswith("\nSerious: 0, warnings: 0.\n")
    assert "Fix:" not in output
    assert re.search(r"FINE.*\n│ learning rate", output)
    assert "1/10 weights and activations\n" in messages
    assert "9/10 learning rate\n" in messages
    assert healthy.read_bytes() == before


def test_doctor_prints_evidence_and_fix_and_ends_with_1(
    call: Call, tmp_path: Path, photos: Path
) -> None:
    model = solve(RAW, PREPROCESSING, front=[keras.layers.Rescaling(1 / 127.5, -1)])
    model.save(tmp_path / "twice.keras")
    code, output, _ = call(
        *("doctor", tmp_path / "twice.keras", "--data", photos, "--range-steps", 0),
        *("--json", tmp_path / "report.json"),
    )
    assert code == 1
    rows = [line.split("│")[1:3] for line in output.splitlines() if line.startswith("│")]
    columns = zip(*rows, strict=True)
    first, second = (" ".join(cell.strip() for cell in column) for column in columns)
    assert first.startswith("SERIOUS pixels scaled twice")
    assert "Fix: Scale pixels only once" in second
    assert "Serious: 1, " in output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report[0]["name"] == "pixels scaled twice"
    assert report[0]["numbers"]["accuracies"]["0..255"] > 0.9
    assert f"Written: {tmp_path}/report.json" in output


@pytest.mark.slow
@pytest.mark.parametrize(("pixels", "code"), [("0..1", 0), ("-1..1", 1)])
def test_doctor_is_told_the_pixels_of_another_library(
    call: Call, tmp_path: Path, photos: Path, pixels: str, code: int
) -> None:
    unit = dataclasses.replace(PREPROCESSING, mean=0.0, std=1.0)
    solve(unit, None).save(tmp_path / "m.keras")
    found, output, _ = call(
        *("doctor", tmp_path / "m.keras", "--data", photos, "--pixels", pixels, "--range-steps", 0)
    )
    assert found == code
    assert ("pixels scaled differently" in output) == bool(code)


@pytest.mark.slow
def test_doctor_takes_the_learning_rate_and_the_sizes(
    call: Call, healthy: Path, photos: Path
) -> None:
    code, output, _ = call(
        *("doctor", healthy, "--data", photos, "--lr", 1e-9, "--sample", 60, "--batch-size", 7),
        *("--range-steps", 31),
    )
    assert code == 1
    assert re.search(r"SERIOUS +│ 31 steps of Adam.*\n│ learning rate too low", output)
    assert "on 60 images" in output


@pytest.mark.slow
@pytest.mark.usefixtures("nano")
def test_doctor_of_a_run_needs_no_data(call: Call, tmp_path: Path, photos: Path) -> None:
    run = Run(tmp_path)
    recipe = Recipe(learning_rate=1e-3, trainable=("block_*",))
    run.write_config(RunConfig(str(photos), "ViTNano", recipe=recipe), {"training_examples": 120})
    examples = data.load(photos)
    order = np.random.default_rng(0).permutation(len(examples))
    data.write_split(run.split, examples, order[:120], order[120:])
    zoo.constructor("ViTNano")(weights=None, classes=10).save(run.last)
    code, output, _ = call("doctor", tmp_path, "--range-steps", 0)
    assert code == 1
    assert re.search(r"SERIOUS.*\n│ classifier frozen", output)
    assert "on 30 images" in output  # those held out


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (
            "healthy.keras",
            [],
            "`--data` must be given unless `RUN` is a run.",
        ),
        ("nowhere.keras", ["--data", "digits"], "`RUN` must be a run folder, or a .keras"),
        ("", [], "`run` must be a run folder written by `keras-vit train --out`"),
        ("healthy.keras", ["--data", "digit"], "Did you mean 'digits'?"),
    ],
)
def test_doctor_refuses_what_it_cannot_examine(
    call: Call, healthy: Path, name: str, options: list[str], expected: str
) -> None:
    code, output, messages = call("doctor", healthy.parent / name, *options)
    assert (code, output) == (1, "")
    assert messages.startswith("keras-vit: ")
    assert expected in messages


def test_doctor_has_an_example_in_its_help(call: Call) -> None:
    code, output, _ = call("doctor", "--help")
    assert code == 0
    assert "keras-vit doctor model.keras --data photos/" in output
    for option in ("--data", "--pixels", "--lr", "--sample", "--range-steps", "--json"):
        assert option in output
