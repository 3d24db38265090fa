"""`make install`, with a Python that only writes down what it is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Both are this script: the one that is named, and the one in the environment that it "creates".
PYTHON = """#!/bin/sh
echo "$@" >> "$LOG"
[ "$2" != venv ] || { mkdir -p .venv/bin && cp "$0" .venv/bin/python; }
[ "$2" != pip ] || [ ! -e fail ]
"""

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs make")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile, what it reads, and two Pythons."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt", "other.txt"):
        (tmp_path / name).touch()
    for name in ("python-a", "python-b"):
        (tmp_path / name).write_text(PYTHON)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def install(
    checkout: Path, python: str = "python-a", *options: str, fails: bool = False
) -> list[str]:
    """Runs `make install`; returns the constraints of each installation."""
    log = checkout / "log"
    log.write_text("")
    environment = {k: v for k, v in os.environ.items() if k not in ("CONSTRAINTS", "MAKEFLAGS")}
    command = ["make", "install", f"PYTHON=./{python}", *options]
    done = subprocess.run(
        command, cwd=checkout, env={**environment, "LOG": str(log)}, capture_output=True, text=True
    )
    assert (done.returncode != 0) == fails, done.stderr
    lines = [line.split() for line in log.read_text().splitlines() if line.startswith("-m pip")]
    return [line[line.index("-c") + 1] for line in lines]


def left(checkout: Path) -> bool:
    """Whether a file that the environment was given is still there; gives it one."""
    stray = checkout / ".venv" / "stray"
    found = stray.exists()
    stray.touch()
    return found


def test_install_is_a_no_op_the_second_time(checkout: Path) -> None:
    assert install(checkout) == ["constraints.txt"]
    assert install(checkout) == []


def test_install_makes_a_fresh_environment_for_other_constraints(checkout: Path) -> None:
    install(checkout)
    left(checkout)
    assert install(checkout, "python-a", "CONSTRAINTS=other.txt") == ["other.txt"]
    assert not left(checkout)
    assert install(checkout, "python-a", "CONSTRAINTS=other.txt") == []
    assert install(checkout) == ["constraints.txt"]
    assert not left(checkout)


def test_install_makes_a_fresh_environment_for_another_python(checkout: Path) -> None:
    install(checkout)
    left(checkout)
    assert install(checkout, "python-b") == ["constraints.txt"]
    assert not left(checkout)
    assert install(checkout, "python-b") == []


def test_install_adds_to_the_environment_when_a_file_changes(checkout: Path) -> None:
    install(checkout)
    left(checkout)
    os.utime(checkout / ".venv" / ".installed", (1, 1))
    assert install(checkout) == ["constraints.txt"]
    assert left(checkout)


def test_install_that_failed_is_repeated(checkout: Path) -> None:
    install(checkout)
    (checkout / "fail").touch()
    for _ in range(2):
        assert install(checkout, "python-b", fails=True) == ["constraints.txt"]
    (checkout / "fail").unlink()
    assert install(checkout, "python-b") == ["constraints.txt"]


def test_install_keeps_the_environment_if_there_is_no_such_python(checkout: Path) -> None:
    install(checkout)
    left(checkout)
    assert install(checkout, "python-c", fails=True) == []
    assert left(checkout)
    assert install(checkout) == []
