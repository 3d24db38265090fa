from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from keras_vit.data import Examples


def test_subset_keeps_order_and_classes(noise: Callable[..., Examples]) -> None:
    examples = noise(7, splits=("train", "validation", *["train"] * 5), flip_safe=False)
    subset = examples.subset(np.array([4, 1, 6]))
    assert subset.names == ("004.png", "001.png", "006.png")
    assert subset.targets.tolist() == [1, 1, 0]
    assert subset.targets.dtype == np.int32
    assert subset.splits == ("train", "validation", "train")
    assert subset.class_names == examples.class_names
    assert [subset.read(i) for i in range(3)] == [examples.read(i) for i in (4, 1, 6)]
    assert not subset.flip_safe
    assert len(subset.subset([])) == 0


def test_subset_keeps_what_else_is_known(noise: Callable[..., Examples]) -> None:
    examples = noise(3, columns={"camera": ("a", "b", "c"), "season": ("x", "x", "y")})
    assert examples.subset([2, 0]).columns == {"camera": ("c", "a"), "season": ("y", "x")}
    with pytest.raises(ValueError, match="`camera` must have one entry for each of the 3 names"):
        noise(3, columns={"camera": ("a", "b")})


def test_read_returns_the_file_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\x00\r\n\xff")
    examples = Examples(("a",), np.array([0]), ("x",), "test", paths=(str(tmp_path / "a.jpg"),))
    assert examples.read(0) == b"\x00\r\n\xff"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoded": None}, "Exactly one of `paths` and `encoded` .*paths=None, encoded=None"),
        ({"paths": ("a", "b", "c")}, "Exactly one of .*paths=3 entries, encoded=3 entries"),
        ({"targets": [0, 1]}, "`targets` must have one entry for each of the 3 names.*: 2 entries"),
        ({"splits": ("train",)}, "`splits` must have one entry"),
        (
            {"splits": ("train", "val", "train")},
            r"`splits` must contain only .*Received: \['val'\]",
        ),
        ({"names": ("a", "b", "a")}, r"`names` must be unique. .*\['a'\]"),
        (
            {"targets": [0, 3, 1]},
            r"`targets` must be indices of `class_names`, in \[0, 3\).* targets from 0 to 3",
        ),
        ({"targets": np.ones((3, 2))}, r"column for each of the 3 .* of shape \(3, 2\)"),
        ({"targets": np.ones((3, 3, 1))}, r"`targets` must be of shape .*\(3, 3, 1\)"),
        ({"targets": [[0, 1, 0], [0, 2, 1], [0, 0, 0]]}, "must be 1 for .*2.* for image 1"),
        ({"targets": [[0, 1, 0.5]] * 3}, "must be 1 for .*0.5.* for image 0"),
        ({"targets": np.eye(3)[:2]}, "one entry for each of the 3 names.*Received: 2 entries"),
        (
            {"targets": [0, -1, 1]},
            r"`targets` must be indices of `class_names`, in \[0, 3\).* targets from -1 to 1",
        ),
    ],
)
def test_examples_reject(noise: Callable[..., Examples], fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        noise(3, **fields)


def test_an_image_may_show_several_classes_or_none(several: Examples) -> None:
    assert several.multi_label
    assert several.targets.dtype == np.uint8
    assert several.class_counts().tolist() == [4, 3, 3]
    assert [several.shown(i) for i in (3, 2, 6)] == [("b", "c"), (), ("a", "b", "c")]
    part = several.subset([4, 0])
    assert (part.targets.tolist(), part.names) == ([[1, 0, 1], [1, 0, 0]], ("004.png", "000.png"))
    assert several.subset([]).class_counts().tolist() == [0, 0, 0]


def test_yes_and_no_may_be_of_any_type(noise: Callable[..., Examples]) -> None:
    for labels in ([[True, False, True]], [[1.0, 0.0, 1.0]]):
        assert noise(1, targets=labels).shown(0) == ("a", "c")


def test_one_class_an_image_is_counted_and_named(noise: Callable[..., Examples]) -> None:
    examples = noise(5, targets=[2, 0, 2, 2, 0])
    assert not examples.multi_label
    assert examples.class_counts().tolist() == [2, 0, 3]
    assert examples.shown(3) == ("c",)


def test_read_refuses_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")  # whoever opens it waits for a writer
    path = str(tmp_path / "pipe.jpg")
    examples = Examples(("pipe.jpg",), np.zeros(1), ("a",), "memory", paths=(path,))
    with pytest.raises(ValueError, match=rf"`paths` must be a regular file, .*{path}"):
        examples.read(0)
