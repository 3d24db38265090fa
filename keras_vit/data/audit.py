"""Looks at every image before training starts: does it decode, is it there twice?"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import PIL.Image
import tensorflow as tf
from rich.console import Console
from rich.progress import track

from keras_vit import checks
from keras_vit.constants import MAX_IMAGE_SIDE, MIN_IMAGE_SIDE
from keras_vit.data import exif, pixels
from keras_vit.data.examples import Examples
from keras_vit.preprocessing import Preprocessing

ON_BAD_IMAGE = ("fail", "skip")
_LISTED = 20
_SIGNATURES = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG": "PNG",
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"RIFF": "WebP",
}


@dataclasses.dataclass(frozen=True)
class Audit:
    """What is wrong with a set of images, and which of them are the same.

    Args:
        bad: Name and reason for each image that cannot be used.
        digests: For each other image, its name and the SHA-256 of its decoded pixels, 64
            hexadecimal digits: equal for equal pictures, whatever the file format.
        duplicates: Names of the images with the same content, a tuple for each content that
            occurs more than once.
        contradictions: Those of `duplicates` that stand under different labels.
        sizes: For each usable image, its name and its height and width in pixels.
        ranges: For each usable image, its name and its lowest and highest pixel value.
        oriented: How many usable images a camera noted another orientation of than upright.

    Example:
        >>> report = Audit(bad=(("rose/a.jpg", "not an image"),), digests={"rose/b.jpg": "0" * 64})
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

    def accept(self, examples: Examples, on_bad_image: str = "fail") -> Examples:
        """Returns the images that can be used.

        Args:
            examples: The images that were audited.
            on_bad_image: `"fail"` raises an error if there are bad images, `"skip"` leaves them
                out.

        Returns:
            `examples`, without the bad images.

        Raises:
            ValueError: If there are bad images and `on_bad_image` is `"fail"`, or if no image
                is left.

        Example:
            >>> from keras_vit.data import load
            >>> digits = load("digits").subset([2, 3, 5])
            >>> len(audit(digits, progress=False).accept(digits))
            3
        """
        checks.one_of("on_bad_image", on_bad_image, ON_BAD_IMAGE)
        if self.bad and on_bad_image == "fail":
            raise ValueError(
                f"Every image of {examples.source} must decode. Repair or remove the files, or "
                f"leave them out with --on-bad-image skip. Received: {self._bad_text()}"
            )
        kept = [i for i, name in enumerate(examples.names) if name in self.digests]
        if not kept:
            raise ValueError(f"No image of {examples.source} can be used: {self._bad_text()}")
        return examples.subset(kept)

    def text(self) -> str:
        """Returns a report to print, of at most twenty names in each part; empty if all is well."""
        parts = [self._bad_text()] if self.bad else []
        agreeing = [group for group in self.duplicates if group not in self.contradictions]
        for groups, fact in (
            (self.contradictions, "Same content under different labels"),
            (agreeing, "Same content more than once"),
        ):
            if groups:
                lines = [" = ".join(group) for group in groups]
                parts.append(listed(f"{fact} ({len(groups)}):", lines))
        return "\n".join(parts)

    def _bad_text(self) -> str:
        total = len(self.bad) + len(self.digests)
        lines = [f"{name}: {reason}" for name, reason in self.bad]
        return listed(f"{len(self.bad)} of {total} images cannot be used:", lines)


def listed(title: str, lines: list[str]) -> str:
    """Returns a title and at most twenty lines below it.

    Args:
        title: The title.
        lines: The lines.

    Returns:
        Text to print.

    Example:
        >>> print(listed("Flowers:", ["daisy", "rose"]))
        Flowers:
          daisy
          rose
    """
    more = [f"... and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return "\n  ".join([title, *lines[:_LISTED], *more])


def audit(examples: Examples, *, progress: bool = True) -> Audit:
    """Decodes every image once, in threads, with the decoder that training uses.

    Args:
        examples: The images.
        progress: Whether to show a progress bar on the terminal.

    Returns:
        Which images cannot be used and why, and which are the same.

    Example:
        >>> from keras_vit.data import load
        >>> audit(load("digits").subset(range(7)), progress=False).text()
        ''
    """
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        inspected = threads.map(lambda index: _inspect(examples, index), range(len(examples)))
        if progress:
            console = Console(stderr=True)
            findings = list(track(inspected, "Checking images", len(examples), console=console))
        else:
            findings = list(inspected)  # a bar that is disabled writes a line in rich 13
    bad, good = [], {}
    groups: dict[str, list[int]] = defaultdict(list)
    for index, (name, found) in enumerate(zip(examples.names, findings, strict=True)):
        if isinstance(found, str):
            bad.append((name, found))
        else:
            good[name] = found
            groups[found.digest].append(index)
    repeated = [group for group in groups.values() if len(group) > 1]
    disputed = [group for group in repeated if len(np.unique(examples.labels[group], axis=0)) > 1]

    def names(groups: list[list[int]]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(examples.names[i] for i in group) for group in groups)

    return Audit(
        tuple(bad),
        {name: found.digest for name, found in good.items()},
        names(repeated),
        names(disputed),
        {name: found.size for name, found in good.items()},
        {name: found.range for name, found in good.items()},
        sum(found.oriented for found in good.values()),
    )


@dataclasses.dataclass(frozen=True)
class _Image:
    digest: str
    size: tuple[int, int]
    range: tuple[int, int]
    oriented: bool


def _inspect(examples: Examples, index: int) -> _Image | str:
    """Returns what an image is, or why it cannot be used."""
    try:
        encoded = examples.read(index)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    # The header is looked at first: a small file can claim more pixels than there is memory.
    if reason := _wrong_size(encoded):
        return reason
    with tf.device("CPU"):
        image, oriented = (found.numpy() for found in _decode(encoded))
    if not image.size:
        kind = next((name for start, name in _SIGNATURES.items() if encoded.startswith(start)), "")
        return f"damaged or truncated {kind}" if kind else "not a JPEG, PNG, GIF, BMP or WebP"
    height, width = image.shape[:2]
    extremes = int(image.min()), int(image.max())
    return _Image(_digest(image), (height, width), extremes, bool(oriented))


@tf.function(input_signature=[tf.TensorSpec((), tf.string)])
def _decode(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns pixels, none if the image is damaged, and whether it has an orientation.

    No error is raised: from Python 3.12 on, TensorFlow hangs if two threads raise one.
    """

    def decoded(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return pixels.decode(encoded, Preprocessing()), exif.orientation(encoded) != 1

    none = tf.data.Dataset.from_tensors((tf.zeros((0, 0, 3), tf.uint8), False))
    images = tf.data.Dataset.from_tensors(encoded).map(decoded).ignore_errors()
    return images.concatenate(none).take(1).get_single_element()


def _wrong_size(encoded: bytes) -> str:
    try:
        with PIL.Image.open(io.BytesIO(encoded)) as image:
            width, height = image.size
    except PIL.Image.DecompressionBombError:
        return "more pixels than Pillow considers safe to decode"
    except (OSError, SyntaxError, ValueError):  # the decoder has the last word on what is an image
        return ""
    if min(width, height) < MIN_IMAGE_SIDE:
        return f"{width} x {height} pixels; the shorter side must be at least {MIN_IMAGE_SIDE}"
    if max(width, height) > MAX_IMAGE_SIDE:
        return f"{width} x {height} pixels; the longer side must be at most {MAX_IMAGE_SIDE}"
    return ""


def _digest(image: np.ndarray) -> str:
    # With the shape: 2 x 6 black pixels are not 3 x 4 of them.
    digest = hashlib.sha256(str(image.shape).encode())
    digest.update(image.data)
    return digest.hexdigest()
