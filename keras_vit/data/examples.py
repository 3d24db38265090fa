"""Dataset of labeled, encoded images."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from keras_vit.data.target_kinds import CLASSES, MULTI_LABEL, TargetKind
from keras_vit.files import read_file
from keras_vit.storage.names import repeated, take
from keras_vit.storage.paths import StoredFiles

SPLITS = ("train", "validation", "test")
# Names of the splits in folder names and tables.
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Dataset of N labeled images, still encoded as JPEG, PNG, GIF, BMP or WebP.

    Images are not decoded here: `keras_vit.data.image_audit` finds undecodable images, and
    `keras_vit.data.training_dataset` and `evaluation_dataset` decode the others.

    Args:
        names: Unique name of each image, such as its path relative to the data folder: a tuple, or
            `keras_vit.storage.names.Names` of packed shards.
        targets: Index into `class_names` of each image, (N,); or multi-label targets, 1 for the
            classes of the image and 0 for the others, (N, K); or N targets of `target_kind`.
        class_names: Name of each class.
        source: Data source of the images, for messages.
        paths: File of each image; or None if `encoded` is given.
        encoded: Bytes of each image, in memory or as `keras_vit.storage.paths.StoredFiles`, which
            are read when they are used; or None if `paths` is given.
        splits: `"train"`, `"validation"` or `"test"` for each image if the source has
            splits, else None.
        flip_safe: Whether a flipped image still shows its class. A flipped digit does not.
        columns: Further attributes of each image, such as the camera: N values by name.
        notes: Sentences on how the source was read, to print.
        ignored: Number of files of the source that are not images of the dataset, by kind.
        target_kind: Kind of the targets, by default by their shape.

    Raises:
        ValueError: If the lengths differ, a name occurs twice, a target is not an index of
            `class_names` or not 0 or 1 for each class, or not exactly one of `paths` and `encoded`
            is given.

    Examples:
        >>> examples = Examples(
        ...     names=("a.png", "b.png"),
        ...     targets=np.array([1, 0]),
        ...     class_names=("daisy", "rose"),
        ...     source="memory",
        ...     encoded=(b"...", b"+++"),
        ... )
        >>> len(examples), examples.read(1), examples.subset([1]).names
        (2, b'+++', ('b.png',))
        >>> tags = dataclasses.replace(examples, targets=np.array([[1, 1], [0, 0]]))
        >>> tags.multi_label, tags.shown(0), tags.shown(1)
        (True, ('daisy', 'rose'), ())
    """

    names: Sequence[str]
    targets: np.ndarray
    class_names: tuple[str, ...]
    source: str
    paths: tuple[str, ...] | None = None
    encoded: Sequence[bytes] | None = None
    splits: tuple[str, ...] | None = None
    flip_safe: bool = True
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ignored: Mapping[str, int] = dataclasses.field(default_factory=dict)
    target_kind: TargetKind | None = None

    def __post_init__(self) -> None:
        # A frozen dataclass can only be normalized through object.__setattr__.
        checked = self.kind.checked(self.targets, self.class_names)
        object.__setattr__(self, "targets", checked)
        if (self.paths is None) == (self.encoded is None):
            raise ValueError(
                "Exactly one of `paths` and `encoded` must be given. Received: "
                f"paths={_brief(self.paths)}, encoded={_brief(self.encoded)}"
            )
        fields = {name: getattr(self, name) for name in ("targets", "paths", "encoded", "splits")}
        for name, values in {**self.columns, **fields}.items():
            if values is not None and len(values) != len(self.names):
                raise ValueError(
                    f"`{name}` must have one entry for each of the {len(self.names)} names. "
                    f"Received: {len(values)} entries"
                )
        if duplicates := repeated(self.names):
            raise ValueError(f"`names` must be unique. Received more than once: {duplicates[:20]}")
        if unknown := sorted(set(self.splits or ()) - set(SPLITS)):
            raise ValueError(f"`splits` must contain only {SPLITS}. Received: {unknown}")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def kind(self) -> TargetKind:
        """Kind of the targets."""
        return self.target_kind or (CLASSES if np.ndim(self.targets) < 2 else MULTI_LABEL)

    @property
    def multi_label(self) -> bool:
        """True if the dataset is multi-label: an image has any number of classes."""
        return self.kind is MULTI_LABEL

    def of_split(self, *splits: str) -> np.ndarray:
        """Returns whether each image is in one of the source's `splits`, booleans (N,)."""
        all_splits = self.splits or ("",) * len(self)
        return np.fromiter((name in splits for name in all_splits), bool, len(self))

    def class_counts(self) -> np.ndarray:
        """Returns the number of images of each class, an integer array of shape (K,)."""
        return self.kind.counts(self)

    def shown(self, index: int) -> tuple[str, ...]:
        """Returns the names of an image's classes, in the order of `class_names`."""
        return self.kind.classes(self, index)

    def similar_class_names(self) -> tuple[tuple[str, ...], ...]:
        """Returns groups of class names that differ only in case, outer spaces or Unicode form.

        In each group, the name with the most images is first.
        """
        groups: dict[str, list[str]] = {}
        counts = dict(zip(self.class_names, self.class_counts().tolist(), strict=True))
        for name in sorted(counts, key=lambda name: -counts[name]):
            key = unicodedata.normalize("NFC", name).strip().casefold()
            groups.setdefault(key, []).append(name)
        return tuple(tuple(group) for group in groups.values() if len(group) > 1)

    def subset(self, indices: Sequence[int] | np.ndarray) -> Examples:
        """Returns a dataset of the images at `indices`, in that order, with the same classes."""
        fields = {n: getattr(self, n) for n in ("names", "paths", "encoded", "splits")}
        fields = {n: take(values, indices) for n, values in fields.items() if values is not None}
        targets = self.targets[np.asarray(indices, dtype=int)]
        columns = {name: take(values, indices) for name, values in self.columns.items()}
        return dataclasses.replace(self, targets=targets, columns=columns, **fields)

    def with_classes(self, class_names: Sequence[str] | None) -> Examples:
        """Returns the dataset with the classes of a model, matched by name; None for unknown."""
        if class_names is None or tuple(class_names) == self.class_names:
            return self
        return self.kind.with_classes(self, tuple(class_names))

    def places(self) -> list[str]:
        """Returns the path or URL of each image that is not in memory."""
        if isinstance(self.encoded, StoredFiles):
            return [str(self.encoded.folder / name) for name in self.encoded.names]
        return list(self.paths or ())

    def stamp(self, index: int) -> str | None:
        """Returns the size and times of the last change of an image's file; None if in memory."""
        if isinstance(self.encoded, StoredFiles):
            return self.encoded.stamp(index)
        with contextlib.suppress(OSError):
            if self.paths:
                status = os.stat(self.paths[index])
                return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        return None

    def read(self, index: int) -> bytes:
        """Returns the encoded bytes of one image."""
        if self.encoded is not None:
            return self.encoded[index]
        return read_file("paths", self.paths[index])  # type: ignore[index]


def _brief(values: Sequence | None) -> str:
    return "None" if values is None else f"{len(values)} entries"
