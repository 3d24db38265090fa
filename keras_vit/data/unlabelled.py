"""Images whose labels do not matter: any folder of them, and its division."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from keras_vit.data.examples import Examples
from keras_vit.data.inventory import find_files
from keras_vit.data.sources import TABLES, load
from keras_vit.data.splits import different_contents, split

_NO_CLASS = "image"


def load_images(data: str | os.PathLike[str]) -> Examples:
    """Finds images, with labels or without.

    Args:
        data: What `keras_vit.data.load` takes; or a folder with images directly in it and no
            table: then all images below it belong to it, however deep and whatever their
            folders are called.

    Returns:
        The images; without labels, all of one class.

    Raises:
        ValueError: If there are none.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "2024").mkdir()
        >>> for name in ("b.jpg", "2024/a.PNG", "notes.txt"):
        ...     (folder / name).touch()
        >>> load_images(folder).names
        ('2024/a.PNG', 'b.jpg')
    """
    folder = Path(data).expanduser()
    if not folder.is_dir() or any((folder / name).is_file() for name in TABLES):
        return load(data)
    found = find_files(folder)
    if all("/" in name for name in found.images):
        return load(data)
    return Examples(
        names=found.images,
        labels=np.zeros(len(found.images), "int32"),
        class_names=(_NO_CLASS,),
        source=str(folder),
        paths=tuple(str(folder / name) for name in found.images),
        ignored=found.ignored,
    )


def split_images(
    examples: Examples,
    digests: Mapping[str, str],
    *,
    validation_fraction: float = 0.2,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Divides images into a training and a validation set, as `split` does where it can.

    Then what is held out in training with labels, with the same seed, is held out here too, and
    no image is seen in pre-training that accuracy is later measured on. Where there are no
    classes to divide, all images are divided alike. The same content stays together.

    Args:
        examples: The images.
        digests: Name of each image -> digest of its content, as `audit` finds them.
        validation_fraction: Share that is held out, in (0, 1).
        seed: Seed of the division.

    Returns:
        Indices of the training and of the validation images, each in increasing order.

    Raises:
        ValueError: If there are fewer than two different images.

    Example:
        >>> images = Examples(
        ...     names=tuple("abcde"), labels=np.zeros(5), class_names=("image",), source="memory",
        ...     encoded=(b"",) * 5,
        ... )
        >>> training, held_out = split_images(images, {name: name for name in "abcde"})
        >>> len(training), len(held_out)
        (4, 1)
    """
    if examples.splits is not None or _has_classes(examples, digests):
        return split(examples, digests, validation_fraction=validation_fraction, seed=seed)
    by_name = sorted(range(len(examples)), key=examples.names.__getitem__)
    contents = list(dict.fromkeys(digests[examples.names[i]] for i in by_name))
    if len(contents) < 2:
        raise ValueError(
            "There must be at least two different images, one to learn from and one to validate. "
            f"Received: {examples.source} with {len(contents)}"
        )
    order = np.random.default_rng(seed).permutation(len(contents))
    count = min(max(round(len(order) * validation_fraction), 1), len(order) - 1)
    validation = {contents[i] for i in order[:count]}
    held_out = np.array([digests[name] in validation for name in examples.names])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _has_classes(examples: Examples, digests: Mapping[str, str]) -> bool:
    """Tells whether `split` can divide every class: two at least, each with two contents."""
    counts = examples.subset(different_contents(examples, digests)).class_counts()
    different = len(np.unique(examples.labels, axis=0))
    return bool(different >= 2 and np.all(counts[examples.class_counts() > 0] >= 2))
