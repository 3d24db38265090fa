from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from keras_vit.data import load
from keras_vit.data.sources.tables import tables_of

Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["labels.csv", "train.csv"], [("labels.csv", None)]),
        (
            ["train.csv", "val.csv", "notes.csv"],
            [("train.csv", "train"), ("val.csv", "validation")],
        ),
        (["test.csv", "trained.csv"], []),
        (["Train_Labels.tsv"], [("Train_Labels.tsv", "train")]),
    ],
)
def test_tables_that_determine_the_classes(
    tmp_path: Path, names: list[str], expected: list[tuple[str, str | None]]
) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"")
    assert tables_of(tmp_path) == [(tmp_path / name, split) for name, split in expected]


def test_classes_columns_and_notes_of_splits_are_joined(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["1.png", "2.png", "3.png"])
    (tmp_path / "train.csv").write_text("file,label,camera,age\n1.png,b,x,1\n2.png,c,y,2\n")
    (tmp_path / "val.csv").write_text("file;label;camera\n3.png;a;x\n")
    examples = load(tmp_path)
    assert examples.class_names == ("a", "b", "c")
    assert examples.targets.tolist() == [1, 2, 0]
    assert examples.columns == {"camera": ("x", "y", "x")}
    assert examples.notes == (
        "Read: train.csv, val.csv.",
        "The columns of val.csv are separated by semicolons.",
    )
    assert dict(examples.ignored) == {}


def test_splits_of_the_rows_go_before_that_of_the_table(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["1.png", "2.png", "3.png", "4.png"])
    (tmp_path / "train.csv").write_text("file,label,split\n1.png,a,train\n2.png,b,val\n")
    (tmp_path / "test.csv").write_text("file,label,split\n3.png,a,test\n4.png,b,test\n")
    examples = load(tmp_path)
    assert dict(zip(examples.names, examples.splits, strict=True)) == {
        "1.png": "train",
        "2.png": "validation",
        "3.png": "test",
        "4.png": "test",
    }
    (tmp_path / "train.csv").write_text("file,label,split\n1.png,a,val\n2.png,b,val\n")
    with pytest.raises(ValueError, match=r"must be train in at least one row. .*train.csv"):
        load(tmp_path)


def test_one_and_several_classes_are_joined_as_several(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["train/1.png", "train/2.png", "valid/3.png"])
    (tmp_path / "train" / "_classes.csv").write_text("filename,a,b\n1.png,1,1\n2.png,0,1\n")
    (tmp_path / "valid" / "_classes.csv").write_text("filename,a,b\n3.png,1,0\n")
    assert load(tmp_path).targets.tolist() == [[1, 1], [0, 1], [1, 0]]


def test_a_table_without_classes_is_said_to_be_unread(tmp_path: Path, write: Write) -> None:
    write(tmp_path, ["train/1.png", "train/2.png", "test/3.png"])
    (tmp_path / "train.csv").write_text("id,kind\n1,a\n2,b\n")
    (tmp_path / "test.csv").write_text("id\n3\n")
    examples = load(tmp_path)
    assert examples.notes[-1] == "test.csv is not read, because it has no classes."
    assert examples.splits is None
    assert dict(examples.ignored) == {"image that is not in the table": 1}
