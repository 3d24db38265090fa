"""Packing and unpacking of folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import PIL.Image
import pytest

from keras_vit.storage import packing
from keras_vit.storage.packed_files import shard_name
from keras_vit.storage.packing import pack, pack_parts, unpack
from tests.storage.conftest import write_dataset, write_image


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("processes", [1, 2])
def test_unpack_gives_back_every_byte(tmp_path: Path, processes: int) -> None:
    source = write_dataset(tmp_path / "source", "masks")
    found = pack(source, tmp_path / "p", processes=processes, shard_bytes=5000, progress=False)
    size = sum(map(len, contents(source).values()))
    assert (found.files, found.images, found.size) == (17, 16, size)
    assert found.shards == len(list((tmp_path / "p").glob("*.tfrecord"))) > 2
    assert found.text().startswith("16 images and 1 other files, 0.0 MB, in ")
    assert unpack(tmp_path / "p", tmp_path / "u", progress=False) == found
    assert contents(tmp_path / "u") == contents(source)


def test_pack_reads_and_unpack_writes_object_storage(tmp_path: Path, s3: str) -> None:
    import s3fs

    source = write_dataset(tmp_path / "source", "voc")
    s3fs.S3FileSystem().put(f"{source}/", f"{s3}/voc", recursive=True)
    for name in ("", "annotations/"):  # as a console creates a folder
        s3fs.S3FileSystem().pipe_file(f"{s3}/voc/{name}", b"")
    pack(f"{s3}/voc", tmp_path / "p", processes=1, progress=False)
    s3fs.S3FileSystem().put(f"{tmp_path / 'p'}/", f"{s3}/packed", recursive=True)
    unpack(f"{s3}/packed", tmp_path / "u", progress=False)
    assert contents(tmp_path / "u") == contents(source)


@pytest.mark.slow
def test_a_killed_call_resumes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for i in range(300):
        write_image(source / "a" / f"{i}.png", i)
    code = (
        "import sys; from keras_vit.storage.packing import pack\n"
        "pack(*sys.argv[1:], processes=1, shard_bytes=9000, progress=False)"
    )
    expected = tmp_path / "expected"
    pack(source, expected, processes=1, shard_bytes=9000, progress=False)
    for shards in (2, 20):
        process = subprocess.Popen([sys.executable, "-c", code, source, tmp_path / "p"])
        while process.poll() is None and not (tmp_path / "p" / shard_name(shards)).exists():
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = (tmp_path / "p" / shard_name(0)).stat().st_mtime_ns
    pack(source, tmp_path / "p", processes=1, shard_bytes=9000, progress=False)
    assert (tmp_path / "p" / shard_name(0)).stat().st_mtime_ns == kept
    assert contents(tmp_path / "p") == contents(expected)


def test_another_source_or_option_is_refused(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "source", "folder")
    pack(source, tmp_path / "p", processes=1, progress=False)
    pack(source, tmp_path / "p", processes=1, progress=False)
    with pytest.raises(ValueError, match=r"the same files and options. Received: .*p, packed"):
        pack(source, tmp_path / "p", max_side=9, processes=1, progress=False)
    write_image(source / "rose" / "new.png", 9)
    with pytest.raises(ValueError, match="with the same files and options"):
        pack(source, tmp_path / "p", processes=1, progress=False)
    (source / "rose" / "new.png").unlink()
    path = source / "rose" / "notes.txt"
    path.write_bytes(path.read_bytes()[::-1])  # of the same size
    os.utime(path, (1e9, 1e9))
    with pytest.raises(ValueError, match="with the same files and options"):
        pack(source, tmp_path / "p", processes=1, progress=False)
    with pytest.raises(ValueError, match="`out` must be a new folder"):
        pack(source, source.parent, processes=1, progress=False)
    with pytest.raises(ValueError, match="`destination` must not be inside `source`"):
        pack(source, source / "packed", processes=1, progress=False)


def test_max_side_shrinks_images_alone(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "source", "folder")
    (source / "rose" / "damaged.png").write_bytes(b"\x89PNG")
    pack(source, tmp_path / "p", max_side=15, processes=1, progress=False)
    unpack(tmp_path / "p", tmp_path / "u", progress=False)
    with PIL.Image.open(tmp_path / "u" / "rose" / "0.png") as image:
        assert (image.size, image.format) == ((15, 10), "PNG")
    for name in ("damaged.png", "notes.txt"):
        assert (tmp_path / "u/rose" / name).read_bytes() == (source / "rose" / name).read_bytes()
    source = write_dataset(tmp_path / "dense", "masks")
    with pytest.raises(ValueError, match="`max_side` must be left out for images with masks"):
        pack(source, tmp_path / "p2", max_side=15, processes=1, progress=False)


def test_plan_of_an_earlier_version_is_continued(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "source", "folder")
    pack(source, tmp_path / "p", processes=1, progress=False)
    plan = json.loads((tmp_path / "p" / "packing.json").read_text())
    del plan["modified"]
    (tmp_path / "p" / "packing.json").write_text(json.dumps(plan))
    pack(source, tmp_path / "p", processes=1, progress=False)


def test_unpack_keeps_files_of_the_user(tmp_path: Path) -> None:
    pack(write_dataset(tmp_path / "source", "folder"), tmp_path / "p", processes=1, progress=False)
    unpack(tmp_path / "p", tmp_path / "u", progress=False)
    (tmp_path / "u" / "rose" / "0.png").unlink()
    unpack(tmp_path / "p", tmp_path / "u", progress=False)
    (tmp_path / "u" / "rose" / "0.png").write_bytes(b"mine")
    with pytest.raises(ValueError, match=r"must not contain other files .*0.png, which differs"):
        unpack(tmp_path / "p", tmp_path / "u", progress=False)
    with pytest.raises(ValueError, match="`source` must be a folder of packed shards"):
        unpack(tmp_path / "source", tmp_path / "u2")


def test_wrong_arguments(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match="`source` must be an existing folder"):
        pack(tmp_path / "nowhere", tmp_path / "p")
    with pytest.raises(ValueError, match=r"`source` must contain images. Received: .*, 0 files"):
        pack(empty, tmp_path / "p")
    with pytest.raises(ValueError, match="`max_side` must be a positive integer"):
        pack(empty, tmp_path / "p", max_side=0)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(content: bytes) -> bytes:
        raise OSError(28, "No space left on device")

    source = write_dataset(tmp_path / "source", "folder")
    monkeypatch.setattr(packing, "record", full)
    with pytest.raises(OSError, match=r"No space left on device: .*/p"):
        pack(source, tmp_path / "p", processes=1, progress=False)
    monkeypatch.undo()
    assert pack(source, tmp_path / "p", processes=1, progress=False).images == 8


def test_names_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    part = partial(iter, [("../a.png", True, b"a")])
    pack_parts([part], tmp_path / "p", {"source": "a generator"}, progress=False)
    with pytest.raises(ValueError, match=r"must not leave their folder. Received: '\.\./a.png' in"):
        unpack(tmp_path / "p", tmp_path / "u", progress=False)
    assert not (tmp_path / "a.png").exists()
