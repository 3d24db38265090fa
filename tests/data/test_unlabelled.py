from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from keras_vit.cli.options import find_images
from keras_vit.data import Examples, load, split
from keras_vit.data.sources.load import load_images
from keras_vit.data.splits import split_images
from keras_vit.data.target_kinds import NO_TARGETS

Write = Callable[..., Path]


def images(labels: list[int], splits: tuple[str, ...] | None = None) -> Examples:
    names = tuple(f"{index:03d}.png" for index in range(len(labels)))
    return Examples(
        names=names,
        targets=np.array(labels),
        class_names=("ant", "bee", "cow"),
        source="memory",
        encoded=tuple(name.encode() for name in names),
        splits=splits,
    )


def contents(examples: Examples) -> dict[str, str]:
    return {name: f"content of {name}" for name in examples.names}


def test_loose_images_are_found_however_deep(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["b.jpg", "2024/may/a.PNG", "2024/c.webp", ".hidden/d.png", ".e.png"])
    (tmp_path / "notes.txt").touch()
    examples = load_images(tmp_path)
    assert examples.names == ("2024/c.webp", "2024/may/a.PNG", "b.jpg")
    assert examples.class_names == ("image",)
    assert examples.targets.tolist() == [0, 0, 0]
    assert examples.read(1) == (tmp_path / "2024/may/a.PNG").read_bytes()
    assert examples.splits is None


def test_class_folders_keep_their_labels(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["ant/a.jpg", "bee/b.jpg", "bee/deep/c.jpg"])
    examples = load_images(tmp_path)
    assert examples.names == load(tmp_path).names
    assert examples.class_names == ("ant", "bee")


@pytest.mark.parametrize("loose", [[], ["preview.png"]])
@pytest.mark.parametrize("masks", [["a_mask.png"], ["a.png", "b.png", "c.png"]])
def test_masks_are_left_out(
    loose: list[str], masks: list[str], tmp_path: Path, write: Write
) -> None:
    images = ["images/a.jpg", "images/b.jpg", "images/c.jpg"]
    write(tmp_path, [*images, *(f"masks/{name}" for name in masks), *loose])
    examples = load_images(tmp_path)
    assert examples.names == (*images, *loose)
    assert examples.class_names == ("image",)
    assert examples.ignored == {"mask": len(masks)}


def test_folder_of_masks_without_images_is_one_of_images(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["images/a.jpg", "masks/venice.jpg"])
    examples = load_images(tmp_path)
    assert examples.names == ("images/a.jpg", "masks/venice.jpg")
    assert examples.ignored == {}


def test_table_goes_before_loose_images(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["a.jpg", "b.jpg", "c.jpg"])
    (tmp_path / "labels.csv").write_text("file,label\na.jpg,ant\nc.jpg,bee\n")
    assert load_images(tmp_path).names == load(tmp_path).names == ("a.jpg", "c.jpg")


@pytest.mark.parametrize("table", ["file\na.jpg\nc.jpg\n", "file,u,v\na.jpg,0.5,2\nc.jpg,3,5\n"])
def test_table_without_classes_names_images(table: str, tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["a.jpg", "b.jpg", "c.jpg"])
    (tmp_path / "labels.csv").write_text(table)
    for source in (tmp_path, tmp_path / "labels.csv"):
        examples = load_images(source)
        assert (examples.names, examples.class_names) == (("a.jpg", "c.jpg"), ("image",))
        assert examples.kind is NO_TARGETS
    assert find_images([tmp_path / "labels.csv"]) == [str(tmp_path / n) for n in ("a.jpg", "c.jpg")]


def test_splits_of_a_table_without_classes_are_kept(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["train/a.jpg", "test/c.jpg"])
    (tmp_path / "train.csv").write_text("file,u,v\na.jpg,1,2\n")
    (tmp_path / "test.csv").write_text("file,u,v\nc.jpg,3,5\n")
    examples = load_images(tmp_path)
    assert examples.names == ("test/c.jpg", "train/a.jpg")
    assert (examples.splits, examples.class_names) == (("test", "train"), ("image",))


def test_images_to_predict_need_neither_labels_nor_training_images(
    tmp_path: Path, write: Write
) -> None:
    write(tmp_path, ["a.jpg", "c.jpg"])
    (tmp_path / "new.csv").write_text("file,label,split\na.jpg,ant,test\nc.jpg,,test\n")
    paths = [str(tmp_path / "a.jpg"), str(tmp_path / "c.jpg")]
    assert find_images([tmp_path / "new.csv"]) == paths


def test_masks_are_not_predicted(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, ["images/a.jpg", "images/b.jpg", "masks/a.jpg"])
    assert find_images([tmp_path]) == [str(tmp_path / f"images/{n}.jpg") for n in "ab"]
    assert "Note: masks left out: 1." in capsys.readouterr().err


def test_other_sources_are_those_of_load() -> None:
    assert len(load_images("digits")) == 1797
    with pytest.raises(ValueError, match="`data` must be a folder of class folders"):
        load_images("digitz")


def test_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of which contains an image,"):
        load_images(tmp_path)


def test_division_is_that_of_training_where_there_are_classes() -> None:
    examples = images([0] * 7 + [1] * 11 + [2] * 13)
    for seed in (0, 3):
        ours = split_images(examples, contents(examples), validation_fraction=0.3, seed=seed)
        theirs = split(examples, contents(examples), validation_fraction=0.3, seed=seed)
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


def test_division_of_the_source_is_kept() -> None:
    splits = ("train", "validation", "train", "train", "validation")
    examples = images([0, 0, 1, 0, 1], splits)
    training, held_out = split_images(examples, contents(examples))
    assert (training.tolist(), held_out.tolist()) == ([0, 2, 3], [1, 4])


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param([1] * 20, id="one class"),
        pytest.param([0] * 19 + [2], id="a class of one image"),
    ],
)
def test_without_classes_to_divide_all_images_are_divided_alike(labels: list[int]) -> None:
    examples = images(labels)
    training, held_out = split_images(examples, contents(examples), validation_fraction=0.15)
    assert len(held_out) == 3
    assert sorted([*training, *held_out]) == list(range(20))
    again = split_images(examples, contents(examples), validation_fraction=0.15)
    np.testing.assert_array_equal(again[1], held_out)
    other = split_images(examples, contents(examples), validation_fraction=0.15, seed=1)
    assert other[1].tolist() != held_out.tolist()


def test_division_does_not_depend_on_the_order() -> None:
    examples = images([0] * 20)
    order = np.random.default_rng(3).permutation(20)
    shuffled = examples.subset(order)
    held_out = [part.names for part in _halves(examples)]
    assert [tuple(sorted(part.names)) for part in _halves(shuffled)] == held_out


def _halves(examples: Examples) -> list[Examples]:
    return [examples.subset(part) for part in split_images(examples, contents(examples))]


def test_same_content_stays_together() -> None:
    examples = images([0] * 12)
    digests = {name: str(index // 3) for index, name in enumerate(examples.names)}
    for seed in range(5):
        training, held_out = split_images(examples, digests, seed=seed)
        assert len(held_out) == 3
        assert len({index // 3 for index in held_out}) == 1
        assert not {i // 3 for i in training} & {i // 3 for i in held_out}


@pytest.mark.parametrize(("fraction", "number"), [(0.001, 1), (0.999, 4)])
def test_there_is_an_image_on_each_side(fraction: float, number: int) -> None:
    examples = images([0] * 5)
    _, held_out = split_images(examples, contents(examples), validation_fraction=fraction)
    assert len(held_out) == number


def test_one_content_cannot_be_divided() -> None:
    examples = images([0] * 5)
    with pytest.raises(ValueError, match=r"at least two different images.*memory with only 1"):
        split_images(examples, dict.fromkeys(examples.names, "same"))


def test_images_that_show_several_classes_are_held_out_as_in_training() -> None:
    labels = np.array([[1, 0], [1, 1], [0, 0], [0, 1], [1, 0], [0, 0], [1, 1]])
    examples = Examples(
        names=tuple("abcdefg"),
        targets=labels,
        class_names=("x", "y"),
        source="memory",
        encoded=(b"",) * 7,
    )
    expected = split(examples, contents(examples), validation_fraction=0.4)
    found = split_images(examples, contents(examples), validation_fraction=0.4)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]
    # One image of x: what cannot be divided by class is divided as it comes.
    lonely = dataclasses.replace(examples, targets=np.eye(7, 2, dtype=int))
    assert [len(part) for part in split_images(lonely, contents(lonely))] == [6, 1]
