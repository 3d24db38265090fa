"""Datasets of images and boxes: Pascal VOC's XML files, COCO's JSON files, YOLO's text files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import PIL.Image
import yaml
from PIL.ExifTags import Base

from keras_vit.arguments import shortlist
from keras_vit.constants import MAX_YAML
from keras_vit.data.boxes import Boxes, Objects, usable
from keras_vit.data.examples import Examples
from keras_vit.data.sources.coco import coco_files, find_images
from keras_vit.data.sources.masks import Keys, check_partners, checked_splits, partner_key
from keras_vit.image_conversion.reading import open_image
from keras_vit.storage.find_files import data_files, find_files
from keras_vit.storage.paths import AnyPath, fields_of_paths, to_path

_YOLO = ("data.yaml", "data.yml", "dataset.yaml")
_MASKS = {"SegmentationClass", "SegmentationObject"}  # folders of Pascal VOC


class _Image(NamedTuple):
    """One image, its objects as (class name or "", box, crowd), and the file that they are from."""

    path: AnyPath
    split: str
    sides: tuple[int, int]
    objects: list[tuple[str, list[float], bool]]
    file: str


def load_boxes(source: AnyPath) -> Examples:
    """Loads a dataset of images and boxes, without decoding the images.

    `source` is one of these; the folders of splits, such as `train` and `validation`, may be above
    or below `images`:

    - a folder of Pascal VOC: an XML file beside each image, or in `annotations/` beside `images/`;
      classes are the lines of `classes.txt`, or all names that occur, in alphabetical order;
    - a JSON file in the format of COCO, or a folder with one for all images or for each split;
    - a folder of YOLO, with `data.yaml` and `labels/` beside `images/`; an image without a text
      file has no objects.

    Boxes without area, outside of the image, with numbers that are not finite, or of unknown
    classes are dropped; `notes` names their files.

    Raises:
        ValueError: If a file is not in its format, or an image or its annotation is missing.
    """
    source = to_path(source)
    yolo_config = next((source / name for name in _YOLO if (source / name).is_file()), None)
    if coco_files(source):
        names, images = _coco(source)
    elif yolo_config:
        names, images = _yolo(yolo_config)
    else:
        names, images = _voc(source)
    folder = source if source.is_dir() else source.parent
    names, targets, dropped = list(dict.fromkeys(names)), [], []
    for image in images:
        boxes = np.array([box for _, box, _ in image.objects], np.float32).reshape(-1, 4)
        boxes, reasons = usable(boxes, image.sides)
        rows = []
        for number, ((name, _, crowd), box, reason) in enumerate(
            zip(image.objects, boxes, reasons, strict=True), 1
        ):
            if reason or name not in names:
                reason = reason or "its class is unknown"
                dropped.append(f"{image.file}, box {number}: {reason}")
            else:
                rows.append([*box, names.index(name), crowd])
        targets.append(Objects(np.array(rows, np.float32).reshape(-1, 6), image.sides))
    files = fields_of_paths(folder, [image.path for image in images])
    note = f"Dropped {len(dropped)} boxes: {shortlist(dropped, shown=20)}."
    return Examples(
        targets=targets,  # type: ignore[arg-type]
        class_names=tuple(names),
        source=str(source),
        **files,
        splits=checked_splits(files["names"], [image.split for image in images]),
        notes=(note,) if dropped else (),
        target_kind=Boxes(tuple(dropped)),
    )


@contextlib.contextmanager
def _reading(path: AnyPath, what: str) -> Iterator[None]:
    """Converts errors of a damaged file to a `ValueError` with its name."""
    try:
        yield
    except (
        *(AttributeError, KeyError, IndexError, TypeError, ValueError, RecursionError),
        *(ElementTree.ParseError, yaml.YAMLError),
    ) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{what}. Received: {path} ({reason})") from error


def _upright_sides(path: AnyPath) -> tuple[int, int]:
    """Returns the height and width of an image; (1, 1) if it cannot be read."""
    try:
        with path.open("rb") as file, open_image(file) as image:
            width, height = image.size
            turned = image.getexif().get(Base.Orientation, 1) in (5, 6, 7, 8)
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError):
        return 1, 1  # the audit reports it
    return (width, height) if turned else (height, width)


def _voc(folder: AnyPath) -> tuple[list[str], list[_Image]]:
    folders = ("images", "jpegimages", "annotations", "labels", "xml")
    files: Keys = {}
    xml_files: Keys = {}
    for name, is_image in data_files(folder).items():
        parts, kind = PurePosixPath(name).parts, files if is_image else xml_files
        if name.lower().endswith(".xml") or (is_image and not _MASKS & {*parts}):
            key = partner_key(parts, folders)
            # The second file of a name has no partner.
            kind[(key[0], name) if key in kind else key] = name
    if not files or not xml_files:
        raise ValueError(
            "`data` must be images with boxes for the task detection: XML files of Pascal VOC, "
            "a JSON file of COCO, or data.yaml and text files of YOLO. Received: "
            f"data={str(folder)!r} with {len(files)} images and {len(xml_files)} XML files"
        )
    check_partners(files, xml_files, "an XML file")
    images = []
    for key, name in sorted(files.items()):
        path, xml_file = folder / name, folder / xml_files[key]
        with _reading(xml_file, "`data` must be XML files of Pascal VOC, with boxes"):
            sides, objects = _voc_file(xml_file)
        sides = sides or _upright_sides(path)
        images.append(_Image(path, key[0], sides, objects, xml_files[key]))
    classes_file = folder / "classes.txt"
    if classes_file.is_file():
        lines = classes_file.read_text(encoding="utf-8-sig").splitlines()
        return [line.strip() for line in lines if line.strip()], images
    return sorted({name for image in images for name, _, _ in image.objects} - {""}), images


def _voc_file(path: AnyPath) -> tuple[tuple[int, int] | None, list[Any]]:
    root = ElementTree.fromstring(path.read_bytes())
    if root.tag != "annotation":
        raise ValueError(f"the root is {root.tag!r}, not annotation")
    height, width = (int(float(root.findtext(f"size/{key}") or 0)) for key in ("height", "width"))
    objects = []
    for item in root.iterfind("object"):
        box = item.find("bndbox")
        left, top, right, bottom = (
            float(box.findtext(key))  # type: ignore[union-attr, arg-type]
            for key in ("xmin", "ymin", "xmax", "ymax")
        )
        name = (item.findtext("name") or "").strip()
        # Pixels are counted from 1, and the last one is part of the box.
        offset = 1 if right > left and bottom > top else 0
        objects.append((name, [top - offset, left - offset, bottom, right], False))
    return ((height, width) if height and width else None), objects


def _coco(source: AnyPath) -> tuple[list[str], list[_Image]]:
    pairs: set[tuple[Any, str]] = set()
    images = []
    for path, split in coco_files(source):
        with _reading(path, "`data` must be a JSON file in the format of COCO, with boxes"):
            content = json.loads(path.read_bytes())
            categories = {row["id"]: str(row["name"]) for row in content["categories"]}
            pairs |= {*categories.items()}
            image_objects: dict[Any, list[Any]] = {row["id"]: [] for row in content["images"]}
            for row in content.get("annotations", ()):
                left, top, width, height = map(float, row["bbox"])
                box = [top, left, top + height, left + width]
                name = categories.get(row["category_id"], "")
                image_objects[row["image_id"]].append((name, box, bool(row.get("iscrowd", 0))))
            sides = {
                row["id"]: (int(row["height"]), int(row["width"])) for row in content["images"]
            }
            files = {row["id"]: str(row["file_name"]) for row in content["images"]}
        for image_id, file in zip(files, find_images(path, files.values()), strict=True):
            images.append(_Image(file, split, sides[image_id], image_objects[image_id], path.name))
    used_names = {name for image in images for name, _, _ in image.objects}
    return [name for _, name in sorted(pairs) if name in used_names], images


def _yolo(path: AnyPath) -> tuple[list[str], list[_Image]]:
    folder, images = path.parent, []
    with _reading(path, "`data` must be a folder of YOLO, with names of classes in data.yaml"):
        text = path.read_bytes() if path.stat().st_size <= MAX_YAML else b""
        config = yaml.safe_load(text)
        names, has_keypoints = config["names"], "kpt_shape" in config
        pairs = names.items() if isinstance(names, dict) else enumerate(names)
        table = {int(key): str(name) for key, name in pairs}
    for name in find_files(folder).images:
        parts = list(PurePosixPath(name).parts)
        if "images" not in parts:
            continue
        parts[parts.index("images")] = "labels"
        file = PurePosixPath(*parts).with_suffix(".txt").as_posix()
        labels = folder / file
        height, width = sides = _upright_sides(folder / name)
        objects = []
        with _reading(labels, "`data` must be text files of YOLO: class, x, y, width, height"):
            lines = labels.read_text("utf-8-sig").splitlines() if labels.is_file() else []
            for label, *numbers in filter(None, map(str.split, lines)):
                values = np.array(numbers[:4] if has_keypoints else numbers, float).reshape(-1, 2)
                if len(values) == 2:
                    begin, end = values[0] - values[1] / 2, values[0] + values[1] / 2
                else:  # a polygon
                    begin, end = values.min(axis=0), values.max(axis=0)
                box = [begin[1] * height, begin[0] * width, end[1] * height, end[0] * width]
                objects.append((table.get(int(label), ""), box, False))
        images.append(_Image(folder / name, partner_key(parts)[0], sides, objects, file))
    if not images:
        raise ValueError(
            f"`data` must contain images in folders named images. Received: {folder} without them"
        )
    return [table[key] for key in sorted(table)], images
