from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import typer

from keras_vit import export, zoo
from keras_vit.cli import app
from tests.cli.commands import Call, check_failure

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("nano")]


def test_evaluate_of_a_run_repeats_its_evaluation(run: Path, call: Call, tmp_path: Path) -> None:
    code, output, _ = call("evaluate", run, "--out", tmp_path)
    expected = json.loads((run / "evaluation.json").read_text())
    assert code == 0
    assert json.loads((tmp_path / "evaluation.json").read_text()) == expected
    assert (tmp_path / "confusion_matrix.png").read_bytes().startswith(b"\x89PNG")
    assert f"accuracy {expected['accuracy']:.4f} (" in output


def test_evaluate_takes_other_data(run: Path, photos: Path, call: Call, tmp_path: Path) -> None:
    code, output, _ = call("evaluate", run / "best.keras", "--data", photos, "--out", tmp_path)
    assert code == 0
    assert " of 33, 95% interval" in output


def test_evaluate_takes_a_weight_file(run: Path, photos: Path, call: Call, tmp_path: Path) -> None:
    weights = tmp_path / "nano.weights.h5"
    keras.saving.load_model(run / "last.keras").save_weights(weights)
    code, output, _ = call(
        *("evaluate", weights, "--model", "ViTNano", "--image-size", "8x12"),
        *("--data", photos, "--out", tmp_path),
    )
    assert code == 0
    assert " of 33, 95% interval" in output


@pytest.mark.parametrize("artefact", ["last.keras", ".", "saved_model", "saved_model/1"])
def test_predict_prints_labels_for_every_artefact(
    exported: Path, call: Call, artefact: str
) -> None:
    images = sorted((exported / "samples").iterdir())[:3]
    options = ("--top", 2, "--batch-size", 2)
    code, output, _ = call("predict", exported / artefact, *images, *options)
    assert code == 0
    check_predictions(output, images, exported)


def test_predict_prints_labels_for_tflite(exported: Path, call: Call) -> None:
    images = sorted((exported / "samples").iterdir())[:3]
    code, output, _ = call("predict", exported / "model.tflite", *images, "--top", 2)
    assert code == 0
    check_predictions(output, images, exported)


def check_predictions(output: str, images: list[Path], run: Path) -> None:
    predictor = export.load_predictor(run)
    expected = predictor.predict([path.read_bytes() for path in images])
    lines = output.splitlines()[-3:]
    for line, path, row in zip(lines, images, expected, strict=True):
        name, first, p, second, q = line.split()
        assert name == str(path)
        best = np.argsort(-row)[:2]
        assert [first, second] == [predictor.labels[index] for index in best]
        assert [float(p), float(q)] == pytest.approx(row[best], abs=1e-3)


def test_export_prints_the_largest_differences(run: Path, call: Call, tmp_path: Path) -> None:
    code, output, _ = call(
        *("export", run / "best.keras", "--saved-model", tmp_path / "serving"),
        *("--images", run / "samples"),
    )
    assert code == 0
    assert "Compared with the Keras model on 7 images" in output
    assert "largest difference" in output
    assert str(tmp_path / "serving" / "1") in output


def test_export_that_disagrees_fails(
    run: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export.TFLitePredictor, "tolerance", -1.0)
    (tmp_path / "model.tflite").write_text("earlier")
    code, _, message = call("export", run, "--tflite", tmp_path / "model.tflite")
    check_failure(code, message, "its probabilities differ from those of the model")
    assert (tmp_path / "model.tflite").read_text() == "earlier"


def test_models_lists_every_constructor(call: Call) -> None:
    code, output, _ = call("models")
    rows = [line.split() for line in output.splitlines()]
    assert code == 0
    assert {row[1] for row in rows if len(row) > 1 and row[1].startswith("ViT")} >= set(
        zoo.CONSTRUCTORS
    )
    assert "86,567,656" in output
    assert "22,050,664" in output


def test_evaluate_of_what_is_no_run_is_refused(run: Path, call: Call, tmp_path: Path) -> None:
    code, _, message = call("evaluate", tmp_path)
    check_failure(code, message, "`RUN_OR_FILE` must be a run folder or a file. Received")
    code, _, message = call("evaluate", tmp_path / "nowhere.keras")
    check_failure(code, message, "`RUN_OR_FILE` must be a run folder or a file. Received")
    code, _, message = call("evaluate", run / "last.keras")
    check_failure(code, message, "`--data` must name labelled images, unless a run is evaluated")
    shutil.copy(run / "last.keras", tmp_path / "weights.npz")
    code, _, message = call("evaluate", tmp_path / "weights.npz")
    check_failure(code, message, "A weight file needs the constructor that")


def test_predict_of_a_missing_image_is_refused(run: Path, call: Call, tmp_path: Path) -> None:
    image = next((run / "samples").iterdir())
    code, _, message = call("predict", run, image, tmp_path / "cat.jpg")
    check_failure(code, message, f"`IMAGE` must be existing files. Received: {tmp_path}/cat.jpg")


def test_predict_of_a_truncated_image_is_refused(run: Path, call: Call, tmp_path: Path) -> None:
    image = next(path for path in (run / "samples").iterdir() if path.suffix == ".jpg")
    (tmp_path / "half.jpg").write_bytes(image.read_bytes()[:150])
    code, _, message = call("predict", run, image, tmp_path / "half.jpg")
    check_failure(code, message, "must be a complete JPEG")


def test_export_without_targets_is_refused(run: Path, call: Call) -> None:
    code, _, message = call("export", run)
    check_failure(code, message, "`--saved-model` or `--tflite` must be given")


def test_export_without_images_is_refused(run: Path, call: Call, tmp_path: Path) -> None:
    target = ("--tflite", tmp_path / "model.tflite")
    code, _, message = call("export", run / "last.keras", *target)
    check_failure(code, message, "`--images` must name a folder of images to verify with")
    assert not target[1].exists()


def commands(group: typer.Typer = app) -> Iterator[list[str]]:
    """Every command of the application, by its words."""
    yield []
    for command in group.registered_commands:
        yield [command.name or command.callback.__name__]
    for inner in group.registered_groups:
        yield from ([inner.name, *words] for words in commands(inner.typer_instance) if words)


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_help_has_an_example(call: Call, command: list[str]) -> None:
    code, output, _ = call(*command, "--help")
    lines = [line.strip() for line in output.splitlines() if "Usage:" not in line]
    assert code == 0
    assert any(line.startswith(" ".join(("keras-vit", *command))) for line in lines)
