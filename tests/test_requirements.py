"""requirements-tpu.txt is made from pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_requirements_for_a_tpu_are_the_dependencies_with_tensorflow_tpu() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    expected = {need for need in project["dependencies"] if not re.match(r"tensorflow[<>=]", need)}
    assert len(expected) == len(project["dependencies"]) - 1
    # tensorflow-tpu has releases of its own, of which this is the newest.
    expected |= {"tensorflow-tpu==2.20.0", "libtpu==0.0.14"}
    lines = (ROOT / "requirements-tpu.txt").read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if not line.startswith("#")} == expected
