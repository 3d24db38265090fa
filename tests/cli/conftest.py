"""A command to call, photographs, and a run that the command line wrote."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from keras_vit import models, zoo
from tests.cli.commands import Call, call_main
from tests.training.photos import write_photos


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command; returns its exit code, its output and its messages."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = call_main(*arguments)
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """33 images in three classes; tests that change one must copy them first."""
    return write_photos(tmp_path_factory.mktemp("data") / "photos")


@contextlib.contextmanager
def small_constructor() -> Iterator[None]:
    """Adds ViTNano to the constructors, so small that training takes seconds."""
    config = models.size("Micro/2").replace(
        hidden_size=15, num_layers=1, num_heads=3, mlp_dim=19, image_size=(32, 32)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(zoo.CONSTRUCTORS, "ViTNano", zoo.Constructor("ViTNano", config))
        yield


@pytest.fixture(scope="module")
def nano() -> Iterator[None]:
    with small_constructor():
        yield


@pytest.fixture(scope="session")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder that the command line wrote."""
    out = tmp_path_factory.mktemp("runs") / "photos"
    train = ("train", "--data", photos, "--model", "ViTNano", "--image-size", "8x12", "--out", out)
    options = ("--epochs", 1, "--batch-size", 8, "--precision", "float32", "--no-tensorboard")
    with small_constructor():
        assert call_main(*train, *options) == 0
    return out


@pytest.fixture(scope="module")
def run(trained: Path, nano: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it for the tests of a module."""
    return shutil.copytree(trained, tmp_path_factory.mktemp("runs") / "photos")
