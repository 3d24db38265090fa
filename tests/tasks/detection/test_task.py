"""Detection through the command line."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import keras
import numpy as np
import PIL.Image
import pytest
from pyarrow import parquet

from keras_vit import training
from keras_vit.data.boxes import Objects
from keras_vit.data.sources.boxes import load_boxes
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.detection.report import DetectionReport
from keras_vit.tasks.detection.task import Detection, DetectionDetails
from keras_vit.tasks.evaluate import evaluate
from keras_vit.tasks.run_data import Run
from keras_vit.tasks.task import Predictions
from tests.cli.commands import Call, with_places
from tests.tasks.detection.conftest import TASK, write_rectangles
from tests.tasks.detection.test_report import drawn

pytestmark = pytest.mark.tensorflow
pytest.importorskip("pycocotools", reason="needs the extra coco")


def test_detection_learns(run: Path) -> None:
    found = json.loads((run / "evaluation.json").read_text())
    assert found["ap50"] > 0.1
    history = list(csv.DictReader((run / "history.csv").open()))
    assert float(history[-1]["val_loss"]) < 0.8 * float(history[0]["val_loss"])
    for name in ("best.keras", "boxes.png", "worst.png", "precision_recall.png"):
        assert (run / name).is_file()
    assert keras.models.load_model(run / "last.keras").output_shape[-1] == 6


@pytest.mark.slow
def test_run_is_resumed_to_the_bit(run: Path, call: Call, tmp_path: Path) -> None:
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            raise KeyboardInterrupt

    config = training.read_config(run / "config.yaml")
    with pytest.raises(KeyboardInterrupt):
        training.train(config, tmp_path / "again", callbacks=[Stop()])
    assert call("train", "--resume", "--out", tmp_path / "again")[0] == 0
    weights = [training.Run(path).model().get_weights() for path in (run, tmp_path / "again")]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "RUN", "--report", "OUT"),
        ("data", "check", "DATA", *TASK),
        *(
            pytest.param(command, marks=pytest.mark.slow)
            for command in (
                ("card", "RUN", "--out", "OUT"),
                (
                    *("compare", "--models", "ViTMicro4,ViTTi16", "--data", "DATA", *TASK),
                    *("--epochs", "1", "--image-size", "64", "--out", "OUT"),
                ),
                ("data", "preview", "DATA", *TASK, "--image-size", "64", "--out", "OUT.png"),
                ("export", "RUN", "--to", "OUT", "--tflite", "float32", "--onnx", "--openvino"),
            )
        ),
    ],
    ids=" ".join,
)
def test_detection_passes_a_command(
    command: tuple[str, ...], run: Path, rectangles: Path, call: Call, tmp_path: Path
) -> None:
    places = {"RUN": run, "DATA": rectangles, "OUT": tmp_path / "out"}
    code, _, message = call(*with_places(command, places))
    assert code == 0, message


@pytest.mark.slow
def test_classes_of_other_data_are_matched_by_name(run: Path, rectangles: Path) -> None:
    model, examples = Run(run).model(), load_boxes(rectangles)
    names = examples.class_names[::-1]
    reordered = dataclasses.replace(examples.with_classes(names), source="reordered")
    expected, found = (evaluate(model, data, verbose=0) for data in (examples, reordered))
    assert found.to_json() == expected.to_json()


@pytest.mark.parametrize("command", ["explain", "doctor"])
def test_commands_of_classifiers_say_that_they_do_not_apply(
    command: str, run: Path, rectangles: Path, call: Call, tmp_path: Path
) -> None:
    images = (rectangles / "images" / "0.png",) if command == "explain" else ()
    code, _, message = call(command, run, *images)
    assert code == 1
    assert "detection" in message


def test_size_of_the_images_is_a_multiple_of_the_largest_cells(tmp_path: Path) -> None:
    examples = load_boxes(write_rectangles(tmp_path / "few", 3))
    targets = np.empty(3, object)
    targets[:] = [Objects(target.rows, (480, 640)) for target in examples.targets]
    examples.targets[:] = targets
    config = RunConfig("photos", "ViTTi16")
    recipe = Detection.settled(config, examples).config.recipe
    assert recipe.image_size == (320, 416)
    assert recipe.resize == "squash"


def test_boxes_that_cannot_be_used_are_refused_on_request(tmp_path: Path, call: Call) -> None:
    folder = write_rectangles(tmp_path / "few", 3)
    path = next(path for path in folder.rglob("*.xml") if "<xmin>" in path.read_text())
    path.write_text(path.read_text().replace("<xmin>", "<xmin>99", 1))
    options = ("--model", "ViTMicro4", "--weights", "none", "--on-bad-box", "fail")
    code, _, message = call("train", *TASK, "--data", folder, *options, "--out", tmp_path / "run")
    assert code == 1
    assert f"{path.name}, box 1: it has no area" in " ".join(message.split())


def test_images_with_boxes_are_drawn(tmp_path: Path) -> None:
    examples = load_boxes(write_rectangles(tmp_path / "few", 3))
    (tmp_path / "run").mkdir()
    Detection(None).start_run(RunFolder(tmp_path / "run"), examples, examples)
    assert (tmp_path / "run" / "boxes.png").is_file()


@pytest.mark.slow
def test_predict_writes_boxes_and_pictures(
    run: Path, rectangles: Path, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    given = ("predict", run, rectangles / "images", tmp_path / "broken.png", "--to")
    assert call(*given, tmp_path / "found.csv")[0] == 1  # one cannot be read
    rows = list(csv.DictReader((tmp_path / "found.csv").open()))
    assert len({row["file"] for row in rows}) == 25
    assert rows[-1]["message"]
    for row in rows[:-1]:
        if row["class"]:
            width, height = PIL.Image.open(row["file"]).size
            assert 0 <= float(row["left"]) < float(row["right"]) <= width
            assert 0 <= float(row["top"]) < float(row["bottom"]) <= height
    assert len(list((tmp_path / "found").iterdir())) >= 24
    assert call(*given, tmp_path / "found.json")[0] == 1
    results = json.loads((tmp_path / "found.json").read_text())
    assert {row["image_id"] for row in results} == set(range(24))
    assert {row["category_id"] for row in results} == {1, 2}
    (tmp_path / "00.png").write_bytes((rectangles / "images" / "0.png").read_bytes())
    code, _, message = call(*given[:3], tmp_path / "00.png", "--to", tmp_path / "other.json")
    assert code == 1
    assert "images of different names" in " ".join(message.split())
    assert call(*given, tmp_path / "found.parquet")[0] == 1
    assert parquet.read_table(tmp_path / "found.parquet").to_pylist()[-1]["message"]


def test_files_are_compared_by_boxes_or_by_average_precision() -> None:
    rows = np.array([[4, 4, 20, 20, 0, 0]], "f")
    targets = np.empty(2, object)
    targets[:] = [Objects(rows, (32, 32))] * 2
    output = np.tile(np.array([[4, 4, 20, 20, 0.9, 0.1]], "f"), (2, 3, 1))
    reads = Preprocessing(size=(32, 32), resize="squash", class_names=("a", "b"))
    expected = Predictions(targets, output, reads)
    moved, lower = output.copy(), output.copy()
    moved[0, 0, 2] += 9
    lower[1, 0, 4] -= 0.01
    for found, close, agreeing in (
        (output, 1e-4, [True, True]),
        (moved, 1e-4, [False, True]),
        (lower, 1e-4, [True, False]),
        (output, 0.0, [True, True]),
        (moved[:, :1].repeat(3, axis=1), 0.0, [False, False]),
    ):
        same, score = Detection(None).agreement(found, expected, close)
        assert same.tolist() == agreeing
        assert 0 <= score <= 1
    targets[:] = [Objects(rows[:0], (32, 32))] * 2  # without objects, outputs are compared
    spread = expected._replace(outputs=output + np.arange(3, dtype="f")[:, np.newaxis])
    for change, agreeing in ((0.09, [True, True]), (0.11, [False, True])):
        found = spread.outputs.copy()
        found[0, 1, 2] += change  # of a range of 2
        assert Detection(None).agreement(found, spread, 0.0)[0].tolist() == agreeing


def test_page_shows_scores_sizes_and_images() -> None:
    report = DetectionReport.of(["a", "b", "c"], drawn())
    images = [np.zeros((40, 50, 3), "uint8")] * 2
    details = DetectionDetails(report, [(images, "x.png"), (images, "y.png")])
    sections = {section.name: "".join(section.parts) for section in details.sections()}
    assert list(sections) == ["summary", "classes", "sizes", "worst"]
    assert f"<b>{report.ap50:.3f}</b>AP50" in sections["summary"]
    missed, alarms = report.errors[report.worst[0]]
    assert f"x.png: {missed} missed, {alarms} false alarms" in sections["worst"]
    assert sections["worst"].count("<img") == 4
    assert details.to_json()["scores"]["ap50"] == report.ap50
