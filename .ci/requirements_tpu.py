"""Prints requirements-tpu.txt: `python .ci/requirements_tpu.py > requirements-tpu.txt`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = """\
# For TensorFlow on a TPU, before `pip install --no-deps` of the package: see docs/scaling.md. The
# dependencies of pyproject.toml with tensorflow-tpu in place of tensorflow, for both are the module
# `tensorflow`; printed by .ci/requirements_tpu.py, which tests/test_requirements.py compares.
"""
TENSORFLOW = """\
# It has releases of its own, of which this is the newest.
tensorflow-tpu==2.20.0
# The release that tensorflow-tpu 2.20.0 names as the oldest; with 0.0.52 importing it aborts.
libtpu==0.0.14
"""


def requirements(dependencies: list[str]) -> str:
    """Returns the file, given the dependencies of the package.

    Raises:
        ValueError: If TensorFlow is not one of them.
    """
    tensorflow = [need for need in dependencies if re.fullmatch(r"tensorflow\b(?!-).*", need)]
    if len(tensorflow) != 1:
        raise ValueError(f"`dependencies` must name tensorflow once. Received: {tensorflow}")
    lines = [TENSORFLOW if need in tensorflow else f"{need}\n" for need in dependencies]
    return HEAD + "".join(lines)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    print(requirements(project["dependencies"]), end="")
