from __future__ import annotations

import errno
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.preprocessing import Preprocessing
from keras_vit.training import Recipe, Run
from keras_vit.training.callbacks import SaveRun, finished
from keras_vit.training.optimizers import build_optimizer

pytestmark = pytest.mark.tensorflow


def build(precision: str = "mixed_bfloat16", name: str = "adamw") -> keras.Model:
    config = models.size("Micro/2").replace(
        **{"hidden_size": 15, "num_layers": 1, "num_heads": 3, "mlp_dim": 19},
        image_size=(4, 6),
        classes=5,
        classifier_activation=None,
        dropout_rate=0.2,
        stochastic_depth_rate=0.1,
    )
    contract = Preprocessing(size=(4, 6), labels=tuple("abcde"))
    model = models.build(config, preprocessing=contract, dtype=precision)
    recipe = Recipe(optimizer=name, precision=precision, learning_rate=0.1)
    optimizer = build_optimizer(recipe, model, steps=10)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, run_eagerly=True)  # tracing takes longer than a few steps
    return model


def saver(folder: Path, model: keras.Model) -> SaveRun:
    save = SaveRun(Run(folder))
    save.set_model(model)
    return save


def set_head(model: keras.Model, value: float) -> None:
    bias = model.get_layer("head").bias
    bias.assign(np.full(bias.shape, value))


def head_of(path: Path) -> float:
    return float(keras.saving.load_model(path).get_layer("head").bias[0])


def step(model: keras.Model) -> None:
    images = np.linspace(-1, 1, 7 * 4 * 6 * 3, dtype="float32").reshape(7, 4, 6, 3)
    model.train_on_batch(images, np.eye(5, dtype="float32")[[0, 1, 2, 3, 4, 0, 1]])


def test_finished_model_is_float32_with_softmax_and_without_dropout() -> None:
    model = build()
    copy = finished(model)
    config = models.config_of(copy)
    assert {layer.compute_dtype for layer in copy.layers} == {"float32"}
    assert config.classifier_activation == "softmax"
    assert config.dropout_rate == config.stochastic_depth_rate == 0
    assert models.preprocessing_of(copy) == models.preprocessing_of(model)
    for old, new in zip(model.get_weights(), copy.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_best_is_kept_and_last_replaced(tmp_path: Path) -> None:
    model = build()
    save = saver(tmp_path, model)
    for epoch, accuracy in enumerate([0.4, 0.7, 0.7, 0.5]):
        set_head(model, epoch)
        save.on_epoch_end(epoch, {"val_accuracy": accuracy})
    assert head_of(save.run.last) == 3
    assert head_of(save.run.best) == 1  # the first of the two
    assert save.epochs_done == 4


@pytest.mark.parametrize(
    ("precision", "optimizer"), [("float32", "sgd"), ("mixed_float16", "adamw")]
)
def test_restore_brings_back_everything(tmp_path: Path, precision: str, optimizer: str) -> None:
    model = build(precision, optimizer)
    save = saver(tmp_path, model)
    step(model)
    step(model)
    save.on_epoch_end(1, {"val_accuracy": 0.6})
    step(model)

    again = build(precision, optimizer)
    restored = saver(tmp_path, again)
    restored.restore()
    assert (restored.epochs_done, restored.best) == (2, 0.6)
    step(again)  # with the same dropout masks and momenta as the third step above
    stored = [*zip(model.variables, again.variables, strict=True)]
    stored += zip(model.optimizer.variables, again.optimizer.variables, strict=True)
    for old, new in stored:
        assert np.all(np.isfinite(old))
        np.testing.assert_array_equal(old, new, err_msg=old.path)
    assert np.any(model.get_layer("head").kernel)  # which was zero: it did learn


def test_restore_without_a_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"`--resume` needs a run with at least one complete epoch.*no resume.npz"
    ):
        saver(tmp_path, build()).restore()


@pytest.mark.parametrize("when", ["save", "fsync"])
def test_full_disk_leaves_the_earlier_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    model = build()
    save = saver(tmp_path, model)
    set_head(model, 3)
    save.on_epoch_end(0, {"val_accuracy": 0.5})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    set_head(model, 5)

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
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert head_of(save.run.last) == head_of(save.run.best) == 3
