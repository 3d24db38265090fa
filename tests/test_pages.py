"""The pages of the documentation name files that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# Python files and notebooks in backticks, with or without their folder.
FILE = re.compile(r"`((?:[\w.-]+/)*\w+\.(?:py|ipynb))`")
# Placeholders, and a file of google-research/big_vision.
OTHERS = {"keras_vit/x/y.py", "tests/x/test_y.py", "evaluators/fewshot_lsr.py"}


@pytest.fixture(scope="module")
def files() -> list[str]:
    folders = ("keras_vit", "tests", "benchmarks", "notebooks", ".ci")
    paths = [*ROOT.glob("*.py"), *(path for name in folders for path in (ROOT / name).rglob("*.*"))]
    return [f"/{path.relative_to(ROOT).as_posix()}" for path in paths]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_files_that_a_page_names_exist(page: Path, files: list[str]) -> None:
    named = {*FILE.findall(page.read_text(encoding="utf-8"))} - OTHERS
    missing = [n for n in named if not any(file.endswith(f"/{n}") for file in files)]
    assert [name for name in missing if "NAME" not in name] == []


def test_installation_lists_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert {*listed} == project["optional-dependencies"].keys() - {"dev", "docs"}
