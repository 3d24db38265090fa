"""Regression from a table, from the command line."""

from __future__ import annotations

import csv
import json
import types
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from keras_vit.export import load_predictor
from keras_vit.runs.config import RunConfig
from keras_vit.tasks.regression.task import Regression, moments
from keras_vit.training import Run
from tests.cli.commands import call_main
from tests.cli.conftest import Call
from tests.cli.conftest import call as call

pytestmark = pytest.mark.tensorflow

TASK = ("--task", "regression")


def write_table(folder: Path, rows: list[tuple[object, ...]], *columns: str) -> Path:
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", *columns), *rows])
    return folder


@pytest.fixture(scope="module")
def gray(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of one gray level, with the level and a multiple of it as targets."""
    folder, levels = tmp_path_factory.mktemp("gray"), np.random.default_rng(0).integers(0, 256, 48)
    for number, level in enumerate(levels):
        pixels = np.full((20, 24), level, np.uint8)
        pixels[0, 0] = number  # no two images are the same
        PIL.Image.fromarray(pixels).save(folder / f"{number}.png")
    rows = [(f"{n}.png", level, -3.5 * level) for n, level in enumerate(levels)]
    return write_table(folder, rows, "level", "multiple")


@pytest.fixture(scope="module")
def run(gray: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("regression") / "run"
    train = ("train", *TASK, "--data", gray, "--model", "ViTMicro4", "--weights", "none")
    options = ("--epochs", 10, "--batch-size", 4, "--image-size", 8, "--lr", "0.005")
    recipe = ("--set", "warmup_steps=10", "--set", "color_jitter=0")
    assert call_main(*train, *options, *recipe, "--out", out, "--no-tensorboard") == 0
    return out


def test_regression_learns_the_gray_level(run: Path) -> None:
    found = json.loads((run / "evaluation.json").read_text())
    assert found["r2"] > 0.9  # measured: 0.997 in float32, 0.967 in bfloat16
    level, multiple = found["per_target"]
    assert (level["name"], multiple["name"]) == ("level", "multiple")
    assert multiple["mae"] == pytest.approx(3.5 * level["mae"], rel=0.5)
    assert (run / "scatter.png").is_file()
    rows = list(csv.DictReader((run / "history.csv").open()))
    assert float(rows[-1]["val_mae"]) < float(rows[0]["val_mae"]) / 2


@pytest.mark.slow
def test_regression_predicts_in_the_units_of_the_targets(
    run: Path, gray: Path, call: Call, tmp_path: Path
) -> None:
    (found,) = load_predictor(run).predict([gray / "3.png"])
    true = list(csv.DictReader((gray / "labels.csv").open()))[3]
    assert found.values["level"] == pytest.approx(float(true["level"]), abs=40)
    table = tmp_path / "values.csv"
    assert call("predict", run, gray, "--to", table)[0] == 0
    rows = list(csv.DictReader(table.open()))
    assert list(rows[0]) == ["file", "level", "multiple", "message"]
    assert "level" in call("predict", run, gray / "3.png")[1]


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "RUN", "--report", "OUT"),
        ("data", "check", "DATA", *TASK),
        ("card", "RUN", "--out", "OUT"),
        *(
            pytest.param(command, marks=pytest.mark.slow)
            for command in (
                ("evaluate", "RUN", "--data", "DATA", "--with-training-images", "--out", "OUT"),
                ("data", "preview", "DATA", *TASK, "--image-size", "8", "--out", "OUT.png"),
                ("predict", "RUN", "DATA", "--to", "OUT.parquet"),
                ("export", "RUN", "--to", "OUT"),
            )
        ),
    ],
    ids=" ".join,
)
def test_regression_passes_a_command(
    command: tuple[str, ...], run: Path, gray: Path, call: Call, tmp_path: Path
) -> None:
    places = {"RUN": run, "DATA": gray, "OUT": tmp_path / "out"}
    places |= {f"OUT.{suffix}": tmp_path / f"a.{suffix}" for suffix in ("png", "parquet")}
    code, text, message = call(*(places.get(word, word) for word in command))
    assert code == 0, message
    assert "REFUSED" not in text


@pytest.mark.parametrize(
    ("cell", "rule"),
    [
        ("tall", "`height` must be a finite number, as a target. Received: {'height': 'tall'}"),
        ("", "Received: {'height': ''} in line 3"),
        ("inf", "Received: {'height': 'inf'} in line 3"),
        ("nan", "Received: {'height': 'nan'} in line 3"),
    ],
)
def test_cell_that_is_no_number_is_an_error(
    cell: str, rule: str, call: Call, tmp_path: Path
) -> None:
    for name in "ab":
        PIL.Image.new("RGB", (20, 20)).save(tmp_path / f"{name}.png")
    write_table(tmp_path, [("a.png", 1.5), ("b.png", cell)], "height")
    code, _, message = call("data", "check", tmp_path, *TASK)
    assert code == 1
    assert rule.replace("{'", "{'file': 'b.png', '") in message


def test_targets_are_the_columns_of_their_prefix(call: Call, tmp_path: Path) -> None:
    for name in "ab":
        PIL.Image.new("RGB", (20, 20), "red" if name == "a" else "blue").save(
            tmp_path / f"{name}.png"
        )
    rows = [("a.png", 1, "left"), ("b.png", 2, "right")]
    write_table(tmp_path, rows, "target_height", "camera")
    assert call("data", "check", tmp_path, *TASK)[0] == 0


@pytest.mark.slow
def test_data_without_numbers_and_equal_targets_are_errors(call: Call, tmp_path: Path) -> None:
    train = ("train", *TASK, "--model", "ViTMicro4", "--weights", "none", "--image-size", 8)
    code, _, message = call(*train, "--data", "digits", "--out", tmp_path / "run")
    assert code == 1
    assert "for the task regression. Received: data='digits'" in message
    for name in "ab":
        PIL.Image.new("RGB", (20, 20), "red" if name == "a" else "blue").save(
            tmp_path / f"{name}.png"
        )
    write_table(tmp_path, [("a.png", 1), ("b.png", 1)], "height")
    code, _, message = call(*train, "--data", tmp_path, "--out", tmp_path / "run")
    assert code == 1
    assert "with the same value of ['height'] for all 2 images" in message


def test_tables_of_splits_have_the_same_targets(call: Call, tmp_path: Path) -> None:
    for number, part in enumerate(("train", "valid")):
        (tmp_path / part).mkdir()
        for name in "ab":
            color = (50 * number, 60, "ab".index(name))
            PIL.Image.new("RGB", (20, 20), color).save(tmp_path / part / f"{name}.png")
        rows = [("a.png", 1, 2), ("b.png", 3, 4)]
        write_table(tmp_path / part, rows, "height", "width")
    code, text, _ = call("data", "check", tmp_path, *TASK)
    assert code == 0
    assert "Read: train/labels.csv, valid/labels.csv" in text
    write_table(tmp_path / "valid", rows, "width", "height")
    code, _, message = call("data", "check", tmp_path, *TASK)
    assert code == 1
    assert "must have the same targets, in the same order" in message


def test_moments_of_many_large_targets_are_exact() -> None:
    mean, deviation = moments(np.full((10**6, 2), 1000.3, np.float32))
    np.testing.assert_allclose(mean, 1000.3, rtol=1e-7)  # 1e-8
    np.testing.assert_allclose(deviation, 0, atol=1e-6)  # 0


def test_means_of_an_earlier_version_are_resumed() -> None:
    task = Regression(RunConfig("heights", "ViTTi16", task="regression"))
    targets = np.random.default_rng(0).normal(1700, 10, (10**5, 2)).astype("float32")
    examples, means = types.SimpleNamespace(targets=targets), moments(targets)[0]
    earlier = targets.mean(axis=0)
    assert (earlier != means).all()
    for stored in (means, earlier):
        run = types.SimpleNamespace(resolved=lambda s=stored: {"target_means": s.tolist()})
        task.check_resumed(run, examples)  # type: ignore[arg-type]
    examples.targets = targets[1:]
    with pytest.raises(ValueError, match="The targets of heights must be those that the run was"):
        task.check_resumed(run, examples)  # type: ignore[arg-type]


def test_other_targets_are_not_resumed(run: Path, gray: Path) -> None:
    task = Regression(Run(run).read_config())
    examples = task.load(gray)
    task.check_resumed(Run(run), examples)
    with pytest.raises(ValueError, match=r"The targets of .* must be those that the run was start"):
        task.check_resumed(Run(run), examples.subset(range(7)))
