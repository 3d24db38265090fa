from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import data
from keras_vit.runs.config import RunConfig
from keras_vit.runs.state_files import Progress
from keras_vit.tasks.classification.task import Classification
from keras_vit.tasks.objective import Objective
from keras_vit.training import Recipe, Run
from keras_vit.training.distribution import devices
from keras_vit.training.loop import fit_remaining
from keras_vit.training.optimizers import build_optimizer
from keras_vit.training.run_state import RunState
from keras_vit.training.save_schedule import SaveSchedule
from keras_vit.training.signals import SignalHandler
from keras_vit.training.training_model import TrainingModel
from tests.tasks.masked import network

pytestmark = pytest.mark.tensorflow

STEPS, EPOCHS, BATCH = 5, 4, 7


class Seen(TrainingModel):
    """Does not train: notes what `fit` is called with, and goes through the batches."""

    def __init__(self, network: keras.Model) -> None:
        super().__init__(Objective(network))
        self.calls: list[dict[str, Any]] = []
        self.images: list[np.ndarray] = []

    def fit(self, dataset: Any, *, callbacks: list[Any], **options: Any) -> None:  # type: ignore[override]
        self.calls.append(options)
        batches = list(dataset.as_numpy_iterator())
        self.images += [x for x, _ in batches]
        save = next(c for c in callbacks if isinstance(c, SaveSchedule))
        save.state.progress = Progress(epoch=options["epochs"])


@pytest.fixture
def parts() -> tuple[data.Examples, data.Examples]:
    digits = data.load("digits")
    return digits.subset(range(STEPS * BATCH + 3)), digits.subset(range(100, 111))


def fit(
    parts: tuple[data.Examples, data.Examples], progress: Progress, folder: Path, **changes: Any
) -> Seen:
    recipe = Recipe(epochs=EPOCHS, batch_size=BATCH, seed=3).replace(**changes)
    training_model = Seen(network())
    training_model.compile(optimizer=build_optimizer(recipe, training_model, 10))
    task = Classification(RunConfig("digits", "ViTMicro4", recipe=recipe))
    where = devices("cpu")
    state = RunState(Run(folder), training_model, task, where, STEPS)
    state.progress = progress
    fit_remaining(state, parts, [SaveSchedule(state, SignalHandler())])
    return training_model


def test_whole_run_is_one_call(
    parts: tuple[data.Examples, data.Examples],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    training_model = fit(parts, Progress(), tmp_path)
    (call,) = training_model.calls
    assert (call["initial_epoch"], call["epochs"], call["steps_per_epoch"]) == (0, EPOCHS, STEPS)
    assert len(call["validation_data"]) == 2  # 11 images
    assert len(training_model.images) == EPOCHS * STEPS
    out = capsys.readouterr().out
    assert "Resuming" not in out
    assert "Note" not in out


@pytest.mark.slow
def test_rest_of_an_epoch_comes_first(
    parts: tuple[data.Examples, data.Examples], tmp_path: Path
) -> None:
    whole = fit(parts, Progress(), tmp_path)
    rest = fit(parts, Progress(epoch=1, step=2), tmp_path)
    assert [
        (call["initial_epoch"], call["epochs"], call["steps_per_epoch"]) for call in rest.calls
    ] == [(1, 2, 3), (2, EPOCHS, STEPS)]
    # The same batches, to the bit, as in a run that was not interrupted.
    for one, other in zip(whole.images[STEPS + 2 :], rest.images, strict=True):
        np.testing.assert_array_equal(one, other)


def test_complete_run_is_left_alone(
    parts: tuple[data.Examples, data.Examples], tmp_path: Path
) -> None:
    training_model = fit(parts, Progress(epoch=EPOCHS), tmp_path)
    assert training_model.calls == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epoch", "step", "says"),
    [
        pytest.param(0, 0, False, marks=pytest.mark.slow),
        (0, 2, True),
        (1, 0, True),
        pytest.param(1, 2, True, marks=pytest.mark.slow),
        (EPOCHS, 0, False),
    ],
)
def test_run_says_where_it_goes_on(
    parts: tuple[data.Examples, data.Examples],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    epoch: int,
    step: int,
    says: bool,
) -> None:
    fit(parts, Progress(epoch=epoch, step=step), tmp_path)
    out = capsys.readouterr().out
    assert (f"Resuming after epoch {epoch} and {step} steps of the next epoch." in out) is says
    assert ("Resuming" in out) is says


@pytest.mark.slow
def test_layers_say_that_a_resume_is_not_exact(
    parts: tuple[data.Examples, data.Examples],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fit(parts, Progress(), tmp_path, layers=(keras.layers.RandomFlip(),))
    assert "a resumed run draws different random numbers" in capsys.readouterr().out
