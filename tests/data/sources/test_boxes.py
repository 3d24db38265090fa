from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from keras_vit.data import Examples, check
from keras_vit.data.boxes import Objects
from keras_vit.data.sources.boxes import load_boxes
from tests.export.test_hostile_images import mutated

pytestmark = pytest.mark.tensorflow
# Name, class and box (left, top, width, height) in images of 30 x 20 pixels (width x height).
OBJECTS = {
    "a": [("cat", (4, 2, 10, 6)), ("dog", (0, 0, 30, 20))],
    "b": [("dog", (5, 5, 3, 2))],
    "c": [],
}
SPLITS = {"a": "train", "b": "train", "c": "validation"}


def write_images(folder: Path, place: str = "{split}/images/{name}.png") -> None:
    for name, split in SPLITS.items():
        path = folder / place.format(name=name, split=split)
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(ord(name)).integers(0, 256, (20, 30, 3), "uint8")
        PIL.Image.fromarray(pixels).save(path)


def voc(folder: Path) -> Path:
    write_images(folder)
    for name, objects in OBJECTS.items():
        items = "".join(
            f"<object><name>{label}</name><bndbox><xmin>{x + 1}</xmin><ymin>{y + 1}</ymin>"
            f"<xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>"
            for label, (x, y, w, h) in objects
        )
        path = folder / SPLITS[name] / "annotations" / f"{name}.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = "<size><width>30</width><height>20</height></size>"
        path.write_text(f"<annotation>{size}{items}</annotation>")
    return folder


def coco(folder: Path) -> Path:
    write_images(folder, "{split}/{name}.png")
    for split in ("train", "validation"):
        names = [name for name in SPLITS if SPLITS[name] == split]
        categories = [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}, {"id": 9, "name": "ant"}]
        numbers = {row["name"]: row["id"] for row in categories}
        images = [
            {"id": name, "file_name": f"{name}.png", "width": 30, "height": 20} for name in names
        ]
        annotations = [
            {"id": i, "image_id": name, "category_id": numbers[label], "bbox": box, "iscrowd": 0}
            for name in names
            for i, (label, box) in enumerate(OBJECTS[name])
        ]
        content = {"images": images, "annotations": annotations, "categories": categories}
        (folder / split / "_annotations.coco.json").write_text(json.dumps(content))
    return folder


def yolo(folder: Path) -> Path:
    write_images(folder, "images/{split}/{name}.png")
    (folder / "data.yaml").write_text("names: {0: cat, 1: dog}\ntrain: images/train\n")
    for name, objects in OBJECTS.items():
        path = folder / "labels" / SPLITS[name] / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            f"{('cat', 'dog').index(label)} {(x + w / 2) / 30} {(y + h / 2) / 20} {w / 30} {h / 20}"
            for label, (x, y, w, h) in objects
        ]
        if objects:  # an image without objects needs no file
            path.write_text("\n".join(lines) + "\n")
    return folder


VOC = "<annotation><size><width>{}</width><height>3</height></size>{}</annotation>"
FORMATS = {"voc": voc, "coco": coco, "yolo": yolo}


def rows_of(examples: Examples) -> dict[str, list]:
    return {
        Path(name).stem: target.rows.round(3).tolist()
        for name, target in zip(examples.names, examples.targets, strict=True)
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_has_the_same_objects(kind: str, tmp_path: Path) -> None:
    found = load_boxes(FORMATS[kind](tmp_path / "data"))
    assert found.class_names == ("cat", "dog")
    assert dict(zip((Path(name).stem for name in found.names), found.splits, strict=True)) == SPLITS
    assert rows_of(found) == {
        "a": [[2, 4, 8, 14, 0, 0], [0, 0, 20, 30, 1, 0]],
        "b": [[5, 5, 7, 8, 1, 0]],
        "c": [],
    }
    assert {target.sides for target in found.targets} == {(20, 30)}
    assert found.notes == ()


def test_report_counts_the_objects_of_each_class(tmp_path: Path) -> None:
    report = check(load_boxes(voc(tmp_path)), progress=False)
    assert report.counts == {"cat": 1, "dog": 2}
    lines = report.text().splitlines()
    assert lines[0] == f"3 images in 2 classes of {tmp_path}; objects of each class:"
    assert lines[3] == "  1 of the images show none of these classes"


def test_splits_have_a_year_and_are_those_of_all_images(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "data")
    for split in ("train", "validation"):
        for kind in ("images", "labels"):
            if (folder / kind / split).is_dir():
                (folder / kind / split).rename(folder / kind / f"{split}2017")
    assert load_boxes(folder).splits == ("train", "train", "validation")
    shutil.copy(folder / "images/train2017/a.png", folder / "images/d.png")
    with pytest.raises(ValueError, match=r"in a split, .*1 of 4 images without .*images/d.png"):
        load_boxes(folder)


@pytest.mark.parametrize(
    ("kind", "name", "old", "new", "reason"),
    [
        ("voc", "train/annotations/b.xml", "<xmax>8", "<xmax>6", "it has no area"),
        ("voc", "train/annotations/b.xml", "<xmax>8", "<xmax>nan", "its numbers are not finite"),
        ("voc", "train/annotations/b.xml", "dog", "", "its class is unknown"),
        ("coco", "train/_annotations.coco.json", "[5, 5", "[50, 5", "it is outside of the image"),
        ("yolo", "labels/train/b.txt", "1 0", "5 0", "its class is unknown"),
    ],
)
def test_boxes_that_cannot_be_used_are_dropped_and_named(
    kind: str, name: str, old: str, new: str, reason: str, tmp_path: Path
) -> None:
    folder = FORMATS[kind](tmp_path / "data")
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    found = load_boxes(folder)
    assert rows_of(found)["b"] == []
    file = Path(name).name if kind == "coco" else name
    assert found.notes == (f"Dropped 1 boxes: {file}, box 1: {reason}.",)


def test_crowds_and_polygons_are_read(tmp_path: Path) -> None:
    folder = coco(tmp_path / "coco")
    path = folder / "train" / "_annotations.coco.json"
    path.write_text(path.read_text().replace('"iscrowd": 0', '"iscrowd": 1', 1))
    assert [row[5] for row in rows_of(load_boxes(folder))["a"]] == [1, 0]
    folder = yolo(tmp_path / "yolo")
    (folder / "labels/train/b.txt").write_text("1 0.1 0.2 0.3 0.2 0.2 0.9\n\n")
    assert rows_of(load_boxes(folder))["b"] == [[4, 3, 18, 9, 1, 0]]


def test_keypoints_of_yolo_are_not_corners(tmp_path: Path) -> None:
    folder = yolo(tmp_path)
    expected = rows_of(load_boxes(folder))
    (folder / "data.yaml").write_text("names: {0: cat, 1: dog}\nkpt_shape: [4, 3]\n")
    path = folder / "labels/train/b.txt"
    path.write_text(path.read_text().strip() + " 0.3 0.4 2" * 4)
    assert rows_of(load_boxes(folder)) == expected


def test_files_of_pascal_voc_that_others_left(tmp_path: Path) -> None:
    folder, image = voc(tmp_path / "data"), tmp_path / "data/train/images/a.png"
    (folder / "train/annotations/b.xml").rename(folder / "train/annotations/b.XML")
    (folder / "train/annotations").rename(tmp_path / "xml")
    (folder / "train/annotations").symlink_to(tmp_path / "xml")
    for name in ("__MACOSX/._a.xml", ".idea/misc.xml", "train/SegmentationClass/a.png"):
        (folder / name).parent.mkdir()
        shutil.copy(image, folder / name)
    assert load_boxes(folder).splits == ("train", "train", "validation")
    shutil.copy(image, folder / "train/images/a.bmp")
    with pytest.raises(ValueError, match=r"have an XML file .* 1 of 4: train/images/a.png"):
        load_boxes(folder)


def test_classes_of_the_same_name_are_one(tmp_path: Path) -> None:
    folder = voc(tmp_path / "voc")
    (folder / "classes.txt").write_text("dog\ndog\ncat\n")
    found = load_boxes(folder)
    assert found.class_names == ("dog", "cat")
    assert [row[4] for row in rows_of(found)["a"]] == [1, 0]
    folder = coco(tmp_path / "coco")
    path = folder / "train" / "_annotations.coco.json"
    path.write_text(path.read_text().replace('"name": "ant"', '"name": "cat"'))
    assert load_boxes(folder).class_names == ("cat", "dog")


def test_every_file_of_coco_numbers_its_classes(tmp_path: Path) -> None:
    folder = coco(tmp_path)
    path = folder / "validation" / "_annotations.coco.json"
    path.write_text(path.read_text().replace('"name": "cat"', '"name": "bird"'))
    assert load_boxes(folder).class_names == ("cat", "dog")


def test_labels_of_yolo_are_the_numbers_of_the_names(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "data")
    (folder / "data.yaml").write_text("names: {'10': bird, '1': dog, '0': cat}\n")
    (folder / "labels/train/b.txt").write_text("10 0.5 0.5 0.2 0.2\n2 0.5 0.5 0.2 0.2\n")
    found = load_boxes(folder)
    assert found.class_names == ("cat", "dog", "bird")
    assert [row[4] for row in rows_of(found)["b"]] == [2]
    content = (folder / "labels/train/b.txt").read_bytes()
    (folder / "labels/train/b.txt").write_bytes(b"\xef\xbb\xbf" + content)
    assert load_boxes(folder).notes == found.notes
    assert "b.txt, box 2: its class is unknown" in found.notes[0]


def test_sizes_are_those_of_the_upright_image(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "data")
    image = PIL.Image.new("RGB", (20, 30))
    exif = image.getexif()
    exif[0x112] = 6
    image.save(folder / "images/train/b.png", exif=exif)
    found = load_boxes(folder)
    assert {target.sides for target in found.targets} == {(20, 30)}


def test_sizes_of_jpegs_above_the_limit_of_pillow_are_read(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "data")
    path = folder / "images/train/b.png"
    PIL.Image.new("RGB", (30, 20)).save(path, "JPEG")
    content = path.read_bytes()
    start = content.index(b"\xff\xc0") + 5
    path.write_bytes(content[:start] + struct.pack(">HH", 12240, 16320) + content[start + 4 :])
    assert load_boxes(folder).targets[1].sides == (12240, 16320)


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("voc", "train/annotations/b.xml", "<annotation>", "must be XML files of Pascal VOC"),
        ("voc", "train/annotations/b.xml", "<html/>", "the root is 'html', not annotation"),
        ("voc", "train/annotations/b.xml", None, "Every image must have an XML file"),
        ("voc", "train/images/b.png", None, "Every XML file must have an image"),
        ("coco", "train/_annotations.coco.json", "[]", "in the format of COCO, with images"),
        ("coco", "train/b.png", None, "without a file b.png"),
        ("yolo", "labels/train/b.txt", "1 0.5 x 0.1 0.1", "must be text files of YOLO"),
        ("yolo", "labels/train/b.txt", b"\xff 0.5 0.5 0.1 0.1", "must be text files of YOLO"),
        ("yolo", "data.yaml", "names: 3", "data.yaml with names of classes"),
        ("yolo", "data.yaml", "names: cat", "must be a list of text, in quotes, not cat"),
        ("yolo", "data.yaml", "names: [no, yes]", r"in quotes, not \[False, True\]"),
        ("yolo", "data.yaml", "names: {.inf: cat}", "OverflowError"),
        ("yolo", "data.yaml", " " * 2**19, "more than 262144 bytes"),
        ("yolo", "labels/train/b.txt", "1 5 5 20 20", "object 1 .*not fractions of the image"),
        ("yolo", "labels/train/B.TXT", "1 0.5 0.5 0.1 0.1", "must have an image.*train/B.TXT"),
        ("voc", "classes.txt", b"caf\xe9", "UnicodeDecodeError"),
        ("voc", "train/annotations/b.xml", "<?xml version='1.0' encoding='utf-9'?><a/>", "utf-9"),
        ("voc", "train/annotations/b.xml", VOC.format("1e999", ""), "OverflowError"),
        ("voc", "train/annotations/b.xml", VOC.format(5, "<object/>"), "object 1 has the bndbox"),
    ],
)
def test_damaged_files_are_named(
    kind: str, name: str, content: str | bytes | None, message: str, tmp_path: Path
) -> None:
    folder = FORMATS[kind](tmp_path / "data")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as error:
        load_boxes(folder)
    assert Path(name).stem in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"id": "b"', '"id": "a"', "two of the images have the id a"),
        ('"id": 3', '"id": 7', "two of the categories have the id 7"),
        ('"annotations"', '"other"', "KeyError: 'annotations'"),
        ('"height": 20', '"height": 1e999', "OverflowError"),
        ('"height": 20', '"height": 0', r"\(0, 30\) is not the height and the width"),
        ("[4, 2, 10, 6]", "[4, 2, 10]", r"annotation 0 \(not enough values"),
        ('"image_id": "b"', '"image_id": "d"', "annotation 0 .the image_id d is unknown"),
    ],
)
def test_damaged_files_of_coco_are_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = coco(tmp_path / "data") / "train" / "_annotations.coco.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message) as error:
        load_boxes(tmp_path / "data")
    assert str(path) in str(error.value)


def test_identifiers_of_categories_may_have_several_types(tmp_path: Path) -> None:
    path = coco(tmp_path / "data") / "train" / "_annotations.coco.json"
    path.write_text(
        path.read_text().replace('"id": 3', '"id": "3"').replace('_id": 3', '_id": "3"')
    )
    assert set(load_boxes(tmp_path / "data").class_names) == {"cat", "dog"}


def test_boxes_of_unreadable_images_are_kept(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "data")
    (folder / "images/train/a.png").write_bytes(b"\x89PNG")
    found = load_boxes(folder)
    assert found.notes == ()
    assert len(found.targets[0].rows) == 2


def test_the_last_folder_named_images_has_the_labels(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "data")
    expected = rows_of(load_boxes(folder))
    (folder / "all").mkdir()
    for kind in ("images", "labels"):
        (folder / kind).rename(folder / "all" / kind)
    (folder / "all").rename(folder / "images")
    assert rows_of(load_boxes(folder)) == expected


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`data` must be images with boxes"):
        load_boxes(tmp_path)


def test_blood_cells_are_read(test_data: Path) -> None:
    found = load_boxes(test_data / "data" / "bccd")
    assert found.class_names == ("Platelets", "RBC", "WBC")
    assert [found.splits.count(split) for split in ("train", "validation")] == [205, 87]
    assert "it has no area" in found.notes[0]
    assert {target.sides for target in found.targets} == {(480, 640)}


def outcome(folder: Path) -> tuple[str, list[Objects]]:
    """Returns the message of an error, or the objects."""
    try:
        return "", list(load_boxes(folder).targets)
    except ValueError as error:
        return str(error), []


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_annotations_are_named(kind: str, tmp_path: Path) -> None:
    folder = FORMATS[kind](tmp_path / "data")
    files = [path for end in ("xml", "json", "txt", "yaml") for path in folder.rglob(f"*.{end}")]
    generator, refused = np.random.default_rng(7), 0
    for number in range(100):
        path = files[number % len(files)]
        content = path.read_bytes()
        path.write_bytes(mutated(content, generator))
        message, targets = outcome(folder)
        assert not message or "Received: " in message
        refused += bool(message)
        for target in targets:
            assert np.isfinite(target.rows).all()
            assert (target.rows[:, 2:4] > target.rows[:, :2]).all()
        path.write_bytes(content)
    assert refused > 10
