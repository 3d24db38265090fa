"""ImageNet's reassessed labels (ReaL): every class that an image shows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from keras_vit.evaluation.intervals import wilson

_VALIDATION_IMAGE = re.compile(r"ILSVRC2012_val_(\d{8})\.[A-Za-z]+$")
_CLASSES = 1000


class RealAccuracy(NamedTuple):
    """Accuracy by the reassessed labels.

    Args:
        accuracy: Share of the images whose most probable class is one of those it shows.
        interval: Its 95% Wilson interval.
        images: Images counted: those that show at least one class.

    Example:
        >>> RealAccuracy(0.9, (0.85, 0.93), 200).images
        200
    """

    accuracy: float
    interval: tuple[float, float]
    images: int


def real_accuracy(
    names: Sequence[str], predicted: ArrayLike, path: str | os.PathLike[str]
) -> RealAccuracy:
    """Scores predictions by the reassessed labels.

    Args:
        names: Files of the images; each has to end in the name of a validation image of ImageNet,
            such as `ILSVRC2012_val_00000001.JPEG`, whose number counts from 1.
        predicted: ImageNet class of each image, (N,).
        path: The file `real.json` of the authors: for each of the validation images the list of
            its classes, which may be empty.

    Returns:
        The accuracy on the images whose list is not empty, as its authors count.

    Raises:
        ValueError: If the file is another one, an image no validation image of ImageNet, or none
            of them has a class.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "real.json"
        >>> _ = path.write_text("[[65], [], [3, 4]]")
        >>> names = [f"val/ILSVRC2012_val_0000000{n}.JPEG" for n in (1, 2, 3)]
        >>> real_accuracy(names, [65, 7, 5], path).accuracy
        0.5

    Reference: https://arxiv.org/abs/2006.07159,
    https://github.com/google-research/reassessed-imagenet
    """
    lists = _read(path)
    right = []
    for name, index in zip(names, np.asarray(predicted).tolist(), strict=True):
        match = _VALIDATION_IMAGE.search(name)
        if not match or not 1 <= int(match[1]) <= len(lists):
            raise ValueError(
                "Every image must be named as in ImageNet's validation set, such as "
                f"ILSVRC2012_val_00000001.JPEG, up to {len(lists)}, to have a reassessed label. "
                f"Received: {name!r}"
            )
        shown = lists[int(match[1]) - 1]
        if shown:
            right.append(index in shown)
    if not right:
        raise ValueError(
            f"At least one image must have a reassessed label in {path}. "
            f"Received: {len(names)} images without"
        )
    return RealAccuracy(float(np.mean(right)), wilson(sum(right), len(right)), len(right))


def _read(path: str | os.PathLike[str]) -> list[list[int]]:
    try:
        lists = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} must be a readable JSON file. Received: {error}") from error
    if not isinstance(lists, list) or not all(_is_list_of_classes(item) for item in lists):
        raise ValueError(
            f"{path} must hold a list of lists of ImageNet classes, 0 to 999, one for each "
            "validation image, as https://github.com/google-research/reassessed-imagenet has it. "
            "Received: something else"
        )
    return lists


def _is_list_of_classes(item: object) -> bool:
    return isinstance(item, list) and all(isinstance(k, int) and 0 <= k < _CLASSES for k in item)
