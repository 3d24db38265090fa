"""Checks of the built documentation site: `make docs` runs them after the build.

Its pages exist, those of the notebooks show all cells and the stored outputs and pictures, nothing
is loaded from other hosts, and the words that readers search for are on the page that answers.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {
    "index": "Vision Transformers for Keras 3 on TensorFlow",
    "install": "pip install",
    "faq": "How do I freeze layers?",
    "settings": "early_stopping",
    "models": "Which model?",
    "weights": "augreg_in21k",
    "commands": "keras-vit train",
    "api/keras_vit": "load_predictor",
}
# What readers search for, and the page with the answer; in the questions, in a heading.
SEARCHES = {
    "segmentation": "segmentation",
    "pascal voc": "detection",
    "freeze": "faq",
    "imbalanced": "faq",
    "cite": "faq",
    "out of memory": "faq",
    "grayscale": "faq",
    "exif": "faq",
    "layer decay": "faq",
    "learning rate": "faq",
    "batch size": "faq",
    "multi label": "data",
    "tflite": "phones",
    "docker": "serving",
    "tpu": "scaling",
    "onnx": "phones",
    "resume": "resuming",
    "not square": "faq",
    "regression": "faq",
    "attention map": "looking_inside",
    "heic": "data",
}
# Loaded by the browser; links, and what search engines read, are not.
LOADED = r'<(?:script|img|iframe|source)[^>]* src="(?:https?:)?//[^"]*"'
LOADED += r'|<link[^>]*rel="(?:stylesheet|preconnect|icon)"[^>]*href="(?:https?:)?//[^"]*"'


def problems(site: Path, root: Path = ROOT) -> list[str]:
    """Returns what is missing in the site of a checkout, as sentences."""
    found = []
    for name, text in PAGES.items():
        page = site / f"{name}.html"
        if not page.exists() or text not in page.read_text(encoding="utf-8"):
            found.append(f"{page.name} must exist and contain {text!r}.")
    notebooks = sorted((root / "notebooks").glob("*.ipynb"))
    if len(notebooks) < 6:
        found.append("notebooks/ must contain six notebooks.")
    for notebook in notebooks:
        found += _missing_cells(notebook, site / "notebooks" / f"{notebook.stem}.html")
    for page in sorted(site.rglob("*.html")):
        for tag in re.findall(LOADED, page.read_text(encoding="utf-8")):
            found.append(f"{page.relative_to(site)} must not load from another host: {tag}")
    return found + _missing_words(site / "search" / "search_index.json")


def _missing_cells(notebook: Path, page: Path) -> list[str]:
    if not page.exists():
        return [f"{page.name} must exist."]
    html = page.read_text(encoding="utf-8")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    expected = {
        'class="jp-InputArea jp-Cell-inputArea"': len(cells),
        'class="jp-OutputArea-child': len(outputs),
        "<img": sum("image/png" in output.get("data", {}) for output in outputs),
    }
    return [
        f"{page.name} must contain {count} of {text}. Received: {html.count(text)}"
        for text, count in expected.items()
        if html.count(text) < count
    ]


def _missing_words(index: Path) -> list[str]:
    sections: dict[str, list[str]] = {}
    for entry in json.loads(index.read_text(encoding="utf-8"))["docs"]:
        page = entry["location"].partition(".html")[0]
        text = entry["title"] if page == "faq" else f"{entry['title']} {entry['text']}"
        text = re.sub(r"<[^>]*>", " ", text).lower()
        sections.setdefault(page, []).append(text)
    return [
        f"{page}.html must contain a section with {words!r}, for the search."
        for words, page in SEARCHES.items()
        if not any(all(w in text for w in words.split()) for text in sections.get(page, []))
    ]


if __name__ == "__main__":
    messages = problems(ROOT / "build" / "site")
    print("\n".join(messages) or "The site is complete.")
    sys.exit(bool(messages))
