"""Masks drawn from COCO's annotations."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from keras_vit.cli.options import check_data
from keras_vit.data.masks import IGNORED
from keras_vit.data.sources.coco import coco_files, load_coco

pytestmark = pytest.mark.tensorflow
SQUARE = [[2, 1, 6, 1, 6, 5, 2, 5]]  # columns 2 to 5, rows 1 to 4
RLE = {"size": [6, 8], "counts": [0, 6, 42]}  # the first column


def write(folder: Path, file: str, annotations: list[dict[str, Any]]) -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new("RGB", (8, 6), (9, 200, 9)).save(path.parent / "a.png")
    content = {
        "images": [{"id": 7, "file_name": "a.png", "height": 6, "width": 8}],
        "categories": [{"id": 3, "name": "cat"}, {"id": 9, "name": "dog"}, {"id": 1, "name": "ox"}],
        "annotations": [{"image_id": 7, "id": i, **row} for i, row in enumerate(annotations)],
    }
    path.write_text(json.dumps(content))
    return path


def test_polygons_rle_and_crowds_become_classes(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "annotations.json",
        [
            {"category_id": 3, "segmentation": SQUARE, "iscrowd": 0},
            {"category_id": 9, "segmentation": [[3, 2, 5, 2, 5, 4, 3, 4]]},
            {"category_id": 3, "segmentation": RLE, "iscrowd": 1},
        ],
    )
    for source in (path, tmp_path):
        assert check_data(str(source)) == str(source)
        found = load_coco(source)
        assert found.class_names == ("background", "cat", "dog")
        mask = found.kind.read(found.targets[0])  # type: ignore[attr-defined]
        assert mask.shape == (6, 8)
        assert (mask[:, 0] == IGNORED).all()
        assert mask[1:5, 2:6].tolist() == [[1] * 4, [1, 2, 2, 1], [1, 2, 2, 1], [1] * 4]
        assert np.count_nonzero(mask == 0) == 48 - 6 - 16
        assert found.kind.problem(found, 0, (6, 8)) is None
        assert found.subset([0]).kind.text(found, 0)
        aligned = found.with_classes(["dog", "cat", "background"])
        np.testing.assert_array_equal(
            aligned.kind.read(found.targets[0]),  # type: ignore[attr-defined]
            np.where(mask == IGNORED, IGNORED, np.array([2, 1, 0])[mask % IGNORED]),
        )


def test_splits_are_named_by_their_folders(tmp_path: Path) -> None:
    row = {"category_id": 3, "segmentation": SQUARE}
    for split in ("train", "valid"):
        write(tmp_path, f"{split}/_annotations.coco.json", [row])
    assert load_coco(tmp_path).splits == ("train", "validation")


def test_splits_are_named_by_their_files(tmp_path: Path) -> None:
    tmp_path = tmp_path / "val"  # the name of the source is not a split
    for split in ("train2014", "val2014"):
        write(tmp_path / split, "a.json", [])
        path = write(tmp_path, f"annotations/instances_{split}.json", [])
        (path.parent / "a.png").unlink()
    assert load_coco(tmp_path).splits == ("train", "validation")
    write(tmp_path, "result.json", [])
    with pytest.raises(ValueError, match=r"in a split, .*1 of 3 images without a split: a.png"):
        load_coco(tmp_path)


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("{}.json", "{}"),
        ("annotations_{}.json", "images/{}"),
        ("annotations/{}.json", "{}"),
        ("instances_{}2017.json", "{}2017"),
        ("annotations/instances_{}2017.json", "images/{}2017"),
    ],
)
def test_files_and_folders_are_named_by_splits(file: str, folder: str, tmp_path: Path) -> None:
    for split in ("train", "val"):
        path = write(tmp_path, file.format(split), [])
        (path.parent / "captions_train.json").write_text('{"images": [], "annotations": []}')
        (tmp_path / folder.format(split)).mkdir(parents=True)
        (path.parent / "a.png").rename(tmp_path / folder.format(split) / "a.png")
    found = load_coco(tmp_path)
    assert found.splits == ("train", "validation")
    assert found.names == tuple(f"{folder.format(split)}/a.png" for split in ("train", "val"))


def test_every_file_numbers_its_classes(tmp_path: Path) -> None:
    row = {"category_id": 3, "segmentation": SQUARE}
    for split in ("train", "valid"):
        path = write(tmp_path, f"{split}/_annotations.coco.json", [row])
    path.write_text(path.read_text().replace('"id": 3, "name": "cat"', '"id": 3, "name": "dog"'))
    found = load_coco(tmp_path)
    assert found.class_names == ("background", "cat", "dog")
    masks = [found.kind.read(target) for target in found.targets]  # type: ignore[attr-defined]
    assert [mask.max() for mask in masks] == [1, 2]


def test_missing_images_and_other_json_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "annotations.json", [])
    (tmp_path / "a.png").unlink()
    with pytest.raises(ValueError, match=r"without a file a.png"):
        load_coco(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match="in the format of COCO"):
        load_coco(path)
    assert coco_files(tmp_path / "other.csv") == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"category_id": 4}, "annotation 0 .the category_id 4 is unknown"),
        ({"image_id": 4}, "annotation 0 .the image_id 4 is unknown"),
        ({"segmentation": None}, "KeyError: 'segmentation'"),
    ],
)
def test_wrong_annotations_are_refused(
    change: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    row = {"category_id": 3, "segmentation": SQUARE, **change}
    path = write(tmp_path, "annotations.json", [{k: v for k, v in row.items() if v is not None}])
    with pytest.raises(ValueError, match=expected):
        load_coco(path)


def test_audit_names_images_whose_shapes_cannot_be_drawn(tmp_path: Path) -> None:
    rows = [{"category_id": 3, "segmentation": shape} for shape in ([], "polygon")]
    found = load_coco(write(tmp_path, "annotations.json", rows))
    assert found.notes == ("Objects without a segmentation, which are background: 1.",)
    problem = found.kind.problem(found, 0, (6, 8))
    assert problem is not None
    assert "annotation 1 cannot be drawn" in problem


def test_audit_names_rle_of_another_size(tmp_path: Path) -> None:
    rows = [{"category_id": 3, "segmentation": {**RLE, "size": [8, 6]}}]
    found = load_coco(write(tmp_path, "annotations.json", rows))
    problem = found.kind.problem(found, 0, (6, 8))
    assert problem == (
        "annotation 0 cannot be drawn (it has (8, 6) rows and columns, the image (6, 8))"
    )


@pytest.mark.parametrize(
    "shape",
    [
        *([[float(number), 1, 3, 1, 3, 3]] for number in ("nan", "inf", "1e9")),
        [[None, 1, 3, 1, 3, 3]],
        [1, 1, 3, 1, 3, 3],
        {"size": [6, 8], "counts": [5]},
        {"size": [6, 8], "counts": [-5, 53]},
    ],
)
def test_audit_names_other_shapes(shape: Any, tmp_path: Path) -> None:
    rows = [{"category_id": 3, "segmentation": shape}]
    found = load_coco(write(tmp_path, "annotations.json", rows))
    problem = found.kind.problem(found, 0, (6, 8))
    assert problem is not None
    assert "annotation 0 cannot be drawn" in problem


def test_polygons_of_one_or_two_points_have_no_pixels(tmp_path: Path) -> None:
    masks = []
    for name, shape in (("a", SQUARE), ("b", [[1, 1], [1, 1, 5, 5], *SQUARE]), ("c", [[1, 1]])):
        rows = [{"category_id": 3, "segmentation": shape}]
        found = load_coco(write(tmp_path / name, "annotations.json", rows))
        masks.append(found.kind.read(found.targets[0]))  # type: ignore[attr-defined]
    np.testing.assert_array_equal(masks[0], masks[1])
    assert masks[0].any()
    assert not masks[2].any()


def test_a_category_may_be_named_background(tmp_path: Path) -> None:
    path = write(tmp_path, "annotations.json", [{"category_id": 3, "segmentation": SQUARE}])
    path.write_text(path.read_text().replace('"cat"', '"background"'))
    found = load_coco(path)
    assert found.class_names == ("background",)
    assert not found.kind.read(found.targets[0]).any()  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", ["file_name", "height", "width"])
def test_images_without_a_name_or_size_are_refused(key: str, tmp_path: Path) -> None:
    path = write(tmp_path, "annotations.json", [])
    path.write_text(path.read_text().replace(f'"{key}"', '"other"'))
    with pytest.raises(ValueError, match=rf"in the format of COCO, .* \(KeyError: '{key}'\)"):
        load_coco(path)


def test_hidden_copies_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, "instances_default.json", [])
    copy = tmp_path / ".ipynb_checkpoints" / "instances_default-checkpoint.json"
    copy.parent.mkdir()
    copy.write_text(path.read_text())
    assert coco_files(tmp_path) == [(path, "")]
    assert load_coco(tmp_path).names == ("a.png",)


@pytest.mark.parametrize("name", ["images\\é.png", unicodedata.normalize("NFD", "images/é.png")])
def test_names_are_read_with_backslashes_and_in_both_unicode_forms(
    name: str, tmp_path: Path
) -> None:
    path = write(tmp_path, "annotations.json", [])
    content = json.loads(path.read_text())
    content["images"][0]["file_name"] = name
    path.write_text(json.dumps(content))
    (tmp_path / "images").mkdir()
    (tmp_path / "a.png").rename(tmp_path / "images" / "é.png")
    assert load_coco(path).names == ("images/é.png",)
