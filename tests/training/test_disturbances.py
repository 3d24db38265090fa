"""Images, states and folders that change while a run uses them."""

from __future__ import annotations

import csv
import dataclasses
import re
import shutil
from pathlib import Path

import keras
import pytest

from keras_vit import training
from keras_vit.training import Recipe, Run, RunConfig
from tests.training.conftest import StopAt, Train
from tests.training.photos import write_photos

pytestmark = pytest.mark.tensorflow

RECIPE = Recipe(epochs=3, batch_size=8, precision="float32")


class Remove(keras.callbacks.Callback):
    """Removes or empties a training image after the first epoch."""

    def __init__(self, run: Run, photos: Path, emptied: bool) -> None:
        super().__init__()
        self.run, self.photos, self.emptied = run, photos, emptied

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        rows = self.run.split.read_text().splitlines()
        name = next(row.split(",")[0] for row in rows if ",train," in row)
        if self.emptied:
            (self.photos / name).write_bytes(b"")
        else:
            (self.photos / name).unlink(missing_ok=True)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos")


@pytest.fixture
def config(photos: Path, nano: str) -> RunConfig:
    return RunConfig(str(photos), nano, recipe=RECIPE)


@pytest.mark.slow
@pytest.mark.parametrize("emptied", [False, True], ids=["removed", "emptied"])
def test_image_that_vanishes_is_named_or_left_out(
    config: RunConfig,
    photos: Path,
    train: Train,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    emptied: bool,
) -> None:
    # Batches are read ahead, and an epoch leaves two images out: some epochs more are needed.
    config = RunConfig(**{**vars(config), "recipe": RECIPE.replace(epochs=6)})
    run = Run(tmp_path / "run")
    reason = "empty file" if emptied else "cannot be read: No such file or directory"
    with pytest.raises(ValueError, match=rf"must be readable(.|\n)*ant/\d\d.(jpg|png): {reason}"):
        train(config, run.path, also=(Remove(run, photos, emptied),))
    shutil.rmtree(photos)
    write_photos(photos)
    skipping = RunConfig(**{**vars(config), "on_bad_image": "skip"})
    other = Run(tmp_path / "other")
    # One image less leaves as many steps: 25 // 8.
    assert train(skipping, other.path, also=(Remove(other, photos, emptied),)).num_examples == 7
    assert "Continuing without the images that can no longer be read:" in capsys.readouterr().out
    assert len(other.history.read_text().splitlines()) == 1 + 6


class RemoveHeldOut(keras.callbacks.Callback):
    """Removes a held-out image in the first epoch."""

    def __init__(self, run: Run, photos: Path) -> None:
        super().__init__()
        self.run, self.photos = run, photos

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        rows = self.run.split.read_text().splitlines()
        name = next(row.split(",")[0] for row in rows if ",validation," in row)
        (self.photos / name).unlink(missing_ok=True)


def test_held_out_image_that_vanishes_is_left_out(
    config: RunConfig, photos: Path, train: Train, tmp_path: Path
) -> None:
    recipe = RECIPE.replace(epochs=2, ema_momentum=0.9)
    config = dataclasses.replace(config, on_bad_image="skip", recipe=recipe)
    run = Run(tmp_path / "run")
    assert train(config, run.path, also=(RemoveHeldOut(run, photos),)).num_examples == 6
    rows = list(csv.DictReader(run.history.open()))
    assert [row["epoch"] for row in rows] == ["0", "1"]
    assert all(float(row[name]) > 0 for row in rows for name in ("loss", "val_loss"))


@pytest.mark.slow
def test_replaced_and_missing_images_are_named_when_a_run_is_resumed(
    config: RunConfig, photos: Path, train: Train, tmp_path: Path
) -> None:
    run = Run(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(config, run.path, also=(StopAt(1, 1),))
    kept = {path: path.read_bytes() for path in photos.glob("*/*")}
    first, second = list(kept)[:2]
    shutil.copyfile(second, first)
    second.unlink()
    with pytest.raises(ValueError, match=r"1 missing: \['\w+/.*'\]; 1 replaced: \['\w+/.*'\]"):
        train(config, run.path, resume=True)
    for path, content in kept.items():
        path.write_bytes(content)
    assert train(config, run.path, resume=True).num_examples == 7


@pytest.mark.slow
def test_second_run_into_a_folder_is_refused(
    config: RunConfig, train: Train, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    refused = []

    class Again(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
            for resume in (False, True) if not refused else ():
                try:
                    training.train(config, out, resume=resume)
                except ValueError as error:
                    refused.append(str(error))

    train(config, out, also=(Again(),))
    assert re.search("which contains a run.", refused[0])
    assert re.search(r"must not be in use.*`keras-vit train`, process \d+ on", refused[1])


def test_folder_with_files_of_the_user_is_refused(
    config: RunConfig, train: Train, tmp_path: Path
) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "labels.txt").write_text("mine")
    with pytest.raises(
        ValueError,
        match=r"a folder created by keras-vit; other folders .*which contains labels\.txt",
    ):
        train(config, out)
    assert [path.name for path in out.iterdir()] == ["labels.txt"]


@pytest.mark.slow
def test_start_that_failed_can_be_repeated(
    config: RunConfig, photos: Path, train: Train, tmp_path: Path
) -> None:
    (photos / "ant" / "text.jpg").write_text("no image")
    with pytest.raises(ValueError, match="must be readable"):
        train(config, tmp_path / "run")
    (photos / "ant" / "text.jpg").unlink()
    assert train(config, tmp_path / "run").num_examples == 7


@pytest.mark.slow
def test_run_in_the_data_folder_is_no_class(config: RunConfig, photos: Path, train: Train) -> None:
    train(config, photos / "runs" / "first")
    train(config, photos / "runs" / "second")
    assert Run(photos / "runs" / "second").labels.read_text().split() == ["ant", "bee", "cow"]


@pytest.mark.slow
def test_few_images_are_trained_on_for_more_epochs(
    photos: Path, nano: str, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = write_photos(tmp_path / "few", {"ant": 5, "bee": 5})
    config = RunConfig(str(few), nano, recipe=RECIPE.replace(batch_size=4, epochs=1))
    train(config, tmp_path / "run", least_steps=5, few_images={"layer_decay": 0.5})
    text = "For few images: epochs 3 instead of 1, layer_decay 0.5 instead of 1.0."
    assert text in capsys.readouterr().out
    recipe = Run(tmp_path / "run").read_config().recipe
    assert (recipe.epochs, recipe.layer_decay) == (3, 0.5)
    train(config, tmp_path / "enough", least_steps=2)
    assert Run(tmp_path / "enough").read_config().recipe.epochs == 1


@pytest.mark.slow
def test_batch_size_that_was_not_asked_for_is_cut(
    photos: Path, nano: str, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = write_photos(tmp_path / "few", {"ant": 5, "bee": 5})
    config = RunConfig(str(few), nano, recipe=RECIPE.replace(batch_size=32, epochs=1))
    with pytest.raises(ValueError, match="`batch_size` must be at most the number of training"):
        train(config, tmp_path / "asked")
    train(config, tmp_path / "run", smaller_batches=True)
    assert "Batch size 8 instead of 32: only 8 images." in capsys.readouterr().out
    assert Run(tmp_path / "run").read_config().recipe.batch_size == 8
    train(config, tmp_path / "run", resume=True)
