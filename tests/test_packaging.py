"""sdist and wheel build, and the wheel works in a clean environment outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import keras_vit

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command that must succeed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from it (not from the checkout)."""
    folder = tmp_path_factory.mktemp("dist")
    # Without isolation: setuptools is a requirement of `dev`, so no network is needed.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def clean_python(
    distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A new environment with the wheel; only its requirements are borrowed from this one."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, symlinks=True, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-deps", distributions[1], cwd=folder)
    site_packages = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
    ).strip()
    # Appended to the path, and the .pth files in it (the editable checkout) are not read.
    borrowed = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    Path(site_packages, "requirements.pth").write_text("\n".join(borrowed) + "\n")
    return python


def source_files() -> set[str]:
    """What the package must contain: its modules and its data."""
    paths = [path for path in (ROOT / "keras_vit").rglob("*") if path.is_file()]
    return {str(path.relative_to(ROOT)) for path in paths if path.suffix != ".pyc"}


def test_wheel_has_every_file(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        licenses = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    assert names == source_files() | {"keras_vit_toolkit.py"}
    assert "keras_vit/py.typed" in names
    assert len(licenses) == 1


def test_sdist_has_what_building_and_testing_need(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    needed = {
        "pyproject.toml",
        "setup.py",
        "constraints.txt",
        "constraints-colab.txt",
        "Makefile",
        "README.md",
        "LICENSE",
    }
    assert names >= source_files() | needed | {"CHANGELOG.md", "tests/conftest.py"}


def test_wheel_is_imported_from_outside_the_checkout(clean_python: Path) -> None:
    code = (
        "import keras_vit, sys; from importlib import metadata, resources; "
        "assert keras_vit.__file__.startswith(sys.prefix), keras_vit.__file__; "
        "print(metadata.version('keras-vit-toolkit'), keras_vit.__version__); "
        "print(len(keras_vit.preprocessing.imagenet_labels()))"
    )
    version = keras_vit.__version__
    output = run(clean_python, "-c", code, cwd=clean_python.parent)
    assert output.split() == [version, version, "1000"]


@pytest.mark.parametrize("command", [["keras-vit"], ["python", "-m", "keras_vit"]])
def test_command_line_of_the_wheel_helps(command: list[str], clean_python: Path) -> None:
    program, *arguments = command
    output = run(clean_python.with_name(program), *arguments, "--help", cwd=clean_python.parent)
    assert all(name in output for name in ("train", "evaluate", "predict", "export"))
