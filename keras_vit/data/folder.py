"""A folder with one subfolder for each class."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from keras_vit.data.examples import Examples

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")
# Folders that may stand beside train/; the first one found is the validation set.
_VALIDATION_FOLDERS = ("val", "validation", "valid", "test")


def load_folder(folder: str | os.PathLike[str]) -> Examples:
    """Finds the images of a folder of class folders; nothing is read or written.

    Each subfolder with an image in it, however deep, is a class, and its images are those with a
    known suffix (JPEG, PNG, GIF, BMP, WebP). Hidden files and folders are left out; symbolic
    links are followed. If `folder` has `train/` and one of `val/`, `validation/`, `valid/` and
    `test/`, each of these two holds the class folders, and the division is kept.

    Args:
        folder: The folder.

    Returns:
        The images in the order of their names, which are paths below `folder` with `/`.

    Raises:
        ValueError: If there are no class folders with images, or `train/` lacks a class that the
            validation folder has.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("rose/b.jpg", "daisy/a.PNG", "daisy/notes.txt"):
        ...     (folder / name).parent.mkdir(exist_ok=True)
        ...     (folder / name).touch()
        >>> examples = load_folder(folder)
        >>> examples.names, examples.class_names
        (('daisy/a.PNG', 'rose/b.jpg'), ('daisy', 'rose'))
    """
    folder = Path(folder)
    roots = _divided(folder) or {"": folder}
    found = sorted(
        (path.relative_to(folder).as_posix(), class_folder.name, split)
        for split, root in roots.items()
        for class_folder in _subfolders(root)
        for path in images_below(class_folder)
    )
    if not found:
        raise ValueError(_nothing_found(folder))
    names, classes, splits = zip(*found, strict=True)
    class_names = sorted(set(classes))
    divided = "" not in roots
    if divided:
        trained = {name for name, split in zip(classes, splits, strict=True) if split == "train"}
        if untrained := sorted(set(class_names) - trained):
            raise ValueError(
                "Every class of the validation folder must have images to learn from. Add them, "
                f"or remove the class. Received: no image in {roots['train']} for {untrained[:20]}"
            )
    return Examples(
        names=names,
        labels=np.searchsorted(class_names, classes),
        class_names=tuple(class_names),
        source=str(folder),
        paths=tuple(str(folder / name) for name in names),
        splits=splits if divided else None,
    )


def _divided(folder: Path) -> dict[str, Path] | None:
    subfolders = {path.name.lower(): path for path in _subfolders(folder)}
    validation = next((name for name in _VALIDATION_FOLDERS if name in subfolders), None)
    # A folder train/ without subfolders is a class: trains.
    if validation and "train" in subfolders and _subfolders(subfolders["train"]):
        return {"train": subfolders["train"], "validation": subfolders[validation]}
    return None


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def images_below(folder: Path) -> Iterator[Path]:
    """Yields the images of a folder and all below it, like `rglob`, but follows symbolic links.

    Args:
        folder: The folder; links that lead round in circles are not followed.

    Yields:
        Paths of visible files with a known suffix, in no particular order.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "2024").mkdir()
        >>> (folder / "2024" / "a.jpg").touch()
        >>> [path.name for path in images_below(folder)]
        ['a.jpg']
    """
    for root, folders, files in os.walk(folder, followlinks=True):
        here = Path(root).resolve()
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and not here.is_relative_to((here / name).resolve())
        ]
        for name in files:
            if is_image(name):
                yield Path(root, name)


def is_image(name: str) -> bool:
    """Tells by its name whether a file is a visible image.

    Args:
        name: Without folders.

    Returns:
        Whether it ends in a known suffix and does not begin with a point.

    Example:
        >>> is_image("tulip.JPG"), is_image("._tulip.jpg")
        (True, False)
    """
    return not name.startswith(".") and name.lower().endswith(SUFFIXES)


def _nothing_found(folder: Path) -> str:
    loose = sum(1 for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    return (
        "`data` must be a folder with one subfolder of images for each class, or with a "
        f"labels.csv. Images end in {', '.join(SUFFIXES)}. Received: data={str(folder)!r}, with "
        f"{len(_subfolders(folder))} subfolders, none of which holds an image, and {loose} images "
        "outside of them"
    )
