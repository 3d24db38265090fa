from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

from keras_vit.data import load


def test_folder_table_and_csv_are_told_apart(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(tmp_path, ["a/1.png", "b/2.png"])
    assert load(str(tmp_path)).names == ("a/1.png", "b/2.png")
    (tmp_path / "labels.csv").write_text("file,label\nb/2.png,bee\n")
    assert load(tmp_path).class_names == ("bee",)
    (tmp_path / "labels.csv").rename(tmp_path / "other.CSV")
    assert load(tmp_path / "other.CSV").class_names == ("bee",)
    assert load(tmp_path).class_names == ("a", "b")


def test_first_table_of_a_folder_counts(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(tmp_path, ["a/1.png", "b/2.png"])
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a/1.png", "labels": ["ant", "cow"]}\n')
    examples = load(tmp_path)
    assert examples.class_names == ("ant", "cow")
    assert examples.targets.tolist() == [[1, 1]]
    assert not any("ignored" in note for note in examples.notes)
    (tmp_path / "metadata.csv").write_text("file_name,label\nb/2.png,7\n")
    examples = load(tmp_path)
    assert examples.class_names == ("7",)
    assert examples.notes[-1] == "Reading metadata.csv; ignoring metadata.jsonl in the same folder."
    (tmp_path / "labels.csv").write_text("file,label\nb/2.png,bee\n")
    examples = load(tmp_path)
    assert examples.class_names == ("bee",)
    assert examples.notes == (
        "Reading labels.csv; ignoring metadata.csv and metadata.jsonl in the same folder.",
    )
    assert load(tmp_path / "metadata.jsonl").class_names == ("ant", "cow")


def test_home_folder_is_expanded(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, ["photos/a/1.png", "photos/b/2.png"])
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(load("~/photos")) == 2


def test_tfds_name_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["keras_vit.data.sources.load"]  # the attribute is the function
    monkeypatch.setattr(module, "load_tfds", lambda name: f"loaded {name}")
    assert load("tfds:cifar10:train[:10%]") == "loaded cifar10:train[:10%]"


def test_digits_are_the_bundled_ones() -> None:
    digits, original = load("digits"), load_digits()
    assert len(digits) == 1797
    assert digits.targets.tolist() == original.target.tolist()
    assert digits.class_names == tuple("0123456789")
    assert not digits.flip_safe  # a mirrored digit is another sign
    image = tf.io.decode_png(digits.read(5)).numpy()[..., 0]
    np.testing.assert_array_equal(np.round(image / 255 * 16), original.images[5])
    assert (image.min(), image.max()) == (0, 255)


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("digit", " Did you mean 'digits'?"),
        ("tdfs:mnist", " Did you mean 'tfds:mnist'?"),
        ("flower_foto", " Did you mean 'flower_photos'?"),
        ("qqqqq", ""),
        ("torch:food101", ""),
        ("hff:food101", " Did you mean 'hf:food101'?"),
    ],
)
def test_unknown_source_suggests_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, hint: str
) -> None:
    (tmp_path / "flower_photos").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="`data` must be a folder") as caught:
        load(spec)
    assert str(caught.value).endswith(
        f'or "digits".{hint} Received: data={spec!r}, which does not exist'
    )


def test_file_that_is_no_table_is_refused(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(tmp_path, ["1.png"])
    with pytest.raises(ValueError, match="`data` must be a folder of class folders"):
        load(tmp_path / "1.png")


def test_images_that_a_table_does_not_name_are_counted(tmp_path: Path, write: Callable) -> None:
    write(tmp_path, ["a.png", "sub/b.png", "sub/c.png", "notes.txt"])
    (tmp_path / "labels.csv").write_text("file,label\n./a.png,x\nsub/b.png,y\n")
    assert load(tmp_path).ignored == {
        ".txt": 1,
        "image that is not in the table": 1,
    }
