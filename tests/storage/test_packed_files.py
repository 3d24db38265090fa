"""Files of packed shards."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data.examples import Examples
from keras_vit.data.pipeline import reader, with_contents
from keras_vit.storage.find_files import find_files
from keras_vit.storage.names import Names
from keras_vit.storage.packed_files import masked_crc, record, root, shard_name
from keras_vit.storage.packing import pack
from keras_vit.storage.paths import fields_of_files

pytestmark = pytest.mark.tensorflow

NAMES = ("a-b.txt", "a/1.png", "a/b/2.png", "a/c.txt", "b.png", "\udcff.png")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    for name in NAMES:
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode(errors="surrogateescape") * 9)
    pack(tmp_path / "source", tmp_path / "packed", processes=1, shard_bytes=50, progress=False)
    return tmp_path / "packed"


def test_folders_are_listed(packed: Path) -> None:
    files = root(str(packed))
    assert [path.name for path in files.iterdir()] == ["a-b.txt", "a", "b.png", "\udcff.png"]
    assert [path.name for path in (files / "a").iterdir()] == ["1.png", "b", "c.txt"]
    assert (files / "a").is_dir()
    assert (files / "a/b/2.png").is_file()
    assert not (files / "a/b/2").exists()
    assert (files / "a/b/2.png").stat().st_size == 81
    assert str(files / "a/b") == f"{packed}/a/b"


def test_contents_are_those_of_the_files(packed: Path) -> None:
    files = root(str(packed))
    for name in NAMES:
        assert (files / name).read_bytes() == name.encode(errors="surrogateescape") * 9
    with pytest.raises(FileNotFoundError, match="a/nothing is not in"):
        (files / "a" / "nothing").read_bytes()
    with pytest.raises(OSError, match="read-only"):
        (files / "a/c.txt").open("wb")


def test_a_local_shard_is_opened_once(packed: Path) -> None:
    files = root(str(packed)).fs
    for row in (0, 1, 0):
        files.content(row)
    assert files.open_local.cache_info().misses == len(set(files.shard_numbers[:2]))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_shard_stays_open_while_it_is_read(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may have removed it from the opened shards."""
    files = root(str(packed)).fs
    monkeypatch.setattr(files, "open_local", io.FileIO)
    assert files.content(0) == files.cat_file(files.find("")[0])


def test_a_path_is_unpickled_in_another_process(packed: Path) -> None:
    start = "import keras_vit_toolkit; keras_vit_toolkit.register_package()"
    code = f"{start}; import pickle, sys; print(pickle.load(sys.stdin.buffer).read_bytes())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(root(str(packed)) / "a/b/2.png"),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().strip() == repr(b"a/b/2.png" * 9)


def test_a_shard_of_another_size_is_refused(packed: Path) -> None:
    shard = packed / shard_name(1)
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"files-00001.tfrecord of \d+ bytes, not"):
        root(str(packed)).exists()
    shard.unlink()
    with pytest.raises(ValueError, match=r"files-00001.tfrecord of no bytes, not"):
        root(str(packed)).exists()


def test_damage_within_a_file_is_found(packed: Path) -> None:
    files = root(str(packed))
    shard = packed / shard_name(0)
    content = bytearray(shard.read_bytes())
    content[15] ^= 1
    shard.write_bytes(content)
    with pytest.raises(
        OSError, match=r"the checksum of a-b.txt is wrong in .*files-00000.tfrecord"
    ):
        (files / "a-b.txt").read_bytes()


def test_records_are_those_of_tensorflow(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "a")) as writer:
        writer.write(b"abc")
    assert record(b"abc") == (tmp_path / "a").read_bytes()
    assert record(b"abc").endswith(masked_crc(b"abc"))


def test_tensorflow_reads_a_shard(packed: Path) -> None:
    shards = [str(packed / shard_name(i)) for i in range(len(list(packed.glob("*.tfrecord"))))]
    found = list(tf.data.TFRecordDataset(shards).as_numpy_iterator())
    assert found == [name.encode(errors="surrogateescape") * 9 for name in NAMES]


@pytest.mark.parametrize("folder", ["", "a"])
def test_tensorflow_reads_files_in_any_order(packed: Path, folder: str) -> None:
    names = ["b/2.png", "1.png"] if folder else ["b.png", "a/1.png", "\udcff.png"]
    examples = Examples(
        names,
        np.zeros(len(names), int),
        ("x",),
        "x",
        **fields_of_files(root(str(packed)) / folder, names),
    )
    places = tf.data.Dataset.range(len(names))
    files = with_contents(places, examples, lambda place: place).map(reader(examples))
    assert [encoded for encoded, _ in files.as_numpy_iterator()] == [
        f"{folder}/{name}".lstrip("/").encode(errors="surrogateescape") * 9 for name in names
    ]
    assert len(files) == len(names)
    for shard in packed.glob("*.tfrecord"):
        shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(tf.errors.UnknownError, match=r"the checksum of .*png is wrong"):
        list(files)


def test_all_names_find_their_records(packed: Path) -> None:
    (packed.parent / "source" / "\udcff.png").unlink()
    pack(packed.parent / "source", packed.parent / "utf8", processes=1, progress=False)
    files = root(str(packed.parent / "utf8"))
    images = find_files(files).images
    assert isinstance(images, Names)
    assert list(images) == ["a/1.png", "a/b/2.png", "b.png"]
    some = images.subset([2, 0])
    for names in (some, tuple(some), pickle.loads(pickle.dumps(some))):  # noqa: S301
        rows = files.fs.rows("/", names)
        assert [files.fs.content(row) for row in rows] == [b"b.png" * 9, b"a/1.png" * 9]
    assert files.fs.rows("/", ["a/1.png", "other.png"]) is None
