"""Segmentation through the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import keras
import numpy as np
import PIL.Image
import pytest

from keras_vit import models, training
from keras_vit.data.sources.masks import load_masks
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig
from keras_vit.runs.recipe import Recipe
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.segmentation.report import SegmentationReport
from keras_vit.tasks.segmentation.task import Segmentation, SegmentationDetails
from keras_vit.tasks.task import Predictions
from tests.cli.commands import Call, with_places
from tests.tasks.segmentation.conftest import TASK, write_shapes

pytestmark = pytest.mark.tensorflow


def test_segmentation_learns(run: Path) -> None:
    found = json.loads((run / "evaluation.json").read_text())
    assert found["mean_iou"] > 0.6
    assert (run / "best.keras").is_file()
    assert (run / "iou.png").is_file()
    split = list(csv.DictReader((run / "split.csv").open()))
    assert {"file", "mask", "split"} <= set(split[0])


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
        ("card", "RUN", "--out", "OUT"),
        *(
            pytest.param(command, marks=pytest.mark.slow)
            for command in (
                ("data", "preview", "DATA", *TASK, "--image-size", "32", "--out", "OUT.png"),
                ("predict", "RUN", "DATA/images", "--to", "OUT.csv"),
                ("export", "RUN", "--to", "OUT", "--tflite", "float16", "--onnx", "--openvino"),
            )
        ),
    ],
    ids=" ".join,
)
def test_segmentation_passes_a_command(
    command: tuple[str, ...], run: Path, shapes: Path, call: Call, tmp_path: Path
) -> None:
    places = {"RUN": run, "DATA": shapes, "OUT": tmp_path / "out"}
    code, _, message = call(*with_places(command, places))
    assert code == 0, message


def test_masks_of_fewer_images_than_are_shown_are_drawn(tmp_path: Path) -> None:
    examples = load_masks(write_shapes(tmp_path / "few", 3))
    (tmp_path / "run").mkdir()
    Segmentation(None).start_run(RunFolder(tmp_path / "run"), examples, examples)
    assert (tmp_path / "run" / "masks.png").is_file()


@pytest.mark.slow
def test_predict_writes_masks_and_shares(
    run: Path, shapes: Path, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    code, _, _ = call(
        "predict", run, shapes / "images" / "3.png", tmp_path, "--to", tmp_path / "found.csv"
    )
    assert code == 1  # one cannot be read
    rows = list(csv.DictReader((tmp_path / "found.csv").open()))
    assert float(rows[0]["ground"]) + float(rows[0]["shape"]) == pytest.approx(1)
    assert rows[1]["message"]
    truth = PIL.Image.open(shapes / "masks" / "3.png")
    mask = PIL.Image.open(tmp_path / "found" / "00001_3.png")
    assert (mask.size, mask.mode) == (truth.size, "P")
    seen = np.asarray(truth) != 255
    assert (np.asarray(mask) == np.asarray(truth))[seen].mean() > 0.8
    assert sorted(path.name for path in (tmp_path / "found").glob("0*")) == [
        "00001_3.png",
        "00001_3_overlay.jpg",
    ]


def test_data_check_counts_pixels(shapes: Path, call: Call) -> None:
    code, text, _ = call("data", "check", shapes, *TASK)
    assert code == 0
    assert text.startswith(f"20 images in 2 classes of {shapes}; pixels of each class:\n  ground")
    shares = [float(line.split()[-1].rstrip("%")) for line in text.splitlines()[1:3]]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert shares[0] > 70
    assert "center" not in text  # images of any aspect ratio are seen whole


def test_unreadable_masks_do_not_set_the_image_size(tmp_path: Path) -> None:
    examples = load_masks(write_shapes(tmp_path / "few", 3))
    Path(examples.targets[0]).write_bytes(b"")
    config = RunConfig("photos", "ViTMicro4")
    assert Segmentation.settled(config, examples).config.recipe.image_size
    for target in examples.targets:
        Path(target).write_bytes(b"")
    with pytest.raises(ValueError, match="must contain masks that can be read"):
        Segmentation.settled(config, examples)


def test_masks_of_one_class_are_refused(tmp_path: Path) -> None:
    examples = load_masks(write_shapes(tmp_path / "few", 3))
    for target in examples.targets:
        PIL.Image.new("L", PIL.Image.open(target).size, 1).save(target)
    with pytest.raises(ValueError, match="pixels of at least two classes"):
        examples.kind.check_trainable(examples)


def test_smaller_files_are_compared_by_their_mean_iou(tmp_path: Path) -> None:
    examples = load_masks(write_shapes(tmp_path / "few", 2))
    masks = [examples.kind.read(target) for target in examples.targets]  # type: ignore[attr-defined]
    logits = np.random.default_rng(0).normal(size=(2, 8, 8, 2)).astype("float32")
    expected = Predictions(masks, logits, Preprocessing(resize="squash"))  # type: ignore[arg-type]
    other = logits.copy()
    other[0, :4] = -other[0, :4]
    for found, close, agreeing in ((logits, 1e-4, True), (logits, 0, True), (other, 0, False)):
        same, score = Segmentation(None).agreement(found, expected, close)
        assert same.tolist() == [agreeing] * 2
        assert 0 < score < 1
    same, _ = Segmentation(None).agreement(other, expected, 1e-4)
    assert same.tolist() == [False, True]


def test_augmentations_that_move_pixels_are_refused_before_the_images_are_read(
    shapes: Path, tmp_path: Path, call: Call
) -> None:
    options = ("--model", "ViTMicro4", "--weights", "none", "--set", "mixup=0.2")
    code, text, message = call("train", *TASK, "--data", shapes, *options, "--out", tmp_path / "r")
    assert code == 1
    assert "targets are masks" in message
    assert "Checking" not in text


def test_other_losses_are_refused() -> None:
    config = RunConfig("photos", "ViTMicro4", recipe=Recipe(loss="sigmoid"))
    with pytest.raises(ValueError, match="`loss` must be one of 'softmax', 'softmax_dice'"):
        Segmentation(config).objective(None, None)


@pytest.mark.slow
def test_a_tiled_model_is_evaluated_and_exported(
    run: Path, shapes: Path, call: Call, tmp_path: Path
) -> None:
    model = keras.models.load_model(run / "last.keras")
    models.tiled(model, (48, 52), overlap=8).save(tmp_path / "tiled.keras")
    data = ("--data", shapes)
    code, _, message = call("evaluate", tmp_path / "tiled.keras", *data, "--out", tmp_path / "out")
    assert code == 0, message
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert found["mean_iou"] > 0.5
    formats = ("--tflite", "float32", "--onnx", "--openvino")
    to = ("--to", tmp_path / "served")
    code, _, message = call("export", tmp_path / "tiled.keras", *data, *to, *formats)
    assert code == 0, message


def test_page_shows_scores_confusions_and_images() -> None:
    true = np.arange(64).reshape(8, 8).astype(np.uint8) % 2
    found = np.zeros_like(true)
    report = SegmentationReport.of(("sky", "road"), [(true, found)])
    image = np.zeros((8, 8, 3), np.uint8)
    details = SegmentationDetails(report, [([image, image], "a.png")])
    sections = {section.name: "".join(section.parts) for section in details.sections()}
    assert list(sections) == ["summary", "classes", "confusion", "worst"]
    assert "25.0%" in sections["summary"]  # half and nothing
    assert "<td>road</td><td>sky</td><td>32</td><td>100.0%</td>" in sections["confusion"]
    assert sections["worst"].count("<img") == 2
    assert details.to_json()["scores"]["mean_iou"] == 0.25
