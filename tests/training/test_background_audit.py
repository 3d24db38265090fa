from __future__ import annotations

import csv
import re
import time
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from keras_vit.data import load
from keras_vit.runs.config import RunConfig
from keras_vit.runs.recipe import Recipe
from keras_vit.training import background_audit, fit_run, loop

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = [f"{name}/{i}.png" for name in "ab" for i in range(8)] + ["a/again.png"]
    for seed, name in enumerate(names):
        pixels = np.random.default_rng(3 if "again" in name else seed).integers(0, 256, (9, 8, 3))
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(pixels.astype("uint8")).save(path)
    return tmp_path / "data"


def finish(audit: background_audit.BackgroundAudit) -> None:
    with audit:
        deadline = time.monotonic() + 60
        while audit.checked < len(audit.examples) and time.monotonic() < deadline:
            time.sleep(0.01)


def test_unusable_images_and_duplicates_are_printed(folder: Path) -> None:
    (folder / "b" / "bad.png").write_bytes(b"text")
    lines: list[str] = []
    finish(background_audit.BackgroundAudit(load(folder), lines.append))
    reason = "b/bad.png: not a JPEG, PNG, GIF, BMP or WebP"
    assert lines[0] == f"An image cannot be used: {reason}"
    assert lines[1] == (
        "Checked 18 of 18 images beside the training.\n1 images cannot be used:\n"
        f"  {reason}\nDuplicate images (1):\n  a/3.png = a/again.png"
    )


def test_progress_has_the_time_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_audit, "_REPORT_SECONDS", 0.0)
    lines: list[str] = []
    finish(background_audit.BackgroundAudit(load(folder), lines.append))
    assert re.fullmatch(r"Checked 1 of 17 images, 0:\d\d:\d\d left\.", lines[0])


def test_many_images_are_trained_on_at_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Training does not wait for the audit; the run is resumed and evaluated as any other."""
    monkeypatch.setattr(loop, "AUDITED_FIRST", 16)
    recipe = Recipe(epochs=1, batch_size=4, image_size=(8, 8))
    config = RunConfig(str(folder), "ViTMicro4", recipe=recipe)
    fit_run(config, tmp_path / "run", tensorboard=False)
    out = capsys.readouterr().out
    assert "Checking the images" not in out
    assert "images beside the training." in out
    with (tmp_path / "run" / "split.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["file", "label", "split"]
    assert len(rows) == 17
    assert fit_run(config, tmp_path / "run", resume=True, tensorboard=False).num_examples == 4
