"""What follows a run: its weights with other classes, early stopping, callbacks."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import models, weights, zoo
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import write_config
from keras_vit.runs.state_files import Progress
from keras_vit.tasks.classification.network import build_network
from keras_vit.tasks.classification.task import inference_classifier
from keras_vit.training import Recipe, Run, RunConfig
from tests import pages
from tests.helpers import randomise
from tests.training.conftest import StopAt, Train

pytestmark = pytest.mark.tensorflow

SMALL = Recipe(image_size=(8, 8), precision="float32")
CLASSES = ("ant", "bee", "cow", "dog")


def write_run(folder: Path, model: str, class_names: tuple[str, ...], **recipe: Any) -> Run:
    """Writes the model and the configuration of a run, with weights that are not trivial."""
    run, config = Run(folder), RunConfig("digits", model, recipe=SMALL.replace(**recipe))
    folder.mkdir()
    network = build_network(config, class_names, multi_label=recipe.get("loss") == "sigmoid")
    inference_classifier(randomise(network)).save(run.last)
    write_config(run.config, config)
    return run


def head_of(model: keras.Model) -> list[np.ndarray]:
    return model.get_layer("head").get_weights()


@pytest.mark.parametrize("model", ["nano", pytest.param("MobileNetV2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", ["", "last.keras"])
def test_rows_of_classes_are_kept_to_the_bit_by_name(
    nano: str, model: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, size = (nano, (8, 8)) if model == "nano" else (model, (32, 32))
    run = write_run(tmp_path / "run", name, CLASSES, image_size=size)
    recipe = SMALL.replace(image_size=size, precision="mixed_bfloat16")
    config = RunConfig("digits", name, weights=str(run.path / path), recipe=recipe)
    new = build_network(config, ("ant", "bat", "bee", "cow", "dog"))
    note = "keeps its weights for 4 classes, matched by name; zero weights for bat."
    assert note in capsys.readouterr().out
    assert models.preprocessing_of(new).class_names == ("ant", "bat", "bee", "cow", "dog")
    old = keras.saving.load_model(run.last)
    for before, after in zip(head_of(old), head_of(new), strict=True):
        np.testing.assert_array_equal(after[..., [0, 2, 3, 4]], before)
        assert not after[..., 1].any()
    fewer = build_network(config, ("dog", "ant"))
    np.testing.assert_array_equal(head_of(fewer)[0], head_of(old)[0][:, [3, 0]])
    images = np.random.default_rng(3).uniform(size=(2, *size, 3)).astype("float32")
    config = RunConfig("digits", name, weights=str(run.path), recipe=SMALL)
    same = inference_classifier(build_network(config, CLASSES)) if model == "nano" else old
    np.testing.assert_array_equal(same.predict(images, verbose=0), old.predict(images, verbose=0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "loss"),
    [
        (CLASSES, ("ant", "elk"), "softmax"),  # neither contains the other
        (("0", "1"), ("0", "1", "2"), "softmax"),
        (CLASSES, (*CLASSES, "elk"), "sigmoid"),
    ],
)
def test_other_classes_start_from_zeros(
    nano: str, old: tuple[str, ...], new: tuple[str, ...], loss: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", nano, old)
    config = RunConfig("digits", nano, weights=str(run.path), recipe=SMALL.replace(loss=loss))
    assert not any(weight.any() for weight in head_of(build_network(config, new)))


def test_labels_that_repeat_keep_no_row(nano: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", nano, ("crane", "dog"))
    model = keras.saving.load_model(run.last)
    preprocessing = Preprocessing(size=(8, 8), class_names=("crane", "crane"))
    models.rebuild(model, preprocessing=preprocessing).save(run.last)
    config = RunConfig("digits", nano, weights=str(run.last), recipe=SMALL)
    assert not head_of(build_network(config, ("crane", "dog")))[0].any()


@pytest.mark.slow
def test_copy_of_a_model_tells_its_loss_by_its_thresholds(nano: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", nano, CLASSES, loss="sigmoid")
    copy = run.last.rename(tmp_path / "copy.keras")
    for loss in ("sigmoid", "softmax"):
        config = RunConfig("digits", nano, weights=str(copy), recipe=SMALL.replace(loss=loss))
        network = build_network(config, CLASSES[:2], multi_label=loss == "sigmoid")
        assert head_of(network)[0].any() == (loss == "sigmoid")


@pytest.mark.slow
def test_weights_of_another_network_are_refused(nano: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", nano, CLASSES)
    recipe = SMALL.replace(image_size=(32, 32))
    config = RunConfig("digits", "MobileNetV2", weights=str(run.path), recipe=recipe)
    with pytest.raises(ValueError, match="`weights` must belong to MobileNetV2"):
        build_network(config, CLASSES)


def test_run_folder_is_a_checkpoint(nano: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", nano, CLASSES)
    checkpoint = weights.read_checkpoint(run.path)
    assert checkpoint.preprocessing
    assert checkpoint.preprocessing.class_names == CLASSES
    run.last.unlink()
    with pytest.raises(ValueError, match=r"which a run writes after its first epoch\."):
        weights.read_checkpoint(run.path)


@pytest.mark.slow
def test_callbacks_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs/resuming.md"
    blocks = pages.marked_blocks(page.read_text(encoding="utf-8"))
    assert blocks
    monkeypatch.chdir(tmp_path)
    for _, block in blocks:
        pages.run_python(block, page, {})
    assert "\n1 0." in capsys.readouterr().out


def history_of(run: Run) -> list[dict[str, str]]:
    with run.history.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_training_stops_early_and_resumes_to_the_same_end(
    photos: Path, nano: str, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The learning rate is 0, so that no epoch is better than the first.
    numbers = {"epochs": 9, "early_stopping": 3, "batch_size": 8, "learning_rate": 0.0}
    config = RunConfig(str(photos), nano, recipe=SMALL.replace(**numbers))
    whole, parted = Run(tmp_path / "whole"), Run(tmp_path / "parted")
    train(config, whole.path)
    assert len(history_of(whole)) == 4
    text = "Stopped early, after epoch 4: the validation result has not improved for 3 epochs."
    assert text in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        train(config, parted.path, also=(StopAt(2, 1),))
    train(config, parted.path, resume=True)
    assert history_of(parted) == history_of(whole)
    train(config, parted.path, resume=True)  # nothing is left
    assert history_of(parted) == history_of(whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rotary", "learned_rotary", "relative"])
def test_positions_in_attention_resume_to_the_bit(
    photos: Path, kind: str, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"position_rescale": 2.0, "position_jitter": 1.2} if kind == "rotary" else {}
    config = models.size("Micro/4").replace(
        **{"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 19},
        **{"image_size": (8, 8), "position_embedding": kind, "mask_token": True, **changes},
    )
    monkeypatch.setitem(zoo.CONSTRUCTORS, "ViTTurned", zoo.Constructor("ViTTurned", config))
    numbers = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "warmup_steps": 0}
    run = RunConfig(str(photos), "ViTTurned", recipe=SMALL.replace(**numbers))
    whole, parted = Run(tmp_path / "whole"), Run(tmp_path / "parted")
    train(run, whole.path)
    with pytest.raises(KeyboardInterrupt):
        train(run, parted.path, also=(StopAt(1, 1),))
    train(run, parted.path, resume=True)
    assert history_of(parted) == history_of(whole)
    ends = [keras.saving.load_model(one.last).get_weights() for one in (whole, parted)]
    assert all((one == other).all() for one, other in zip(*ends, strict=True))


@pytest.mark.parametrize(
    ("results", "stops"),
    [
        ([{"val_accuracy": 0.5}, {"val_accuracy": 0.5}, {"val_accuracy": 0.4}], True),
        ([{"val_accuracy": 0.5}, {"val_accuracy": 0.6}, {"val_accuracy": 0.6}], False),
        ([{"val_accuracy": 1, "val_loss": 0.3 - i / 10} for i in range(3)], False),
        ([{"val_accuracy": 1, "val_loss": 0.3 + i / 10} for i in range(3)], True),
        ([{"val_loss": 0.1}, {"val_loss": 0.2}, {"val_loss": 0.3}], True),
        ([{"val_loss": 0.3}, {"val_loss": 0.2}, {"val_loss": 0.2}], False),
        ([], False),
    ],
)
def test_early_stopping_counts_from_the_best_epoch(
    results: list[dict[str, float]], stops: bool, nano: str, tmp_path: Path
) -> None:
    from keras_vit.tasks.classification.task import Classification
    from keras_vit.tasks.task import Task
    from keras_vit.training.distribution import devices
    from keras_vit.training.run_state import RunState

    where = devices("cpu")
    for patience, expected in ((2, stops), (0, False)):
        config = RunConfig("digits", nano, recipe=SMALL.replace(early_stopping=patience))
        task = Classification(config) if "val_accuracy" in str(results) else Task(config)
        state = RunState(Run(tmp_path), None, task, where, 1)  # type: ignore[arg-type]
        state.progress = Progress(epoch=len(results), history=tuple(results))
        assert state.stopped_early == expected


class Recorder(keras.callbacks.Callback):
    """Notes its calls, and stops training after some epochs."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.epochs = epochs
        self.calls: list[str] = []

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        self.calls.append("train begins")

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        assert {"loss", "val_accuracy"} <= (logs or {}).keys()
        self.calls.append(f"epoch {epoch}")
        if epoch + 1 == self.epochs:
            self.model.stop_training = True

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        self.calls.append("train ends")


@pytest.mark.slow
def test_callbacks_are_called_as_keras_calls_them_and_may_stop(
    photos: Path, nano: str, train: Train, tmp_path: Path
) -> None:
    recorder = Recorder(epochs=2)
    config = RunConfig(str(photos), nano, recipe=SMALL.replace(epochs=5, batch_size=8))
    report = train(config, tmp_path / "run", also=(recorder,))
    assert recorder.calls == ["train begins", "epoch 0", "epoch 1", "train ends"]
    assert report.num_examples == 7
