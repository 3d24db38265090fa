from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np

from keras_vit.data.examples import Examples
from keras_vit.data.inventory import Inventory, count_images
from keras_vit.data.sources.folder import load_folder
from tests.storage.test_find_files import HEIC, write


def all_files(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def test_inventory_text_counts_by_class_and_cuts_long_lists() -> None:
    many = {f"class {i}": 1 for i in range(25)}
    text = Inventory(100, {"HEIC": many}, {"hidden": 2}).text().splitlines()
    assert text[0] == "100  images that can be used"
    assert text[1].startswith(" 25  HEIC: class 0 1, class 1 1")
    assert text[1].endswith("class 19 1 and 5 more")
    assert text[2] == "  2  ignored: hidden"


def test_count_images_names_the_classes_of_each_reason() -> None:
    names, targets = ("a", "b", "c", "d"), np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    examples = Examples(names, targets, ("rose", "tulip"), "a source", paths=names)
    found = count_images(examples, {1: "HEIC", 2: "HEIC", 3: "empty file"})
    assert found.used == 1
    assert found.unreadable == {
        "HEIC": {"tulip": 1, "rose|tulip": 1},
        "empty file": {"no class": 1},
    }


def test_every_file_of_generated_trees_is_accounted_for(tmp_path: Path) -> None:
    """Files in = images + files ignored, or one error that names the cause."""
    draw = random.Random(5)
    jpeg = write(tmp_path / "a.jpg").read_bytes()
    folders = ("rose", "tulip", "train", "val", "TEST", "2024", ".hidden", "a b", "\u82b1", " ")
    names = ("a.jpg", "b.JPE", "c", "d.txt", ".e.jpg", "f.jpg~", "g.heic", "Thumbs.db", "h.png")
    loaded, messages = 0, []
    for number in range(500):
        root = tmp_path / str(number)
        root.mkdir()
        for _ in range(draw.randrange(1, 12)):
            levels = [draw.choice(folders) for _ in range(draw.choice((0, 1, 1, 1, 2, 2, 3)))]
            content = draw.choice((jpeg, jpeg, HEIC, b"", b"words", jpeg[:9]))
            write(root.joinpath(*levels, draw.choice(names)), content)
        try:
            examples = load_folder(root)
        except ValueError as error:
            messages.append((root, str(error)))
            continue
        loaded += 1
        ignored = {k: n for k, n in examples.ignored.items() if k != "empty folder"}
        assert len(examples) + sum(ignored.values()) == all_files(root)
    assert loaded > 200
    assert [text for root, text in messages if str(root) not in text] == []
