from __future__ import annotations

import csv
import dataclasses
import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import yaml

from keras_vit import data, models, zoo
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.network import build_network
from keras_vit.training import PretrainConfig, Recipe, Run, RunConfig, pretrain
from keras_vit.training.signals import SignalHandler
from tests.helpers import randomise

pytestmark = pytest.mark.tensorflow

# Every kind of randomness is on: order, crops, flips, masks, dropout, stochastic depth.
RECIPE = Recipe(
    epochs=3,
    batch_size=8,
    learning_rate=3e-3,
    dropout_rate=0.1,
    stochastic_depth_rate=0.2,
    precision="float32",
)
TRAINED, HELD_OUT, STEPS = 26, 7, 3
DECODER = {"decoder_width": 12, "decoder_depth": 1, "decoder_heads": 3}

module = importlib.import_module("keras_vit.training.loop")


@pytest.fixture(scope="module")
def pico() -> Iterator[str]:
    """The name of a constructor of one narrow block, for graphs take time to trace."""
    config = models.size("Micro/2").replace(
        hidden_size=15, num_layers=1, num_heads=3, mlp_dim=19, image_size=(8, 8)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(zoo.CONSTRUCTORS, "ViTPico", zoo.Constructor("ViTPico", config))
        yield "ViTPico"


@pytest.fixture(scope="module")
def config(photos: Path, pico: str) -> PretrainConfig:
    return PretrainConfig(str(photos), pico, split_seed=3, recipe=RECIPE, **DECODER)


@pytest.fixture(scope="module")
def run(config: PretrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A masked autoencoder's run that nothing disturbed."""
    out = tmp_path_factory.mktemp("runs") / "mae"
    report = pretrain(config, out)
    assert report["epoch"] == 2
    return Run(out)


def weights(path: Path) -> list[np.ndarray]:
    return keras.saving.load_model(path).get_weights()


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def watched(patch: pytest.MonkeyPatch, *also: keras.callbacks.Callback) -> None:
    """Adds callbacks to the runs of a test."""
    original = module.fit_remaining

    def fit(state: Any, parts: Any, callbacks: Any) -> None:
        original(state, parts, [*callbacks, *also])

    patch.setattr(module, "fit_remaining", fit)


class InterruptAt(keras.callbacks.Callback):
    """Ctrl-C during a step; its state is saved when it is done."""

    def __init__(self, step: int, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.left = step
        self.interruption = SignalHandler()
        patch.setattr(module, "SignalHandler", lambda: self.interruption)

    def on_train_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.left -= 1
        if not self.left:
            self.interruption._record(2, None)


def test_run_leaves_these_files_and_no_others(run: Run) -> None:
    assert {path.name for path in run.path.iterdir()} == {
        *("config.yaml", "split.csv", "history.csv", "curves.png", "checkpoints"),
        *("times.csv", "tensorboard"),
        *("last.keras", "reconstruction.png", ".keras_vit_output", ".keras_vit_lock"),
    }
    for name in ("curves.png", "reconstruction.png"):
        assert (run.path / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_config_is_what_was_asked_for(run: Run, config: PretrainConfig) -> None:
    content = yaml.safe_load(run.config.read_text())
    assert run.read_config(PretrainConfig, "pretrain") == config
    resolved = content["resolved"]
    assert resolved.pop("preprocessing")["labels"] is None
    assert resolved == {
        "precision": "float32",
        "devices": "one device",
        "mask_ratio": 0.75,
        "training_examples": TRAINED,
        "validation_examples": HELD_OUT,
        "inventory": {"used": TRAINED + HELD_OUT, "unreadable": {}, "ignored": {}},
    }


def test_history_has_the_loss_of_both_parts(run: Run) -> None:
    history = rows(run.history)
    assert [row["epoch"] for row in history] == ["0", "1", "2"]
    assert list(history[0]) == ["epoch", "gradient_norm", "loss", "val_loss"]
    assert all(0 < float(row["val_loss"]) < 10 for row in history)


def test_images_held_out_are_those_of_training_with_labels(
    run: Run, config: PretrainConfig
) -> None:
    examples = data.load(config.data)
    digests = data.audit(examples, progress=False).digests
    _, held_out = data.split(examples, digests, validation_fraction=0.2, seed=3)
    names = [row["file"] for row in rows(run.split) if row["split"] == "validation"]
    assert names == [examples.names[i] for i in held_out]


def test_last_is_the_encoder_as_it_is_used(run: Run) -> None:
    model = keras.saving.load_model(run.last, safe_mode=True)
    config = models.config_of(model)
    assert (config.classes, config.pooling, config.image_size) == (0, "token", (8, 8))
    assert (config.dropout_rate, config.stochastic_depth_rate) == (0, 0)
    assert {layer.compute_dtype for layer in model.layers} == {"float32"}
    assert {w.path.partition("/")[0] for w in model.weights} == {
        *("patch_encoder", "block_00", "encoder_norm")
    }


def test_constructor_starts_from_it(run: Run, pico: str) -> None:
    with pytest.warns(UserWarning, match=r"head/kernel, head/bias\) is new: it is not loaded"):
        model = zoo.constructor(pico)(weights=run.last, classes=5)
    assert model.output_shape == (None, 5)
    head = model.get_layer("head").get_weights()
    assert not any(weight.any() for weight in head)
    for mine, its in zip(model.get_weights()[:-2], weights(run.last), strict=True):
        np.testing.assert_array_equal(mine, its)
    with pytest.warns(UserWarning, match=r"resized from \(4, 4\) to \(6, 8\)"):
        larger = zoo.constructor(pico)(weights=run.last, classes=5, input_shape=(12, 16, 3))
    assert larger.input_shape == (None, 12, 16, 3)


def test_training_with_labels_starts_from_it(run: Run, pico: str) -> None:
    config = RunConfig("photos", pico, weights=str(run.last), recipe=RECIPE)
    network = build_network(config, ("ant", "bee", "cow", "dog"))
    assert network.output_shape == (None, 4)
    for mine, its in zip(network.get_weights()[:-2], weights(run.last), strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.slow
def test_stopped_run_goes_on_as_if_nothing_had_happened(
    run: Run, config: PretrainConfig, tmp_path: Path
) -> None:
    out = Run(tmp_path / "stopped")
    with pytest.MonkeyPatch.context() as patch:
        watched(patch, InterruptAt(STEPS + 2, patch))
        with pytest.raises(KeyboardInterrupt, match=rf"pretrain --resume --out {out.path}"):
            pretrain(config, out.path)
    assert sorted(path.name for path in out.checkpoints.iterdir()) == [
        *("step_000000003.npz", "step_000000005.npz")
    ]
    keras.utils.set_random_seed(97)  # what happened before must not matter
    pretrain(config, out.path, resume=True)
    assert rows(out.history) == rows(run.history)
    for old, new in zip(weights(run.last), weights(out.last), strict=True):
        np.testing.assert_array_equal(old, new)
    name = "reconstruction.png"
    assert (out.path / name).read_bytes() == (run.path / name).read_bytes()


@pytest.mark.slow
def test_complete_run_is_only_drawn_again(run: Run, config: PretrainConfig) -> None:
    before = run.last.read_bytes(), run.history.read_bytes()
    picture = run.path / "reconstruction.png"
    content = picture.read_bytes()
    picture.unlink()  # as if it had been stopped there
    pretrain(config, run.path, resume=True)
    assert (run.last.read_bytes(), run.history.read_bytes()) == before
    assert picture.read_bytes() == content


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "where"),
    [("cpu", "one device"), ("mirrored", "2 CPUs")],
)
def test_masked_patches_of_loose_images(
    config: PretrainConfig, photos: Path, tmp_path: Path, strategy: str, where: str
) -> None:
    folder = tmp_path / "loose"
    folder.mkdir()
    for path in photos.rglob("*.*"):
        shutil.copy(path, folder / f"{path.parent.name}_{path.name}")
    changes: dict[str, Any] = {
        "data": str(folder),
        "method": "masked-patches",
        "mask_ratio": 0.3,
        "strategy": strategy,
        "recipe": RECIPE.replace(epochs=1),
    }
    run = Run(tmp_path / "run")
    report = pretrain(dataclasses.replace(config, **changes), run.path)
    assert report.keys() == {
        *("epoch", "loss", "color_accuracy", "gradient_norm"),
        *("val_loss", "val_color_accuracy"),
    }
    # A new predictor starts from log(512) = 6.24.
    assert 3 < report["val_loss"] < 6.3
    assert len(rows(run.split)) == TRAINED + HELD_OUT
    assert not (run.path / "reconstruction.png").exists()
    assert models.config_of(keras.saving.load_model(run.last)).classes == 0
    resolved = yaml.safe_load(run.config.read_text())["resolved"]
    assert (resolved["mask_ratio"], resolved["devices"]) == (0.3, where)


def stop(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Makes a run end before its first step; returns what it would have trained."""
    seen: dict[str, Any] = {}

    def fit(state: Any, *args: Any) -> None:
        seen["training_model"] = state.training_model
        raise ZeroDivisionError

    monkeypatch.setattr(module, "fit_remaining", fit)
    return seen


@pytest.mark.slow
def test_config_reaches_the_trainee(
    config: PretrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stop(monkeypatch)
    recipe = RECIPE.replace(clip_norm=0.7, accumulation_steps=2, beta_2=0.95, remat=True)
    changed = dataclasses.replace(config, norm_pix=False, mask_ratio=0.4, recipe=recipe)
    with pytest.raises(ZeroDivisionError):
        pretrain(changed, tmp_path / "run")
    training_model = seen["training_model"]
    assert (training_model.clip_norm, training_model.accumulation_steps) == (0.7, 2)
    assert (training_model.objective.norm_pix, training_model.objective.mask_ratio) == (False, 0.4)
    assert training_model.objective.decoder.embed.units == 12
    assert len(training_model.objective.decoder.blocks) == 1
    assert training_model.objective.decoder.blocks[0].attention.num_heads == 3
    assert training_model.optimizer.beta_2 == 0.95
    learnt = {id(v) for v in training_model.optimizer._trainable_variables}
    assert learnt == {id(v) for v in training_model.trainable_variables}
    assert models.config_of(training_model.network).dropout_rate == 0.1
    assert all(block.remat for block in training_model.objective.encoder.blocks)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"class_token": False, "pooling": "gap"}])
def test_run_starts_from_weights(
    config: PretrainConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
) -> None:
    built = zoo.constructor(config.model).config.replace(classes=5, **changes)
    preprocessing = Preprocessing(
        size=(8, 8), mean=0.3, class_names=tuple("abcde"), thresholds=(0.5,) * 5
    )
    model = randomise(models.build(built, preprocessing=preprocessing))
    model.save(tmp_path / "model.keras")
    seen = stop(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        pretrain(
            dataclasses.replace(config, weights=str(tmp_path / "model.keras")), tmp_path / "run"
        )
    network = seen["training_model"].network
    assert models.config_of(network).pooling == built.pooling
    found = models.preprocessing_of(network)
    assert found == dataclasses.replace(preprocessing, class_names=None, thresholds=None)
    for mine, its in zip(network.get_weights(), model.get_weights()[:-2], strict=True):
        np.testing.assert_array_equal(mine, its)


def test_out_with_a_run_is_refused(run: Run, config: PretrainConfig) -> None:
    with pytest.raises(ValueError, match=r"`out` must be a new folder.*which contains a run."):
        pretrain(config, run.path)


def test_resume_of_another_run_is_refused(config: PretrainConfig, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="must be a run folder written by `keras-vit pretrain --out`"
    ):
        pretrain(config, tmp_path, resume=True)
    Run(tmp_path).write_config(RunConfig(config.data, config.model), {})
    with pytest.raises(
        ValueError, match="must be a run folder written by `keras-vit pretrain --out`"
    ):
        pretrain(config, tmp_path, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "ViTB61"}, "`model` must be one of .* Did you mean 'ViTB16'"),
        ({"recipe": RECIPE.replace(image_size=(9, 8))}, "nearest"),
        ({"weights": "missing.npz"}, "missing.npz', which does not exist"),
        ({"mask_ratio": 0.99}, "`mask_ratio` must leave at least one patch visible"),
        ({"decoder_heads": 5}, "`decoder_width` must be a multiple of 4 and of `decoder_heads`"),
        ({"model": "ViTRTi16"}, "`network` must take its patches from pixels:"),
    ],
)
def test_wrong_model_shows_before_the_images_are_looked_at(
    config: PretrainConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.delattr(data, "audit")
    with pytest.raises(ValueError, match=message):
        pretrain(dataclasses.replace(config, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "masked_patches"}, "`method` must be one of .* Did you mean 'masked-patches'"),
        ({"mask_ratio": 0.0}, r"`mask_ratio` must be in \(0, 1\). Received: mask_ratio=0.0"),
        ({"validation_fraction": 1.0}, r"`validation_fraction` must be in \(0, 1\).*=1.0"),
        ({"decoder_depth": 0}, "`decoder_depth` must be a positive integer"),
        ({"keep": 0}, "`keep` must be a positive integer"),
        ({"save_steps": -1}, "`save_steps` must be a non-negative integer"),
        ({"save_minutes": -1.0}, "`save_minutes` must be a non-negative number.*=-1.0"),
        ({"on_bad_image": "ignore"}, "`on_bad_image` must be one of 'fail', 'skip'"),
        ({"strategy": "gpu"}, "`strategy` must be one of"),
        (
            {"recipe": Recipe(label_smoothing=0.1)},
            "`recipe` must not set label options, because.*label_smoothing=0.1",
        ),
    ],
)
def test_config_is_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PretrainConfig(**{"data": "photos", "model": "ViTTi16"} | changes)


def test_share_of_masked_patches_is_the_method_s() -> None:
    assert PretrainConfig("photos", "ViTTi16").masked == 0.75
    assert PretrainConfig("photos", "ViTTi16", method="masked-patches").masked == 0.5
    assert PretrainConfig("photos", "ViTTi16", mask_ratio=0.6).masked == 0.6
