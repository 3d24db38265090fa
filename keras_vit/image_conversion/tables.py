"""Updating of file names in tables, leaving all other text unchanged."""

from __future__ import annotations

import codecs
import json
import posixpath
import re
from collections.abc import Mapping

_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_JSON_STRING = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[\da-fA-F]{4})*"'


def renamed(table: bytes, name: str, renames: Mapping[str, str]) -> bytes:
    """Returns a table with the names of renamed files updated in its cells or JSON strings."""
    folder, is_json = posixpath.dirname(name), name.lower().endswith(".jsonl")

    def replace(match: re.Match[str]) -> str:
        cell = json.loads(match[0]) if is_json else match[1] or match[2] or ""
        path = posixpath.normpath(posixpath.join(folder, cell.replace("\\", "/")))
        old = posixpath.basename(path)
        if renames.get(path, old) == old:
            return match[0]
        new_cell = cell.removesuffix(old) + renames[path]
        if is_json:
            return json.dumps(new_cell, ensure_ascii=match[0].isascii())
        return match[0].replace(cell, new_cell)

    try:
        text, encoding = table.decode(), "utf-8"
    except UnicodeDecodeError:
        encoding = _UTF_16.get(table[:2], "latin-1")  # round-trips all bytes
        text = table.decode(encoding)
    first_line = text.partition("\n")[0]
    tabs = name.lower().endswith(".tsv")
    separator = "\t" if tabs else re.escape(max(",;\t|", key=first_line.count))
    # A cell with or without quotes.
    cell = rf' *(?:"((?:[^"]|"")*)"(?=[{separator}\r\n]|$)|([^{separator}\r\n\ufeff]+))'
    return re.sub(_JSON_STRING if is_json else cell, replace, text).encode(encoding)
