"""Looking keys up in a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def present(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values that are there, by our names of them."""
    return {ours: content[theirs] for theirs, ours in names.items() if theirs in content}
