from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from keras_vit.cli.options import find_images
from keras_vit.data import audit, load, training_dataset
from keras_vit.data.sources.hf import load_hf
from keras_vit.preprocessing import Preprocessing
from keras_vit.storage.paths import StoredFiles


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the library reads as a dataset of two splits."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed (extras hf, dev)")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    (tmp_path / "data").mkdir()
    for split, number in (("test", 4), ("train", 8)):
        pictures = [picture(index, split) for index in range(number)]
        content = {"image": pictures, "label": [index % 2 for index in range(number)]}
        dataset = datasets.Dataset.from_dict(content, features=datasets.Features(kinds))
        dataset.to_parquet(tmp_path / "data" / f"{split}.parquet")
    return tmp_path / "data"


def picture(index: int, split: str) -> PIL.Image.Image:
    generator = np.random.default_rng(index + 100 * (split == "train"))
    return PIL.Image.fromarray(generator.integers(0, 256, (9, 8, 3), np.uint8))


def test_images_are_read_when_they_are_used(folder: Path) -> None:
    examples = load(f"hf:{folder}")
    assert isinstance(examples.encoded, StoredFiles)
    assert examples.class_names == ("cat", "dog")
    assert examples.names[:5] == (*(f"test/{i:09d}" for i in range(4)), "train/000000000")
    assert examples.targets.tolist() == [0, 1] * 6
    assert examples.splits == ("test",) * 4 + ("train",) * 8
    found = audit(examples, progress=False)
    assert not found.bad
    assert len(set(found.digests.values())) == 12
    part = examples.subset([11, 1])
    images, _ = next(iter(training_dataset(part, Preprocessing(size=8), batch_size=2, epochs=1)))
    assert images.shape == (2, 8, 8, 3)


def test_stamp_changes_with_the_dataset(folder: Path) -> None:
    stamp = load_hf(str(folder)).stamp(0)
    assert stamp == load_hf(str(folder)).stamp(0)
    (folder / "test.parquet").write_bytes((folder / "train.parquet").read_bytes())
    assert stamp != load_hf(str(folder)).stamp(0)


def test_images_to_predict_are_listed(folder: Path) -> None:
    images = find_images([f"hf:{folder}"])
    assert len(images) == 12
    assert str(images[0]) == f"hf:{folder}/test/000000000"
    assert images[0].read() == load(f"hf:{folder}").read(0)


def test_splits_without_classes_are_left_out(folder: Path) -> None:
    import datasets

    dataset = datasets.Dataset.from_parquet(str(folder / "test.parquet"))
    dataset.map(lambda row: {**row, "label": -1}).to_parquet(folder / "test.parquet")
    examples = load(f"hf:{folder}")
    assert len(examples) == 8
    assert examples.splits is None


@pytest.mark.parametrize(("split", "number"), [("train", 1), ("test", 4)])
def test_training_images_without_a_class_are_refused(split: str, number: int, folder: Path) -> None:
    import datasets

    path = folder / f"{split}.parquet"
    dataset = datasets.Dataset.from_parquet(str(path))
    dataset.map(
        lambda row, index: {**row, "label": -1 if index < number else row["label"]},
        with_indices=True,
    ).to_parquet(path)
    if split == "test":  # without a training split, all images are one set
        (folder / "train.parquet").unlink()
    with pytest.raises(ValueError, match=rf"must have a class; .* in {{'{split}': {number}}}$"):
        load(f"hf:{folder}")


def test_wrong_names_and_columns_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"hf:NAME or hf:NAME:CONFIG .* Received: hf:.*nowhere"):
        load(f"hf:{folder}/nowhere")
    import datasets

    dataset = datasets.Dataset.from_dict({"text": ["a"]})
    for name in ("test", "train"):
        dataset.to_parquet(folder / f"{name}.parquet")
    with pytest.raises(ValueError, match="one column of images and one of class labels"):
        load(f"hf:{folder}")


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"hf:beans needs a further package; .*\[hf\]"):
        load("hf:beans")
