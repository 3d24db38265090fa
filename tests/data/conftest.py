"""Small images and folders of them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from keras_vit.data import Examples

Save = Callable[..., bytes]


@pytest.fixture(scope="session")
def save() -> Save:
    """Encodes a noise image with PIL: save(seed, size=(width, height), mode, format, ...)."""

    def encode(
        seed: int,
        size: tuple[int, int] = (11, 7),
        mode: str = "RGB",
        format: str = "PNG",
        **options: object,
    ) -> bytes:
        noise = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), "uint8")
        file = io.BytesIO()
        PIL.Image.fromarray(noise).convert(mode).save(file, format, **options)
        return file.getvalue()

    return encode


@pytest.fixture(scope="session")
def write(save: Save) -> Callable[..., Path]:
    """Writes files below a folder; those without content get an image, or words if .txt."""

    def write_files(folder: Path, files: dict[str, bytes | None] | list[str]) -> Path:
        contents = files if isinstance(files, dict) else dict.fromkeys(files)
        for seed, (name, content) in enumerate(contents.items()):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                content = b"words" if path.suffix == ".txt" else save(seed)
            path.write_bytes(content)
        return folder

    return write_files


@pytest.fixture(scope="session")
def noise(save: Save) -> Callable[..., Examples]:
    """In-memory examples: noise(13) has 13 different images of three classes in turn."""

    def make(count: int, **fields: object) -> Examples:
        defaults = {
            "names": tuple(f"{i:03d}.png" for i in range(count)),
            "targets": np.arange(count) % 3,
            "class_names": ("a", "b", "c"),
            "source": "noise",
            "encoded": tuple(save(seed) for seed in range(count)),
        }
        return Examples(**(defaults | fields))  # type: ignore[arg-type]

    return make


SEVERAL = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1]])


@pytest.fixture
def several(noise: Callable[..., Examples]) -> Examples:
    """Seven images of which a is shown by four, b and c by three each, and two show nothing."""
    return noise(7, targets=SEVERAL)
