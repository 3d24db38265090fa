"""Datasets of images and boxes: Pascal VOC's XML files, COCO's JSON files, YOLO's text files."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any
from xml.etree import ElementTree

import numpy as np
import PIL.Image
import yaml
from PIL.ExifTags import Base

from keras_vit.arguments import naming_place, shortlist
from keras_vit.constants import MAX_YAML
from keras_vit.data.boxes import Boxes, Objects, usable
from keras_vit.data.examples import Examples
from keras_vit.data.sources.coco import AnnotatedImage, coco_files, fields_of_images, read_coco
from keras_vit.data.sources.masks import Keys, add_file, check_partners, partner_key
from keras_vit.image_conversion.reading import open_image
from keras_vit.storage.find_files import data_files
from keras_vit.storage.paths import AnyPath, to_path

_YOLO = ("data.yaml", "data.yml", "dataset.yaml")
_MASKS = {"SegmentationClass", "SegmentationObject"}  # folders of Pascal VOC


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
        names, images = read_coco(source, _coco_box)
    elif yolo_config:
        names, images = _yolo(yolo_config)
    else:
        names, images = _voc(source)
    names, targets, dropped = list(dict.fromkeys(names)), [], []
    for image in images:
        boxes = np.array([box for _, box, *_ in image.objects], np.float32).reshape(-1, 4)
        boxes, reasons = usable(boxes, image.sides)
        rows = []
        for number, ((name, _, is_crowd, *_), box, reason) in enumerate(
            zip(image.objects, boxes, reasons, strict=True), 1
        ):
            if reason or name not in names:
                reason = reason or "its class is unknown"
                dropped.append(f"{image.file}, box {number}: {reason}")
            else:
                rows.append([*box, names.index(name), is_crowd])
        targets.append(Objects(np.array(rows, np.float32).reshape(-1, 6), image.sides))
    note = f"Dropped {len(dropped)} boxes: {shortlist(dropped, shown=20)}."
    return Examples(
        targets=targets,  # type: ignore[arg-type]
        class_names=tuple(names),
        **fields_of_images(source, images),
        notes=(note,) if dropped else (),
        target_kind=Boxes(tuple(dropped)),
    )


def _upright_sides(path: AnyPath) -> tuple[int, int]:
    """Returns the height and width of an image, large ones if it cannot be read."""
    try:
        with path.open("rb") as file, open_image(file) as image:
            width, height = image.size
            turned = image.getexif().get(Base.Orientation, 1) in (5, 6, 7, 8)
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError):
        return 2**16, 2**16  # its boxes are not dropped; the audit reports the image
    return (width, height) if turned else (height, width)


def _voc(folder: AnyPath) -> tuple[list[str], list[AnnotatedImage]]:
    folders = ("images", "jpegimages", "annotations", "labels", "xml")
    files: Keys = {}
    xml_files: Keys = {}
    for name, is_image in data_files(folder).items():
        parts, kind = PurePosixPath(name).parts, files if is_image else xml_files
        if name.lower().endswith(".xml") or (is_image and not _MASKS & {*parts}):
            add_file(kind, partner_key(parts, folders), name)
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
        with naming_place(
            f"`data` must be XML files of Pascal VOC, with boxes. Received: {xml_file}"
        ):
            sides, objects = _voc_file(xml_file)
        sides = sides or _upright_sides(path)
        images.append(AnnotatedImage(path, key[0], sides, objects, xml_files[key]))
    classes_file = folder / "classes.txt"
    if classes_file.is_file():
        with naming_place(f"`data` must have classes in UTF-8. Received: {classes_file}"):
            lines = classes_file.read_text(encoding="utf-8-sig").splitlines()
        return [line.strip() for line in lines if line.strip()], images
    return sorted({name for image in images for name, _, _ in image.objects} - {""}), images


def _voc_file(path: AnyPath) -> tuple[tuple[int, int] | None, list[Any]]:
    root = ElementTree.fromstring(path.read_bytes())
    if root.tag != "annotation":
        raise ValueError(f"the root is {root.tag!r}, not annotation")
    height, width = (int(float(root.findtext(f"size/{key}") or 0)) for key in ("height", "width"))
    objects = []
    for number, item in enumerate(root.iterfind("object"), 1):
        texts = [item.findtext(f"bndbox/{key}") for key in ("xmin", "ymin", "xmax", "ymax")]
        with naming_place(f"object {number} has the bndbox {texts}"):
            left, top, right, bottom = map(float, texts)  # type: ignore[arg-type]
        name = (item.findtext("name") or "").strip()
        # Pixels are counted from 1, and the last one is part of the box.
        offset = 1 if right > left and bottom > top else 0
        objects.append((name, [top - offset, left - offset, bottom, right], False))
    return ((height, width) if height and width else None), objects


def _coco_box(row: dict[str, Any], name: str) -> list[float]:
    left, top, width, height = map(float, row["bbox"])
    return [top, left, top + height, left + width]


def _yolo(path: AnyPath) -> tuple[list[str], list[AnnotatedImage]]:
    folder, images = path.parent, []
    with naming_place(f"`data` must have a data.yaml with names of classes. Received: {path}"):
        if path.stat().st_size > MAX_YAML:
            raise ValueError(f"it has more than {MAX_YAML} bytes")
        config = yaml.safe_load(path.read_bytes())
        names, has_keypoints = config["names"], "kpt_shape" in config
        pairs = list(names.items() if isinstance(names, dict) else enumerate(names))
        if isinstance(names, str) or not all(type(name) in (str, int) for _, name in pairs):
            raise ValueError(f"names must be a list of text, in quotes, not {names}")
        table = {int(key): str(name) for key, name in pairs}
    files = data_files(folder)
    for name, is_image in files.items():
        parts = list(PurePosixPath(name).parts)
        if not is_image or "images" not in parts:
            continue
        parts[-1 - parts[::-1].index("images")] = "labels"
        file = PurePosixPath(*parts).with_suffix(".txt").as_posix()
        labels = folder / file
        height, width = sides = _upright_sides(folder / name)
        objects = []
        with naming_place(
            f"`data` must be text files of YOLO: class, x, y, width, height. Received: {labels}"
        ):
            lines = labels.read_text("utf-8-sig").splitlines() if labels.is_file() else []
            for number, (label, *numbers) in enumerate(filter(None, map(str.split, lines)), 1):
                with naming_place(f"object {number}"):
                    values = np.array(numbers[:4] if has_keypoints else numbers, float)
                    if (abs(values) > 2).any():
                        raise ValueError("its numbers are not fractions of the image's sides")
                    points = values.reshape(-1, 2)
                    begin, end = points.min(axis=0), points.max(axis=0)  # of a polygon
                    if len(points) == 2:
                        begin, end = points[0] - points[1] / 2, points[0] + points[1] / 2
                    box = [begin[1] * height, begin[0] * width, end[1] * height, end[0] * width]
                    objects.append((table.get(int(label), ""), box, False))
        split = partner_key(parts)[0]
        images.append(AnnotatedImage(folder / name, split, sides, objects, file))
    if not images:
        raise ValueError(
            f"`data` must contain images in folders named images. Received: {folder} without them"
        )
    unread = files.keys() - {image.file for image in images}
    if others := sorted(name for name in unread if _is_labels(folder / name)):
        raise ValueError(
            "Every text file of YOLO must have an image, as labels/train/a.txt images/train/a.jpg. "
            f"Received: {len(others)} without one: {shortlist(others, shown=20)}"
        )
    return [table[key] for key in sorted(table)], images


def _is_labels(path: AnyPath) -> bool:
    """Returns whether a text file begins with a class and a box of YOLO."""
    is_text = path.suffix.lower() == ".txt"
    return is_text and bool(re.match(rb"\s*\d+(\s+[-+.\de]+){4}", path.read_bytes()))
