"""The entry point, confronted with the abandoned package that installs a module of our name."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import keras_vit_toolkit

REMEDY = "    pip uninstall keras-vit\n    pip install --force-reinstall --no-deps -e ."


def write_package(folder: Path, *, ours: bool) -> None:
    """A `keras_vit` package; ours says its distribution and has a command line that echoes."""
    package = folder / "keras_vit"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('DISTRIBUTION = "keras-vit-toolkit"\n' if ours else "\n")
    if ours:
        (package / "cli").mkdir()
        (package / "cli" / "__init__.py").write_text(
            "import os, sys\n\n"
            "def main():\n"
            "    print('cli', sys.argv[1:], 'log level', os.environ['TF_CPP_MIN_LOG_LEVEL'])\n"
        )


def write_foreign_metadata(folder: Path) -> None:
    info = folder / "keras_vit-0.0.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: keras-vit\nVersion: 0.0.9\n")


def run_main(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`keras-vit ARGUMENTS` where `path` comes first on the import path."""
    path.mkdir(exist_ok=True)
    outer = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    module = Path(keras_vit_toolkit.__file__)
    code = (
        f"import sys; sys.path[:0] = [{str(path)!r}, {str(module.parent)!r}]; "
        "import keras_vit_toolkit; keras_vit_toolkit.main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**outer, **environment},
        cwd=path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_main_starts_the_command_line(tmp_path: Path) -> None:
    write_package(tmp_path, ours=True)
    done = run_main(tmp_path, "train", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cli ['train', '--lr', '1'] log level 2\n"
    assert done.stderr == ""


def test_main_leaves_a_chosen_log_level(tmp_path: Path) -> None:
    write_package(tmp_path, ours=True)
    assert run_main(tmp_path, TF_CPP_MIN_LOG_LEVEL="0").stdout == "cli [] log level 0\n"


def test_main_stops_when_another_package_shadows_ours(tmp_path: Path) -> None:
    write_package(tmp_path, ours=False)
    done = run_main(tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "`keras_vit` must be the package of keras-vit-toolkit. Received: " in done.stderr
    assert str(tmp_path / "keras_vit" / "__init__.py") in done.stderr
    assert REMEDY in done.stderr
    assert "Traceback" not in done.stderr


def test_main_stops_when_another_package_overwrote_our_init(tmp_path: Path) -> None:
    write_package(tmp_path, ours=True)
    (tmp_path / "keras_vit" / "__init__.py").write_text("from keras_vit.vit import ViT_B16\n")
    done = run_main(tmp_path)
    assert done.returncode == 1
    assert REMEDY in done.stderr


def test_main_warns_when_the_other_package_is_installed_beside_ours(tmp_path: Path) -> None:
    write_package(tmp_path, ours=True)
    write_foreign_metadata(tmp_path)
    done = run_main(tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("cli []")
    assert "warning: keras-vit 0.0.9, an unrelated package" in done.stderr
    assert REMEDY in done.stderr


def test_check_reports_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="Received: nothing"):
        keras_vit_toolkit.check()


def test_check_accepts_this_package() -> None:
    assert keras_vit_toolkit.check() is None
