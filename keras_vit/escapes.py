"""Escapes of text from files and servers, one function for each medium (HTML: `html.escape`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import IO, Any

# Control characters, except newlines and tabs; directions of text; undecodable bytes of file names.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Underscores inside of words, and colons and dots outside of URLs, are not markup.
_MARKUP = re.compile(r"[\\`*\[\]<>|$&~#]|_(?![^\W_])|(?<![^\W_])_|:(?=//)|(?<=www)\.")
# Beginnings of cells that spreadsheets read as formulas.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
CSV_TEXT = rf"^'({_FORMULA.pattern})", r"\1"  # pattern and replacement: cells without apostrophe


def terminal(text: object) -> str:
    """Returns text whose control characters, which can move the cursor, are written as escapes."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], str(text))


def say(text: object, file: IO[str] | None = None) -> None:
    """Prints text of any origin."""
    print(terminal(text), file=file, flush=True)


def markdown(text: object) -> str:
    """Returns text as one line of Markdown, for any cell, without markup, links and HTML."""
    return _MARKUP.sub(r"\\\g<0>", terminal(" ".join(str(text).split())))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table of escaped cells, with aligned columns."""
    lines = [head, ["---"] * len(head), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def csv_cell(value: Any) -> Any:
    """Returns a cell that is not a formula: an apostrophe precedes text that could be one."""
    formula = isinstance(value, str) and _FORMULA.match(value)
    return f"'{value}" if formula else value
