"""Datasets from a folder with one subfolder per class."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

import numpy as np

from keras_vit.data.examples import SPLIT_NAMES, Examples
from keras_vit.data.inventory import OUTSIDE
from keras_vit.data.sources.annotations import unusable_annotations
from keras_vit.storage.find_files import FoundFiles, find_files
from keras_vit.storage.paths import AnyPath, files_of, to_path

# Names of folders that contain the images or annotations of all classes, in lowercase.
_SPLIT = "|".join(SPLIT_NAMES)
_CONTENT = (
    r"(.*[\W_])?(jpeg)?(images?|imgs?)([\W_]?part)?|jpe?gs?|pngs?|photos?|pictures?|frames?|masks?"
    r"|labels?|gt|ground_?truth|segmentation\w*|annotations?"
)
_NO_CLASS = re.compile(rf"(({_SPLIT})([\W_]?({_CONTENT}))?|{_CONTENT})[\W_]?\d*")


class NoClassFoldersError(ValueError):
    """A folder whose subfolders are not classes."""


def load_folder(folder: AnyPath) -> Examples:
    """Loads a dataset from a folder with one subfolder per class, without decoding images.

    Each subfolder with an image at any depth is a class. Images are recognized by their content
    (`keras_vit.storage.find_files.find_files`); unreadable images are included and reported by
    `keras_vit.data.image_audit`. Symbolic links are followed.

    If every visible subfolder with images has the name of a split (`train`, `training`, `val`,
    `valid`, `validation`, `dev`, `test`, `testing`, in any case), and at least one is for training
    and has subfolders, these are the class folders. A single subfolder that contains all class
    folders is skipped. Folders that are all named like splits, images or annotations (`train`,
    `images`, `masks`) are refused.
    """
    folder = to_path(folder)
    found = find_files(folder)
    prefix, depth, notes = _layout(folder, found)
    levels = {name: name.removeprefix(prefix).split("/") for name in found.images}
    inside = [name for name, parts in levels.items() if len(parts) > depth + 1]
    if not inside:
        raise NoClassFoldersError(_nothing_found(folder, found))
    classes = [levels[name][depth] for name in inside]
    class_names = sorted(set(classes))
    _check_names(folder, class_names)
    if all(_NO_CLASS.fullmatch(name.lower()) for name in class_names):
        raise NoClassFoldersError(
            "`data` must be a folder with one subfolder of images for each class, or with a table "
            f"of the classes. Received: data={str(folder)!r}, where the folders "
            f"{class_names[:20]} are not classes by their names{unusable_annotations(folder)}"
        )
    ignored = Counter(found.ignored)
    if outside := len(found.images) - len(inside):
        ignored[OUTSIDE] = outside
    splits = None
    if depth:
        splits = tuple(SPLIT_NAMES[levels[name][0].lower()] for name in inside)
        trained = {name for name, split in zip(classes, splits, strict=True) if split == "train"}
        if untrained := sorted(set(class_names) - trained):
            raise ValueError(
                "Every class must have images in the training folder. Add images, or remove the "
                f"class. Received: {folder}, which has no training images for {untrained[:20]}"
            )
    if deeper := [name for name in inside if len(levels[name]) > depth + 2]:
        inner = deeper[0].rpartition("/")[0]
        notes.append(
            f"{len(deeper)} images lie in subfolders of class folders, such as {inner}, and belong "
            f"to the class of the outer folder, such as {levels[deeper[0]][depth]}."
        )
    return Examples(
        names=tuple(inside),
        targets=np.searchsorted(class_names, classes),
        class_names=tuple(class_names),
        source=str(folder),
        **files_of(folder, inside),
        splits=splits,
        notes=tuple(notes),
        ignored=ignored,
    )


def _layout(folder: AnyPath, found: FoundFiles) -> tuple[str, int, list[str]]:
    """Returns the prefix of the class folders, 1 if they are below split folders, and notes."""
    prefix, notes = "", []
    while len(tops := _tops(found.images, prefix)) == 1:
        prefix += f"{tops.pop()}/"
    if not tops:
        prefix = ""
    if prefix:
        notes.append(f"The class folders are in {folder / prefix}.")
    folders = _subfolders(found.folders, prefix)
    used = {n.removeprefix(prefix).partition("/")[0] for n in found.images if n.startswith(prefix)}
    subfolders = [name for name in folders if name in used]
    named = [name for name in subfolders if name.lower() in SPLIT_NAMES]
    nested = [name for name in named if _subfolders(found.folders, f"{prefix}{name}/")]
    split = len(named) == len(subfolders) > 1 and any(
        SPLIT_NAMES[name.lower()] == "train" for name in nested
    )
    if split:
        notes.append(f"Found splits, each with class folders: {', '.join(nested)}.")
        if flat := sorted({*named} - {*nested}):
            notes.append(f"Without labels, because there are no class folders: {', '.join(flat)}.")
    elif len(named) > 1 and len(named) < len(subfolders):
        rest = sorted({*subfolders} - {*named})
        raise NoClassFoldersError(
            "`data` must be a folder of class folders, or of the folders of splits alone. Move or "
            f"rename the others. Received: data={str(folder)!r} with the splits {named} and the "
            f"folders {rest[:20]}{unusable_annotations(folder)}"
        )
    elif named and len(subfolders) > 1:
        notes.append(f"Treated as a class, not as a split: {', '.join(named)}.")
    return prefix, int(split), notes


def _tops(images: Iterable[str], prefix: str) -> set[str]:
    """Returns the subfolders with images, or none if there are images beside them."""
    parts = [name.removeprefix(prefix).partition("/") for name in images]
    return {top for top, _, _ in parts} if all(rest for _, _, rest in parts) else set()


def _subfolders(folders: Iterable[str], prefix: str) -> list[str]:
    inner = [name.removeprefix(prefix) for name in folders if name.startswith(prefix)]
    return [name for name in inner if name and "/" not in name]


def _check_names(folder: AnyPath, class_names: list[str]) -> None:
    for name in class_names:
        # Control characters, and the surrogates that represent invalid UTF-8 bytes.
        if not name.strip() or {unicodedata.category(c) for c in name} & {"Cc", "Cs"}:
            raise ValueError(
                "The name of a class folder must be UTF-8 text without control characters, and "
                f"must not be blank. Rename the folder. Received: {name!r} in {folder}"
            )


def _nothing_found(folder: AnyPath, found: FoundFiles) -> str:
    ignored = ", ".join(f"{count} {kind}" for kind, count in found.ignored.items()) or "none"
    return (
        "`data` must be a folder with one subfolder of images for each class, or with a "
        f"labels.csv. Received: data={str(folder)!r}, with {len(_subfolders(found.folders, ''))} "
        f"subfolders, none of which contains an image, and {len(found.images)} images outside of "
        f"them; other files: {ignored}{unusable_annotations(folder)}"
    )
