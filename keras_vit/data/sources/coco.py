"""Datasets of images and masks from COCO's JSON files: polygons, RLE and crowds."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit import arguments
from keras_vit.arguments import naming_place, shortlist
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


class AnnotatedImage(NamedTuple):
    """One image, and its objects as (class name or "", what is annotated, whether a crowd, ...).

    `sides` are height and width; `file` is the one with the annotations.
    """

    path: AnyPath
    split: str
    sides: tuple[int, int]
    objects: list[tuple[Any, ...]]
    file: str


class CocoMasks(Masks):
    """Masks drawn from COCO's annotations: class 0 is the background, crowds are `IGNORED`.

    Args:
        names: The names of the categories, in the order of the classes from 1.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(range(len(names) + 1))
        self.class_of = {BACKGROUND: 0, **{name: index for index, name in enumerate(names, 1)}}

    def checked(self, targets: Any, class_names: Any) -> np.ndarray:
        """Returns the annotations of each image, an array of objects (N,)."""
        return np.fromiter(targets, object, len(targets))

    def read(self, target: AnnotatedImage) -> np.ndarray:
        """Returns the classes of the pixels (H, W); small objects cover large ones."""
        pixels = np.full(target.sides, self.indices[0], np.uint8)
        areas = []
        for name, segmentation, is_crowd, row in target.objects:
            if not segmentation:
                continue
            with naming_place(f"annotation {row.get('id')} cannot be drawn"):
                area = _area(segmentation, target.sides)
            areas.append((area, IGNORED if is_crowd else self.indices[self.class_of[name]]))
        for area, label in sorted(areas, key=lambda pair: -pair[0].sum()):
            pixels[area] = label
        return pixels

    def text(self, examples: AnyExamples, index: int) -> str:
        """Returns the start of the SHA-256 of the annotations."""
        rows = [row for *_, row in examples.targets[index].objects]
        content = json.dumps(rows, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:8]


def _area(segmentation: Any, sides: tuple[int, int]) -> np.ndarray:
    """Returns whether each pixel (H, W) is in polygons or a run-length encoding (RLE)."""
    from pycocotools import mask

    code = segmentation
    if isinstance(segmentation, list):
        polygons = [np.asarray(part, float) for part in segmentation]
        # pycocotools ends the process for other numbers.
        if any(part.ndim != 1 or not (abs(part) <= 10 * max(sides)).all() for part in polygons):
            raise ValueError("its polygons must be lists of numbers in or near the image")
        polygons = [part.tolist() for part in polygons if len(part) >= 6]
        if not polygons:
            return np.zeros(sides, bool)
        code = mask.merge(mask.frPyObjects(polygons, *sides))
    elif isinstance(counts := segmentation["counts"], list):
        if min(counts) < 0 or sum(counts) != np.prod(segmentation["size"]):
            raise ValueError("the sum of its counts is not the number of pixels")
        code = mask.frPyObjects(segmentation, *sides)
    area = mask.decode(code).astype(bool)
    if area.shape != sides:  # of an RLE, which has a size of its own
        raise ValueError(f"it has {area.shape} rows and columns, the image {sides}")
    if area.sum() != mask.area(code):  # memory that was not written
        raise ValueError("its counts end before the image does")
    return area


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
    names, images = read_coco(source, _segmentation)
    names = [name for name in names if name != BACKGROUND]
    empty = sum(not segmentation for image in images for _, segmentation, *_ in image.objects)
    return Examples(
        targets=images,  # type: ignore[arg-type]
        class_names=(BACKGROUND, *names),
        **fields_of_images(source, images),
        notes=(f"Objects without a segmentation, which are background: {empty}.",) if empty else (),
        target_kind=CocoMasks(names),
    )


def fields_of_images(source: AnyPath, images: Sequence[AnnotatedImage]) -> dict[str, Any]:
    """Returns the fields of `Examples` that name the source, the images and their splits."""
    folder = source if source.is_dir() else source.parent
    files = fields_of_paths(folder, [image.path for image in images])
    splits = checked_splits(files["names"], [image.split for image in images])
    return {"source": str(source), **files, "splits": splits}


def _segmentation(row: dict[str, Any], name: str) -> Any:
    if not name:
        raise ValueError(f"the category_id {row['category_id']} is unknown")
    return row["segmentation"]


def read_coco(
    source: AnyPath, annotated: Callable[[dict[str, Any], str], Any]
) -> tuple[list[str], list[AnnotatedImage]]:
    """Reads the JSON files of a source; also returns the names of the categories that occur.

    `annotated` returns what is annotated, from an annotation and the name of its category, which is
    "" if it is unknown. An object's last item is its annotation.
    """
    used: set[tuple[str, Any, str]] = set()
    images: list[AnnotatedImage] = []
    for path, split in coco_files(source):
        with naming_place(
            "`data` must be a JSON file in the format of COCO, with images, categories, and "
            f"annotations of their boxes or segmentation. Received: {path}"
        ):
            content = json.loads(path.read_bytes())
            names = {key: str(row["name"]) for key, row in _by_id(content, "categories").items()}
            rows = _by_id(content, "images")
            objects: dict[Any, list[Any]] = {key: [] for key in rows}
            for row in content["annotations"]:
                with naming_place(f"annotation {row.get('id')}"):
                    key, image = row["category_id"], row["image_id"]
                    if image not in rows:
                        raise ValueError(f"the image_id {image} is unknown")
                    name = names.get(key, "")
                    used.add((str(type(key)), key, name))
                    is_crowd = bool(int(row.get("iscrowd") or 0))
                    objects[image].append((name, annotated(row, name), is_crowd, row))
            files = [str(row["file_name"]) for row in rows.values()]
            sides = [(int(row["height"]), int(row["width"])) for row in rows.values()]
            if wrong := [pair for pair in sides if not 0 < min(pair) <= max(pair) < 2**16]:
                raise ValueError(f"{wrong[0]} is not the height and the width of an image")
        for fields in zip(find_images(path, files), sides, objects.values(), strict=True):
            images.append(AnnotatedImage(fields[0], split, *fields[1:], path.name))
    return list(dict.fromkeys(name for *_, name in sorted(used) if name)), images


def _by_id(content: dict[str, Any], key: str) -> dict[Any, dict[str, Any]]:
    """Returns the rows of a list by their `id`, or raises `ValueError` if two rows share one."""
    rows = {row["id"]: row for row in content[key]}
    if different := [row["id"] for row in content[key] if rows[row["id"]] != row]:
        raise ValueError(f"two of the {key} have the id {different[0]}")
    return rows


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
