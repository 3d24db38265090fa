"""A folder of small images that takes no time to train on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image

CLASSES = {"ant": 9, "bee": 13, "cow": 11}


def write_photos(folder: Path, classes: dict[str, int] = CLASSES) -> Path:
    """Writes noise of many sizes, JPEG and PNG in turn, a folder of so many for each class."""
    generator = np.random.default_rng(11)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for index in range(count):
            pixels = generator.integers(0, 256, (9 + index, 17 - index % 7, 3), "uint8")
            path = folder / name / f"{index:02d}{('.jpg', '.png')[index % 2]}"
            PIL.Image.fromarray(pixels).save(path)
    return folder


def write_colors(folder: Path) -> Path:
    """Twelve red and twelve blue images; one of each is in the other's folder."""
    generator = np.random.default_rng(5)
    for index in range(24):
        pixels = generator.integers(0, 90, (9, 9, 3))
        pixels[..., 2 * (index % 2)] += 150
        label = ("red", "blue")[index % 2 if index > 1 else 1 - index % 2]
        (folder / label).mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(pixels.astype("uint8")).save(folder / label / f"{index:02d}.png")
    return folder
