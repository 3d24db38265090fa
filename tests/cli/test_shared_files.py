"""Files that are made to be shared contain no private data."""

from __future__ import annotations

import importlib.util
import platform
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.commands import call_main
from tests.data.test_image_metadata import MARK, marked

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


@pytest.fixture(scope="module")
def written(nano: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that commands write about images with private metadata."""
    folder = tmp_path_factory.mktemp("private")
    generator = np.random.default_rng(3)
    for index in range(12):
        path = folder / "data" / "ab"[index % 2] / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = generator.integers(0, 256, (13, 17, 3), np.uint8)
        form = ("JPEG", "PNG", "WEBP")[index % 3]
        path.write_bytes(marked(form, image=Image.fromarray(noise)))
        assert MARK in path.read_bytes()
    run, out = folder / "out" / "run", folder / "out"
    half = ("--validation-fraction", 0.5)
    size = ("--image-size", "8x12", "--epochs", 1, "--batch-size", 4, "--precision", "float32")
    warm_up = "--warm-up" if importlib.util.find_spec("tensorflow_serving") else "--no-warm-up"
    for command in (
        ("train", "--data", folder / "data", "--model", "ViTNano", "--out", run, *size, *half),
        ("evaluate", run, "--out", out / "scores", "--report", out / "report"),
        ("card", run, "--out", out / "card"),
        ("explain", run, *sorted((folder / "data" / "a").iterdir())[:2], "--out", out / "maps.png"),
        ("predict", run, run / "samples", "--to", out / "table.csv"),
        ("export", run, "--to", out / "serving", "--tflite", "float32", warm_up),
    ):
        assert call_main(*command) == 0
    return out


def containing(folder: Path, text: bytes) -> list[str]:
    """Names of the files in a folder that contain a text."""
    found = [path for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]
    return [str(path.relative_to(folder)) for path in found]


def test_metadata_of_images_is_in_no_file(written: Path) -> None:
    assert len(list((written / "run" / "samples").iterdir())) == 6
    assert containing(written, MARK) == []


def test_reports_and_bundles_do_not_name_the_machine_that_wrote_them(written: Path) -> None:
    host = platform.node().encode()
    for folder in ("serving", "report", "card", "scores"):
        names = [name for name in containing(written / folder, host) if ".keras_vit" in name]
        assert names == []


def test_reports_and_bundles_contain_no_temporary_folder(written: Path) -> None:
    for folder in ("serving", "report", "card", "scores"):
        assert containing(written / folder, f"{tempfile.gettempdir()}/".encode()) == []
