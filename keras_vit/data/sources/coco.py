"""Datasets of images and masks from COCO's JSON files: polygons, RLE and crowds."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit import arguments
from keras_vit.arguments import shortlist
from keras_vit.data.examples import SPLIT_NAMES, Examples
from keras_vit.data.masks import IGNORED, Masks
from keras_vit.data.sources.csv_table import is_ignored, spellings
from keras_vit.data.sources.masks import checked_splits, partner_key
from keras_vit.data.target_kinds import Examples as AnyExamples
from keras_vit.storage.paths import AnyPath, fields_of_paths, join_path, to_path

BACKGROUND = "background"
_FILES = re.compile(r"(_annotations\.coco|annotations|instances.*|result)\.json")
_SPLIT = re.compile(rf"(?<![a-z])({'|'.join(SPLIT_NAMES)})(?![a-z])\d*", re.IGNORECASE)
_FOLDERS = (".", "images", "..", "../images")  # of images, relative to the JSON file


class _Target(NamedTuple):
    """One image of a file of annotations."""

    coco: Any  # pycocotools' COCO
    image: dict[str, Any]

    @property
    def annotations(self) -> list[dict[str, Any]]:
        """The annotations of the image."""
        return self.coco.imgToAnns[self.image["id"]]

    def category(self, annotation: dict[str, Any]) -> tuple[Any, str]:
        """Returns the identifier and the name of the category of an annotation."""
        number = annotation["category_id"]
        return number, str(self.coco.cats[number]["name"])


class CocoMasks(Masks):
    """Masks drawn from COCO's annotations: class 0 is the background, crowds are `IGNORED`.

    Args:
        names: The names of the categories, in the order of the classes from 1.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(range(len(names) + 1))
        self.class_of = {name: index for index, name in enumerate(names, 1)}

    def checked(self, targets: Any, class_names: Any) -> np.ndarray:
        """Returns the annotations of each image, an array of objects (N,)."""
        return np.fromiter(targets, object, len(targets))

    def read(self, target: _Target) -> np.ndarray:
        """Returns the classes of the pixels (H, W); small objects cover large ones."""
        sides = target.image["height"], target.image["width"]
        pixels = np.full(sides, self.indices[0], np.uint8)
        areas = []
        for annotation in target.annotations:
            if not annotation["segmentation"]:
                continue
            try:
                area = target.coco.annToMask(annotation).astype(bool)
                if area.shape != sides:  # of an RLE, which has a size of its own
                    raise ValueError(f"it has {area.shape} rows and columns, the image {sides}")
            except Exception as error:  # pycocotools raises no other class
                number = annotation["id"]
                raise ValueError(f"annotation {number} cannot be drawn: {error}") from error
            label = self.indices[self.class_of[target.category(annotation)[1]]]
            areas.append((area, IGNORED if annotation.get("iscrowd", 0) else label))
        for area, label in sorted(areas, key=lambda pair: -pair[0].sum()):
            pixels[area] = label
        return pixels

    def text(self, examples: AnyExamples, index: int) -> str:
        """Returns the start of the SHA-256 of the annotations."""
        content = json.dumps(examples.targets[index].annotations, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:8]


def coco_files(source: AnyPath) -> list[tuple[AnyPath, str]]:
    """Returns the JSON files of a source, each with its split, or "" for all."""
    if not source.is_dir():
        return [(source, "")] if source.suffix.lower() == ".json" else []
    inner = sorted(path for path in source.iterdir() if path.is_dir() and not is_ignored(path))
    pairs = [
        (folder, path)
        for folder in (source, source / "annotations", *inner)
        if folder.is_dir()
        for path in sorted(path for path in folder.iterdir() if path.suffix == ".json")
    ]
    files: list[tuple[AnyPath, str]] = []
    named = [pair for pair in pairs if _FILES.fullmatch(pair[1].name)]
    for folder, path in named or [pair for pair in pairs if _is_coco(pair[1])]:
        word = _SPLIT.search(path.stem)
        split = SPLIT_NAMES[word[1].lower()] if word else ""
        if folder != source:
            split = split or partner_key((folder.name, path.name))[0]
        if (path, split) not in files:
            files.append((path, split))
    return files


def _is_coco(path: AnyPath) -> bool:
    """Returns whether a JSON file named by a split or `coco` is in the format of COCO."""
    if not re.search(f"{_SPLIT.pattern}|coco", path.stem, re.IGNORECASE) or not path.is_file():
        return False
    content = path.read_bytes()
    return all(f'"{key}"'.encode() in content for key in ("images", "annotations", "categories"))


def load_coco(source: AnyPath) -> Examples:
    """Loads a dataset of images and masks from JSON files in the format of COCO.

    `source` is such a file, or a folder with one for all images or for each split, such as
    `train/_annotations.coco.json`, `annotations/instances_train2017.json` or `train.json`.

    Raises:
        ImportError: If pycocotools is not installed.
        ValueError: If a file is not in this format, or an image does not exist.
    """
    arguments.require_package("pycocotools", "coco", "COCO annotations need pycocotools")
    source = to_path(source)
    paths: list[AnyPath] = []
    targets: list[_Target] = []
    splits: list[str] = []
    for path, split in coco_files(source):
        coco = _read(path)
        rows = list(coco.imgs.values())
        paths += find_images(path, [row["file_name"] for row in rows])
        targets += [_Target(coco, row) for row in rows]
        splits += [split] * len(rows)
    folder = source if source.is_dir() else source.parent
    files = fields_of_paths(folder, paths)
    used = {target.category(row) for target in targets for row in target.annotations}
    empty = sum(not row["segmentation"] for target in targets for row in target.annotations)
    names = dict.fromkeys(name for _, name in sorted(used))
    return Examples(
        targets=targets,  # type: ignore[arg-type]
        class_names=(BACKGROUND, *names),
        source=str(source),
        **files,
        splits=checked_splits(files["names"], splits),
        notes=(f"Objects without a segmentation, which are background: {empty}.",) if empty else (),
        target_kind=CocoMasks(list(names)),
    )


def _read(path: AnyPath) -> Any:
    from pycocotools.coco import COCO

    try:
        with contextlib.redirect_stdout(None):
            coco = COCO()
            coco.dataset = json.loads(path.read_bytes())
            coco.createIndex()
        coco.dataset["images"], coco.dataset["annotations"], coco.dataset["categories"]
        for row in coco.imgs.values():
            row["file_name"], row["height"], row["width"]
        for number, row in coco.anns.items():
            row["segmentation"]
            for key, valid_ids in (("image_id", coco.imgs), ("category_id", coco.cats)):
                if row[key] not in valid_ids:
                    raise ValueError(f"annotation {number} has the unknown {key} {row[key]}")
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise ValueError(
            "`data` must be a JSON file in the format of COCO, with images, annotations of their "
            f"segmentation, and categories. Received: {path} ({type(error).__name__}: {error})"
        ) from error
    return coco


def find_images(path: AnyPath, names: Collection[str]) -> list[AnyPath]:
    """Returns the images that a JSON file names, or raises `ValueError` if one does not exist."""
    word = _SPLIT.search(path.stem)  # images of instances_train2017.json may be in train2017/
    stems = [path.stem.removeprefix("instances_"), *([word[0]] if word else [])]
    above_or_below = ("..", "../images", ".", "images")
    folders = [*_FOLDERS, *(f"{folder}/{stem}" for stem in stems for folder in above_or_below)]
    files = []
    for name in names:
        places = itertools.product(spellings(name), folders)
        candidates = (join_path(path.parent, part, spelling) for spelling, part in places)
        files.append(next((file for file in candidates if file.is_file()), None))
    if missing := [name for name, file in zip(names, files, strict=True) if file is None]:
        raise ValueError(
            f"Every image of {path.name} must be in its folder, in images/ or {stems[-1]}/ below "
            f"or beside it. Received: without a file {shortlist(missing, shown=20)}"
        )
    return files
