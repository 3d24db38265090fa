"""A copy of the stored files to work in, and what they are expected to answer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.compatibility.narrow import FILES, constructors

Expected = dict[str, np.ndarray]


@pytest.fixture(scope="session")
def expected() -> Expected:
    """The pixels that models were asked, and what they and the bundle answered."""
    with np.load(FILES / "expected.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of all files as the working directory, to which the paths in them are relative."""
    folder = shutil.copytree(FILES, tmp_path / "files")
    monkeypatch.chdir(folder)
    with constructors():
        yield folder
