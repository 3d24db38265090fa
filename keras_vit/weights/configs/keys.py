"""Lookup of keys in a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def present(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of existing keys, by this package's names."""
    return {ours: content[theirs] for theirs, ours in names.items() if theirs in content}
