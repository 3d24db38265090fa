"""Audit of all images before training: undecodable files, duplicates, conflicting labels."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from keras_vit import arguments
from keras_vit.data import image_reading
from keras_vit.data.audit_cache import AuditCache
from keras_vit.data.examples import Examples
from keras_vit.data.inspection import ImageProperties, inspect_images
from keras_vit.data.inventory import Inventory, count_images
from keras_vit.data.near_duplicates import find_near_duplicates
from keras_vit.escapes import say
from keras_vit.image_formats import CONVERTIBLE

ON_BAD_IMAGE = ("fail", "skip")
#: Largest number of images that are audited before training; more are audited during training.
AUDITED_FIRST = 100_000
_IMAGES_PER_TASK = 8  # of a thread
_IMAGES_PER_WRITE = 512  # to the cache


@dataclasses.dataclass(frozen=True)
class ImageAudit:
    """Result of an image audit: unusable files, duplicates and conflicting labels.

    Args:
        bad: Name and reason of each unusable image.
        digests: Name of each usable image -> SHA-256 of its decoded pixels, 64 hexadecimal digits:
            equal for equal pixels, independent of the file format.
        duplicates: Names of the images with the same content, a tuple for each content that
            occurs more than once.
        contradictions: The groups in `duplicates` whose images have different labels.
        sizes: Name of each usable image -> height and width in pixels.
        ranges: Name of each usable image -> lowest and highest pixel value.
        oriented: Number of usable images whose Exif orientation is not upright.
        inventory: Counts of all files of the source.
        narrow: Names of 16-bit images that use less than a quarter of their range.
        twins: Names of images of the same photograph, by name or content, that differ in pixels.
        other_colors: Names of images whose color profile has other primaries than sRGB.
        findings: Name of each image -> its properties, or the reason why it is unusable.

    Examples:
        >>> bad = (("rose/a.jpg", "not an image"),)
        >>> report = ImageAudit(bad=bad, digests={"rose/b.jpg": "0" * 64})
        >>> print(report.text())
        1 of 2 images cannot be used:
          rose/a.jpg: not an image
    """

    bad: tuple[tuple[str, str], ...]
    digests: Mapping[str, str]
    duplicates: tuple[tuple[str, ...], ...] = ()
    contradictions: tuple[tuple[str, ...], ...] = ()
    sizes: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    oriented: int = 0
    inventory: Inventory = dataclasses.field(default_factory=Inventory)
    narrow: tuple[str, ...] = ()
    twins: tuple[tuple[str, ...], ...] = ()
    other_colors: tuple[str, ...] = ()
    findings: Mapping[str, ImageProperties | str] = dataclasses.field(
        default_factory=dict, compare=False, repr=False
    )

    def subset(self, examples: Examples) -> ImageAudit:
        """Returns the audit of some of the audited images, without decoding them again.

        Args:
            examples: The images.

        Examples:
            >>> from keras_vit.data import load
            >>> digits = load("digits").subset([2, 3, 5])
            >>> result = audit(digits, progress=False)
            >>> result.subset(digits.subset([1])) == audit(digits.subset([1]), progress=False)
            True
        """
        return _summary(examples, [self.findings[name] for name in examples.names])

    def accept(self, examples: Examples, on_bad_image: str = "fail") -> Examples:
        """Returns the usable images; by default, raises `ValueError` if any images are bad.

        Args:
            examples: The audited images.
            on_bad_image: `"fail"` raises an error if there are bad images, `"skip"` removes
                them.

        Returns:
            `examples`, without the bad images.

        Raises:
            ValueError: If there are bad images and `on_bad_image` is `"fail"`, or if a class
                loses all its images.

        Examples:
            >>> from keras_vit.data import load
            >>> digits = load("digits").subset([2, 3, 5])
            >>> len(audit(digits, progress=False).accept(digits))
            3
        """
        arguments.one_of("on_bad_image", on_bad_image, ON_BAD_IMAGE)
        usable = [i for i, name in enumerate(examples.names) if name in self.digests]
        accepted = examples.subset(usable)
        empty = np.flatnonzero((examples.class_counts() > 0) & (accepted.class_counts() == 0))
        if self.bad and (on_bad_image == "fail" or len(empty) or not usable):
            classes = arguments.shortlist([examples.class_names[i] for i in empty], shown=20)
            note = f" No images are left for the classes {classes}." if classes else ""
            remedy = self.remedy(examples.source)
            raise ValueError(
                f"Every image of {examples.source} must be readable. {remedy} "
                f"Received: {self._bad_images_text()}\n{self.inventory.text()}{note}"
            )
        return accepted

    def remedy(self, source: str) -> str:
        """Returns a hint on how to handle the unusable images of a data source."""
        skip = "train without the images with --on-bad-image skip."
        convertible = CONVERTIBLE | {f"is {kind}" for kind in image_reading.REFUSED}
        if any(reason in convertible for _, reason in self.bad):
            folder = Path(source).parent if Path(source).is_file() else Path(source)
            command = arguments.command("data", "convert", folder, "NEW_FOLDER")
            how = f"with `{command}`" if folder.is_dir() else "to JPEG or PNG"
            return f"Convert the images {how}, or {skip}"
        return f"Repair or remove the files, or {skip}"

    def text(self) -> str:
        """Returns the problems as text with at most twenty names per section, or `""`."""
        parts = [self._bad_images_text()] if self.bad else []
        same_label = [group for group in self.duplicates if group not in self.contradictions]
        narrow_title = (
            "16-bit images that use less than a quarter of their value range, so they are dark "
            "in 8 bits; `keras-vit data convert` stretches the range"
        )
        parts += sections(
            ("Duplicate images with different labels", map(" = ".join, self.contradictions)),
            ("Duplicate images with the same label", map(" = ".join, same_label)),
            (
                "Images of the same photograph by name or content, kept on one side of a new split",
                map(" = ".join, self.twins),
            ),
            (narrow_title, self.narrow),
            (
                "Images with a color profile other than sRGB, which is ignored, so that colors are "
                "wrong; `keras-vit data convert` converts them",
                self.other_colors,
            ),
        )
        return "\n".join(parts)

    def _bad_images_text(self) -> str:
        total = len(self.bad) + len(self.digests)
        lines = [f"{name}: {reason}" for name, reason in self.bad]
        return arguments.listed(f"{len(self.bad)} of {total} images cannot be used:", lines)


def sections(*titles_and_names: tuple[str, Iterable[str]]) -> list[str]:
    """Formats each non-empty section: the title, the number of names and the names."""
    lists = [(title, list(names)) for title, names in titles_and_names]
    return [arguments.listed(f"{title} ({len(names)}):", names) for title, names in lists if names]


def audit(examples: Examples, *, progress: bool = True) -> ImageAudit:
    """Audits all images in parallel threads, using the training decoder once per image.

    Args:
        examples: The images.
        progress: Whether to show a progress bar on the terminal.

    Returns:
        The audit: unusable images with reasons, and duplicates.

    Examples:
        >>> from keras_vit.data import load
        >>> audit(load("digits").subset(range(7)), progress=False).text()
        ''
    """
    results = inspection_results(examples, os.cpu_count() or 1)
    if progress:  # a disabled progress bar prints a line in rich 13
        results = _with_progress_bar(results, len(examples))
    return _summary(examples, list(results))


def inspection_results(examples: Examples, threads: int) -> Iterator[ImageProperties | str]:
    """Yields each image's properties, or why it is unusable; decodes no unchanged cached images."""
    cache = AuditCache(examples)
    with contextlib.closing(cache), ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(examples), _IMAGES_PER_WRITE):
            indices = range(start, min(start + _IMAGES_PER_WRITE, len(examples)))
            uncached: dict[int, ImageProperties | str] = {}
            inspect = functools.partial(_inspect, examples, cache.get(indices), uncached)
            starts = range(0, len(indices), _IMAGES_PER_TASK)
            tasks = [indices[start : start + _IMAGES_PER_TASK] for start in starts]
            yield from itertools.chain.from_iterable(pool.map(inspect, tasks))
            cache.put(uncached)


def _inspect(
    examples: Examples,
    cached: Mapping[int, ImageProperties | str],
    uncached: dict[int, ImageProperties | str],
    indices: Sequence[int],
) -> list[ImageProperties | str]:
    """Returns the properties or problems of images and their targets; adds to `uncached`."""
    missing = [index for index in indices if index not in cached]
    if missing:
        uncached.update(zip(missing, inspect_images(examples, missing), strict=True))
    results = [cached.get(index) or uncached[index] for index in indices]
    return [
        result
        if isinstance(result, str)
        else examples.kind.problem(examples, index, result.size) or result
        for index, result in zip(indices, results, strict=True)
    ]


def _summary(examples: Examples, results: Sequence[ImageProperties | str]) -> ImageAudit:
    """Returns the audit for the properties or the problem of each image."""
    bad, good = {}, {}
    groups: dict[str, list[int]] = defaultdict(list)
    for index, (name, result) in enumerate(zip(examples.names, results, strict=True)):
        if isinstance(result, str):
            bad[index] = result
        else:
            good[name] = result
            groups[result.digest].append(index)
    duplicates = [group for group in groups.values() if len(group) > 1]
    agree = examples.kind.agree
    contradictions = [group for group in duplicates if not agree(examples.targets[group])]

    def names(groups: list[list[int]]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(examples.names[i] for i in group) for group in groups)

    return ImageAudit(
        bad=tuple((examples.names[index], reason) for index, reason in bad.items()),
        digests={name: image.digest for name, image in good.items()},
        duplicates=names(duplicates),
        contradictions=names(contradictions),
        sizes={name: image.size for name, image in good.items()},
        ranges={name: image.range for name, image in good.items()},
        oriented=sum(image.oriented for image in good.values()),
        inventory=count_images(examples, bad),
        narrow=tuple(name for name, image in good.items() if image.narrow),
        twins=tuple(
            group
            for group in find_near_duplicates({name: image.hash for name, image in good.items()})
            if len({good[name].digest for name in group}) > 1
        ),
        other_colors=tuple(name for name, image in good.items() if image.other_colors),
        findings=dict(zip(examples.names, results, strict=True)),
    )


def readable_images(examples: Examples, on_bad_image: str = "fail") -> Examples:
    """Audits images again after a read error, and returns those that are readable.

    Args:
        examples: The images.
        on_bad_image: `"fail"` or `"skip"`, see `ImageAudit.accept`.

    Returns:
        The readable images.

    Raises:
        ValueError: As `ImageAudit.accept` does.

    Examples:
        >>> from keras_vit.data import load
        >>> len(readable_images(load("digits").subset(range(7))))
        7
    """
    result = audit(examples, progress=len(examples) > AUDITED_FIRST)
    accepted = result.accept(examples, on_bad_image)
    if result.bad:
        say(f"\nContinuing without the images that can no longer be read:\n{result.text()}")
    return accepted


def usable_images(
    examples: Examples, on_bad_image: str = "fail", *, progress: bool = True
) -> tuple[Examples, ImageAudit]:
    """Audits images, prints a report, and returns the usable images.

    Args:
        examples: The images.
        on_bad_image: `"fail"` or `"skip"`, see `ImageAudit.accept`.
        progress: Whether to show a progress bar on the terminal.

    Returns:
        The usable images, and the audit of all images.

    Raises:
        ValueError: As `ImageAudit.accept` does.

    Examples:
        >>> from keras_vit.data import load
        >>> usable, result = usable_images(load("digits").subset(range(7)), progress=False)
        Checking the images of digits ...
        >>> len(usable)
        7
    """
    say_notes(examples)
    say(f"Checking the images of {examples.source} ...")
    result = audit(examples, progress=progress)
    accepted = result.accept(examples, on_bad_image)
    if not result.inventory.complete:
        say(result.inventory.text())
    if result.text():
        say(result.text())
    return accepted, result


def say_notes(examples: Examples) -> None:
    """Prints how a data source was read, and classes that seem to be the same."""
    for note in examples.notes:
        say(note)
    for group in examples.similar_class_names():
        say(
            f"Classes whose names differ only in case, outer spaces or Unicode form: {group}; "
            "`keras-vit data check` shows how to merge them."
        )


def _with_progress_bar(
    results: Iterable[ImageProperties | str], total: int
) -> Iterator[ImageProperties | str]:
    """Yields the results while updating a progress bar."""
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield from bar.track(results, total=total, description="Checking images")
