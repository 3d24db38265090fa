"""The check of the built site, on a site of few pages."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECK = runpy.run_path(str(ROOT / ".ci" / "check_site.py"), run_name="check_site")
CELL = '<div class="jp-InputArea jp-Cell-inputArea"></div>'
SHOWN = '<div class="jp-OutputArea-child"><img src="data:image/png;base64,AA"></div>'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Notebooks, of which the first has a picture, and their site."""
    for folder in ("notebooks", "site/notebooks", "site/api", "site/search"):
        (tmp_path / folder).mkdir(parents=True)
    picture = {"cell_type": "code", "outputs": [{"data": {"image/png": "AA"}}]}
    for number, cells in enumerate(([picture], [], [], [], [], [])):
        (tmp_path / f"notebooks/{number}.ipynb").write_text(json.dumps({"cells": cells}))
        page = tmp_path / f"site/notebooks/{number}.html"
        page.write_text((CELL + SHOWN) * len(cells))
    for name, text in CHECK["PAGES"].items():
        (tmp_path / f"site/{name}.html").write_text(f'<a href="https://a.b">{text}</a>')
    sections = [
        {"location": f"{page}.html#a", "title": words, "text": ""}
        for words, page in CHECK["SEARCHES"].items()
    ]
    (tmp_path / "site/search/search_index.json").write_text(json.dumps({"docs": sections}))
    return tmp_path


def test_complete_site_has_no_problems(checkout: Path) -> None:
    assert CHECK["problems"](checkout / "site", checkout) == []


def replace(path: str, old: str, new: str) -> Callable[[Path], object]:
    def change(checkout: Path) -> None:
        text = (checkout / path).read_text()
        assert old in text
        (checkout / path).write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda checkout: (checkout / "site/faq.html").unlink(), "faq.html must exist and"),
        (replace("site/models.html", "Which model?", ""), "models.html must exist and contain"),
        (lambda checkout: (checkout / "notebooks/3.ipynb").unlink(), "six notebooks"),
        (lambda checkout: (checkout / "site/notebooks/3.html").unlink(), "3.html must exist"),
        (replace("site/notebooks/0.html", CELL, ""), "0.html must contain 1 of .*InputArea"),
        (replace("site/notebooks/0.html", SHOWN, "<img>"), "0.html must contain 1 of .*Output"),
        (replace("site/notebooks/0.html", "<img", "<p"), "0.html must contain 1 of <img"),
        (replace("site/index.html", "<a ", '<img alt="" src="https://a.b/c">'), "another host"),
        (replace("site/search/search_index.json", "heic", "jpeg"), "data.html .* 'heic'"),
    ],
)
def test_what_is_missing_is_named(
    checkout: Path, change: Callable[[Path], object], expected: str
) -> None:
    change(checkout)
    (problem,) = CHECK["problems"](checkout / "site", checkout)
    assert re.search(expected, problem)
