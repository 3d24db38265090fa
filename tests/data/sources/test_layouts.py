"""Folders as other programs leave them: what is found, or why they are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from keras_vit.data import load

Write = Callable[..., Path]
Files = dict[str, bytes | None]


def files(*names: str) -> Files:
    """Images by name."""
    return dict.fromkeys(names)


def text(path: str, content: str, encoding: str = "utf-8") -> Files:
    return {path: content.encode(encoding)}


IDS = files("train/1.jpg", "train/2.jpg", "train/3.jpg", "test/1.jpg", "test/9.jpg")
FLAT = files("1.jpg", "2.jpg", "3.jpg")
SPLITS = files("train/1.jpg", "train/2.jpg", "valid/3.jpg", "test/4.jpg")
HOT = "filename, cat, dog\n"


def in_splits(name: str, head: str, rows: dict[str, str]) -> Files:
    """A table in each split of `SPLITS`, with a row for each image."""
    found: Files = {}
    for image, row in rows.items():
        folder, _, file = image.partition("/")
        table = found.get(f"{folder}/{name}") or head.encode()
        found[f"{folder}/{name}"] = table + row.replace("FILE", file).encode() + b"\n"
    return {**SPLITS, **found}


ROWS = ("1,a", "2,b", "3,a")
# By name the files, and the labels by image with the split if there is one.
FOUND: dict[str, tuple[Files, dict[str, str]]] = {
    "kaggle, names with extension": (
        {**IDS, **text("train.csv", "image_id,label\n1.jpg,a\n2.jpg,b\n3.jpg,a\n"),
         **text("sample_submission.csv", "image_id,label\n1.jpg,0\n9.jpg,0\n")},
        {"train/1.jpg": "a", "train/2.jpg": "b", "train/3.jpg": "a"},
    ),
    "kaggle, names without extension": (
        {**IDS, **text("train.csv", "id,breed\n1,a\n2,b\n3,a\n"), **text("test.csv", "id\n1\n9\n")},
        {"train/1.jpg": "a", "train/2.jpg": "b", "train/3.jpg": "a"},
    ),
    "kaggle, train_images and train_labels.csv": (
        {**files("train_images/1.jpg", "train_images/2.jpg", "test_images/1.jpg"),
         **text("train_labels.csv", "image_id,diagnosis\n1.jpg,a\n2.jpg,b\n")},
        {"train_images/1.jpg": "a", "train_images/2.jpg": "b"},
    ),
    "kaggle, one column per class": (
        {**IDS, **text("train.csv", "image_id,healthy,rust,scab\n1,1,0,0\n2,0,1,0\n3,0,0,1\n")},
        {"train/1.jpg": "healthy", "train/2.jpg": "rust", "train/3.jpg": "scab"},
    ),
    "kaggle, one column per class, several": (
        {**IDS, **text("train.csv", "image_id,rust,scab\n1,1,0\n2,1,1\n3,0,0\n")},
        {"train/1.jpg": "rust", "train/2.jpg": "rust|scab", "train/3.jpg": ""},
    ),
    "kaggle, tags in one cell": (
        {**IDS, **text("train.csv", "image_name,tags\n1,clear haze\n2,haze\n3,clear\n")},
        {"train/1.jpg": "clear|haze", "train/2.jpg": "haze", "train/3.jpg": "clear"},
    ),
    "kaggle, labels in one cell with commas": (
        {**IDS, **text("train.csv", 'image,labels\n1.jpg,"rust, scab"\n2.jpg,scab\n3.jpg,rust\n')},
        {"train/1.jpg": "rust|scab", "train/2.jpg": "scab", "train/3.jpg": "rust"},
    ),
    "train.csv and val.csv": (
        {**files("images/1.jpg", "images/2.jpg", "images/3.jpg"),
         **text("train.csv", "path,label\nimages/1.jpg,a\nimages/2.jpg,b\n"),
         **text("val.csv", "path,label\nimages/3.jpg,b\n")},
        {"images/1.jpg": "a train", "images/2.jpg": "b train", "images/3.jpg": "b validation"},
    ),
    "roboflow, one class": (
        in_splits("_classes.csv", HOT, {"train/1.jpg": "FILE, 1, 0", "train/2.jpg": "FILE, 0, 1",
                                        "valid/3.jpg": "FILE, 1, 0", "test/4.jpg": "FILE, 0, 1"}),
        {"train/1.jpg": "cat train", "train/2.jpg": "dog train",
         "valid/3.jpg": "cat validation", "test/4.jpg": "dog test"},
    ),
    "roboflow, several classes": (
        in_splits("_classes.csv", HOT, {"train/1.jpg": "FILE, 1, 1", "train/2.jpg": "FILE, 0, 1",
                                        "valid/3.jpg": "FILE, 1, 0", "test/4.jpg": "FILE, 0, 1"}),
        {"train/1.jpg": "cat|dog train", "train/2.jpg": "dog train",
         "valid/3.jpg": "cat validation", "test/4.jpg": "dog test"},
    ),
    "hugging face, metadata.csv in each split": (
        in_splits("metadata.csv", "file_name,label\n", {
            "train/1.jpg": "FILE,a", "train/2.jpg": "FILE,b", "valid/3.jpg": "FILE,a"}),
        {"train/1.jpg": "a train", "train/2.jpg": "b train", "valid/3.jpg": "a validation"},
    ),
    "hugging face, metadata.jsonl in each split": (
        in_splits("metadata.jsonl", "", {
            "train/1.jpg": '{"file_name": "FILE", "label": 0}',
            "train/2.jpg": '{"file_name": "FILE", "label": 1}',
            "test/4.jpg": '{"file_name": "FILE", "label": 1}'}),
        {"train/1.jpg": "0 train", "train/2.jpg": "1 train", "test/4.jpg": "1 test"},
    ),
    "hugging face, class folders in each split": (
        files("train/a/1.jpg", "train/b/2.jpg", "test/a/3.jpg"),
        {"train/a/1.jpg": "a train", "train/b/2.jpg": "b train", "test/a/3.jpg": "a test"},
    ),
    "kaggle, class folders for training, unlabeled test images": (
        files("train/a/1.jpg", "train/b/2.jpg", "test/3.jpg"),
        {"train/a/1.jpg": "a train", "train/b/2.jpg": "b train"},
    ),
    "images in parts, one table": (
        {**files("ham_images_part_1/i1.jpg", "ham_images_part_2/i2.jpg"),
         **text("ham_metadata.csv", "image_id,dx\ni1,nv\ni2,mel\n")},
        {"ham_images_part_1/i1.jpg": "nv", "ham_images_part_2/i2.jpg": "mel"},
    ),
    "images and a table of another name": (
        {**FLAT, **text("flowers.csv", "photo,species\n1.jpg,a\n2.jpg,b\n3.jpg,a\n")},
        {"1.jpg": "a", "2.jpg": "b", "3.jpg": "a"},
    ),
    "excel, sep= in the first line": (
        {**FLAT, **text("labels.csv", "sep=;\r\nfile;label\r\n1.jpg;a\r\n2.jpg;b\r\n")},
        {"1.jpg": "a", "2.jpg": "b"},
    ),
    "excel, decimal commas": (
        {**FLAT, **text("labels.csv", "photo;cat;dog\n1.jpg;1,0;0,0\n2.jpg;0,0;1,0\n")},
        {"1.jpg": "cat", "2.jpg": "dog"},
    ),
    "excel, UTF-16 with tabs": (
        {**FLAT, **text("labels.csv", "file\tlabel\n1.jpg\té\n2.jpg\tb\n", "utf-16")},
        {"1.jpg": "é", "2.jpg": "b"},
    ),
    "excel, Windows-1252": (
        {**FLAT, **text("labels.csv", "file;label\n1.jpg;é\n2.jpg;b\n", "cp1252")},
        {"1.jpg": "é", "2.jpg": "b"},
    ),
    "excel, blanks around headers and cells": (
        {**FLAT, **text("labels.csv", " file ; label \n 1.jpg ; a \n 2.jpg ;b\n")},
        {"1.jpg": "a", "2.jpg": "b"},
    ),
    "excel, empty last lines": (
        {**FLAT, **text("labels.csv", "file;label;;\n1.jpg;a;;\n2.jpg;b;;\n;;;\n;;;\n")},
        {"1.jpg": "a", "2.jpg": "b"},
    ),
    "pandas, index column": (
        {**FLAT, **text("labels.csv", ",file,label\n0,1.jpg,a\n1,2.jpg,b\n")},
        {"1.jpg": "a", "2.jpg": "b"},
    ),
    "pandas, index column that was saved twice": (
        {**FLAT, **text("labels.csv", "Unnamed: 0,id,kind\n0,1,a\n1,2,b\n")},
        {"1.jpg": "a", "2.jpg": "b"},
    ),
    "extensions in another case": (
        {**files("A.JPG", "b.Jpeg"), **text("labels.csv", "file,label\na.jpg,x\nb.jpg,y\n")},
        {"A.JPG": "x", "b.Jpeg": "y"},
    ),
    "paths of another computer": (
        {**files("images/1.jpg", "images/2.jpg"),
         **text("labels.csv", "file,label\nC:\\data\\1.jpg,a\n/kaggle/input/x/2.jpg,b\n")},
        {"images/1.jpg": "a", "images/2.jpg": "b"},
    ),
    "no header line": (
        {**FLAT, **text("labels.csv", "1.jpg,a\n2.jpg,b\n")},
        {"1.jpg": "a", "2.jpg": "b"},
    ),
    "class folders with leftovers": (
        files("a/1.jpg", "a/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg", "b/2.jpg", "__MACOSX/a/._1.jpg"),
        {"a/1.jpg": "a", "b/2.jpg": "b"},
    ),
    "one folder above the class folders": (
        files("flowers/a/1.jpg", "flowers/b/2.jpg"),
        {"flowers/a/1.jpg": "a", "flowers/b/2.jpg": "b"},
    ),
    "class folders with labelme files": (
        {**files("a/1.jpg", "b/2.jpg"), **text("a/1.json", "{}"), **text("b/2.json", "{}")},
        {"a/1.jpg": "a", "b/2.jpg": "b"},
    ),
    "one folder above a table": (
        {**files("archive/train/1.jpg", "archive/train/2.jpg", "archive/test/3.jpg"),
         **text("archive/train.csv", "id,label\n1,a\n2,b\n"), **text("readme.md", "x")},
        {"train/1.jpg": "a", "train/2.jpg": "b"},
    ),
    "nested folders of the same name": (
        {**files("train/train/1.jpg", "train/train/2.jpg", "test/test/3.jpg"),
         **text("train.csv", "id,species\n1,a\n2,b\n")},
        {"train/train/1.jpg": "a", "train/train/2.jpg": "b"},
    ),
    "labels.csv beside unlabeled images": (
        {**IDS, **text("labels.csv", "id,breed\n2,a\n3,b\n")},
        {"train/2.jpg": "a", "train/3.jpg": "b"},
    ),
    "numbers of several classes": (
        {**IDS, **text("train.csv", "id,attribute_ids\n1,5 17\n2,17\n3,5\n")},
        {"train/1.jpg": "17|5", "train/2.jpg": "17", "train/3.jpg": "5"},
    ),
    "a class called train": (
        files("bus/1.jpg", "car/2.jpg", "train/3.jpg"),
        {"bus/1.jpg": "bus", "car/2.jpg": "car", "train/3.jpg": "train"},
    ),
}  # fmt: skip

# By name the files, and what the error says.
REFUSED: dict[str, tuple[Files, str]] = {
    "splits without labels": (SPLITS, r"\['test', 'train', 'valid'\] are not classes by their"),
    "splits with other names": (
        files("cats/training_set/a/1.jpg", "cats/training_set/b/2.jpg", "cats/test_set/a/3.jpg"),
        r"splits train, validation and test\. .* \['test_set', 'training_set'\] are not classes",
    ),
    "splits of Intel": (
        files("seg_train/seg_train/a/1.jpg", "seg_test/seg_test/a/2.jpg", "seg_pred/3.jpg"),
        r"\['seg_pred', 'seg_test', 'seg_train'\] are not classes",
    ),
    "COCO in each split": (
        {**SPLITS, **text("train/_annotations.coco.json", "{}")},
        r"train/_annotations.coco.json contains COCO annotations\. For .* export the dataset again",
    ),
    "COCO beside the images": (
        {**files("images/1.jpg"), **text("annotations/instances_train.json", "{}")},
        "annotations/instances_train.json contains COCO annotations",
    ),
    "YOLO": (
        {**files("train/images/1.jpg", "valid/images/2.jpg"),
         **text("train/labels/1.txt", "0 .5 .5 1 1"), **text("valid/labels/2.txt", ""),
         **text("data.yaml", "names: [a]")},
        "data.yaml contains the configuration of YOLO boxes",
    ),
    "YOLO without configuration": (
        {**files("images/1.jpg", "images/2.jpg"), **text("labels/1.txt", "0 .5 .5 1 1")},
        "labels/1.txt contains YOLO boxes",
    ),
    "Pascal VOC": (
        {**files("JPEGImages/1.jpg", "SegmentationClass/1.png", "SegmentationObject/1.png"),
         **text("Annotations/1.xml", "<annotation/>")},
        "Annotations/1.xml contains Pascal VOC boxes",
    ),
    "Pascal VOC of Roboflow": (
        {**SPLITS, **text("train/1.xml", "<annotation/>")},
        "train/1.xml contains Pascal VOC boxes",
    ),
    "CVAT": (
        {**files("images/1.jpg"), **text("annotations.xml", "<annotations/>")},
        "annotations.xml contains CVAT annotations",
    ),
    "interrupted packing": (
        {**text("packing.json", "{}"), **text("files-00000.tfrecord", "")},
        "packing.json contains the plan of an interrupted `keras-vit data pack`; run it again",
    ),
    "labelme": (
        {**FLAT, **text("1.json", "{}")},
        "1.json contains annotations such as those of labelme",
    ),
    "masks": (
        files("images/1.jpg", "masks/1.png"),
        r"\['images', 'masks'\] are not .* masks/1.png contains a mask of pixels",
    ),
    "boxes of Roboflow": (
        {**SPLITS, **text("train/_annotations.csv", "filename,class,xmin\n1.jpg,a,1\n")},
        "train/_annotations.csv contains a table of boxes",
    ),
    "a spreadsheet": (
        {**FLAT, **text("labels.xlsx", "PK")},
        "labels.xlsx contains a table in a format other than CSV",
    ),
    "a table in another folder": (
        {**files("images/1.jpg", "images/2.jpg"), **text("annotations/x.csv", "id,label\n1,a\n")},
        "annotations/x.csv contains a table outside of the folder above all images",
    ),
    "a row for each box": (
        {**FLAT, **text("labels.csv", "file,label,xmin\n1.jpg,a,1\n1.jpg,b,2\n")},
        "a table with one row for each box or mask cannot be used. .* in lines 2 and 3 of",
    ),
    "several tables": (
        {**FLAT, **text("one.csv", "file,label\n1.jpg,a\n"), **text("two.csv", "id,label\n2,a\n")},
        r"must be the path of a table .*\['one.csv', 'two.csv'\]",
    ),
    "a table without classes": (
        {**IDS, **text("train.csv", "id,age,site\n1,3,x\n2,4,x\n3,5,y\n")},
        r"rename the column of the classes to `label`, or move .*\['file', 'age', 'site'\]",
    ),
    "a name that is missing": (
        {**FLAT, **text("labels.csv", "file,label\n1.jpg,a\n4x.jpg,b\n")},
        r"\['4x.jpg'\], the first in line 3 \(the closest name is ",
    ),
    "a name of two images": (
        {**files("x/1.jpg", "y/1.jpg"), **text("labels.csv", "file,label\n1.jpg,a\n")},
        r"Every file in the table must exist.*\['1.jpg'\], the first in line 2",
    ),
    "splits beside other folders": (
        files("train/a/1.jpg", "train/b/2.jpg", "test/a/3.jpg", "extra/a/4.jpg"),
        r"splits \['test', 'train'\] and the folders \['extra'\]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", FOUND)
def test_layouts_that_are_found(layout: str, tmp_path: Path, write: Write) -> None:
    content, expected = FOUND[layout]
    examples = load(write(tmp_path, content))
    splits = examples.splits or [""] * len(examples)
    found = {
        name: f"{'|'.join(examples.shown(i))} {split}".strip()
        for i, (name, split) in enumerate(zip(examples.names, splits, strict=True))
    }
    assert found == expected
    for name, path in zip(examples.names, examples.paths or (), strict=True):
        assert Path(path).is_file()
        assert path.endswith(name)


@pytest.mark.parametrize("layout", REFUSED)
def test_layouts_that_are_refused(layout: str, tmp_path: Path, write: Write) -> None:
    content, message = REFUSED[layout]
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path, content))
