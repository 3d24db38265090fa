"""Report on a dataset before training: classes, image sizes, duplicates and damaged files."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.arguments import text_table
from keras_vit.data.examples import Examples
from keras_vit.data.geometry import cut_off
from keras_vit.data.image_audit import ImageAudit, audit, sections
from keras_vit.data.splits import split
from keras_vit.data.target_kinds import ClassIndex, MultiHot
from keras_vit.preprocessing import Preprocessing

# A class is rare below this fraction of the largest class's number of images.
_RARE_FRACTION = 0.1
_SIZES = ("smallest", "median", "largest")
# A size is odd if a side differs from the median by more than this factor.
_ODD_FACTOR = 4.0
# Maximum of a dark image, of 255: pixels in [0, 1] that were written as integers.
_MAX_DARK = 2


@dataclasses.dataclass(frozen=True)
class DatasetReport:
    """Summary of the contents and problems of a dataset.

    Args:
        source: Data source.
        counts: Number of usable images of each class, or of its pixels or objects.
        audit: Unusable images and duplicates.
        leaks: Images with the same content, or of the same photograph, in several splits of the
            source.
        cut_off: Sentence on images of which evaluation at 224 x 224 pixels uses a small part.
        twin_classes: Names of classes that differ only in case, outer spaces or Unicode form.
        sizes: Smallest, median and largest height and width in pixels.
        odd_sizes: Names of images of an unusual size.
        flat: Names of images whose pixels all have the same value.
        dark: Names of images whose pixels are all close to 0 (out of 255).
        refused: Reason why the data cannot be trained on; empty if there is none.
        ignored_pixels: Number of pixels without a class, if the targets are masks.
        images: Number of usable images; None for a dataset with one class per image.
        without_class: Number of usable images without any class or object; None for other datasets.
        unit: What `counts` contains: images, pixels or objects.
        notes: Notes on how the source was read.

    Examples:
        >>> from keras_vit.data import load
        >>> check(load("digits"), progress=False).counts["3"]
        183
    """

    source: str
    counts: dict[str, int]
    audit: ImageAudit
    leaks: tuple[tuple[str, ...], ...]
    sizes: dict[str, tuple[int, int]]
    odd_sizes: tuple[str, ...]
    flat: tuple[str, ...]
    dark: tuple[str, ...]
    refused: str
    ignored_pixels: int = 0
    images: int | None = None
    without_class: int | None = None
    notes: tuple[str, ...] = ()
    twin_classes: tuple[tuple[str, ...], ...] = ()
    cut_off: str = ""
    unit: str = "images"

    @property
    def blocking(self) -> bool:
        """True if the dataset has problems that make training impossible."""
        return bool(self.refused or self.audit.bad)

    @property
    def rare(self) -> dict[str, int]:
        """Image counts of all classes less than a tenth the size of the largest class."""
        largest = max(self.counts.values(), default=0)
        return {name: n for name, n in self.counts.items() if n < _RARE_FRACTION * largest}

    @property
    def near_duplicate_leaks(self) -> tuple[tuple[str, ...], ...]:
        """Groups in `leaks` of near-duplicates, whose pixels differ."""
        return tuple(group for group in self.leaks if group not in self.audit.duplicates)

    def text(self) -> str:
        """Returns the report as text."""
        total = sum(self.counts.values()) if self.images is None else self.images
        number = f"{len(self.counts)} classes of " if self.counts else ""
        counted = "" if self.unit == "images" else f"; {self.unit} of each class:"
        lines = [*self.notes, f"{total} images in {number}{self.source}{counted}"]
        denominator = max(total if self.unit == "images" else sum(self.counts.values()), 1)
        if not self.audit.inventory.complete:
            lines += [f"  {line}" for line in self.audit.inventory.text().splitlines()]
        if 0 < len(self.counts) <= 100:
            rows = [(name, f"{n:6}", f"{n / denominator:6.1%}") for name, n in self.counts.items()]
            lines += [f"  {line}" for line in text_table(rows, "<>>")]
        if self.ignored_pixels:
            share = self.ignored_pixels / (self.ignored_pixels + sum(self.counts.values()))
            lines.append(f"  {self.ignored_pixels} pixels have no class ({share:.1%} of all)")
        if self.without_class is not None:
            lines.append(f"  {self.without_class} of the images show none of these classes")
        if self.sizes:
            lines.append(
                "image sizes, height x width in pixels: "
                + ", ".join(f"{name} {h} x {w}" for name, (h, w) in self.sizes.items())
            )
        if self.cut_off:
            lines.append(self.cut_off)
        if self.audit.oriented:
            lines.append(
                f"images rotated according to their EXIF orientation: {self.audit.oriented}"
            )
        parts = [self.audit.text(), self.audit.remedy(self.source) if self.audit.bad else ""]
        hint = "" if self.unit == "objects" else " (see class_weights=balanced)"
        rare = f"Classes below a tenth of the largest class{hint}"
        parts += sections(
            (
                "Duplicate images in several splits",
                [" = ".join(group) for group in self.leaks if group in self.audit.duplicates],
            ),
            (
                "Near-duplicate images in several splits; training keeps them, so that scores are "
                "too high: remove them from all splits but one",
                map(" = ".join, self.near_duplicate_leaks),
            ),
            (
                "Classes whose names differ only in case, outer spaces or Unicode form; move the "
                "images into one folder, or write one name in the table",
                map(self._similar_names_text, self.twin_classes),
            ),
            ("Unusual size", self.odd_sizes),
            ("Images with a single pixel value", self.flat),
            ("Nearly black images (were values in [0, 1] saved as 0 to 255?)", self.dark),
            ("Classes that never occur", [name for name, count in self.rare.items() if not count]),
            (rare, [f"{name}: {count}" for name, count in self.rare.items() if count]),
        )
        parts = list(filter(None, (*parts, self.refused)))
        parts = parts or ["No problems found; no two images have the same pixels."]
        return "\n".join([*lines, "", *parts])

    def _similar_names_text(self, names: tuple[str, ...]) -> str:
        counts = " = ".join(f"{name!r} ({self.counts[name]} images)" for name in names)
        folders = [Path(self.source, name) for name in names]
        if not all(folder.is_dir() for folder in folders):
            return counts
        keep, *others = (shlex.quote(str(folder)) for folder in folders)
        return f"{counts}: {'; '.join(f'mv -n {other}/* {keep}/' for other in others)}"

    def to_json(self) -> dict[str, Any]:
        """Returns the report as a JSON-serializable dictionary."""
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        audit = content.pop("audit")
        if self.images is None:
            for name in ("images", "without_class", "ignored_pixels", "unit"):
                del content[name]
        return {
            **content,
            "rare": self.rare,
            "oriented": audit.oriented,
            "inventory": dataclasses.asdict(audit.inventory),
            "bad": dict(audit.bad),
            "duplicates": audit.duplicates,
            "contradictions": audit.contradictions,
        }


def check(
    examples: Examples, found: ImageAudit | None = None, *, progress: bool = True
) -> DatasetReport:
    """Examines a dataset's classes, image sizes, duplicates and damaged files.

    Args:
        examples: The images.
        found: Audit of these or of more images; by default the images are audited here.
        progress: Whether to show a progress bar on the terminal.

    Returns:
        The report.

    Examples:
        >>> from keras_vit.data import load
        >>> print(check(load("digits").subset(range(200)), progress=False).text().splitlines()[-1])
        No problems found; no two images have the same pixels.
    """
    found = found.subset(examples) if found else audit(examples, progress=progress)
    usable = examples.subset([i for i, name in enumerate(examples.names) if name in found.digests])
    sides = np.array([found.sizes[name] for name in usable.names]).reshape(-1, 2)
    sizes: dict[str, tuple[int, int]] = {}
    odd_sizes: list[str] = []
    if len(sides):
        quantiles = np.quantile(sides, (0, 0.5, 1), axis=0)
        sizes = {name: (int(h), int(w)) for name, (h, w) in zip(_SIZES, quantiles, strict=True)}
        median = quantiles[1]
        ratio = np.maximum(sides / median, median / sides).max(axis=1)
        odd_sizes = [usable.names[int(i)] for i in np.flatnonzero(ratio > _ODD_FACTOR)]
    ranges = found.ranges
    splits = dict(zip(examples.names, examples.splits, strict=True)) if examples.splits else {}
    groups = (*found.duplicates, *found.twins)
    leaks = [group for group in groups if len({*map(splits.get, group)}) > 1]
    kind = usable.kind
    counts = kind.unit_counts(usable)
    classified = isinstance(kind, (ClassIndex, MultiHot))  # other tasks use whole images
    counted = classified or kind.unit != "images"
    may_lack_classes = usable.multi_label or kind.unit == "objects"
    refused = ""
    try:
        split(usable, found.digests, found.twins)
    except ValueError as error:
        refused = str(error)
    return DatasetReport(
        source=examples.source,
        counts=dict(zip(examples.class_names, counts.tolist(), strict=True)) if counted else {},
        audit=found,
        leaks=tuple(leaks),
        sizes=sizes,
        odd_sizes=tuple(odd_sizes),
        flat=tuple(name for name in usable.names if ranges[name][0] == ranges[name][1]),
        dark=tuple(name for name in usable.names if ranges[name][0] < ranges[name][1] <= _MAX_DARK),
        refused=refused,
        ignored_pixels=int(sides.prod(axis=1).sum() - counts.sum()) if kind.unit == "pixels" else 0,
        images=None if isinstance(kind, ClassIndex) else len(usable),
        without_class=int((~kind.indicators(usable).any(axis=1)).sum())
        if may_lack_classes
        else None,
        unit=kind.unit,
        notes=examples.notes,
        twin_classes=examples.similar_class_names(),
        cut_off=cut_off(found.sizes, Preprocessing()) if classified else "",
    )
