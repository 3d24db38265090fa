"""Photographs of bright rectangles on dark ground, with masks, and a run on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from tests.cli.commands import call_main
from tests.cli.conftest import call as call

TASK = ("--task", "segmentation")
NAMES = ("ground", "shape")


def write_shapes(folder: Path, number: int = 20) -> Path:
    """Writes images of different sizes, their masks and the names of the classes."""
    generator = np.random.default_rng(0)
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for index in range(number):
        height, width = generator.integers(30, 60, 2)
        row, column = generator.integers(0, (height // 2, width // 2))
        mask = np.zeros((height, width), np.uint8)
        mask[row : row + height // 2, column : column + width // 2] = 1
        pixels = generator.integers(0, 80, (height, width, 3)) + 150 * mask[..., np.newaxis]
        mask[0] = 255  # without a class
        PIL.Image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / f"{index}.png")
        PIL.Image.fromarray(mask).save(folder / "masks" / f"{index}.png")
    (folder / "classes.txt").write_text("\n".join(NAMES))
    return folder


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 images with masks; tests that change one must copy them first."""
    return write_shapes(tmp_path_factory.mktemp("data") / "shapes")


@pytest.fixture(scope="session")
def run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a small model."""
    out = tmp_path_factory.mktemp("runs") / "shapes"
    train = ("train", *TASK, "--data", shapes, "--model", "ViTMicro4", "--weights", "none")
    options = ("--epochs", 3, "--batch-size", 4, "--image-size", 32, "--learning-rate", "0.003")
    assert call_main(*train, *options, "--set", "warmup_steps=0", "--out", out) == 0
    return out
