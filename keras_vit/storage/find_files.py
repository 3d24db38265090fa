"""Search for images in folders, and counts of all other files by kind."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from keras_vit.constants import MAX_LINKS
from keras_vit.image_formats import has_image_suffix, image_format, is_backup, leftover, read_head
from keras_vit.output_folder import is_output
from keras_vit.storage.paths import AnyPath, infos_below, is_local, is_packed, to_path

_HIDDEN, _OUTPUT, _BACKUP = "hidden", "written by keras-vit", "backup copy"
_SPECIAL = "special file"
_EMPTY = "empty folder"
_NO_SUFFIX = "without suffix"


@dataclasses.dataclass(frozen=True)
class FoundFiles:
    """Images and folders found below a folder, with counts of ignored files.

    Args:
        images: Relative paths of all images, readable or not, with `/`, sorted.
        folders: Relative paths of all visible folders, sorted.
        ignored: Number of all other files and of empty folders, by kind.
    """

    images: Sequence[str]
    folders: tuple[str, ...]
    ignored: Mapping[str, int]


def find_files(folder: AnyPath) -> FoundFiles:
    """Finds all images below a folder, and counts the other files; follows symbolic links.

    Images are recognized by their content, in object storage by the suffix of an image format, or
    else by the suffix. Hidden files, backup copies, leftovers of other programs (`@eaDir`,
    `__MACOSX`), outputs of this package and special files are not images.
    """
    folder = to_path(folder)
    if is_packed(folder) and not folder.path.strip("/"):
        images, others = (folder.fs.all_names(image=image) for image in (True, False))
        if images is not None and others is not None:
            return _files_in_shards(images, others)
    entries = sorted(_names_and_kinds(folder))
    images = tuple(name for name, kind in entries if kind == "image")
    folders = tuple(name for name, kind in entries if kind == "folder")
    ignored = Counter(sorted(kind for _, kind in entries if kind not in ("image", "folder")))
    return FoundFiles(images, folders, dict(ignored.most_common()))


def _files_in_shards(images: Sequence[str], others: Sequence[str]) -> FoundFiles:
    """Returns the files in shards, which contain no hidden files, outputs or empty folders."""
    parents = {name.rpartition("/")[0] for names in (images, others) for name in names}
    folders = {str(path) for name in parents for path in PurePosixPath(name, "file").parents}
    folders.discard(".")
    ignored = Counter(map(_suffix, others)).most_common()
    return FoundFiles(images, tuple(sorted(folders)), dict(ignored))


def data_files(folder: AnyPath) -> dict[str, bool]:
    """Returns the names of all files that may be part of a dataset, and whether each is an image.

    These are the images, tables, masks and annotations, without hidden files, backup copies,
    leftovers of other programs and outputs of this package.
    """
    data_kinds = ("image", ".", _NO_SUFFIX)
    entries = sorted(_names_and_kinds(to_path(folder)))
    return {name: kind == "image" for name, kind in entries if kind.startswith(data_kinds)}


def _names_and_kinds(folder: AnyPath) -> Iterator[tuple[str, str]]:
    """Yields the name and kind of each file and non-hidden folder below a folder."""
    if is_local(folder):
        yield from _walk(Path(folder), "", frozenset(), Counter())
        return
    folders: set[str] = set()
    for name, info in infos_below(folder).items():
        *parents, filename = name.split("/")
        kinds = (*map(_ignored_kind, parents), _ignored_kind(filename, is_file=True))
        ignored_kind = next(filter(None, kinds), None)
        is_image = info.get("image", has_image_suffix(filename))
        yield name, ignored_kind or ("image" if is_image else _suffix(filename))
        if not ignored_kind:
            folders.update("/".join(parents[:depth]) for depth in range(1, len(parents) + 1))
    yield from ((name, "folder") for name in folders)


def _walk(
    folder: Path,
    prefix: str,
    ancestors: frozenset[tuple[int, int]],
    visits: Counter[tuple[int, int]],
    kind: str | None = None,
) -> Iterator[tuple[str, str]]:
    """Yields the name and kind of each file and non-hidden folder; `kind` replaces all kinds."""
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
    inode = (status.st_dev, status.st_ino)
    if inode in ancestors:  # a cycle of symbolic links
        return
    visits[inode] += 1
    if visits[inode] > MAX_LINKS:
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
        content_kind = kind or _ignored_kind(entry.name)
        if not content_kind and is_output(entry.path):
            content_kind = _OUTPUT
        if not content_kind:
            yield name, "folder"
        yield from _walk(Path(entry.path), f"{name}/", ancestors | {inode}, visits, content_kind)


def _ignored_kind(name: str, *, is_file: bool = False) -> str | None:
    """Returns the kind of a hidden file or folder, a leftover or a backup copy, else None."""
    kind = _HIDDEN if name.startswith(".") else leftover(name)
    return kind or (_BACKUP if is_file and is_backup(name) else None)


def _kind(entry: os.DirEntry[str]) -> str:
    """Returns `"image"`, or the reason why a file is not an image."""
    name = entry.name
    if ignored_kind := _ignored_kind(name, is_file=True):
        return ignored_kind
    try:
        if not stat.S_ISREG(entry.stat().st_mode):
            return _SPECIAL
        format = image_format(read_head(entry.path), name)
    except OSError:  # the audit reports the problem
        format = None
    return "image" if format or has_image_suffix(name) else _suffix(name)


def _suffix(name: str) -> str:
    return Path(name).suffix.lower() or _NO_SUFFIX
