"""Groups of images that stay together in a split.

Letters: N images.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from scipy import sparse
from sklearn.model_selection import StratifiedGroupKFold

from keras_vit.data.examples import Examples
from keras_vit.escapes import say
from keras_vit.storage.names import index_finder

_MAX_DIFFERENCE = 0.02  # between the held-out fraction of groups and that of the user


def group_numbers(
    examples: Examples, content: np.ndarray, twins: Sequence[Sequence[str]], column: str | None
) -> np.ndarray:
    """Returns a group number for each image (N,), equal for images that belong together."""
    if column and column not in examples.columns:
        raise ValueError(
            "`group_by` must be a column of the table of images. Received: "
            f"group_by={column!r}; columns: {', '.join(examples.columns) or 'none'}"
        )
    links = [np.stack((group[:-1], group[1:])) for group in _members(examples, twins)]
    indices = np.arange(len(examples))
    keys = [content, np.array(examples.columns[column])] if column else [content]
    for key in keys:
        _, first, value = np.unique(key, return_index=True, return_inverse=True)
        links.append(np.stack((indices, np.where(key == "", indices, first[value]))))  # "": none
    pairs = np.concatenate(links, axis=1)
    graph = sparse.coo_array((np.ones(pairs.shape[1]), tuple(pairs)), (len(indices), len(indices)))
    return sparse.csgraph.connected_components(graph, directed=False)[1]


def number_of_folds(fraction: float) -> int:
    """Returns the number of folds of which one is about the held-out fraction of the images."""
    if fraction > 0.5:
        raise ValueError(
            "`validation_fraction` must be at most 0.5 with `group_by`. Received: "
            f"validation_fraction={fraction}"
        )
    folds = round(1 / fraction)
    if abs(1 / folds - fraction) > _MAX_DIFFERENCE:
        say(f"Note: groups are held out as one of {folds} folds: {1 / folds:.3f} of the images.")
    return folds


def grouped_fold(
    examples: Examples, groups: np.ndarray, folds: int, fold: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the training and held-out indices of one stratified fold of whole groups."""
    strata = examples.kind.strata(examples, np.arange(len(examples)))
    largest, num_groups = np.unique(strata, return_counts=True)[1].max(), len(np.unique(groups))
    if not 2 <= folds <= min(largest, num_groups) or not 0 <= fold < folds:
        raise ValueError(
            "`folds`, or else 1 / `validation_fraction`, must be 2 or more, and at most the number "
            "of groups of images, and of images of the largest class. Received: "
            f"folds={folds}, fold={fold}, {num_groups} groups, {largest} images in a class of "
            f"{examples.source}"
        )
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes of fewer images than folds
        return list(splitter.split(strata, strata, groups))[fold]


def join_groups(
    held_out: np.ndarray, examples: Examples, content: np.ndarray, twins: Sequence[Sequence[str]]
) -> None:
    """Moves each group to the subset (training or held-out) of its first image.

    A group is not moved if that removed all images of a class from a subset.
    """
    if not twins:
        return
    labels = examples.kind.indicators(examples)
    for group in _members(examples, twins):
        members = np.flatnonzero(np.isin(content, content[group]))
        moved = held_out.copy()
        moved[members] = held_out[group[:1]].any()
        affected = labels[:, labels[members].any(axis=0)]
        if all(affected[moved].any(axis=0)) and all(affected[~moved].any(axis=0)):
            held_out[:] = moved


def _members(examples: Examples, groups: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """Returns the indices of the images of each group, ignoring unknown names."""
    names = (name for group in groups for name in group)
    indices = np.array(index_finder(examples.names)(names), int)
    ends = np.cumsum([len(group) for group in groups], dtype=int)
    return [group[group >= 0] for group in np.split(indices, ends[:-1])]
