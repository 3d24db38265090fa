"""Masks as targets: the class of each pixel of an image.

Letters: H, W height and width of an upright image; K classes.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from keras_vit.arguments import shortlist
from keras_vit.data.geometry import Geometry, cut_mask
from keras_vit.data.target_kinds import Examples, TargetKind, model_classes, size_mismatch
from keras_vit.storage.paths import AnyPath, to_path

IGNORED = 255  # class of pixels that count in no loss and in no score
MAX_CLASSES = 255


class Masks(TargetKind):
    """A class for each pixel: (h, w), uint8, `IGNORED` for pixels without a class.

    Args:
        values: Value of each class in the files of masks, in the order of the classes: gray levels
            or indices of a palette; or colors (red, green, blue).
        ignored: Further values, of pixels without a class. 255 is one unless it is in `values`.
    """

    dense, column, unit = True, "mask", "pixels"

    def __init__(
        self, values: Sequence[int | tuple[int, int, int]], ignored: Sequence[Any] = ()
    ) -> None:
        if not 0 < len(values) <= MAX_CLASSES:
            raise ValueError(
                f"`values` must be those of 1 to {MAX_CLASSES} classes. Received: {len(values)}"
            )
        self.colored = isinstance(values[0], tuple)
        codes = {_code(value): IGNORED for value in ignored}
        if not self.colored:
            codes[IGNORED] = IGNORED
        codes |= {_code(value): index for index, value in enumerate(values)}
        self.codes = np.array(sorted(codes))
        self.indices = np.array([codes[code] for code in sorted(codes)], np.uint8)

    def read(self, target: Any) -> np.ndarray:
        """Returns the classes of a mask's pixels (H, W), or raises `ValueError`."""
        stored = stored_values(to_path(target), self.colored)
        positions = np.searchsorted(self.codes, stored).clip(max=len(self.codes) - 1)
        if (unknown := stored[self.codes[positions] != stored]).size:
            wrong, known = (
                shortlist([_code_text(code, self.colored) for code in np.unique(codes).tolist()])
                for codes in (unknown, self.codes)
            )
            raise ValueError(f"the mask has values that are not a class: {wrong}, not {known}")
        return self.indices[positions]

    def reader(self, examples: Examples) -> Callable[[tf.Tensor], Any]:
        """Returns a function from an image's index to its mask (H, W), uint8."""

        def mask(index: tf.Tensor) -> tf.Tensor:
            pixels = tf.numpy_function(lambda i: self.read(examples.targets[i]), [index], tf.uint8)
            return tf.ensure_shape(pixels, (None, None))

        return mask

    def loaded(self, examples: Examples) -> list[np.ndarray]:
        """Returns the mask of each image (H, W)."""
        return [self.read(target) for target in examples.targets]

    def follow(self, target: Any, geometry: Geometry, size: tuple[int, int]) -> Any:
        """Returns the nearest pixels of the part in the model's input, (h, w)."""
        return cut_mask(target, geometry, size, IGNORED)

    def problem(self, examples: Examples, index: int, sides: tuple[int, int]) -> str | None:
        """Returns an error message if the mask cannot be read or has another size, else None."""
        try:
            mask_sides = self.read(examples.targets[index]).shape
        except (ValueError, OSError) as error:
            return str(error)
        return size_mismatch("the mask has another size than the image", mask_sides, sides)

    def unit_counts(self, examples: Examples) -> np.ndarray:
        """Returns the number of pixels of each class (K,)."""
        counts = np.zeros(256, np.int64)
        for target in examples.targets:
            counts += np.bincount(self.read(target).ravel(), minlength=256)
        return counts[: len(examples.class_names)]

    def with_classes(self, examples: Examples, class_names: tuple[str, ...]) -> Examples:
        """Returns the dataset with the classes of a model, which must have all of its classes."""
        number, kind = len(examples.class_names), copy.copy(self)
        order = np.full(256, IGNORED, np.uint8)
        order[:number] = model_classes(class_names, examples.class_names, np.arange(number))
        kind.indices = order[self.indices]
        return dataclasses.replace(examples, class_names=class_names, target_kind=kind)

    def check_trainable(self, examples: Examples) -> None:
        """Raises `ValueError` unless there are pixels of at least two classes."""
        present: set[int] = set()
        for target in examples.targets:
            present |= {*np.unique(self.read(target)).tolist()} - {IGNORED}
            if len(present) > 1:
                return
        raise ValueError(
            "Training needs pixels of at least two classes. Received: "
            f"{examples.source} with the classes {[examples.class_names[i] for i in present]}; "
            "all other pixels have none"
        )

    def text(self, examples: Examples, index: int) -> str:
        """Returns the name of the mask and the start of its SHA-256."""
        path = to_path(examples.targets[index])
        return f"{path.name}:{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"

    def agree(self, targets: np.ndarray) -> bool:
        """Returns whether the masks are equal."""
        first, *others = (self.read(target) for target in targets)
        return all(np.array_equal(first, other) for other in others)


def stored_values(path: AnyPath, colored: bool = False) -> np.ndarray:
    """Returns the values of a mask's pixels (H, W), or codes of their colors.

    Values are gray levels or indices of a palette. Raises `ValueError` if the file is not an image,
    or has colors where indices are expected.
    """
    try:
        with path.open("rb") as file, Image.open(file) as image:
            is_lossy_webp = image.format == "WEBP" and path.read_bytes()[12:16] == b"VP8 "
            if is_lossy_webp or image.format in ("JPEG", "MPO"):
                raise ValueError(
                    f"the mask is a lossy {image.format}, which changes values; save masks as PNG"
                )
            if colored:
                return _code(np.asarray(image.convert("RGB"), np.int64))
            values = np.asarray(image)
    except (OSError, RuntimeError, SyntaxError, Image.DecompressionBombError) as error:
        if not path.is_file():
            raise
        raise ValueError(f"the mask cannot be decoded: {error}") from error
    if values.ndim == 3:
        colors = values[..., :3] if values.shape[-1] > 2 else values[..., :1]  # without alpha
        if (colors != values[..., :1]).any():
            raise ValueError(
                "the mask has colors; add a file class_dict.csv with the columns name, r, g, b"
            )
        values = values[..., 0]
    if values.dtype.kind == "f":
        raise ValueError("the mask must have integer values")
    return values.astype(np.int64)


def _code(value: Any) -> Any:
    """Returns one number for a gray level, or for colors (..., 3)."""
    if np.ndim(value) == 0:
        return value
    code = np.asarray(value, np.int64) @ (1 << 16, 1 << 8, 1)
    return code if np.ndim(code) else int(code)


def _code_text(code: int, colored: bool) -> str:
    return str((code >> 16, code >> 8 & 255, code & 255)) if colored else str(code)
