"""Inventory of a data source: counts of its usable images, and of all other files by kind."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from keras_vit import arguments
from keras_vit.data.examples import Examples

OUTSIDE = "image outside of the class folders"
UNNAMED = "image that is not in the table"


@dataclasses.dataclass(frozen=True)
class Inventory:
    """Counts of usable, unusable and ignored files in a data source.

    Args:
        used: Number of usable images.
        unreadable: Number of unusable images, by reason and class.
        ignored: Number of empty folders and of files that are not images of the dataset, by kind.
    """

    used: int = 0
    unreadable: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    ignored: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def text(self) -> str:
        """Returns the inventory as a text table with one line per count."""
        rows = [(str(self.used), "images that can be used")]
        for reason, classes in self.unreadable.items():
            brief = arguments.shortlist([f"{name} {n}" for name, n in classes.items()], shown=20)
            rows.append((str(sum(classes.values())), f"{reason}: {brief}"))
        rows += [(str(count), f"ignored: {kind}") for kind, count in self.ignored.items()]
        return "\n".join(arguments.text_table(rows, "><"))

    @property
    def complete(self) -> bool:
        """True if every file of the source is a usable image."""
        return not self.unreadable and not self.ignored


def count_images(examples: Examples, bad: Mapping[int, str]) -> Inventory:
    """Counts usable images, and unusable images by reason and class, given reasons by index."""
    unreadable: dict[str, Counter[str]] = {}
    for index, reason in bad.items():
        classes = "|".join(examples.shown(index)) or "no class"
        if examples.kind.dense:
            reason, classes = reason.partition(":")[0], "images"
        unreadable.setdefault(reason, Counter()).update([classes])
    ordered = sorted(unreadable.items(), key=lambda item: -item[1].total())
    counts_by_reason = {reason: dict(counts) for reason, counts in ordered}
    return Inventory(len(examples) - len(bad), counts_by_reason, dict(examples.ignored))
