"""Files of packed shards."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from keras_vit.storage.packed_files import masked_crc, record, root, shard_name
from keras_vit.storage.packing import pack

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


@pytest.mark.tensorflow
def test_records_are_those_of_tensorflow(tmp_path: Path) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(tmp_path / "a")) as writer:
        writer.write(b"abc")
    assert record(b"abc") == (tmp_path / "a").read_bytes()
    assert record(b"abc").endswith(masked_crc(b"abc"))


@pytest.mark.tensorflow
def test_tensorflow_reads_a_shard(packed: Path) -> None:
    import tensorflow as tf

    shards = [str(packed / shard_name(i)) for i in range(len(list(packed.glob("*.tfrecord"))))]
    found = list(tf.data.TFRecordDataset(shards).as_numpy_iterator())
    assert found == [name.encode(errors="surrogateescape") * 9 for name in NAMES]
