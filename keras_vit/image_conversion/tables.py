"""New names of files in tables, whose text stays as it is otherwise."""

from __future__ import annotations

import codecs
import json
import posixpath
import re
from collections.abc import Mapping

_JSON_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def is_table(name: str) -> bool:
    """Returns whether a file is one of those in which names are replaced."""
    return name.lower().endswith((".csv", ".tsv", ".jsonl"))


def renamed(table: bytes, name: str, renames: Mapping[str, str]) -> bytes:
    r"""Returns a table in which each cell, or JSON string, that is an old name is the new one.

    Quotes, separators, line ends and encoding stay; so does the part of the name before the last
    slash or backslash.

    Args:
        table: Content of the file.
        name: Its path with slashes; the cells' names are relative to its folder.
        renames: Old path -> new name without folders.

    Returns:
        The new content, the same bytes where no name occurs.

    Example:
        >>> renamed(b"file,label\na.heic,daisy\n", "labels.csv", {"a.heic": "a.jpg"})
        b'file,label\na.jpg,daisy\n'
    """
    folder = posixpath.dirname(name)

    def new(cell: str) -> str:
        path = posixpath.normpath(posixpath.join(folder, cell.replace("\\", "/")))
        old = posixpath.basename(path)
        return cell.removesuffix(old) + renames[path] if path in renames else cell

    def new_json(match: re.Match[str]) -> str:
        try:
            value = json.loads(match[0])
        except ValueError:
            return match[0]
        changed = new(value)
        same_escapes = json.dumps(changed, ensure_ascii=match[0].isascii())
        return match[0] if changed == value else same_escapes

    def new_cell(match: re.Match[str]) -> str:
        if match[2] is None:
            return match[1] + new(match[3])
        inner = new(match[2].replace('""', '"')).replace('"', '""')
        return f'{match[1]}"{inner}"'

    encoding = _encoding(table)
    text = table.decode(encoding)
    if name.lower().endswith(".jsonl"):
        return _JSON_STRING.sub(new_json, text).encode(encoding)
    separator = re.escape(_separator(text, name))
    # Spaces, then a cell in quotes or one without.
    cell = rf'( *)(?:"((?:[^"]|"")*)"(?=[{separator}\r\n]|$)|([^{separator}\r\n\ufeff]+))'
    return re.sub(cell, new_cell, text).encode(encoding)


def _encoding(table: bytes) -> str:
    # The mark of the byte order stays a character, so that it is written again.
    if table.startswith(codecs.BOM_UTF16_LE):
        return "utf-16-le"
    if table.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    try:
        table.decode()
    except UnicodeDecodeError:
        return "latin-1"  # any bytes come back the same
    return "utf-8"


def _separator(text: str, name: str) -> str:
    first_line = text.partition("\n")[0]
    return "\t" if name.lower().endswith(".tsv") else max(",;\t|", key=first_line.count)
