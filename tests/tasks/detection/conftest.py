"""Images of red and blue rectangles with their boxes, and a run on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from tests.cli.commands import call_main
from tests.cli.conftest import call as call

TASK = ("--task", "detection")
COLORS = {"blue": (60, 60, 220), "red": (200, 60, 60)}
OBJECT = (
    "<object><name>{}</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax>"
    "</bndbox></object>"
)


def write_rectangles(folder: Path, number: int = 24) -> Path:
    """Writes images of different sizes with XML files of Pascal VOC; some have no objects."""
    generator = np.random.default_rng(0)
    for part in ("images", "annotations"):
        (folder / part).mkdir(parents=True)
    for index in range(number):
        height, width = generator.integers(48, 80, 2)
        pixels = generator.integers(0, 60, (height, width, 3))
        objects = ""
        for name in generator.choice(list(COLORS), generator.integers(0, 4)):
            high, wide = generator.integers(12, 24, 2)
            row, column = generator.integers(0, (height - high, width - wide))
            pixels[row : row + high, column : column + wide] = COLORS[name]
            objects += OBJECT.format(name, column + 1, row + 1, column + wide, row + high)
        PIL.Image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / f"{index}.png")
        (folder / "annotations" / f"{index}.xml").write_text(f"<annotation>{objects}</annotation>")
    return folder


@pytest.fixture(scope="session")
def rectangles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 images with boxes; tests that change one must copy them first."""
    return write_rectangles(tmp_path_factory.mktemp("data") / "rectangles")


@pytest.fixture(scope="session")
def run(rectangles: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a small model."""
    out = tmp_path_factory.mktemp("runs") / "rectangles"
    train = ("train", *TASK, "--data", rectangles, "--model", "ViTMicro4", "--weights", "none")
    options = ("--epochs", 10, "--batch-size", 2, "--image-size", 64, "--learning-rate", "0.004")
    steps = ("--set", "warmup_steps=0", "--set", "crop_area=[1.0, 1.0]")
    assert call_main(*train, *options, *steps, "--out", out) == 0
    return out
