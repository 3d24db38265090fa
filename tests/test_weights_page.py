from __future__ import annotations

import re
import runpy
from pathlib import Path

from keras_vit.weights import list_weights

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "weights.md"

markdown = runpy.run_path(str(ROOT / ".ci" / "weights_page.py"))["markdown"]


def test_markdown_is_the_page_in_the_documentation() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(), (
        "python .ci/weights_page.py > docs/weights.md"
    )


def test_markdown_has_every_row_under_its_model() -> None:
    sections = dict(re.findall(r"^## (\w+)\n\n(.*?)\n(?=\n## |\Z)", markdown(), re.M | re.S))
    for model in {row.model for row in list_weights()}:
        header, _, *lines = sections[model].splitlines()
        for line, row in zip(lines, list_weights(model), strict=True):
            cells = dict(zip(header.split("|"), line.split("|"), strict=True))
            assert cells[" name "] == f" `{row.name}` "
            assert f"]({row.urls[0]})" in cells[" file "]
            assert cells[" pixels "] == f" {row.image_size} "
            assert cells[" classes "].strip() == str(row.classes or "")
            for alias in row.aliases:
                assert f"`{alias}`" in cells[" also called "]


def line_of(model: str, name: str) -> str:
    section = markdown().partition(f"\n## {model}\n")[2]
    return next(line for line in section.splitlines() if line.startswith(f"| `{name}` |"))


def test_markdown_numbers_lead_to_the_sources() -> None:
    sources = dict(re.findall(r"^(\d+)\. (.+)$", markdown().partition("## Sources")[2], re.M))
    numbers = re.search(
        r"\| 80\.246 \[(\d+)\] \| \d* \| Apache-2\.0 \| 1000 \| \[(\d+)\] \|",
        line_of("ViTB16", "sam_in1k"),
    )
    assert numbers
    assert sources[numbers[1]].endswith("results/results-imagenet.csv")
    assert sources[numbers[2]].endswith("timm/models/vision_transformer.py")


def test_markdown_leaves_cells_empty_where_nothing_is_known() -> None:
    assert " | 224 |  | 115 | Apache-2.0 | 21843 | " in line_of("ViTS16", "augreg_in21k")
    assert " | 224 |  |  | " in line_of("ViTB16", "dino")
