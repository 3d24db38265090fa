from __future__ import annotations

import dataclasses
import errno
import importlib
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import yaml

from keras_vit import output_folder, training
from keras_vit.runs.named_recipes import FINETUNE, FROM_SCRATCH, SGD
from keras_vit.training import RunConfig
from tests.cli.commands import Call, check_failure
from tests.training.photos import write_photos

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("nano")]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `training.train` is called with, instead of training."""
    seen: dict[str, Any] = {}

    def train(config: RunConfig, out: Path, **options: Any) -> None:
        seen.update(config=config, out=out, **options)

    monkeypatch.setattr(training, "train", train)
    return seen


def test_train_takes_its_options(run: Path, photos: Path) -> None:
    recipe = FROM_SCRATCH.replace(epochs=1, batch_size=8, precision="float32", image_size=(8, 12))
    assert training.Run(run).read_config() == RunConfig(str(photos), "ViTNano", recipe=recipe)


def test_every_option_reaches_the_run(call: Call, asked: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "teacher.keras").touch()
    (tmp_path / "w").touch()
    code, _, _ = call(
        *("train", "--data", "digits", "--model", "ViTB16", "--weights", tmp_path / "w"),
        *("--image-size", "48", "--out", tmp_path / "run", "--recipe", "deit", "--epochs", 5),
        *("--batch-size", 8, "--lr", 0.02, "--optimizer", "lion", "--precision", "float32"),
        *("--set", "mixup=0.3", "--set", "label_smoothing=1e-2", "--set", "crop_area=[0.4, 0.9]"),
        *("--set", "flip=false", "--set", "distillation=soft", "--set", "trainable=['head/*']"),
        *("--strategy", "mirrored", "--model-parallel", 2, "--seed", 3, "--split-seed", 4),
        *("--validation-fraction", 0.25, "--on-bad-image", "skip", "--save-minutes", 2.5),
        *("--save-steps", 7, "--teacher", tmp_path / "teacher.keras", "--no-tensorboard"),
        *("--profile", 3, 5),
    )
    assert code == 0
    recipe = training.recipe("deit").replace(
        **{"epochs": 5, "batch_size": 8, "learning_rate": 0.02, "optimizer": "lion"},
        **{"precision": "float32", "mixup": 0.3, "label_smoothing": 0.01, "flip": False},
        **{"crop_area": (0.4, 0.9), "distillation": "soft", "trainable": ("head/*",)},
        **{"image_size": (48, 48), "seed": 3},
    )
    config = RunConfig(
        **{"data": "digits", "model": "ViTB16", "weights": str(tmp_path / "w")},
        **{"validation_fraction": 0.25, "split_seed": 4, "on_bad_image": "skip"},
        **{"strategy": "mirrored", "model_parallel": 2, "save_minutes": 2.5, "save_steps": 7},
        teacher=str(tmp_path / "teacher.keras"),
        recipe=recipe,
    )
    assert asked == {
        **{"config": config, "out": tmp_path / "run"},
        **{"resume": False, "tensorboard": False, "profile": (3, 5)},
        **{"smaller_batches": False, "least_steps": 0, "few_images": {}},
    }


def test_sgd_has_its_own_learning_rate_and_no_decay(call: Call, asked: dict[str, Any]) -> None:
    call("train", "--data", "digits", "--optimizer", "sgd", "--weights", "imagenet")
    assert asked["config"].recipe == FINETUNE.replace(**SGD)
    call("train", "--data", "digits", "--optimizer", "sgd", "--lr", 0.3, "--weights", "imagenet")
    assert asked["config"].recipe == FINETUNE.replace(**{**SGD, "learning_rate": 0.3})


@pytest.mark.parametrize(
    ("options", "weights", "recipe"),
    [
        ((), "imagenet", "finetune"),
        (("--weights", "augreg_in21k"), "augreg_in21k", "finetune"),
        (("--weights", "none"), None, "from_scratch"),
        (("--weights", "none", "--recipe", "finetune"), None, "finetune"),
        (("--recipe", "linear_probe"), "imagenet", "linear_probe"),
        (("--recipe", "deit"), None, "deit"),
        (("--model", "ViTS8"), "dino", "finetune"),
        (("--model", "ResNet50"), "imagenet", "finetune"),
        (("--model", "ViTMicro4"), None, "from_scratch"),
    ],
)
def test_a_model_with_published_weights_starts_from_them(
    call: Call, asked: dict[str, Any], options: tuple[str, ...], weights: str | None, recipe: str
) -> None:
    _, output, _ = call("train", "--data", "digits", *options)
    assert asked["config"].weights == weights
    assert asked["config"].recipe == training.recipe(recipe)
    note = f"Starting from published weights: {weights} (--weights none for random weights).\n"
    assert output == ("" if weights is None or "--weights" in options else note)


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("ViTTi16", "pass the file as the weights (--weights FILE) or store it as"),
        ("MobileNetV2", "store it in the folder models of KERAS_HOME"),
    ],
)
def test_offline_error_says_both_ways(
    call: Call,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    wanted: str,
) -> None:
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("keras.src.backend.config._KERAS_DIR", str(tmp_path))
    code, _, message = call("train", "--data", photos, "--model", model, "--out", tmp_path / "run")
    check_failure(code, message, wanted)
    assert message.endswith("Or pass --weights none to train from random weights.\n")


def test_config_without_weights_starts_from_random_weights(
    run: Path, call: Call, asked: dict[str, Any]
) -> None:
    call("train", "--config", run / "config.yaml", "--model", "ViTTi16", "--out", "again")
    assert asked["config"].weights is None


def test_config_repeats_a_run(run: Path, call: Call, asked: dict[str, Any]) -> None:
    code, _, _ = call("train", "--config", run / "config.yaml", "--out", "again")
    before = training.Run(run).read_config()
    assert code == 0
    assert asked["config"] == before
    call("train", "--config", run / "config.yaml", "--out", "again", "--seed", 9)
    assert asked["config"] == dataclasses.replace(before, recipe=before.recipe.replace(seed=9))


def test_recipes_are_listed_with_their_sources(call: Call) -> None:
    code, output, _ = call("recipes")
    assert code == 0
    with_labels, without = output.split("keras-vit pretrain --recipe NAME")
    assert "keras-vit train --recipe NAME" in with_labels
    assert "augreg" in with_labels
    for recipes, text in (
        (training.RECIPES, with_labels),
        (training.PRETRAINING_RECIPES, without),
    ):
        for name, published in recipes.items():
            assert f"\n{name}\n    {published.what}\n    {published.source}\n" in text
            assert published.notes in text


def test_recipe_is_shown_as_yaml_that_a_config_can_hold(call: Call, tmp_path: Path) -> None:
    code, output, _ = call("recipes", "deit")
    assert code == 0
    assert output.startswith(f"# {training.RECIPES['deit'].what}")
    config = {"data": "digits", "model": "ViTMicro4", "recipe": yaml.safe_load(output)}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    assert training.read_config(tmp_path / "config.yaml").recipe == training.recipe("deit")
    code, output, _ = call("recipes", "augreg-aug_light1")
    assert yaml.safe_load(output)["batch_size"] == 4096
    code, output, _ = call("recipes", "mae_paper")
    assert yaml.safe_load(output)["beta_2"] == 0.95
    assert "\n# The learning rate is the paper's 1.5e-4 for 256 images" in output


def test_unknown_recipe_names_the_nearest_of_both_kinds(call: Call) -> None:
    code, _, message = call("recipes", "mae_papr")
    check_failure(
        code,
        message,
        "`recipe` must be one of these. Did you mean 'mae_paper'? Options: 'finetune'",
    )
    assert "Did you mean 'mae_paper'?" in message


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
        out = tmp_path / "run"
        code, _, message = call("train", "--data", data, "--model", "ViTNano", "--out", out)
        check_failure(code, message, expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--model", "ViTMikro4"], "Did you mean 'ViTMicro4'?"),
        (["--image-size", "9"], "the nearest sizes are (8, 8) and (10, 10)"),
        (
            ["--image-size", "9 by 9"],
            "`--image-size` must have the form 224 or 224x320.",
        ),
        (["--weights", "missing.npz"], "`--weights` must be an existing file, a URL"),
        (["--seed", "-1"], "`seed` must be in [0, 2**32)"),
        (["--resume"], "must be given alone or with --out, --tensorboard, --profile; a"),
        (["--recipe", "dait"], "`recipe` must be one of"),
        (["--set", "mixup"], "`--set` must have the form NAME=VALUE. Received: --set mixup"),
        (["--set", "mixpu=1"], "'mixpu' is not a recipe field. Did you mean 'mixup'?"),
        (["--set", "mixup="], "`--set` must have the form NAME=VALUE. Received: --set mixup="),
        (["--set", "mixup=[1"], "`--set` must have the form NAME=VALUE. Received: --set mixup=[1"),
        (["--strategy", "jax"], "strategy='jax' needs the jax backend"),
        (
            ["--teacher", "."],
            "`teacher` must be given if, and only if, the recipe uses distillation.",
        ),
        (["--config", "none.yaml"], "`--config` must be a config.yaml. Received: none.yaml"),
        (["--on-bad-box", "fail"], "`--on-bad-box` must be drop unless the task is detection"),
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Saved. Go on with\n  keras-vit train --resume", "keras-vit train --resume"),
        ("", "Interrupted. Saved states are kept. Resume with:\n  keras-vit train --resume --out "),
    ],
)
def test_ctrl_c_exits_with_130_and_says_how_to_go_on(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, expected: str
) -> None:
    def train(config: RunConfig, out: Path, **options: object) -> None:
        training.Run(out).write_config(config, {})
        raise KeyboardInterrupt(*([said] if said else []))

    monkeypatch.setattr(training, "train", train)
    code, output, message = call("train", "--data", "digits", "--out", tmp_path / "run")
    assert code == 130
    assert expected in output
    assert message == ""


@pytest.mark.parametrize(
    ("module", "moment"),
    [
        ("tasks.classification.task", "build_network"),
        ("training.loop", "find_parts"),
        ("tasks.classification.task", "write_samples"),
    ],
)
def test_ctrl_c_before_there_is_a_run_does_not_promise_to_resume(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    photos: Path,
    tmp_path: Path,
    module: str,
    moment: str,
) -> None:
    options = ("--data", photos, "--model", "ViTNano", "--image-size", 8, "--batch-size", 3)
    monkeypatch.setattr(importlib.import_module(f"keras_vit.{module}"), moment, stopped)
    code, output, _ = call("train", *options, "--out", tmp_path / "run")
    assert code == 130
    assert (
        "Interrupted. The same command resumes from the last saved state, or starts again."
        in output
    )
    assert "--resume" not in output
    output_folder.require_new_run(tmp_path / "run")  # so that the same command may


def test_no_number_is_one_message(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*args: object, **options: object) -> None:
        raise FloatingPointError("NaN or infinite loss in epoch 1, step 3")

    monkeypatch.setattr(training, "train", train)
    code, _, message = call("train", "--data", "digits", "--out", "none")
    check_failure(code, message, "NaN or infinite loss in epoch 1, step 3")


@pytest.mark.parametrize("started", [False, True])
def test_full_disk_is_one_message_with_the_command_that_goes_on(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    def train(config: RunConfig, out: Path, **options: object) -> None:
        out.mkdir()
        if started:
            (out / "config.yaml").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out / "last.keras"))

    monkeypatch.setattr(training, "train", train)
    out = tmp_path / "run"
    code, _, message = call("train", "--data", "digits", "--out", out)
    full = (
        f"keras-vit: [Errno 28] No space left on device: '{out / 'last.keras'}'. Free some space. "
    )
    check_failure(code, message, full)
    resume = f"Saved states are kept. Resume with:\n  keras-vit train --resume --out {out}\n"
    restart = "The same command resumes from the last saved state, or starts again.\n"
    assert message.endswith(full + (resume if started else restart))


@pytest.mark.slow
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
    hidden = {path.name for path in out.path.iterdir() if path.name.startswith(".")}
    assert not hidden - {".keras_vit_output", ".keras_vit_lock"}  # no partial file
    code, _, _ = call("predict", out.path, next(out.samples.iterdir()))
    assert code == 0


def test_resume_of_a_finished_run_says_how_to_train_longer(run: Path, call: Call) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    code, output, _ = call("train", "--resume", "--out", run)
    assert code == 0
    command = f"keras-vit train --config {run}/config.yaml --weights {run} --epochs N --out NEW"
    assert f"The run {run} has already finished." in output
    assert command in output
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    code, _, message = call("train", "--resume", "--epochs", 10, "--out", run)
    check_failure(code, message, command)


@pytest.mark.slow
def test_run_is_trained_longer_from_its_folder(run: Path, call: Call, tmp_path: Path) -> None:
    options = ("--config", run / "config.yaml", "--weights", run, "--epochs", 2)
    code, output, _ = call("train", *options, "--out", tmp_path / "longer", "--no-tensorboard")
    assert code == 0
    assert "start anew" not in output
    assert training.Run(tmp_path / "longer").read_config().recipe.epochs == 2
