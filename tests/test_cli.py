from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import cli, export, models, training, zoo
from tests.training.photos import write_photos

pytestmark = pytest.mark.tensorflow

COMMANDS = ("train", "evaluate", "predict", "export", "models")

Call = Callable[..., tuple[int, str, str]]


def call_main(*arguments: object) -> int:
    """Runs `keras-vit ARGUMENTS` in this process; returns the exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["keras-vit", *map(str, arguments)])
        patch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as exit_:
            cli.main()
    return int(exit_.value.code or 0)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command; returns its exit code, its output and its messages."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = call_main(*arguments)
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module", autouse=True)
def _nano() -> Iterator[None]:
    """A constructor so small that training takes seconds."""
    config = models.size("Micro/2").replace(
        hidden_size=15, num_layers=1, num_heads=3, mlp_dim=19, image_size=(32, 32)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(zoo.CONSTRUCTORS, "ViTNano", zoo.Constructor("ViTNano", config))
        yield


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder that the command line wrote, with both exports in it."""
    out = tmp_path_factory.mktemp("runs") / "photos"
    size = ("--image-size", "8x12")
    options = (*size, "--epochs", 1, "--batch-size", 8, "--precision", "float32")
    code = call_main(
        "train", "--data", photos, "--model", "ViTNano", "--out", out, *options, "--no-tensorboard"
    )
    assert code == 0
    exports = ("--saved-model", out / "saved_model", "--tflite", out / "model.tflite")
    assert call_main("export", out, *exports) == 0
    return out


def test_train_takes_its_options(run: Path, photos: Path) -> None:
    assert training.Run(run).read_config() == training.RunConfig(
        data=str(photos),
        model="ViTNano",
        image_size=(8, 12),
        recipe=training.FROM_SCRATCH.replace(epochs=1, batch_size=8, precision="float32"),
    )


def test_every_recipe_option_reaches_the_recipe(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = {}

    def train(config: training.RunConfig, out: Path, *, resume: bool, tensorboard: bool) -> None:
        seen.update(config=config, out=out, resume=resume, tensorboard=tensorboard)

    monkeypatch.setattr(training, "train", train)
    code, _, _ = call(
        *("train", "--data", "digits", "--model", "ViTB16", "--weights", tmp_path / "w"),
        *("--image-size", "48", "--out", tmp_path, "--epochs", 5, "--batch-size", 7),
        *("--lr", 0.02, "--optimizer", "sgd", "--weight-decay", 0.03),
        *("--warmup-fraction", 0.3, "--clip-norm", 2, "--label-smoothing", 0.11),
        *("--crop-area", 0.4, 0.9, "--no-flip", "--dropout", 0.12, "--stochastic-depth", 0.13),
        *("--precision", "float32", "--seed", 3, "--validation-fraction", 0.25),
        *("--split-seed", 4, "--on-bad-image", "skip", "--no-tensorboard"),
    )
    assert code == 0
    recipe = training.Recipe(
        epochs=5,
        batch_size=7,
        optimizer="sgd",
        learning_rate=0.02,
        warmup_fraction=0.3,
        weight_decay=0.03,
        clip_norm=2,
        label_smoothing=0.11,
        crop_area=(0.4, 0.9),
        flip=False,
        dropout_rate=0.12,
        stochastic_depth_rate=0.13,
        precision="float32",
        seed=3,
    )
    weights = str(tmp_path / "w")
    config = training.RunConfig("digits", "ViTB16", weights, (48, 48), 0.25, 4, "skip", recipe)
    assert seen == {"config": config, "out": tmp_path, "resume": False, "tensorboard": False}


def test_sgd_has_its_own_learning_rate_and_no_decay(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = []
    monkeypatch.setattr(training, "train", lambda config, out, **_: recipes.append(config.recipe))
    call("train", "--data", "digits", "--optimizer", "sgd", "--weights", "w.npz")
    assert recipes == [training.FINETUNE.replace(**training.SGD)]


@pytest.mark.parametrize("weights", [None, "w.npz"])
def test_defaults_depend_on_whether_there_are_weights(
    call: Call, monkeypatch: pytest.MonkeyPatch, weights: str | None
) -> None:
    recipes = []
    monkeypatch.setattr(training, "train", lambda config, out, **_: recipes.append(config.recipe))
    call("train", "--data", "digits", *(("--weights", weights) if weights else ()))
    assert recipes == [training.FINETUNE if weights else training.FROM_SCRATCH]


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
def test_predict_prints_labels_for_every_artefact(run: Path, call: Call, artefact: str) -> None:
    images = sorted((run / "samples").iterdir())[:3]
    code, output, _ = call("predict", run / artefact, *images, "--top", 2, "--batch-size", 2)
    assert code == 0
    check_predictions(output, images, run)


def test_predict_prints_labels_for_tflite(run: Path, call: Call) -> None:
    images = sorted((run / "samples").iterdir())[:3]
    code, output, _ = call("predict", run / "model.tflite", *images, "--top", 2)
    assert code == 0
    check_predictions(output, images, run)


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


def folder_with(tmp_path: Path, **classes: int) -> Path:
    return write_photos(tmp_path / "data", classes)


def test_bad_data_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cases: list[tuple[object, str]] = [
        (tmp_path / "empty", "`data` must be a folder with one subfolder of images for each class"),
        (folder_with(tmp_path / "1", ant=5), "Training needs images of at least two classes"),
        (folder_with(tmp_path / "2", ant=5, bee=1), "Every class must have at least two images"),
        (tmp_path / "nowhere", "`data` must be a folder of class folders"),
        ("digit", "Did you mean 'digits'?"),
    ]
    for data, expected in cases:
        code, _, message = call("train", "--data", data, "--model", "ViTNano", "--out", tmp_path)
        check_failure(code, message, expected)


def check_failure(code: int, message: str, expected: str) -> None:
    lines = [line for line in message.splitlines() if line.startswith("keras-vit: ")]
    assert code == 1
    assert len(lines) == 1
    assert expected in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--model", "ViTMikro4"], "Did you mean 'ViTMicro4'?"),
        (["--image-size", "9"], "the nearest sizes are (8, 8) and (10, 10)"),
        (["--image-size", "9 by 9"], "`--image-size` must read like 224 or 224x320. Received"),
        (["--weights", "missing.npz"], "missing.npz', which does not exist"),
        (["--seed", "-1"], "`seed` must be in [0, 2**32)"),
        (["--resume"], "takes no option but --out and --tensorboard: a run goes on as it was"),
    ],
)
def test_bad_option_is_refused(
    photos: Path, call: Call, tmp_path: Path, options: list[str], expected: str
) -> None:
    arguments = {"--data": str(photos), "--model": "ViTNano", "--out": str(tmp_path / "run")}
    pairs = [part for pair in arguments.items() for part in pair]
    code, _, message = call("train", *pairs, *options)
    check_failure(code, message, expected)
    assert not (tmp_path / "run").exists()


def test_truncated_weights_are_refused(photos: Path, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "half.npz"
    np.savez(path, **{"embedding/kernel": np.zeros((2, 2, 3, 15), "float32")})
    path.write_bytes(path.read_bytes()[:300])
    options = ("--model", "ViTNano", "--weights", path, "--out", tmp_path / "run")
    code, _, message = call("train", "--data", photos, *options)
    check_failure(code, message, f"The weight file {path} is truncated or damaged")


def test_train_without_data_is_refused(call: Call) -> None:
    code, _, message = call("train", "--model", "ViTNano")
    check_failure(code, message, "`--data` must name the training images")


def test_text_named_jpg_is_listed_or_left_out(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = folder_with(tmp_path, ant=5, bee=7)
    (data / "ant" / "notes.jpg").write_text("no picture")
    options = ("--data", data, "--model", "ViTNano", "--image-size", 8, "--batch-size", 3)
    code, _, message = call("train", *options, "--out", tmp_path / "fail")
    check_failure(code, message, "ant/notes.jpg: not a JPEG")
    assert "--on-bad-image skip" in message
    monkeypatch.setattr(keras.Model, "fit", stopped)
    code, output, _ = call("train", *options, "--out", tmp_path / "skip", "--on-bad-image", "skip")
    assert code == 130  # it had come as far as `fit`
    assert "1 of 13 images cannot be used:" in output
    assert "notes.jpg" not in (tmp_path / "skip" / "split.csv").read_text()
    assert (data / "ant" / "notes.jpg").read_text() == "no picture"


def stopped(*args: object, **options: object) -> None:
    raise KeyboardInterrupt


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


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["resume.npz", "last.keras"], "keras-vit train --resume --out"),
        (["last.keras"], "last.keras holds the model as it was"),
        ([], "Stopped before the training began."),
    ],
)
def test_ctrl_c_exits_with_130_and_says_what_is_there(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], expected: str
) -> None:
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.setattr(training, "train", stopped)
    code, output, message = call("train", "--data", "digits", "--out", tmp_path)
    assert code == 130
    assert expected in output
    assert ("--resume" in output) == ("resume.npz" in files)
    assert message == ""


def test_full_disk_is_one_message_and_the_earlier_model_survives(
    photos: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, kept = keras.Model.save, []

    def full(self: keras.Model, path: Path) -> None:
        original(self, path)
        if kept:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        kept.append(Path(path).read_bytes())

    monkeypatch.setattr(keras.Model, "save", full)
    out = training.Run(tmp_path / "run")
    code, _, message = call(
        *("train", "--data", photos, "--model", "ViTNano", "--image-size", "8", "--out", out.path),
        *("--batch-size", 8, "--epochs", 3, "--precision", "float32", "--no-tensorboard"),
    )
    check_failure(code, message, "No space left on device")
    assert out.last.read_bytes() == kept[0]
    assert [path.name for path in out.path.iterdir() if path.name.startswith(".")] == []
    code, _, _ = call("predict", out.path, next(out.samples.iterdir()))
    assert code == 0


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help_has_an_example(call: Call, command: list[str]) -> None:
    code, output, _ = call(*command, "--help")
    lines = [line.strip() for line in output.splitlines() if "Usage:" not in line]
    assert code == 0
    assert any(line.startswith(" ".join(("keras-vit", *command))) for line in lines)
