"""Inventory of a data source: its images, and counts of all other files by kind."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from keras_vit import arguments
from keras_vit.constants import MAX_LINKS
from keras_vit.data.examples import Examples
from keras_vit.image_formats import has_image_suffix, image_format, is_backup, leftover, read_head
from keras_vit.output_folder import is_output

OUTSIDE = "image outside of the class folders"
UNNAMED = "image that is not in the table"
_HIDDEN, _OUTPUT, _BACKUP = "hidden", "written by keras-vit", "backup copy"
_SPECIAL = "special file"
_EMPTY = "empty folder"


@dataclasses.dataclass(frozen=True)
class FoundFiles:
    """Images and folders found below a folder, with counts of ignored files.

    Args:
        images: Relative paths of all images, readable or not, with `/`, sorted.
        folders: Relative paths of all visible folders, sorted.
        ignored: Number of all other files and of empty folders, by kind.
    """

    images: tuple[str, ...]
    folders: tuple[str, ...]
    ignored: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Inventory:
    """Counts of usable, unusable and ignored files in a data source.

    Args:
        used: Number of usable images.
        unreadable: Number of unusable images, by reason and class.
        ignored: Number of empty folders and of files that are not images of the dataset, by kind.
    """

    used: int = 0
    unreadable: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    ignored: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def text(self) -> str:
        """Returns the inventory as a text table with one line per count."""
        rows = [(str(self.used), "images that can be used")]
        for reason, classes in self.unreadable.items():
            brief = arguments.shortlist([f"{name} {n}" for name, n in classes.items()], shown=20)
            rows.append((str(sum(classes.values())), f"{reason}: {brief}"))
        rows += [(str(count), f"ignored: {kind}") for kind, count in self.ignored.items()]
        return "\n".join(arguments.text_table(rows, "><"))

    @property
    def complete(self) -> bool:
        """True if every file of the source is a usable image."""
        return not self.unreadable and not self.ignored


def find_files(folder: str | os.PathLike[str]) -> FoundFiles:
    """Finds all images below a folder, and counts the other files; follows symbolic links.

    Images are recognized by their content, or else by the suffix of an image format. Hidden files,
    backup copies, leftovers of other programs (`@eaDir`, `__MACOSX`), outputs of this package and
    special files are not images.
    """
    names: dict[str, list[str]] = {"image": [], "folder": []}
    for name, kind in sorted(_walk(Path(folder), "", frozenset(), Counter())):
        names.setdefault(kind, []).append(name)
    images, folders = tuple(names.pop("image")), tuple(names.pop("folder"))
    ignored = sorted((-len(of_kind), kind) for kind, of_kind in names.items())
    return FoundFiles(images, folders, {kind: -count for count, kind in ignored})


def _walk(
    folder: Path,
    prefix: str,
    above: frozenset[tuple[int, int]],
    visits: Counter[tuple[int, int]],
    kind: str | None = None,
) -> Iterator[tuple[str, str]]:
    """Yields the name and kind of each file and non-hidden folder; `kind` overrides all kinds."""
    try:
        status = folder.stat()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        if kind:
            yield prefix, kind
            return
        raise ValueError(
            f"Every folder in the data must be readable. Received: {folder}: {error.strerror}"
        ) from error
    here = (status.st_dev, status.st_ino)
    if here in above:  # a cycle of symbolic links
        return
    visits[here] += 1
    if visits[here] > MAX_LINKS:
        raise ValueError(
            f"Every folder in the data must be reached by at most {MAX_LINKS} links. "
            f"Received: {folder}"
        )
    if not entries and not kind:
        yield prefix, _EMPTY
    for entry in entries:
        name = prefix + entry.name
        if not entry.is_dir():
            yield name, kind or _kind(entry)
            continue
        if entry.name.startswith("..") and not kind:
            raise ValueError(
                "The name of a class folder must not begin with two dots, because such folders "
                f"are hidden. Rename the folder. Received: {entry.path}"
            )
        inner = kind or _kind_by_name(entry.name)
        if not inner and is_output(entry.path):
            inner = _OUTPUT
        if not inner:
            yield name, "folder"
        yield from _walk(Path(entry.path), f"{name}/", above | {here}, visits, inner)


def _kind_by_name(name: str) -> str | None:
    """Returns the kind of a hidden file or folder, or of another program's leftover, else None."""
    return _HIDDEN if name.startswith(".") else leftover(name)


def _kind(entry: os.DirEntry[str]) -> str:
    """Returns `"image"`, or the reason why a file is not an image."""
    name = entry.name
    if kind := _kind_by_name(name):
        return kind
    if is_backup(name):
        return _BACKUP
    suffix = Path(name).suffix.lower() or "without suffix"
    try:
        if not stat.S_ISREG(entry.stat().st_mode):
            return _SPECIAL
        found = image_format(read_head(entry.path), name)
    except OSError:  # the audit reports the problem
        found = None
    return "image" if found or has_image_suffix(name) else suffix


def count_images(examples: Examples, bad: Mapping[int, str]) -> Inventory:
    """Counts usable images, and unusable images by reason and class, given reasons by index."""
    unreadable: dict[str, Counter[str]] = {}
    for index, reason in bad.items():
        classes = "|".join(examples.shown(index)) or "no class"
        if examples.kind.dense:
            reason, classes = reason.partition(":")[0], "images"
        unreadable.setdefault(reason, Counter()).update([classes])
    ordered = sorted(unreadable.items(), key=lambda item: -item[1].total())
    found = {reason: dict(counts) for reason, counts in ordered}
    return Inventory(len(examples) - len(bad), found, dict(examples.ignored))
