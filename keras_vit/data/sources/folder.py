"""Datasets from a folder with one subfolder per class."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from keras_vit.data.examples import SPLIT_NAMES, Examples
from keras_vit.data.inventory import OUTSIDE
from keras_vit.storage.find_files import find_files
from keras_vit.storage.names import take
from keras_vit.storage.paths import AnyPath, fields_of_files, names_below, to_path

# Names of folders that contain the images or annotations of all classes, in lowercase.
_SPLIT = "|".join(SPLIT_NAMES)
_MASKS = r"masks?|labels?|gt|ground_?truth|segmentation\w*|annotations?"
_CONTENT = (
    r"(.*[\W_])?(jpeg)?(images?|imgs?)([\W_]?part)?|jpe?gs?|pngs?|photos?|pictures?|frames?"
    rf"|{_MASKS}"
)
_NON_CLASS_NAME = re.compile(
    rf"((seg_)?({_SPLIT})([\W_]?({_CONTENT}|(data)?set|data))?|seg_pred|{_CONTENT})[\W_]?\d*"
)
# Kind of an annotation file by its path relative to the data folder, in lowercase and with /.
_ANNOTATION_KINDS = {
    r"(.*/)?(_annotations\.coco|instances_.*|captions_.*|.*coco.*)\.json": "COCO annotations",
    r"(.*/)?(data|dataset)\.ya?ml": "the configuration of YOLO boxes",
    r"(.*/)?(labels|obj_train_data)/.*\.txt": "YOLO boxes",
    r"(.*/)?annotations?\.xml": "CVAT annotations",
    r".*\.xml": "Pascal VOC boxes",
    r"(.*/)?_annotations\.(csv|txt)": "a table of boxes",
    rf"(.*/)?({_MASKS})/.*\.(png|gif|bmp|tiff?)": "a mask of pixels",
    r"packing\.json": "the plan of an interrupted `keras-vit data pack`; run it again",
    r".*\.json": "annotations such as those of labelme",
    r".*\.(xlsx?|ods|parquet)": "a table in a format other than CSV",
    r".*/.*\.(csv|tsv|jsonl)": "a table outside of the folder above all images",
}


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
    files = find_files(folder)
    parents: dict[str, int] = {}  # folders of the images
    numbers = (parents.setdefault(n.rpartition("/")[0], len(parents)) for n in files.images)
    parent = np.fromiter(numbers, np.int32, len(files.images))
    prefix, depth, notes = _layout(folder, parents, files.folders)
    levels = [_below(name, prefix).split("/")[:-1] for name in parents]
    is_inside = np.array([len(parts) > depth for parts in levels], bool)
    if not is_inside.any():
        ignored_files = (f"{count} {kind}" for kind, count in files.ignored.items())
        raise NoClassFoldersError(
            "`data` must be a folder with one subfolder of images for each class, or with a "
            f"labels.csv. Received: data={str(folder)!r}, with "
            f"{len(_subfolders(files.folders, ''))} subfolders, none of which contains an image, "
            f"and {len(files.images)} images outside of them; other files: "
            f"{', '.join(ignored_files) or 'none'}{unusable_annotations(folder)}"
        )
    class_names = sorted({p[depth] for p in levels if len(p) > depth})
    for name in class_names:
        # Control characters, and the surrogates that represent invalid UTF-8 bytes.
        if not name.strip() or {unicodedata.category(c) for c in name} & {"Cc", "Cs"}:
            raise ValueError(
                "The name of a class folder must be UTF-8 text without control characters, and "
                f"must not be blank. Rename the folder. Received: {name!r} in {folder}"
            )
    if all(_NON_CLASS_NAME.fullmatch(name.lower()) for name in class_names):
        raise NoClassFoldersError(
            "`data` must be a folder with one subfolder of images for each class, or with a table "
            "of the classes; name the folders of splits train, validation and test. Received: "
            f"data={str(folder)!r}, where the folders {class_names[:20]} are not classes by their "
            f"names{unusable_annotations(folder)}"
        )
    ignored = Counter(files.ignored)
    names = files.images
    if outside := int((~is_inside[parent]).sum()):
        ignored[OUTSIDE] = outside
        indices = np.flatnonzero(is_inside[parent])
        names, parent = take(names, indices), parent[indices]
    splits = None
    if depth:
        split_names = [SPLIT_NAMES[parts[0].lower()] if len(parts) > 1 else "" for parts in levels]
        splits = tuple(split_names[i] for i in parent)
        pairs = zip(levels, split_names, strict=True)
        training_classes = {parts[depth] for parts, split in pairs if split == "train"}
        if missing := sorted(set(class_names) - training_classes):
            raise ValueError(
                "Every class must have images in the training folder. Add images, or remove the "
                f"class. Received: {folder}, which has no training images for {missing[:20]}"
            )
    deeper = np.array([len(parts) > depth + 1 for parts in levels], bool)[parent]
    if deeper.any():
        first = parent[deeper][0]
        notes.append(
            f"{deeper.sum()} images lie in subfolders of class folders, such as "
            f"{list(parents)[first]}, and belong to the class of the outer folder, such as "
            f"{levels[first][depth]}."
        )
    classes = {name: index for index, name in enumerate(class_names)}
    labels = np.array([classes[p[depth]] if len(p) > depth else -1 for p in levels], np.int32)
    return Examples(
        names=names,
        targets=labels[parent],
        class_names=tuple(class_names),
        source=str(folder),
        **fields_of_files(folder, names),
        splits=splits,
        notes=tuple(notes),
        ignored=ignored,
    )


def _below(parent: str, prefix: str) -> str:
    """Returns a folder relative to an outer one, with a slash at the end if they differ."""
    return f"{parent}/".removeprefix(prefix) if parent else ""


def _layout(
    folder: AnyPath, parents: Collection[str], all_folders: Sequence[str]
) -> tuple[str, int, list[str]]:
    """Returns the prefix of the class folders, 1 if they are below split folders, and notes."""
    prefix, notes = "", []
    while len(top_folders := _top_folders(parents, prefix)) == 1:
        prefix += f"{top_folders.pop()}/"
    if not top_folders:
        prefix = ""
    if prefix:
        notes.append(f"The class folders are in {folder / prefix}.")
    folders = _subfolders(all_folders, prefix)
    folders_with_images = {_below(name, prefix).partition("/")[0] for name in parents}
    subfolders = [name for name in folders if name in folders_with_images]
    splits = [name for name in subfolders if name.lower() in SPLIT_NAMES]
    nested = [name for name in splits if _subfolders(all_folders, f"{prefix}{name}/")]
    split = len(splits) == len(subfolders) > 1 and any(
        SPLIT_NAMES[name.lower()] == "train" for name in nested
    )
    if split:
        notes.append(f"Found splits, each with class folders: {', '.join(nested)}.")
        if flat := sorted({*splits} - {*nested}):
            notes.append(f"Without labels, because there are no class folders: {', '.join(flat)}.")
    elif len(splits) > 1 and len(splits) < len(subfolders):
        others = sorted({*subfolders} - {*splits})
        raise NoClassFoldersError(
            "`data` must be a folder of class folders, or of the folders of splits alone. Move or "
            f"rename the others. Received: data={str(folder)!r} with the splits {splits} and the "
            f"folders {others[:20]}{unusable_annotations(folder)}"
        )
    elif splits and len(subfolders) > 1:
        notes.append(f"Treated as a class, not as a split: {', '.join(splits)}.")
    return prefix, int(split), notes


def _top_folders(parents: Collection[str], prefix: str) -> set[str]:
    """Returns the subfolders with images, or none if the folder itself has images."""
    inner = [_below(name, prefix) for name in parents]
    return {name.partition("/")[0] for name in inner} if all(inner) else set()


def _subfolders(folders: Iterable[str], prefix: str) -> list[str]:
    inner = [name.removeprefix(prefix) for name in folders if name.startswith(prefix)]
    return [name for name in inner if name and "/" not in name]


def unusable_annotations(folder: AnyPath) -> str:
    """Returns a sentence on an annotation file that classification cannot use, or `""`."""
    names = names_below(folder)
    for pattern, kind in _ANNOTATION_KINDS.items():
        if matches := [name for name in names if re.fullmatch(pattern, name.lower())]:
            return (
                f"; {matches[0]} contains {kind}. For boxes, use `--task detection`; for classes, "
                "export the dataset again with one class per image (class folders, or in the "
                "folder above all images a CSV table with the columns file and label)"
            )
    return ""
