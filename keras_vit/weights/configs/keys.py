"""Renaming of configuration keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def present(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of the keys that exist in `content`, under this package's names."""
    return {ours: content[theirs] for theirs, ours in names.items() if theirs in content}


def translated(key: str, value: Any, values: Mapping[str, str], source: str) -> str:
    """Returns this package's name of a value; raises `ValueError` if there is none."""
    if value not in values:
        raise ValueError(
            f"`{key}` of {source} must be one of {', '.join(values)}. Received: {key}={value!r}"
        )
    return values[value]


def image_sides(size: Any) -> tuple[int, int] | None:
    """Returns the height and width in a `size` entry, which is one number in older files."""
    if isinstance(size, Mapping):
        size = size.get("shortest_edge") or (size.get("height"), size.get("width"))
    if isinstance(size, int):
        return size, size
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        return None
    height, width = size
    return (height, width) if isinstance(height, int) and isinstance(width, int) else None
