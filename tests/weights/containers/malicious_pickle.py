"""A pickle that shows whether it was executed."""

from __future__ import annotations


class Explosive:
    """Unpickling this creates a file named `exploded` in the current folder."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("exploded", "w")
