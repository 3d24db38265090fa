"""Training and validation splits of labeled images, and the CSV files that store them."""

from __future__ import annotations

import csv
import dataclasses
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
from pyarrow.compute import replace_substring_regex

from keras_vit.arguments import inner_fraction, shortlist
from keras_vit.data.examples import SPLITS, Examples
from keras_vit.data.groups import group_numbers, grouped_fold, join_groups, number_of_folds
from keras_vit.data.target_kinds import NO_TARGETS
from keras_vit.escapes import CSV_TEXT, csv_cell
from keras_vit.files import write_csv
from keras_vit.storage.names import argsort, index_finder, take

_PIXELS = "pixels"  # column of the digests of decoded images
_DIGITS = 32  # of the 64 digits of a SHA-256
_BLOCK_SIZE = 2**20  # bytes


def require_trainable(examples: Examples) -> None:
    """Raises `ValueError` unless there are at least two classes with two images each.

    Classes without any image are allowed: a CSV file of ImageNet classes has many. A multi-label
    dataset may have a single class if some of its images show the class and others do not, and
    classes of a single image, which `split` puts into the training set.

    Args:
        examples: The images.

    Raises:
        ValueError: If only one class has images, all targets are equal, or a class has one image.

    Examples:
        >>> from keras_vit.data import load
        >>> require_trainable(load("digits"))
    """
    examples.kind.check_trainable(examples)


def split(
    examples: Examples,
    digests: Mapping[str, str] | None,
    twins: Sequence[Sequence[str]] = (),
    *,
    validation_fraction: float = 0.2,
    seed: int = 0,
    group_by: str | None = None,
    folds: int = 0,
    fold: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Divides the images into a training and a validation set.

    The split is stratified, with at least one image of each class in each set. Images with the same
    content stay together, whatever their names and labels, and so do those of the same photograph
    unless a class would then have no image in one of the sets. The result depends on the names and
    the seed, not on the order of the examples. Splits of the source are kept, except that training
    images that also occur in the validation or the test set are removed, and validation images that
    also occur in the test set. If a source has only a training and a test set, the validation set
    is split off the training set; test images are in neither.

    A multi-label image is stratified by the rarest of its classes; images without any class form a
    stratum. Every class then has a training image, and a validation image unless all of its images
    are needed for training.

    With `group_by` or `folds`, images with the same value of a column, the same content or of the
    same photograph always stay together; a class of a single group is then missing in one set. With
    `group_by` alone, the validation set is one of 1 / `validation_fraction` folds, rounded.

    Args:
        examples: The images.
        digests: Name of each image -> digest of its content, from `audit`; None if all are
            different.
        twins: Names of images of the same photograph, from `audit`.
        validation_fraction: Fraction of each class that is held out, in (0, 1); with `group_by`
            up to 0.5.
        seed: Seed of the split.
        group_by: Column of the examples, such as the patient or the camera.
        folds: Number of folds for cross-validation; 0 to hold out `validation_fraction`.
        fold: Index of the fold that is held out, in [0, folds).

    Returns:
        Indices of the training and of the validation images, each sorted.

    Raises:
        ValueError: If there are too few classes, images, groups or different images, a split of the
            source is empty, or an argument is out of range.

    Examples:
        >>> from keras_vit.data import audit, load
        >>> digits = load("digits").subset(range(100))
        >>> train, validation = split(digits, audit(digits, progress=False).digests)
        >>> len(train), len(validation)
        (80, 20)
    """
    inner_fraction("validation_fraction", validation_fraction)
    content = np.arange(len(examples))
    if digests is not None:
        if missing := [name for name in examples.names if name not in digests]:
            raise ValueError(
                "`digests` must have all images; leave out those that cannot be read with "
                f"`ImageAudit.accept(examples, 'skip')`. Received: none of {shortlist(missing)}"
            )
        content = np.array([digests[name] for name in examples.names])
    if group_by or folds:
        content = group_numbers(examples, content, twins, group_by)
    if examples.splits is not None:
        train, validation = _source_split(examples, content)
        if len(train) and "validation" not in examples.splits:
            train_part = dataclasses.replace(examples.subset(train), splits=None)
            options: dict[str, Any] = {"group_by": group_by, "folds": folds, "fold": fold}
            options |= {"validation_fraction": validation_fraction, "seed": seed}
            parts = split(train_part, digests, twins, **options)
            return train[parts[0]], train[parts[1]]
        require_trainable(examples)
        if folds:
            raise ValueError(
                "`folds` must be 0 for data with a validation split. Received: "
                f"folds={folds} with {examples.source}"
            )
        if not len(train) or not len(validation):
            raise ValueError(
                "The training and validation sets must each contain images of their own. "
                f"Received: {examples.source} with {len(train)} and {len(validation)}"
            )
        return train, validation

    require_trainable(examples)
    if group_by or folds:
        folds = folds or number_of_folds(validation_fraction)
        return grouped_fold(examples, content, folds, fold, seed)
    different = different_contents(examples, digests)
    groups = examples.kind.strata(examples, different)
    if len(different) < 2:
        raise ValueError(
            "There must be at least two different images, one for training and one for "
            f"validation. Received: {examples.source} with only {len(different)}"
        )
    is_held_out = np.zeros(len(different), bool)
    for group in np.unique(groups):
        # A generator for each class: changes of a class do not change the split of the others.
        generator = np.random.default_rng((seed, int(group)))
        members = generator.permutation(np.flatnonzero(groups == group))
        number = round(len(members) * validation_fraction)
        is_held_out[members[: min(max(number, 1), len(members) - 1)]] = True  # some, but not all
    examples.kind.balance(is_held_out, examples.subset(different))
    held_out = np.isin(content, content[different[is_held_out]])
    join_groups(held_out, examples, content, twins)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def split_images(
    examples: Examples,
    digests: Mapping[str, str] | None,
    twins: Sequence[Sequence[str]] = (),
    **options: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Splits images for pre-training, like `split` if there are classes to stratify by.

    With the same seed, pre-training then holds out the same images as training with labels, so that
    accuracy is measured on images not seen in pre-training. Without classes, the split is not
    stratified. Images with the same content stay together. The arguments are those of `split`.
    """
    try:
        return split(examples, digests, twins, **options)
    except ValueError:
        if examples.splits is not None:
            raise
    targets = np.zeros(len(examples), int)
    unlabeled = dataclasses.replace(examples, targets=targets, target_kind=NO_TARGETS)
    return split(unlabeled, digests, twins, **options)


def _source_split(examples: Examples, content: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the source's training and validation images, without duplicates across splits."""
    train, validation, test = map(examples.of_split, SPLITS)
    validation &= ~np.isin(content, content[test])
    train &= ~np.isin(content, content[examples.of_split("validation", "test")])
    return np.flatnonzero(train), np.flatnonzero(validation)


def different_contents(examples: Examples, digests: Mapping[str, str] | None) -> np.ndarray:
    """Returns one index per distinct content: that of the image whose name sorts first."""
    by_name = argsort(examples.names)
    if digests is None:
        return by_name
    first = {digests[examples.names[i]]: i for i in reversed(by_name.tolist())}
    return np.array(list(reversed(first.values())), dtype=int)


def write_split(
    path: str | os.PathLike[str],
    examples: Examples,
    train: Sequence[int] | np.ndarray,
    validation: Sequence[int] | np.ndarray,
    digests: Mapping[str, str] | None = None,
) -> None:
    """Writes a split as a CSV file with the columns `file`, `label`, `split` and `pixels`.

    For multi-label images, the column is `labels`, with `|` between the names. The test images of
    the source are written as well.

    Args:
        path: The file to write.
        examples: The images.
        train: Indices of the training images.
        validation: Indices of the validation images.
        digests: Name of each image -> digest of its content, from `audit`. The first 32 digits are
            written; None omits the column.

    Examples:
        >>> import tempfile
        >>> from keras_vit.data import load
        >>> path = Path(tempfile.mkdtemp()) / "split.csv"
        >>> write_split(path, load("digits"), train=[0, 1], validation=[2])
        >>> path.read_text().splitlines()[:2]
        ['file,label,split', 'digit_0000.png,0,train']
    """
    test = np.flatnonzero(examples.of_split("test"))

    def rows() -> Iterator[tuple[str, ...]]:
        yield "file", examples.kind.column, "split", *([_PIXELS] if digests else [])
        for split_name, indices in zip(SPLITS, (train, validation, test), strict=True):
            for i, name in zip(indices, take(examples.names, indices), strict=True):
                row = (csv_cell(name), csv_cell(examples.kind.text(examples, int(i))), split_name)
                yield (*row, short_digest(digests[name])) if digests else row

    write_csv(path, rows(), errors="surrogateescape")


def read_split(
    path: str | os.PathLike[str],
    examples: Examples,
    splits: Sequence[str] = ("train", "validation"),
    digests: Mapping[str, str] | None = None,
    on_missing: str = "fail",
) -> tuple[np.ndarray, ...]:
    """Reads a split written by `write_split`.

    Args:
        path: The file.
        examples: The images; images that are not in the file are in no split.
        splits: The splits to read.
        digests: Name of each readable image -> digest of its content, compared with the digests in
            the file, if any.
        on_missing: `"skip"` omits images that no longer exist.

    Returns:
        Indices of the images of each split, in the order of the file.

    Raises:
        ValueError: If an image of the file no longer exists, or its label or content has
            changed.

    Examples:
        >>> import tempfile
        >>> from keras_vit.data import load
        >>> path = Path(tempfile.mkdtemp()) / "split.csv"
        >>> write_split(path, load("digits"), train=[5, 1], validation=[2])
        >>> read_split(path, load("digits"))
        (array([5, 1]), array([2]))
    """
    index, kind = index_finder(examples.names), examples.kind
    changes: dict[str, list[str]] = {"missing": [], "under another label": [], "replaced": []}
    indices = {name: array("q") for name in splits}
    for columns in _columns(path, kind.column):
        for name, row_split, start, label, i in zip(*columns, index(columns[0]), strict=True):
            if row_split not in indices:
                continue
            if i < 0:
                changes["missing"].append(os.fsdecode(name))
                continue
            indices[row_split].append(i)
            if kind.text(examples, i) != label:
                changes["under another label"].append(os.fsdecode(name))
            elif digests is not None and not digests.get(os.fsdecode(name), "").startswith(start):
                changes["replaced"].append(os.fsdecode(name))
    if on_missing == "skip" and changes["missing"]:
        print(f"Leaving out {len(changes['missing'])} missing images that are listed in {path}.")
        changes["missing"] = []
    if any(changes.values()):
        summary = "; ".join(f"{len(n)} {what}: {n[:20]}" for what, n in changes.items() if n)
        raise ValueError(
            f"The images of {examples.source} must match those listed in {path}. Restore the "
            f"original images, or start a new run. Received: {summary}"
        )
    return tuple(np.array(indices[name], int) for name in splits)


def training_digests(path: str | os.PathLike[str]) -> frozenset[str]:
    """Returns the 32-digit digests of the training images in a split file."""
    return frozenset(
        digest
        for _, row_splits, pixels, _ in _columns(path)
        for split, digest in zip(row_splits, pixels, strict=True)
        if split == "train" and digest
    )


def short_digest(digest: str) -> str:
    """Returns the first 32 digits of a digest, as written by `write_split`."""
    return digest[:_DIGITS]


def _columns(path: str | os.PathLike[str], column: str = "") -> Iterator[list[list[Any]]]:
    """Yields encoded names, splits, digests and labels of images; empty without such a column."""
    with Path(path).open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        header = next(csv.reader(file), [])
    if missing := {"file", "split"}.difference(header):
        raise ValueError(
            f"`path` must have the columns file and split. Received: {path} without "
            f"{' and '.join(sorted(missing))}"
        )
    names = ["file", "split", _PIXELS, column]
    types = dict.fromkeys(names, pyarrow.binary())
    batches = pyarrow.csv.open_csv(
        path,
        pyarrow.csv.ReadOptions(block_size=_BLOCK_SIZE),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(
            column_types=types, include_columns=names, include_missing_columns=True
        ),
    )
    for batch in batches:
        columns = [replace_substring_regex(column, *CSV_TEXT).to_pylist() for column in batch]
        distinct = {cell for cells in columns[1:] for cell in cells}  # few splits and labels
        text = {cell: os.fsdecode(cell or b"") for cell in distinct}
        yield [columns[0], *([text[cell] for cell in cells] for cells in columns[1:])]
    pyarrow.default_memory_pool().release_unused()  # 150 MB for a million images
