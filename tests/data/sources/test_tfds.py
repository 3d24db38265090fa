"""Against a dataset that tensorflow-datasets builds here, without network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.data.sources import tfds as module
from keras_vit.data.sources.load import load
from keras_vit.data.sources.tfds import load_tfds, tfds_parts
from keras_vit.storage.packing import pack_parts


def image(split: str, i: int) -> np.ndarray:
    return np.random.default_rng((len(split), i)).integers(0, 256, (5, 7, 3), "uint8")


def build(name: str, folder: Path, features: dict, sizes: dict[str, int]) -> None:
    """Writes a dataset whose example i has label i % 3."""

    class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.2.0")

        def _info(self) -> tfds.core.DatasetInfo:
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, _: object) -> dict[str, Iterator]:
            return {split: self._generate_examples(split) for split in sizes}

        def _generate_examples(self, split: str | None = None) -> Iterator:
            assert split
            for i in range(sizes[split]):
                yield (
                    i,
                    {
                        k: image(split, i) if "image" in k or k == "mask" else i % 3
                        for k in features
                    },
                )

    Builder.name = name
    Builder(data_dir=folder).download_and_prepare()


IMAGE = tfds.features.Image(shape=(None, None, 3))
LABEL = tfds.features.ClassLabel(names=["x", "y", "z"])


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tfds")
    both = {"image": IMAGE, "label": LABEL}
    build("tiny_pictures", folder, both, {"train": 11, "test": 5})
    build("tiny_unsplit", folder, both, {"train": 7})
    build("tiny_test_only", folder, both, {"test": 3})
    build("tiny_masks", folder, {"image": IMAGE, "mask": IMAGE, "label": LABEL}, {"train": 3})
    return folder


def test_images_stay_encoded_and_lossless(data_dir: Path) -> None:
    examples = load_tfds("tiny_unsplit", data_dir)
    assert len(examples) == 7
    assert len(set(examples.names)) == 7
    assert examples.class_names == ("x", "y", "z")
    assert examples.splits is None
    decoded = {
        tf.io.decode_png(examples.read(i)).numpy().tobytes(): label
        for i, label in enumerate(examples.targets)
    }
    assert decoded == {image("train", i).tobytes(): i % 3 for i in range(7)}


def test_test_split_becomes_validation(data_dir: Path) -> None:
    examples = load_tfds("tiny_pictures", data_dir)
    assert examples.splits == ("train",) * 11 + ("validation",) * 5


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ("tiny_pictures:test", 5),
        ("tiny_pictures:train[:3]", 3),
        ("tiny_pictures:train+test", 16),
        ("tiny_pictures:1.2.0:test", 5),
        ("tiny_pictures:1.*.*:train[2:6]", 4),
    ],
)
def test_one_split_is_taken_whole(data_dir: Path, spec: str, count: int) -> None:
    examples = load_tfds(spec, data_dir)
    assert len(examples) == count
    assert examples.splits is None
    assert examples.source == f"tfds:{spec}"


def test_order_is_the_same_every_time(data_dir: Path) -> None:
    first, second = (load_tfds("tiny_pictures", data_dir) for _ in range(2))
    assert first.names == second.names
    assert first.encoded == second.encoded


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "tf_flower",
            "`data` must name a dataset .*Did you mean 'tf_flowers'. Received: tfds:tf_f",
        ),
        ("tiny_pictures:val", r"The split must be one of \['train', 'test'\].*split='val' of"),
        ("tiny_pictures:train[:0]", r"The split must not be empty. Received: 'train\[:0\]'"),
        ("tiny_test_only", "has no split `train`; choose .*tfds:tiny_test_only:test"),
        ("tiny_masks", "one image feature and one class-label feature. .*tfds:tiny_masks .*'mask'"),
        ("", "`data` must be tfds:NAME or tfds:NAME:SPLIT. Received: tfds:"),
    ],
)
def test_tfds_rejects(data_dir: Path, spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_tfds(spec, data_dir)


def test_split_larger_than_memory_is_refused(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_IN_MEMORY_BYTES", 2**9)
    with pytest.raises(ValueError, match=r"must be smaller than .* GiB. Pack the dataset"):
        load_tfds("tiny_unsplit", data_dir)


def test_failure_to_prepare_says_what_was_attempted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", no_network)
    with pytest.raises(RuntimeError, match=r"could not prepare 'mnist' in .*no route to host"):
        load_tfds("mnist", tmp_path)


def test_tensorflow_datasets_that_does_not_load_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", ModuleType("tensorflow_datasets"))
    with pytest.raises(ImportError, match=r"pip install 'tensorflow-metadata<1\.18'"):
        load_tfds("tf_flowers")


@pytest.mark.parametrize("split", ["", ":train[:7]", ":train+test"])
def test_packed_dataset_has_the_same_images(data_dir: Path, tmp_path: Path, split: str) -> None:
    parts, plan = tfds_parts(f"tiny_pictures{split}", 400, data_dir)
    assert len(parts) > 2
    packed = tmp_path / "packed"
    pack_parts(parts, packed, plan, progress=False)
    found, expected = load(packed), load_tfds(f"tiny_pictures{split}", data_dir)
    assert found.class_names == expected.class_names
    assert sorted(found.splits or ()) == sorted(expected.splits or ())
    contents = [
        sorted((e.read(i), int(e.targets[i])) for i in range(len(e))) for e in (found, expected)
    ]
    assert contents[0] == contents[1]


def test_images_without_a_class_are_not_packed(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = {"image": b"", "label": -1, "tfds_id": b"x__5"}
    dataset = SimpleNamespace(as_numpy_iterator=lambda: iter([example]))
    monkeypatch.setattr(module, "_encoded", lambda *_: dataset)
    parts, _ = tfds_parts("tiny_unsplit", 400, data_dir)
    with pytest.raises(ValueError, match=r"must have a class; .* -1 of x__5\..* tfds:tiny_unsplit"):
        list(parts[0]())


def test_packing_resumes_after_the_last_shard(data_dir: Path, tmp_path: Path) -> None:
    parts, plan = tfds_parts("tiny_unsplit", 300, data_dir)
    read = []

    def interrupted(number: int) -> Iterator[tuple[str, bool, bytes]]:
        read.append(number)
        yield from parts[number]()
        if read == [0, 1]:
            raise KeyboardInterrupt

    numbered = [partial(interrupted, number) for number in range(len(parts))]
    pack_parts(parts, tmp_path / "alone", plan, progress=False)
    with pytest.raises(KeyboardInterrupt):
        pack_parts(numbered, tmp_path / "packed", plan, progress=False)
    pack_parts(numbered, tmp_path / "packed", plan, progress=False)
    assert read == [0, 1, *range(1, len(parts))]
    for path in (tmp_path / "alone").glob("[!.]*"):
        assert (tmp_path / "packed" / path.name).read_bytes() == path.read_bytes()
