"""Audit of all images before training: undecodable files, duplicates, conflicting labels."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import PIL.Image
import tensorflow as tf
from PIL import ImageCms
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from keras_vit import arguments
from keras_vit.constants import MIN_IMAGE_SIDE
from keras_vit.data import image_reading
from keras_vit.data.examples import Examples
from keras_vit.data.inventory import Inventory, count_images
from keras_vit.data.twins import content_hash, find_twins
from keras_vit.escapes import say
from keras_vit.image_formats import CONVERTIBLE, DECODED, image_format

ON_BAD_IMAGE = ("fail", "skip")
_AT_ONCE = 8  # images per task of a thread
_FOREIGN = f"not a {', '.join(DECODED[:-1])} or {DECODED[-1]}"
_NARROW = 64  # of 256 values: a quarter
_FILL = 128  # each channel of the pixels of missing JPEG blocks
_INSERTED = 64  # bytes
_HEAD = 2**16  # bytes in which a color profile begins
# CIE XYZ of the red, green and blue of sRGB, adapted to D50 (https://www.color.org/srgbprofiles.xalter).
_SRGB = ((0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141))
_SAME = 0.02  # largest difference of rounded values


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
        other_colors: Names of images whose color profile has other primaries than sRGB.
        twins: Names of images of the same photograph, by name or content, that differ in pixels.

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
        kept = [i for i, name in enumerate(examples.names) if name in self.digests]
        accepted = examples.subset(kept)
        lost = np.flatnonzero((examples.class_counts() > 0) & (accepted.class_counts() == 0))
        if self.bad and (on_bad_image == "fail" or len(lost) or not kept):
            classes = arguments.shortlist([examples.class_names[i] for i in lost], shown=20)
            without = f" No images are left for the classes {classes}." if classes else ""
            remedy = self.remedy(examples.source)
            raise ValueError(
                f"Every image of {examples.source} must be readable. {remedy} "
                f"Received: {self._bad_text()}\n{self.inventory.text()}{without}"
            )
        return accepted

    def remedy(self, source: str) -> str:
        """Returns a hint on how to handle the unusable images of a data source."""
        skip = "leave the images out with --on-bad-image skip."
        refused = {f"is {kind}" for kind in image_reading.REFUSED}
        if (refused | CONVERTIBLE) & {reason for _, reason in self.bad}:
            return (
                "Convert the images with "
                f"`{arguments.command('data', 'convert', source, 'NEW_FOLDER')}`, or {skip}"
            )
        return f"Repair or remove the files, or {skip}"

    def text(self) -> str:
        """Returns the problems as text with at most twenty names per section, or `""`."""
        parts = [self._bad_text()] if self.bad else []
        agreeing = [group for group in self.duplicates if group not in self.contradictions]
        narrow = (
            "16-bit images that use less than a quarter of their value range, so they are dark "
            "in 8 bits; `keras-vit data convert` stretches the range"
        )
        parts += sections(
            ("Duplicate images with different labels", map(" = ".join, self.contradictions)),
            ("Duplicate images with the same label", map(" = ".join, agreeing)),
            (
                "Images of the same photograph by name or content, kept on one side of a new split",
                map(" = ".join, self.twins),
            ),
            (narrow, self.narrow),
            (
                "Images with a color profile other than sRGB, which is ignored, so that colors are "
                "wrong; `keras-vit data convert` converts them",
                self.other_colors,
            ),
        )
        return "\n".join(parts)

    def _bad_text(self) -> str:
        total = len(self.bad) + len(self.digests)
        lines = [f"{name}: {reason}" for name, reason in self.bad]
        return arguments.listed(f"{len(self.bad)} of {total} images cannot be used:", lines)


def sections(*found: tuple[str, Iterable[str]]) -> list[str]:
    """Formats each non-empty section: the title, the number of names and the names."""
    listed = [(title, list(names)) for title, names in found]
    return [arguments.listed(f"{title} ({len(names)}):", names) for title, names in listed if names]


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
    parts = [range(i, min(i + _AT_ONCE, len(examples))) for i in range(0, len(examples), _AT_ONCE)]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        inspected = threads.map(functools.partial(_inspect, examples), parts)
        images = itertools.chain.from_iterable(inspected)
        # A disabled progress bar prints a line in rich 13.
        findings = list(_with_bar(images, len(examples)) if progress else images)
    bad, good = {}, {}
    groups: dict[str, list[int]] = defaultdict(list)
    for index, (name, found) in enumerate(zip(examples.names, findings, strict=True)):
        if isinstance(found, str):
            bad[index] = found
        else:
            good[name] = found
            groups[found.digest].append(index)
    repeated = [group for group in groups.values() if len(group) > 1]
    disputed = [group for group in repeated if not examples.kind.agree(examples.targets[group])]

    def names(groups: list[list[int]]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(examples.names[i] for i in group) for group in groups)

    return ImageAudit(
        tuple((examples.names[index], reason) for index, reason in bad.items()),
        {name: found.digest for name, found in good.items()},
        names(repeated),
        names(disputed),
        {name: found.size for name, found in good.items()},
        {name: found.range for name, found in good.items()},
        sum(found.oriented for found in good.values()),
        count_images(examples, bad),
        tuple(name for name, found in good.items() if found.narrow),
        tuple(
            group
            for group in find_twins({name: found.hash for name, found in good.items()})
            if len({good[name].digest for name in group}) > 1
        ),
        tuple(name for name, found in good.items() if found.other_colors),
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
    found = audit(examples, progress=False)
    accepted = found.accept(examples, on_bad_image)
    if found.bad:
        say(f"\nContinuing without the images that can no longer be read:\n{found.text()}")
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
        >>> kept, found = usable_images(load("digits").subset(range(7)), progress=False)
        Checking the images of digits ...
        >>> len(kept)
        7
    """
    for note in examples.notes:
        say(note)
    for group in examples.twin_classes():
        say(
            f"Classes whose names differ only in case, outer blanks or Unicode form: {group}; "
            "`keras-vit data check` shows how to merge them."
        )
    say(f"Checking the images of {examples.source} ...")
    found = audit(examples, progress=progress)
    accepted = found.accept(examples, on_bad_image)
    if not found.inventory.complete:
        say(found.inventory.text())
    if found.text():
        say(found.text())
    return accepted, found


@dataclasses.dataclass(frozen=True)
class _Image:
    digest: str
    size: tuple[int, int]
    range: tuple[int, int]
    oriented: bool
    narrow: bool
    hash: np.ndarray | None
    other_colors: bool


def _with_bar(images: Iterable[_Image | str], total: int) -> Iterator[_Image | str]:
    """Yields the images while updating a progress bar."""
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield from bar.track(images, total=total, description="Checking images")


def _inspect(examples: Examples, indices: Sequence[int]) -> list[_Image | str]:
    """Returns an `_Image` for each image, or the reason why the image cannot be used."""
    contents: list[bytes] = []
    found: dict[int, _Image | str] = {}
    for place, index in enumerate(indices):
        contents.append(b"")
        try:
            contents[place] = examples.read(index)
        except OSError as error:
            found[place] = f"cannot be read: {error.strerror}"
    with tf.device("CPU"):
        small = image_reading.inspect_small(tf.constant(contents))
    for place, sides, oriented, pixels in zip(*(part.numpy() for part in small), strict=True):
        if sides.any():
            image = np.frombuffer(pixels[-3 * int(np.prod(sides)) :], np.uint8).reshape(*sides, 3)
            found[place] = _image(image, bool(oriented), contents[place])
    for place, index in enumerate(indices):
        if place not in found:
            found[place] = _inspect_alone(contents[place], examples.names[index])
        if isinstance(readable := found[place], _Image):
            found[place] = examples.kind.problem(examples, index, readable.size) or readable
    return [found[place] for place in range(len(contents))]


def _inspect_alone(encoded: bytes, name: str) -> _Image | str:
    with tf.device("CPU"):
        pixels, oriented, header = image_reading.inspect(tf.constant(encoded))
    if int(header.code) != image_reading.GOOD:
        kind = image_format(encoded, name)
        if kind not in DECODED:
            return kind or (_FOREIGN if encoded else "empty file")
        if int(header.code) == image_reading.DAMAGED:
            return f"damaged or truncated {kind}"
        text = image_reading.message(header, image_reading.LOCAL).numpy().decode()
        return text.removeprefix("The image ")
    found = _image(pixels.numpy(), bool(oriented), encoded)
    size = (int(header.height), int(header.width))  # before a JPEG is decoded at 1/2 or 1/4
    return found if isinstance(found, str) else dataclasses.replace(found, size=size)


def _image(image: np.ndarray, oriented: bool, encoded: bytes) -> _Image | str:
    height, width = image.shape[:2]
    if min(height, width) < MIN_IMAGE_SIDE:
        return f"{width} x {height} pixels; the shorter side must be at least {MIN_IMAGE_SIDE}"
    if _lacks_data(image, encoded):
        return "damaged or truncated JPEG"
    low, high = int(image.min()), int(image.max())
    has_16_bits = encoded.startswith(b"\x89PNG") and encoded[24] == 16
    narrow = has_16_bits and low < high < low + _NARROW
    # Includes the shape: 2 x 6 black pixels differ from 3 x 4 black pixels.
    digest = hashlib.sha256(str(image.shape).encode())
    digest.update(image.data)
    size, values = (height, width), (low, high)
    other = _has_other_colors(encoded)
    return _Image(digest.hexdigest(), size, values, oriented, narrow, content_hash(image), other)


def _has_other_colors(encoded: bytes) -> bool:
    """Returns whether an image has a color profile with other primaries than sRGB."""
    if not re.search(b"ICC_PROFILE|iCCP|ICCP", encoded[:_HEAD]):
        return False
    with contextlib.suppress(OSError, ValueError, SyntaxError, ImageCms.PyCMSError):
        with PIL.Image.open(io.BytesIO(encoded)) as image:
            content = image.info.get("icc_profile") or b""
        profile = ImageCms.ImageCmsProfile(io.BytesIO(content)).profile
        colorants = profile.red_colorant, profile.green_colorant, profile.blue_colorant
        found = np.array([xyz for xyz, _ in filter(None, colorants)])
        return found.shape == (3, 3) and bool(np.abs(found - _SRGB).max() > _SAME)
    return False


def _lacks_data(image: np.ndarray, encoded: bytes) -> bool:
    """Returns whether the data of a baseline JPEG end before its last block.

    The decoder fills the missing blocks with gray. Data inserted before the end-of-image marker
    change these blocks, but no block of a complete image.
    """
    ends = slice(2), slice(-2, None)
    gray = any((image[rows, columns] == _FILL).all() for rows in ends for columns in ends)
    if not gray or not encoded.startswith(b"\xff\xd8"):
        return False
    end = encoded.rfind(b"\xff\xd9")
    inserted = encoded[:end] + encoded[max(end - _INSERTED, 0) :]
    with tf.device("CPU"):
        again = image_reading.inspect(tf.constant(inserted))[0].numpy()
    return not np.array_equal(again, image)
