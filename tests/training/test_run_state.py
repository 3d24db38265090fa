from __future__ import annotations

import errno
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig
from keras_vit.runs.state_files import Progress
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.tasks.classification.task import Classification, inference_classifier
from keras_vit.tasks.multi_label.task import MultiLabel
from keras_vit.tasks.regression.task import Regression
from keras_vit.tasks.task import Task
from keras_vit.training import Recipe, Run
from keras_vit.training.ema import averages
from keras_vit.training.optimizers import build_optimizer
from keras_vit.training.run_state import RunState
from keras_vit.training.save_schedule import SaveSchedule
from keras_vit.training.signals import SignalHandler
from keras_vit.training.training_model import TrainingModel
from tests.helpers import in_training, numpy

STEPS = 3


def build(precision: str = "mixed_bfloat16", **recipe: Any) -> TrainingModel:
    config = models.size("Micro/2").replace(
        **{"hidden_size": 15, "num_layers": 1, "num_heads": 3, "mlp_dim": 19},
        image_size=(4, 6),
        classes=5,
        classifier_activation=None,
        dropout_rate=0.2,
        stochastic_depth_rate=0.1,
    )
    preprocessing = Preprocessing(size=(4, 6), class_names=tuple("abcde"))
    network = models.build(config, preprocessing=preprocessing, dtype=precision)
    numbers = Recipe(**{"learning_rate": 0.1} | recipe)
    training_model = in_training(ClassificationObjective, network)
    optimizer = build_optimizer(numbers, network, 10, precision)
    # Tracing takes longer than a few steps.
    training_model.compile(optimizer=optimizer, run_eagerly=keras.backend.backend() == "tensorflow")
    return training_model


def saver(
    folder: Path,
    training_model: TrainingModel,
    *,
    steps: int = STEPS,
    alone: bool = True,
    writes: bool = True,
    early_stopping: int = 0,
    task: type[Task] = Classification,
    **options: Any,
) -> SaveSchedule:
    recipe = Recipe(early_stopping=early_stopping)
    made = task(RunConfig("digits", "ViTMicro4", recipe=recipe, **options))
    where = SimpleNamespace(workers=1 if alone else 2, is_chief=writes)
    state = RunState(Run(folder), training_model, made, where, steps)  # type: ignore[arg-type]
    save = SaveSchedule(state, SignalHandler())
    save.set_model(training_model)
    return save


def set_head(training_model: TrainingModel, value: float) -> None:
    bias = training_model.network.get_layer("head").bias
    bias.assign(np.full(bias.shape, value))


def head_of(path: Path) -> float:
    return float(numpy(keras.saving.load_model(path).get_layer("head").bias)[0])


def step(training_model: TrainingModel) -> None:
    images = np.linspace(-1, 1, 7 * 4 * 6 * 3, dtype="float32").reshape(7, 4, 6, 3)
    training_model.train_on_batch(images, np.eye(5, dtype="float32")[[0, 1, 2, 3, 4, 0, 1]])


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_finished_model_is_float32_with_softmax_and_without_dropout() -> None:
    network = build().network
    copy = inference_classifier(network)
    config = models.config_of(copy)
    assert {layer.compute_dtype for layer in copy.layers} == {"float32"}
    assert config.classifier_activation == "softmax"
    assert config.dropout_rate == config.stochastic_depth_rate == 0
    assert models.preprocessing_of(copy) == models.preprocessing_of(network)
    for old, new in zip(network.get_weights(), copy.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_best_is_kept_and_last_replaced(tmp_path: Path) -> None:
    training_model = build()
    save = saver(tmp_path, training_model)
    for epoch, accuracy in enumerate([0.4, 0.7, 0.7, 0.5]):
        set_head(training_model, epoch)
        save.on_epoch_end(epoch, {"val_accuracy": accuracy})
    assert head_of(save.state.run.last) == 3
    assert head_of(save.state.run.best) == 1  # the first of the two
    assert save.state.progress.epoch == 4
    assert save.state.run.history.read_text().splitlines() == [
        "epoch,val_accuracy", "0,0.4", "1,0.7", "2,0.7", "3,0.5"
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("resumed", [False, True])
def test_best_of_equal_accuracies_has_the_lowest_loss(tmp_path: Path, resumed: bool) -> None:
    training_model = build()
    save = saver(tmp_path, training_model, early_stopping=2)
    results = [(0.9, 0.1), (1.0, 0.8), (1.0, 0.5), (1.0, np.nan), (1.0, 0.3), (1.0, 0.4)]
    for epoch, (accuracy, loss) in enumerate(results):
        set_head(training_model, epoch)
        save.on_epoch_end(epoch, {"val_accuracy": accuracy, "val_loss": loss})
        assert not save.state.stopped_early
        if resumed:
            training_model = build()
            save = saver(tmp_path, training_model, early_stopping=2)
            save.state.restore()
    assert head_of(save.state.run.best) == 4
    save.on_epoch_end(len(results), {"val_accuracy": 0.9, "val_loss": 0.1})
    assert save.state.stopped_early
    assert head_of(save.state.run.best) == 4


@pytest.mark.slow
def test_average_is_what_is_saved(tmp_path: Path) -> None:
    training_model = build("float32", ema_momentum=0.5, warmup_fraction=0.0)
    for _ in range(3):
        step(training_model)
    save = saver(tmp_path, training_model)
    before = [numpy(v) for v in training_model.variables]
    save.state.save_models(best=False)
    found = averages(training_model.optimizer)
    saved = keras.saving.load_model(save.state.run.last).get_weights()
    ours = [numpy(v) for v in training_model.network.weights]
    for average, weight, stored in zip(found, ours, saved, strict=True):
        np.testing.assert_array_equal(numpy(average), stored)
        assert not np.array_equal(weight, stored) or not weight.any()
    for old, new in zip(before, training_model.variables, strict=True):
        np.testing.assert_array_equal(old, numpy(new))


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("precision", "recipe"),
    [
        ("float32", {"optimizer": "sgd"}),
        ("mixed_float16", {"ema_momentum": 0.9}),
        pytest.param("float32", {"optimizer": "lion"}, marks=pytest.mark.slow),
        pytest.param("float32", {"optimizer": "adafactor"}, marks=pytest.mark.slow),
    ],
)
def test_restore_brings_back_everything(
    tmp_path: Path, precision: str, recipe: dict[str, Any]
) -> None:
    training_model = build(precision, **recipe)
    save = saver(tmp_path, training_model)
    step(training_model)
    step(training_model)
    save.on_epoch_end(1, {"val_accuracy": 0.6})
    step(training_model)

    again = build(precision, **recipe)
    restored = saver(tmp_path, again)
    restored.state.restore()
    assert restored.state.progress == save.state.progress
    step(again)  # with the same dropout masks and momenta as the third step above
    stored = [*zip(training_model.objective.state, again.objective.state, strict=True)]
    stored += zip(training_model.optimizer.variables, again.optimizer.variables, strict=True)
    for old, new in stored:
        assert np.all(np.isfinite(numpy(old)))
        np.testing.assert_array_equal(numpy(old), numpy(new), err_msg=old.path)
    assert np.any(
        numpy(training_model.network.get_layer("head").kernel)
    )  # which was zero: it did learn


def test_state_within_an_epoch_has_its_metrics(tmp_path: Path) -> None:
    training_model = build()
    save = saver(tmp_path, training_model, save_steps=2)
    for batch in range(2):
        training_model.loss_metric.update_state([batch + 1.0])
        save.on_train_batch_end(batch, {})
    assert [path.name for path in save.state.checkpoints.paths()] == ["step_000000002.npz"]

    again = build()
    restored = saver(tmp_path, again)
    restored.state.restore()
    assert (restored.state.progress.epoch, restored.state.progress.step) == (0, 2)
    again.reset_metrics()  # as `fit` does
    restored.on_epoch_begin(0)
    again.loss_metric.update_state([6.0])
    assert float(again.loss_metric.result()) == 3  # (1 + 2 + 6) / 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"save_steps": 2, "steps": 7}, [6, 4]),
        ({"save_steps": 2, "steps": 7, "keep": 1}, [6]),
        ({"save_minutes": 1e-9, "steps": 4}, [3, 2]),
        ({"save_minutes": 0, "steps": 4}, []),
        ({"save_minutes": 60, "steps": 4}, []),
        ({"save_steps": 1, "steps": 4, "writes": False}, []),
        ({"save_minutes": 1e-9, "steps": 4, "alone": False}, []),
        ({"save_steps": 3, "steps": 4, "alone": False}, [3]),
    ],
)
def test_states_come_when_they_are_due(
    tmp_path: Path, options: dict[str, Any], expected: list[int]
) -> None:
    save = saver(tmp_path, build(), **options)
    for batch in range(options["steps"]):
        save.on_train_batch_end(batch, {})
    found = [int(path.stem.removeprefix("step_")) for path in save.state.checkpoints.paths()]
    assert found == expected  # never at the end of an epoch: that state follows the validation


@pytest.mark.parametrize(("alone", "expected"), [(True, 1), (False, 0)])
def test_one_of_several_workers_does_not_save_on_a_signal(
    tmp_path: Path, alone: bool, expected: int
) -> None:
    save = saver(tmp_path, build(), alone=alone)
    save.interruption.received = signal.SIGTERM
    with pytest.raises(SystemExit):
        save.on_train_batch_end(0, {})
    assert len(save.state.checkpoints.paths()) == expected


def test_worker_that_does_not_write_writes_nothing(tmp_path: Path) -> None:
    save = saver(tmp_path, build(), writes=False)
    save.on_epoch_end(0, {"val_accuracy": 0.5})
    assert files(tmp_path) == {}
    assert save.state.progress.epoch == 1


@pytest.mark.parametrize("event", ["on_train_batch_end", "on_epoch_end"])
def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path, event: str) -> None:
    training_model = build()
    save = saver(tmp_path, training_model, save_steps=1)
    save.on_epoch_end(0, {"val_accuracy": 0.5})
    before = files(tmp_path)
    set_head(training_model, np.nan)
    with pytest.raises(FloatingPointError, match="1 variables contain NaN or infinity"):
        getattr(save, event)(1, {"val_accuracy": 0.6})
    assert files(tmp_path) == before


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_number_ends_the_run_and_says_where(tmp_path: Path, value: float) -> None:
    save = saver(tmp_path, build(), steps=9, save_steps=1)
    save.state.progress = Progress(epoch=2, step=4, steps=9)  # as after going on within an epoch
    save.on_train_batch_end(0, {"loss": 1.5, "accuracy": 0.0})
    before = files(tmp_path)
    message = rf"NaN or infinite loss in epoch 3, step 6\. The last good .* {tmp_path}"
    with pytest.raises(FloatingPointError, match=message):
        save.on_train_batch_end(1, {"loss": value, "accuracy": 0.5})
    assert files(tmp_path) == before


def test_run_without_a_state_begins_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training_model = build()
    before = training_model.get_weights()
    save = saver(tmp_path, training_model)
    save.state.restore()
    assert "was stopped before its first saved state: training restarts." in capsys.readouterr().out
    assert (save.state.progress.epoch, save.state.progress.step) == (0, 0)
    for old, new in zip(before, training_model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_run_that_has_lost_its_states_is_left_alone(tmp_path: Path) -> None:
    save = saver(tmp_path, build())
    save.on_epoch_end(0, {"val_accuracy": 0.5})
    shutil.rmtree(save.state.run.checkpoints)
    with pytest.raises(
        ValueError, match=r"`--resume` needs a saved state in .* which has no saved states"
    ):
        save.state.restore()


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        (
            Classification,
            "run, with --weights .*last.keras to continue from the weights of this run",
        ),
        (Regression, "run"),
    ],
)
def test_weights_with_layers_for_a_task_are_not_offered(
    tmp_path: Path, task: type[Task], hint: str
) -> None:
    save = saver(tmp_path, build("float32", optimizer="adamw"), task=task)
    save.on_epoch_end(0, {"val_accuracy": 0.5})
    other = saver(tmp_path, build("float32", optimizer="sgd"), task=task)
    with pytest.raises(ValueError, match=rf"optimizer\. Start a new {hint}\. Received: "):
        other.state.restore()
    shutil.rmtree(other.state.run.checkpoints)
    with pytest.raises(ValueError, match=rf"checkpoints\. Start a new {hint}\. Received: "):
        other.state.restore()


def test_state_of_another_batch_size_is_refused(tmp_path: Path) -> None:
    saver(tmp_path, build(), save_steps=1, steps=7).on_train_batch_end(0, {})
    state = saver(tmp_path, build(), steps=4).state
    for images, message in (
        (64, r"config.yaml must have the batch size .* 4 steps per epoch instead of 7"),
        (7 * 16, r"`data` must keep images for 7 steps .* 4 steps per epoch instead of 7"),
    ):
        state.run.write_config(state.task.config, {"training_examples": images})
        with pytest.raises(ValueError, match=message):
            state.restore()


def test_what_an_interruption_left_is_removed(tmp_path: Path) -> None:
    save = saver(tmp_path, build())
    save.state.save()
    for name in (".last.keras.abc", ".best.keras.def"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_bytes(b"half")
    save.state.restore()
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints"}


def test_restore_of_another_model_is_refused(tmp_path: Path) -> None:
    save = saver(tmp_path, build("float32", optimizer="adamw"))
    save.state.save()
    other = saver(tmp_path, build("float32", optimizer="sgd"))
    with pytest.raises(ValueError, match=r"must contain states of this run's model.*do not fit"):
        other.state.restore()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["save", "fsync"])
def test_full_disk_leaves_the_earlier_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    training_model = build()
    save = saver(tmp_path, training_model)
    set_head(training_model, 3)
    save.on_epoch_end(0, {"val_accuracy": 0.5})
    before = files(tmp_path)
    set_head(training_model, 5)

    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def half_written(self: keras.Model, path: Path) -> None:
        Path(path).write_bytes(b"half")
        full()

    if when == "save":
        monkeypatch.setattr(keras.Model, "save", half_written)
    else:
        monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save.on_epoch_end(1, {"val_accuracy": 0.9})
    monkeypatch.undo()
    assert files(tmp_path) == before
    assert head_of(save.state.run.last) == head_of(save.state.run.best) == 3
    restored = saver(tmp_path, build())
    restored.state.restore()
    assert restored.state.progress.epoch == 1


def test_finished_model_of_several_labels_ends_in_a_sigmoid() -> None:
    preprocessing = Preprocessing(size=(4, 6), class_names=tuple("abcde"), thresholds=(0.3,) * 5)
    copy = inference_classifier(
        models.rebuild(build("float32").network, preprocessing=preprocessing)
    )
    assert models.config_of(copy).classifier_activation == "sigmoid"
    assert models.preprocessing_of(copy) == preprocessing


def test_best_model_of_several_labels_has_the_best_average_precision(tmp_path: Path) -> None:
    training_model = build()
    save = saver(tmp_path, training_model, task=MultiLabel)
    for epoch, (accuracy, precision) in enumerate([(0.9, 0.4), (0.8, 0.6), (0.95, 0.5)]):
        set_head(training_model, epoch)
        logs = {"val_accuracy": accuracy, "val_average_precision": precision}
        save.on_epoch_end(epoch, logs)
    assert head_of(save.state.run.best) == 1
