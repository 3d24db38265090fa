"""requirements-tpu.txt is made from pyproject.toml, constraints-colab.txt from what Colab has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "requirements_tpu.py"


def pins(path: Path) -> dict[str, tuple[str, str]]:
    """The version of each package, and the comment directly above it."""
    found, comment = {}, ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            comment = f"{comment} {line.removeprefix('#').strip()}".strip()
            continue
        if line:
            name, version = line.split("==")
            found[re.sub(r"[-_.]+", "-", name).lower()] = (version, comment)
        comment = ""
    return found


def unexplained(colab: Path, constraints: Path) -> list[str]:
    """Packages pinned to another version than Colab's, without a comment that names the latter."""
    preinstalled = pins(colab)
    return [
        f"{name}: Colab has {preinstalled[name][0]}"
        for name, (version, comment) in pins(constraints).items()
        if name in preinstalled
        and version != preinstalled[name][0]
        and not re.search(rf"\bColab has {re.escape(preinstalled[name][0])}, \w+", comment)
    ]


def test_pins_that_differ_from_those_of_colab_say_why() -> None:
    colab, constraints = ROOT / "tests" / "colab-preinstalled.txt", ROOT / "constraints-colab.txt"
    assert pins(colab).keys() & pins(constraints).keys() > {"keras", "tensorflow", "numpy"}
    assert unexplained(colab, constraints) == []


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        ("A_b==1.0\n", []),
        ("# Colab has 1.0, which\n# is too old.\na-b==2.0\n", []),
        ("a-b==2.0\n", ["a-b: Colab has 1.0"]),
        ("# Newer.\na-b==2.0\n", ["a-b: Colab has 1.0"]),
        ("# Colab has 1.0, which is too old.\nc==3\na-b==2.0\n", ["a-b: Colab has 1.0"]),
    ],
)
def test_unexplained(constraints: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "colab.txt").write_text("# What it has.\na.b==1.0\n")
    (tmp_path / "constraints.txt").write_text(constraints)
    assert unexplained(tmp_path / "colab.txt", tmp_path / "constraints.txt") == expected


def printed(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, script], capture_output=True, text=True)


def test_requirements_for_a_tpu_are_what_the_script_prints() -> None:
    done = printed(SCRIPT)
    assert done.stdout == (ROOT / "requirements-tpu.txt").read_text(encoding="utf-8"), done.stderr
    assert "\ntensorflow-tpu==2.20.0\n" in done.stdout
    assert not re.search(r"^tensorflow\b(?!-)", done.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize("names", ["'tensorflow-datasets'", "'tensorflow', 'tensorflow>=2.20'"])
def test_requirements_for_a_tpu_need_one_tensorflow(names: str, tmp_path: Path) -> None:
    script = tmp_path / ".ci" / SCRIPT.name
    script.parent.mkdir()
    script.write_bytes(SCRIPT.read_bytes())
    (tmp_path / "pyproject.toml").write_text(f"[project]\ndependencies = [{names}]\n")
    assert "`dependencies` must name tensorflow once. Received: [" in printed(script).stderr
