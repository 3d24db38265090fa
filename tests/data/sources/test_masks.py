"""Folders of images and masks."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from keras_vit import data
from keras_vit.data.masks import IGNORED
from keras_vit.data.sources.masks import load_masks

pytestmark = pytest.mark.tensorflow


def write(folder: Path, name: str, sides: tuple[int, int] = (6, 8), value: int = 1) -> None:
    """Writes an image, and its mask of two classes."""
    for part in ("images", "masks"):
        (folder / part / name).parent.mkdir(parents=True, exist_ok=True)
    image = np.zeros((*sides, 3), np.uint8)
    image[0] = 200
    PIL.Image.fromarray(image).save(folder / "images" / f"{name}.jpg")
    mask = np.zeros(sides, np.uint8)
    mask[0] = value
    PIL.Image.fromarray(mask).save(folder / "masks" / f"{name}.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "abcd":
        write(tmp_path, name)
    (tmp_path / "classes.txt").write_text("ground\nroof\n")
    return tmp_path


def test_files_of_the_same_name_are_a_pair(folder: Path) -> None:
    (folder / "masks" / "a.png").rename(folder / "masks" / "a_mask.png")
    found = load_masks(folder)
    assert found.class_names == ("ground", "roof")
    assert found.names == tuple(f"images/{name}.jpg" for name in "abcd")
    assert [Path(target).stem for target in found.targets] == ["a_mask", "b", "c", "d"]
    assert found.splits is None
    assert data.load is not load_masks
    with pytest.raises(ValueError, match="For masks, use `--task segmentation`"):
        data.load(folder)


def test_endings_of_masks_may_be_those_of_images(folder: Path) -> None:
    for name in ("e_L", "e_R", "f_label"):
        write(folder, name)
    (folder / "masks" / "f_label.png").rename(folder / "masks" / "f_label_mask.png")
    assert len(load_masks(folder)) == 7
    shutil.copy(folder / "masks" / "a.png", folder / "masks" / "a_mask.png")
    with pytest.raises(ValueError, match=r"must have an image .* 1 of 8: masks/a_mask.png"):
        load_masks(folder)


@pytest.mark.parametrize("inside", [False, True])
def test_splits_lie_above_or_below(inside: bool, tmp_path: Path) -> None:
    for split in ("train", "validation"):
        write(*((tmp_path, f"{split}/a") if inside else (tmp_path / split, "a")))
    (tmp_path / "classes.txt").write_text("ground\nroof\nunlabelled\n")
    found = load_masks(tmp_path)
    assert found.splits == ("train", "validation")
    assert found.class_names == ("ground", "roof")
    assert set(found.kind.codes[found.kind.indices == IGNORED]) == {2, 255}  # type: ignore[attr-defined]


def test_no_image_is_left_out_without_a_message(folder: Path) -> None:
    PIL.Image.new("RGB", (8, 6)).save(folder / "images" / "b.png")
    with pytest.raises(ValueError, match=r"must have a mask .* none for 1 of 5: images/b.png"):
        load_masks(folder)
    (folder / "images" / "b.png").unlink()
    write(folder, "train2014/e")
    with pytest.raises(ValueError, match=r"in a split, .*4 of 5 images without a split: images/a"):
        load_masks(folder)


def test_two_classes_of_0_and_255(folder: Path) -> None:
    for name in "abcd":
        write(folder, name, value=255)
    found = load_masks(folder)
    assert found.kind.read(found.targets[0])[0].tolist() == [1] * 8  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [1, 255])
def test_the_first_masks_may_have_no_object(value: int, tmp_path: Path) -> None:
    for number in range(21):
        write(tmp_path, f"{number:02d}", value=0 if number < 20 else value)
    (tmp_path / "classes.txt").write_text("ground\nroof\n")
    found = load_masks(tmp_path)
    assert found.kind.read(found.targets[20])[0].tolist() == [1] * 8  # type: ignore[attr-defined]


def test_tables_of_colors(folder: Path) -> None:
    (folder / "class_dict.csv").write_text("name, r, g, b\nground,0,0,0\nroof,1,1,1\n")
    assert load_masks(folder).class_names == ("ground", "roof")
    (folder / "class_dict.csv").unlink()
    (folder / "labelmap.txt").write_text("# label:color\nground:0,0,0::\nroof:1,1,1::\n")
    found = load_masks(folder)
    assert found.kind.read(found.targets[0])[0].tolist() == [1] * 8  # type: ignore[attr-defined]
    (folder / "labelmap.txt").write_text("ground:0,0::\n")
    with pytest.raises(ValueError, match=r"labelmap.txt"):
        load_masks(folder)
    (folder / "class_dict.csv").write_text("name, r, g, b\nground,0,0\n")
    with pytest.raises(ValueError, match=r"Lines must be .*class_dict.csv \(TypeError"):
        load_masks(folder)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("ground,2,1,258", "three numbers from 0 to 255"),
        (f"ground,{10**20},0,0", "three numbers from 0 to 255"),
        ("ground,1,1,1\nroof,1,1,1", "two classes have the same color"),
        (f"{'g' * 2**18},1,1,1", "field larger than field limit"),
    ],
)
def test_wrong_colors_are_named(lines: str, message: str, folder: Path) -> None:
    (folder / "class_dict.csv").write_text(f"name,r,g,b\nground,0,0,0\n{lines}\n")
    with pytest.raises(ValueError, match=f"class_dict.csv .*{message}"):
        load_masks(folder)


def test_files_without_a_partner_and_missing_classes_are_named(folder: Path) -> None:
    (folder / "masks" / "b.png").rename(folder / "masks" / "e.png")
    with pytest.raises(ValueError, match=r"must have a mask .* none for 1 of 5: images/b.jpg"):
        load_masks(folder)
    write(folder, "b")
    with pytest.raises(ValueError, match=r"must have an image .* none for 1 of 5: masks/e.png"):
        load_masks(folder)
    (folder / "masks" / "e.png").unlink()
    (folder / "classes.txt").unlink()
    with pytest.raises(ValueError, match=r"must contain classes.txt.*a.png .with the values 0, 1"):
        load_masks(folder)
    shutil.rmtree(folder / "masks")
    with pytest.raises(ValueError, match="4 images and 0 masks"):
        load_masks(folder)


def test_report_counts_ignored_pixels_and_names_absent_classes(folder: Path) -> None:
    (folder / "classes.txt").write_text("ground\nroof\nchimney\n")
    for name in "abcd":
        write(folder, name, value=255)
    text = data.check(load_masks(folder), progress=False).text()
    assert "32 pixels have no class (16.7% of all)" in text
    assert "Classes that never occur (2):\n  roof\n  chimney" in text


def test_audit_names_unusable_masks(folder: Path) -> None:
    write(folder, "b", value=9)
    PIL.Image.new("L", (6, 8)).save(folder / "masks" / "c.png")
    (folder / "masks" / "d.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    found = dict(data.audit(load_masks(folder), progress=False).bad)
    assert found.keys() == {f"images/{name}.jpg" for name in "bcd"}
    assert "values that are not a class: 9, not 0, 1, 255" in found["images/b.jpg"]
    assert "8 x 6, not 6 x 8 (height x width); it must be upright" in found["images/c.jpg"]
    assert "cannot be decoded" in found["images/d.jpg"]
    (folder / "masks" / "a.png").write_bytes((folder / "images" / "a.jpg").read_bytes())
    inventory = data.audit(load_masks(folder), progress=False).inventory.text()
    assert "1  the mask has values that are not a class: images 1" in inventory
