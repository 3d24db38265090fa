"""Renaming of configuration keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def present(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of the keys that exist in `content`, under this package's names."""
    return {ours: content[theirs] for theirs, ours in names.items() if theirs in content}
