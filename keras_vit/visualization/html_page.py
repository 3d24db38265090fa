"""Self-contained HTML pages for desktop and phone, with light and dark color schemes."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import PIL.Image

_STYLE = """
:root { color-scheme: light dark; --ink: #1b2733; --paper: #ffffff; --pale: #f2f5f8;
  --line: #d8dfe7; --accent: #1f5fa8; }
@media (prefers-color-scheme: dark) { :root { --ink: #dfe6ee; --paper: #12181f; --pale: #1b242e;
  --line: #33404e; --accent: #7fb2ee; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 4rem; max-width: 64rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0.4rem 0; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 0.6rem; border-bottom: 1px solid var(--line); }
p { margin: 0.5rem 0; }
.note { opacity: 0.8; font-size: 0.92rem; }
.numbers { display: flex; flex-wrap: wrap; gap: 0.8rem; margin: 1rem 0; }
.numbers div { background: var(--pale); border-radius: 0.5rem; padding: 0.6rem 1rem; }
.numbers b { display: block; font-size: 1.5rem; color: var(--accent); }
.scroll { overflow: auto; max-height: 34rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
th, td { padding: 0.25rem 0.8rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 7rem; }
th { position: sticky; top: 0; background: var(--paper); }
svg { display: block; max-width: 100%; height: auto; }
.wide svg { min-width: 30rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr));
  gap: 1rem; }
.pictures figure { margin: 0; }
.pictures img { width: 100%; border-radius: 0.35rem; display: block; margin-bottom: 0.3rem; }
figcaption { font-size: 0.85rem; }
pre { background: var(--pale); padding: 0.8rem; border-radius: 0.5rem; overflow: auto;
  max-height: 30rem; font-size: 0.85rem; white-space: pre-wrap; }
""".strip()


_MOST_PAIRS = 10  # pairs of confused classes


class Section(NamedTuple):
    """A section of an HTML page.

    Args:
        name: Identifier of the section in the page.
        title: Heading.
        parts: HTML fragments, for example from the functions of this module.
    """

    name: str
    title: str
    parts: Sequence[str]


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Returns an HTML page; its security policy forbids external resources."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    title = html.escape(title)
    lines: list[str] = []
    for name, head, parts in sections:
        lines += [f'<section id="{name}">', f"<h2>{html.escape(head)}</h2>", *parts, "</section>"]
    body = "\n".join(lines)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{title}</title>\n'
        f"<style>\n{_STYLE}\n</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f'<p class="note">{html.escape(subtitle)}</p>\n{body}\n</body>\n</html>\n'
    )


def paragraph(text: str, note: bool = False) -> str:
    """Returns text as an HTML paragraph."""
    kind = ' class="note"' if note else ""
    return f"<p{kind}>{html.escape(text)}</p>"


def numbers(values: Sequence[tuple[str, str]]) -> str:
    """Returns key figures as HTML in large type."""
    cells = (f"<div><b>{html.escape(n)}</b>{html.escape(what)}</div>" for n, what in values)
    return f'<div class="numbers">{"".join(cells)}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns an HTML table in a scrollable container."""

    def table_row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    body = "\n".join(table_row(row, "td") for row in rows)
    return (
        f'<div class="scroll"><table>\n<thead>{table_row(head, "th")}</thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def confused(cells: np.ndarray, names: Sequence[str], support: Sequence[int], unit: str) -> str:
    """Returns an HTML table of the most confused pairs of classes, or an empty string.

    Args:
        cells: True class, predicted class and count of each cell of a confusion matrix, (M, 3).
        names: Names of the classes.
        support: Count of each true class.
        unit: What is counted.
    """
    errors = cells[cells[:, 0] != cells[:, 1]]
    largest = errors[np.argsort(-errors[:, 2], kind="stable")[:_MOST_PAIRS]].tolist()
    rows = [[names[i], names[j], str(n), f"{n / support[i]:.1%}"] for i, j, n in largest]
    head = ["true class", "predicted class", unit, "fraction of the true class"]
    return table(head, rows) if rows else ""


def drawing(svg: str) -> str:
    """Returns HTML with an SVG drawing in a scrollable container."""
    return f'<div class="scroll wide">{svg}</div>'


def pictures(items: Sequence[tuple[Sequence[np.ndarray], str]]) -> str:
    """Returns HTML with captioned images side by side."""
    figures = ""
    for images, caption in items:
        text = html.escape(caption)
        image_tags = "".join(f'<img alt="{text}" src="{_data_uri(image)}">' for image in images)
        figures += f"<figure>{image_tags}<figcaption>{text}</figcaption></figure>"
    return f'<div class="pictures">{figures}</div>'


def preformatted(text: str) -> str:
    """Returns text as a preformatted HTML block."""
    return f"<pre>{html.escape(text)}</pre>"


def _data_uri(image: np.ndarray) -> str:
    pixels = image[..., 0] if image.shape[-1] == 1 else image
    buffer = io.BytesIO()
    # A JPEG of a small image would be larger and blurred.
    kind, options = ("PNG", {}) if min(image.shape[:2]) < 64 else ("JPEG", {"quality": 88})
    PIL.Image.fromarray(pixels).save(buffer, kind, **options)
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"data:image/{kind.lower()};base64,{encoded}"
