from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from keras_vit.data.folder import load_folder

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
    assert examples.labels.tolist() == [0, 1, 1, 2, 2]
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
            "a/scan.tiff",
            "b/2.png",
            ".git/3.png",
            "docs/readme.txt",
            "4.png",
        ],
    )
    examples = load_folder(tmp_path)
    assert examples.names == ("a/1.png", "b/2.png")
    assert examples.class_names == ("a", "b")


def test_nested_folders_belong_to_their_class(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["a/2023/may/1.png", "a/2024/1.png", "b/1.png"])
    examples = load_folder(tmp_path)
    assert examples.names == ("a/2023/may/1.png", "a/2024/1.png", "b/1.png")
    assert examples.class_names == ("a", "b")


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


@pytest.mark.parametrize("held_out", ["val", "validation", "valid", "test", "Val"])
def test_division_into_folders_is_kept(tmp_path: Path, write: Write, held_out: str) -> None:
    write(tmp_path, ["train/a/1.png", "train/b/2.png", f"{held_out}/a/1.png"])
    examples = load_folder(tmp_path)
    assert examples.class_names == ("a", "b")
    divided = dict(zip(examples.names, examples.splits or (), strict=True))
    assert divided == {
        "train/a/1.png": "train",
        "train/b/2.png": "train",
        f"{held_out}/a/1.png": "validation",
    }


def test_test_folder_is_left_alone_beside_a_validation_folder(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["train/a/1.png", "train/b/2.png", "val/a/3.png", "test/a/4.png"])
    assert load_folder(tmp_path).names == ("train/a/1.png", "train/b/2.png", "val/a/3.png")


def test_folder_of_trains_is_a_class(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["train/1.png", "test/2.png", "bus/3.png"])
    examples = load_folder(tmp_path)
    assert examples.class_names == ("bus", "test", "train")
    assert examples.splits is None


def test_class_without_training_images_is_refused(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["train/a/1.png", "train/b/2.png", "val/c/3.png"])
    with pytest.raises(ValueError, match=r"Every class of the validation .*for \['c'\]"):
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
