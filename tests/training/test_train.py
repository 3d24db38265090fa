from __future__ import annotations

import csv
import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import data, export, models, training
from keras_vit.data.sources.load import load_images
from keras_vit.tasks.evaluate import evaluate
from keras_vit.training import Recipe, Run, RunConfig
from tests.training.conftest import StopAt, Train
from tests.training.photos import CLASSES, write_photos

pytestmark = pytest.mark.tensorflow

# Every kind of randomness is on, order, crops, flips, dropout, stochastic depth; and averages.
RECIPE = Recipe(
    epochs=4,
    batch_size=8,
    learning_rate=3e-3,
    ema_momentum=0.5,
    dropout_rate=0.1,
    stochastic_depth_rate=0.2,
    precision="float32",
)
TRAINED, HELD_OUT, STEPS = 26, 7, 3


class Count(keras.callbacks.Callback):
    """Keeps the number of optimizer steps."""

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        self.steps = int(self.model.optimizer.iterations.numpy())


@pytest.fixture(scope="module")
def config(photos: Path, nano: str) -> RunConfig:
    return RunConfig(str(photos), nano, split_seed=3, recipe=RECIPE)


@pytest.fixture(scope="module")
def count() -> Count:
    return Count()


@pytest.fixture(scope="module")
def run(
    config: RunConfig, train: Train, count: Count, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """A run of four epochs that nothing disturbed."""
    out = tmp_path_factory.mktemp("runs") / "photos"
    train(config, out, also=(count,), tensorboard=True, profile=(2, 3))
    return Run(out)


def weights(path: Path) -> list[np.ndarray]:
    return keras.saving.load_model(path).get_weights()


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_run_leaves_these_files_and_no_others(run: Run) -> None:
    assert {path.name for path in run.path.iterdir()} == {
        *("config.yaml", "labels.txt", "split.csv", "history.csv", "times.csv", "curves.png"),
        *("last.keras", "best.keras", "checkpoints", "evaluation.json", "confusion_matrix.png"),
        *("samples", "tensorboard", ".keras_vit_output", ".keras_vit_lock"),
        *(["mistakes.png"] if run.mistakes.exists() else []),
    }
    states = sorted(path.name for path in run.checkpoints.iterdir())
    assert states == ["step_000000009.npz", "step_000000012.npz"]


def test_optimizer_made_exactly_the_steps_of_the_batches(run: Run, count: Count) -> None:
    assert count.steps == RECIPE.epochs * STEPS


def test_config_is_what_was_asked_for(run: Run, config: RunConfig) -> None:
    assert run.read_config() == config
    resolved = run.resolved()
    assert resolved.pop("preprocessing")["labels"] == list(CLASSES)
    assert resolved == {
        "precision": "float32",
        "devices": "one device",
        "flip": True,
        "training_examples": TRAINED,
        "validation_examples": HELD_OUT,
        "inventory": {"used": TRAINED + HELD_OUT, "unreadable": {}, "ignored": {}},
        "classes": 3,
    }


def test_split_and_labels_are_written(run: Run) -> None:
    split = rows(run.split)
    assert run.labels.read_text() == "ant\nbee\ncow\n"
    assert len({row["file"] for row in split}) == TRAINED + HELD_OUT
    assert [row["split"] for row in split].count("validation") == HELD_OUT


def test_history_has_a_row_for_each_epoch(run: Run) -> None:
    history = rows(run.history)
    assert [row["epoch"] for row in history] == ["0", "1", "2", "3"]
    assert {"loss", "accuracy", "val_loss", "val_accuracy"} <= history[0].keys()


@pytest.mark.parametrize("name", ["last.keras", "best.keras"])
def test_models_load_in_safe_mode_with_labels_and_preprocessing(run: Run, name: str) -> None:
    model = keras.saving.load_model(run.path / name, safe_mode=True)
    preprocessing = models.preprocessing_of(model)
    assert preprocessing.class_names == ("ant", "bee", "cow")
    assert preprocessing.size == (8, 8)
    assert model.predict(np.zeros((2, 8, 8, 3)), verbose=0).sum(axis=1) == pytest.approx([1, 1])


def test_best_is_the_epoch_of_the_highest_validation_accuracy(run: Run) -> None:
    history = rows(run.history)
    accuracy = evaluate(keras.saving.load_model(run.best), held_out(run), verbose=0).accuracy
    assert accuracy == pytest.approx(max(float(row["val_accuracy"]) for row in history))


def held_out(run: Run) -> data.Examples:
    examples = data.load(run.read_config().data)
    return examples.subset(data.read_split(run.split, examples)[1])


def test_samples_have_the_pixels_of_held_out_images(run: Run) -> None:
    originals = data.audit(held_out(run), progress=False).digests
    samples = data.audit(load_images(run.samples), progress=False).digests
    # There are fewer than 16.
    assert samples == {name.replace("/", "_"): digest for name, digest in originals.items()}


def test_evaluation_is_that_of_the_last_epoch(run: Run) -> None:
    report = evaluate(keras.saving.load_model(run.last), held_out(run), verbose=0)
    found = json.loads(run.evaluation.read_text())
    assert found.pop("without_averaging")["num_examples"] == HELD_OUT
    inventory = {"used": TRAINED + HELD_OUT, "unreadable": {}, "ignored": {}}
    assert found == {**report.to_json(), "inventory": inventory}
    assert report.num_examples == HELD_OUT


@pytest.mark.parametrize("name", ["confusion_matrix.png", "curves.png"])
def test_pictures_are_png(run: Run, name: str) -> None:
    assert (run.path / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_tensorboard_has_training_validation_and_profile(run: Run) -> None:
    logs = {path.name for path in run.tensorboard.iterdir()}
    assert logs == {"train", "validation", "evaluation"}
    assert list(run.tensorboard.glob("train/plugins/profile/*/*.xplane.pb"))


def test_out_with_a_run_is_refused(run: Run, config: RunConfig, train: Train) -> None:
    before = run.last.read_bytes()
    with pytest.raises(ValueError, match=r"`out` must be a new folder.*which contains a run."):
        train(config, run.path)
    assert run.last.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [0, 2])  # without a state yet; with two
def test_stopped_run_goes_on_as_if_nothing_had_happened(
    run: Run, config: RunConfig, train: Train, tmp_path: Path, epoch: int
) -> None:
    out = Run(tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        train(config, out.path, also=(StopAt(epoch, batch=1),))
    assert len(list(out.checkpoints.glob("*"))) == epoch
    assert not out.evaluation.exists()
    count = Count()
    keras.utils.set_random_seed(97)  # what happened before must not matter
    other = dataclasses.replace(config, recipe=RECIPE.replace(epochs=1, seed=5))  # nor what is said
    train(other, out.path, also=(count,), resume=True)
    assert count.steps == RECIPE.epochs * STEPS
    assert [path.name for path in out.checkpoints.iterdir() if path.name[0] == "."] == []
    assert rows(out.history) == rows(run.history)
    for name in ("last.keras", "best.keras"):
        for old, new in zip(weights(run.path / name), weights(out.path / name), strict=True):
            np.testing.assert_array_equal(old, new)
    assert out.evaluation.read_text() == run.evaluation.read_text()


@pytest.mark.slow
def test_complete_run_is_only_evaluated_again(run: Run, config: RunConfig, train: Train) -> None:
    before = run.last.read_bytes(), run.history.read_bytes(), run.evaluation.read_bytes()
    run.evaluation.unlink()  # as if it had been stopped there
    train(config, run.path, resume=True)
    assert (run.last.read_bytes(), run.history.read_bytes(), run.evaluation.read_bytes()) == before


class Signal(keras.callbacks.Callback):
    """Sends this process a signal after some batches."""

    def __init__(self, number: signal.Signals, batches: int) -> None:
        super().__init__()
        self.number, self.left = number, batches

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)


@pytest.mark.slow
def test_signal_finishes_the_step_and_nothing_is_lost(
    run: Run, config: RunConfig, train: Train, tmp_path: Path
) -> None:
    out = Run(tmp_path / "stopped")
    with pytest.raises(SystemExit):
        train(config, out.path, also=(Signal(signal.SIGTERM, batches=4),))
    # Noticed after the step that follows; in the middle of the second epoch.
    assert max(path.name for path in out.checkpoints.iterdir()) == "step_000000005.npz"
    train(config, out.path, resume=True)
    assert out.history.read_text() == run.history.read_text()
    for old, new in zip(weights(run.last), weights(out.last), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.slow
def test_no_number_stops_the_run_and_keeps_the_last_good_state(
    config: RunConfig, train: Train, tmp_path: Path
) -> None:
    class Spoil(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
            if int(self.model.optimizer.iterations.numpy()) == STEPS + 1:
                bias = self.model.network.get_layer("head").bias
                bias.assign(np.full(bias.shape, np.nan))

    out = Run(tmp_path / "run")
    with pytest.raises(FloatingPointError, match=r"NaN or infinite .*loss.* in epoch 2, step 2"):
        train(config, out.path, also=(Spoil(),))
    assert [path.name for path in out.checkpoints.iterdir()] == [f"step_{STEPS:09d}.npz"]
    train(config, out.path, resume=True)


@pytest.mark.slow
def test_another_seed_gives_other_weights_on_the_same_split(
    run: Run, config: RunConfig, train: Train, tmp_path: Path
) -> None:
    # That the same seed gives the same weights is shown by the run that is stopped and goes on.
    other = Run(tmp_path / "other")
    train(dataclasses.replace(config, recipe=RECIPE.replace(seed=5)), other.path)
    assert other.split.read_text() == run.split.read_text()
    pairs = zip(weights(run.last), weights(other.last), strict=True)
    assert not any(np.array_equal(first, second) for first, second in pairs)


@pytest.fixture
def changed(photos: Path, nano: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """The configuration of a run in tmp_path/run that was stopped, on photographs of its own."""
    folder = write_photos(tmp_path / "photos")
    config = RunConfig(str(folder), nano, recipe=RECIPE)
    stop(monkeypatch, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        training.train(config, tmp_path / "run")
    return config


def stop(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> dict[str, Any]:
    """Makes `fit` raise an error instead; returns what it was called on."""
    seen: dict[str, Any] = {}

    def fit(self: keras.Model, dataset: Any, **options: Any) -> None:
        seen.update(options, model=self, dataset=dataset)
        raise error

    monkeypatch.setattr(keras.Model, "fit", fit)
    return seen


def test_resume_without_an_image_is_refused(changed: RunConfig, tmp_path: Path) -> None:
    (Path(changed.data) / "bee" / "05.png").unlink()
    with pytest.raises(ValueError, match=r"images of .* must match those listed in .*'bee/05.png'"):
        training.train(changed, tmp_path / "run", resume=True)


def test_resume_with_another_class_is_refused(changed: RunConfig, tmp_path: Path) -> None:
    write_photos(Path(changed.data), {"dog": 5})
    with pytest.raises(ValueError, match=r"classes of .* must match those in .*ant, bee, cow, dog"):
        training.train(changed, tmp_path / "run", resume=True)


def test_resume_of_nothing_is_refused(config: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`run` must be a run folder written by `keras-vit train"):
        training.train(config, tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "ViTB61"}, "`model` must be one of .* Did you mean 'ViTB16'"),
        ({"recipe": Recipe(image_size=(9, 8))}, "nearest"),
        ({"recipe": Recipe(trainable=("haed/*",))}, "Every pattern of `trainable` must match"),
        ({"weights": "missing.npz"}, "missing.npz', which does not exist"),
    ],
)
def test_wrong_model_shows_before_the_images_are_looked_at(
    config: RunConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.delattr(data, "audit")
    values = {"data": config.data, "model": config.model} | changes
    with pytest.raises(ValueError, match=message):
        training.train(RunConfig(**values), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_recipe_reaches_compile_and_fit(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stop(monkeypatch, ZeroDivisionError)
    recipe = RECIPE.replace(
        **{"label_smoothing": 0.13, "clip_norm": 0.7},
        **{"accumulation_steps": 2, "loss": "sigmoid"},
        **{"trainable": ("head/*",), "class_weights": "balanced"},
    )
    with pytest.raises(ZeroDivisionError):
        training.train(RunConfig(config.data, config.model, recipe=recipe), tmp_path / "run")
    training_model = seen["model"]
    assert (training_model.clip_norm, training_model.accumulation_steps) == (0.7, 2)
    objective = training_model.objective
    assert (objective.loss_kind, objective.label_smoothing) == ("sigmoid", 0.13)
    # 26 images of 11, 9 and 6 in three classes.
    assert objective.class_weights == pytest.approx(
        [26 / (3 * n) for n in np.bincount(labels_of(tmp_path / "run"))]
    )
    assert {v.path for v in training_model.trainable_variables} == {"head/kernel", "head/bias"}
    schedule = training_model.optimizer._learning_rate
    assert schedule.total_steps == seen["epochs"] * seen["steps_per_epoch"] == 12
    assert len(seen["dataset"]) == 12
    network = models.config_of(training_model.network)
    assert network.classifier_activation is None
    assert (network.dropout_rate, network.stochastic_depth_rate) == (0.1, 0.2)


def labels_of(run: Path) -> list[int]:
    split = rows(Run(run).split)
    return [list(CLASSES).index(row["label"]) for row in split if row["split"] == "train"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "flip", "expected"),
    [("digits", True, False), ("photos", True, True), ("photos", False, False)],
)
def test_flip_depends_on_the_data(
    config: RunConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    flip: bool,
    expected: bool,
) -> None:
    stop(monkeypatch, ZeroDivisionError)
    name = config.data if source == "photos" else source
    run = RunConfig(name, config.model, recipe=RECIPE.replace(flip=flip))
    with pytest.raises(ZeroDivisionError):
        training.train(run, tmp_path / "run")
    assert Run(tmp_path / "run").resolved()["flip"] is expected


@pytest.mark.slow
def test_rematerialised_blocks_give_the_same_run(
    run: Run, config: RunConfig, train: Train, tmp_path: Path
) -> None:
    again = dataclasses.replace(config, recipe=RECIPE.replace(remat=True))
    out = Run(tmp_path / "run")
    train(again, out.path)
    for old, new in zip(weights(run.last), weights(out.last), strict=True):
        np.testing.assert_allclose(old, new, atol=1e-6)


@pytest.mark.slow
def test_mixed_precision_ends_with_training(
    config: RunConfig, train: Train, tmp_path: Path
) -> None:
    recipe = RECIPE.replace(epochs=1, precision="mixed_bfloat16")
    run = Run(tmp_path / "run")
    report = train(RunConfig(config.data, config.model, recipe=recipe), run.path)
    model = keras.saving.load_model(run.last)
    assert {layer.compute_dtype for layer in model.layers} == {"float32"}
    assert evaluate(model, held_out(run), verbose=0).to_json() == report.to_json()
    done = export.bundle(
        run.path, tmp_path / "serving", quantizations=["float32"], full=True, verbose=0
    )
    assert all(result.ok for result in done.results)
