from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from keras_vit.data.sources.folder import (
    NoClassFoldersError,
    load_folder,
    unusable_annotations,
)

Write = Callable[..., Path]


def test_class_folders_become_sorted_classes(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["rose/b.jpg", "rose/a.jpeg", "Aster/z.png", "daisy/c.GIF", "daisy/d.webp"])
    examples = load_folder(tmp_path)
    assert examples.class_names == ("Aster", "daisy", "rose")
    assert examples.names == (
        "Aster/z.png",
        "daisy/c.GIF",
        "daisy/d.webp",
        "rose/a.jpeg",
        "rose/b.jpg",
    )
    assert examples.targets.tolist() == [0, 1, 1, 2, 2]
    assert examples.splits is None
    assert examples.flip_safe
    assert examples.read(4) == (tmp_path / "rose" / "b.jpg").read_bytes()


def test_order_does_not_depend_on_the_listing(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [f"{c}/{deep}{i}.bmp" for c in "ba" for deep in ("", "y/", "x/") for i in "21"])
    expected = load_folder(tmp_path).names
    assert list(expected) == sorted(expected)
    scandir = os.scandir

    class Reversed:
        def __init__(self, *arguments: object) -> None:
            with scandir(*arguments) as entries:
                self.entries = iter(sorted(entries, key=lambda entry: entry.name, reverse=True))

        def __enter__(self) -> Reversed:
            return self

        def __exit__(self, *error: object) -> None: ...

        def __iter__(self) -> Reversed:
            return self

        def __next__(self) -> os.DirEntry:
            return next(self.entries)

        def close(self) -> None: ...

    monkeypatch.setattr(os, "scandir", Reversed)
    monkeypatch.setattr(os, "listdir", lambda path=".": [entry.name for entry in Reversed(path)])
    assert load_folder(tmp_path).names == expected


def test_hidden_and_other_files_are_left_out(tmp_path: Path, write: Write) -> None:
    write(
        tmp_path,
        [
            "a/1.png",
            "a/.DS_Store",
            "a/._1.png",
            "a/.thumbnails/1.png",
            "a/notes.txt",
            "b/2.png",
            ".git/3.png",
            "docs/readme.txt",
            "4.png",
        ],
    )
    examples = load_folder(tmp_path)
    assert examples.names == ("a/1.png", "b/2.png")
    assert examples.class_names == ("a", "b")
    assert examples.ignored == {
        "hidden": 4,
        ".txt": 2,
        "image outside of the class folders": 1,
    }


def test_image_of_an_unknown_format_is_kept_for_the_audit(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["a/1.png", "b/2.png"])
    (tmp_path / "b" / "scan.tiff").write_bytes(b"II*\0")
    assert load_folder(tmp_path).names == ("a/1.png", "b/2.png", "b/scan.tiff")


def test_nested_folders_belong_to_their_class(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["a/2023/may/1.png", "a/2024/1.png", "b/1.png"])
    examples = load_folder(tmp_path)
    assert examples.names == ("a/2023/may/1.png", "a/2024/1.png", "b/1.png")
    assert examples.class_names == ("a", "b")
    assert examples.notes == (
        "2 images lie in subfolders of class folders, such as a/2023/may, and belong to the class "
        "of the outer folder, such as a.",
    )


def test_symbolic_links_are_followed_but_not_in_circles(tmp_path: Path, write: Write) -> None:
    elsewhere = write(tmp_path / "elsewhere", ["x/1.png", "x/deep/2.png", "3.png"])
    data = write(tmp_path / "data", ["a/0.png"])
    (data / "b").symlink_to(elsewhere / "x")
    (data / "a" / "linked").symlink_to(elsewhere / "x" / "deep")
    (data / "a" / "4.png").symlink_to(elsewhere / "3.png")
    (data / "a" / "circle").symlink_to(data / "a")
    examples = load_folder(data)
    assert examples.names == ("a/0.png", "a/4.png", "a/linked/2.png", "b/1.png", "b/deep/2.png")


def test_name_that_is_no_unicode_is_found(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["a/1.png", "b/2.png"])
    os.rename(tmp_path / "a" / "1.png", os.fsencode(tmp_path / "a") + b"/caf\xe9.png")
    examples = load_folder(tmp_path)
    assert examples.names[0].encode("utf-8", "surrogateescape") == b"a/caf\xe9.png"
    assert examples.read(0).startswith(b"\x89PNG")


@pytest.mark.parametrize("held_out", ["val", "valid", "validation", "dev", "test", "Testing"])
@pytest.mark.parametrize("trained", ["train", "TRAINING"])
def test_folders_of_splits(tmp_path: Path, write: Write, trained: str, held_out: str) -> None:
    write(tmp_path, [f"{trained}/a/1.png", f"{trained}/b/2.png", f"{held_out}/a/1.png"])
    examples = load_folder(tmp_path)
    assert examples.class_names == ("a", "b")
    divided = dict(zip(examples.names, examples.splits or (), strict=True))
    assert divided == {
        f"{trained}/a/1.png": "train",
        f"{trained}/b/2.png": "train",
        f"{held_out}/a/1.png": "test" if held_out.startswith("Test") or held_out == "test"
        else "validation",
    }  # fmt: skip
    first, second = sorted((trained, held_out))
    assert examples.notes == (f"Found splits, each with class folders: {first}, {second}.",)


def test_three_splits(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["train/a/1.png", "train/b/2.png", "val/a/3.png", "test/a/4.png"])
    assert load_folder(tmp_path).splits == ("test", "train", "train", "validation")


def test_split_without_class_folders_has_no_labels(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["train/a/1.png", "train/b/2.png", "test/3.png", "docs/readme.txt"])
    examples = load_folder(tmp_path)
    assert (examples.class_names, examples.splits) == (("a", "b"), ("train", "train"))
    assert examples.ignored["image outside of the class folders"] == 1
    assert examples.notes == (
        "Found splits, each with class folders: train.",
        "Without labels, because there are no class folders: test.",
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["train/1.png", "test/2.png"], r"\['test', 'train'\] are not classes by their names$"),
        (["train_images/1.png", "test-imgs/2.png"], "are not classes by their names"),
        (["ham_images_part_1/1.png", "ham_images_part_2/2.png"], "are not classes by their names"),
        (
            ["JPEGImages/1.png", "SegmentationClass/1.png"],
            "SegmentationClass/1.png contains a mask",
        ),
        (["train/a/1.png", "test/b/2.png", "bus/3.png"], r"splits \['test', 'train'\] and .*bus"),
    ],
)
def test_folders_that_are_no_classes_are_refused(
    tmp_path: Path, write: Write, names: list[str], message: str
) -> None:
    write(tmp_path, names)
    with pytest.raises(NoClassFoldersError, match=message):
        load_folder(tmp_path)


@pytest.mark.parametrize("names", [["0", "1"], ["photo", "drawing"], ["mask", "no_mask"]])
def test_classes_that_sound_like_contents(tmp_path: Path, write: Write, names: list[str]) -> None:
    write(tmp_path, [f"{name}/1.png" for name in names])
    assert load_folder(tmp_path).class_names == tuple(sorted(names))


def test_class_called_train(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["train/1.png", "bus/2.png"])
    examples = load_folder(tmp_path)
    assert (examples.class_names, examples.splits) == (("bus", "train"), None)
    assert examples.notes == ("Treated as a class, not as a split: train.",)


@pytest.mark.parametrize("above", ["flowers", "data/flowers", "train"])
def test_folder_above_the_class_folders(tmp_path: Path, write: Write, above: str) -> None:
    write(tmp_path, [f"{above}/rose/1.png", f"{above}/tulip/2.png"])
    examples = load_folder(tmp_path)
    assert examples.class_names == ("rose", "tulip")
    assert examples.names == (f"{above}/rose/1.png", f"{above}/tulip/2.png")
    assert examples.notes == (f"The class folders are in {tmp_path / above}.",)


def test_folder_above_the_splits(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["flowers/train/a/1.png", "flowers/train/b/2.png", "flowers/val/a/3.png"])
    examples = load_folder(tmp_path)
    assert examples.class_names == ("a", "b")
    assert examples.splits == ("train", "train", "validation")


def test_single_class_is_not_passed_over(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["rose/2024/1.png", "rose/2.png"])
    assert load_folder(tmp_path).class_names == ("rose",)


@pytest.mark.parametrize("name", ["  ", "caf\udce9", "a\nb"])
def test_class_name_that_is_no_text_is_refused(tmp_path: Path, write: Write, name: str) -> None:
    write(tmp_path, [f"{name}/1.png", "b/2.png"])
    with pytest.raises(ValueError, match=r"must be UTF-8 text without control char.*Received: '"):
        load_folder(tmp_path)


def test_class_without_training_images_is_refused(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["train/a/1.png", "train/b/2.png", "val/c/3.png"])
    with pytest.raises(
        ValueError, match=r"Every class must have images in the training .*for \['c'\]"
    ):
        load_folder(tmp_path)


def test_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"`data` must be a folder with one subfolder .*0 subfolde"
    ):
        load_folder(tmp_path)


def test_folder_without_class_folders_is_refused(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["1.jpg", "2.jpg", "notes/a.txt"])
    with pytest.raises(ValueError, match=r"with 1 subfolders, none .* and 2 images outside"):
        load_folder(tmp_path)


def test_thumbnails_of_a_nas_change_neither_images_nor_classes(
    tmp_path: Path, write: Write
) -> None:
    names = [f"{kind}/{i}.jpg" for kind in ("daisy", "rose") for i in range(5)]
    write(tmp_path / "plain", names)
    thumbs = [
        f"{kind}/@eaDir/{i}.jpg/SYNOPHOTO_THUMB_{size}.jpg"
        for kind in ("daisy", "rose")
        for i in range(5)
        for size in ("M", "XL")
    ]
    write(tmp_path / "nas", [*names, *thumbs, "#recycle/tulip/1.jpg", "@eaDir/a/1.jpg"])
    plain, nas = load_folder(tmp_path / "plain"), load_folder(tmp_path / "nas")
    assert nas.names == plain.names
    assert nas.targets.tolist() == plain.targets.tolist()
    assert nas.class_names == plain.class_names
    assert nas.ignored == {"thumbnail": 21, "deleted or earlier version": 1}


def test_classes_that_sound_like_leftovers_stay(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["recycled/1.png", "system volume knob/2.png", "trash/3.png"])
    assert load_folder(tmp_path).class_names == ("recycled", "system volume knob", "trash")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("train/_annotations.coco.json", "COCO annotations"),
        ("Labels/1.TXT", "YOLO boxes"),
        ("1.xml", "Pascal VOC boxes"),
        ("gt/1.png", "a mask of pixels"),
    ],
)
def test_annotations_are_named_with_their_kind(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    (tmp_path / "zz.json").write_bytes(b"")
    assert unusable_annotations(tmp_path).startswith(f"; {name} contains {kind}. For")


def test_images_and_tables_are_no_annotations(tmp_path: Path) -> None:
    for name in ("1.jpg", "2.png", "labels.csv"):
        (tmp_path / name).write_bytes(b"")
    assert unusable_annotations(tmp_path) == ""
