from __future__ import annotations

import os
import socket
from pathlib import Path

import PIL.Image
import pytest

from keras_vit.image_conversion import copying
from keras_vit.image_conversion.copying import File
from tests.helpers import link_twice


def found_in(source: Path) -> list[File]:
    return list(copying.walk(source, "", {source, source / "nowhere"}, None))


def test_walk_follows_links_but_not_in_circles(tmp_path: Path) -> None:
    source, other = tmp_path / "source", tmp_path / "other"
    for folder in (source / "a" / "empty", other):
        folder.mkdir(parents=True)
    (other / "b.txt").touch()
    (other / "back").symlink_to(source)
    (source / "link").symlink_to(other)
    (source / "again").symlink_to(other)
    (source / "file.txt").symlink_to(other / "b.txt")
    (source / "a" / "up").symlink_to(source)
    (source / "gone.jpg").symlink_to(source / "nothing")
    files = found_in(source)
    assert [file.name for file in files if file.outcome == copying.FOLDER] == [
        *("a", "a/empty", "again", "link")
    ]
    assert [file for file in files if file.outcome != copying.FOLDER] == [
        File("again/b.txt"),
        File("file.txt", "Skipped links to files other than images and tables"),
        File("gone.jpg", failure="a broken link, or no permission"),
        File("link/b.txt"),
    ]


def test_masks_beside_images_are_not_converted(tmp_path: Path) -> None:
    for name in ("train/images/a.png", "train/masks/a.png", "mask/b.png", "other/c.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.new("I;16", (5, 7), 300).save(tmp_path / name)
    files = copying.walk(tmp_path, "", {tmp_path}, None)
    converted = {file.name for file in files if file.convert}
    assert converted == {"train/images/a.png", "mask/b.png", "other/c.png"}  # a class called mask


def test_walk_ends_where_links_lead_to_links(tmp_path: Path) -> None:
    link_twice(tmp_path)
    found = found_in(tmp_path / "0")
    assert any(file.failure == "more than 8 links lead to this folder" for file in found)
    assert len(found) < 1000


def test_walk_stays_out_of_the_new_folder(tmp_path: Path) -> None:
    source, destination = tmp_path / "source", tmp_path / "new"
    for folder in (source, destination):
        folder.mkdir()
    (source / "link").symlink_to(destination)
    (source / ".keras_vit_convert.json").touch()  # of an earlier conversion to this folder
    assert list(copying.walk(source, "", {source, destination}, None)) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes in the file system")
def test_walk_skips_pipes_and_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    os.mkfifo("pipe.jpg")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket")
        skipped = "Skipped pipes, sockets and devices"
        assert found_in(tmp_path) == [File("pipe.jpg", skipped), File("socket", skipped)]


def test_walk_names_folders_without_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").mkdir()
    original = Path.iterdir

    def iterdir(path: Path) -> object:
        if path.name == "secret":
            raise PermissionError
        return original(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    failure = "no permission to read this folder"
    assert found_in(tmp_path)[1:] == [File("secret/", failure=failure)]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("labels.csv", b"file,label", File("labels.csv", is_table=True)),
        ("b/labels.TSV", b"file\tlabel", File("b/labels.TSV", is_table=True)),
        ("c.jsonl", b"{}", File("c.jsonl", is_table=True)),
        ("c.json", b"{}", File("c.json")),
        ("csv", b"", File("csv")),
        ("a.nef", b"II*\0" + bytes(9), ("camera raw", "cannot be read: camera raw: develop it")),
        ("a.svg", b"<svg/>", File("a.svg", format="SVG", convert=True)),
        ("a.jpg", b"", File("a.jpg", format="JPG", convert=True)),
        ("b/._a.jpg", b"\0\5\x16\7" + bytes(28), File("b/._a.jpg")),
        ("a.jpg", b"\xff\xd8\xff\xe0", ("JPEG", "cannot be read: cannot identify image file")),
        ("a.bmp", b"BM" + bytes(12) + b"\x28\0\0\0", ("BMP", "cannot be read: ")),
        ("a.tga", bytes(20), File("a.tga", format="TGA", convert=True)),
        ("a.dcm", bytes(20), File("a.dcm", format="DICOM", convert=True)),
        ("scan", bytes(128) + b"DICM", File("scan", format="DICOM", convert=True)),
        ("photo", b"GIF89a", ("GIF", "cannot be read: cannot identify image file")),
        ("photo", b"RIFF\0\0\0\0WEBP", ("WebP", "cannot be read: cannot identify image file")),
    ],
)
def test_inspected_knows_files_by_content(
    tmp_path: Path, name: str, content: bytes, expected: File | tuple[str, str]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    found = copying.inspected(path, name, None)
    if isinstance(expected, File):
        assert found == expected
    else:
        assert found.format == expected[0]
        assert found.failure.startswith(expected[1])
        assert not found.convert


def test_inspected_names_files_without_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_head(path: Path) -> bytes:
        raise PermissionError

    monkeypatch.setattr(copying.image_formats, "read_head", read_head)
    found = copying.inspected(tmp_path / "labels.csv", "labels.csv", None)
    assert found == File("labels.csv", failure="no permission to read it")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(13, "denied"), "no permission to read it"),
        (OSError("image file is truncated\nmore"), "cannot be read: image file is truncated"),
        (MemoryError(), "cannot be read: MemoryError"),
    ],
)
def test_reason_is_one_line(error: Exception, reason: str) -> None:
    assert copying._reason(error) == reason


def targets(files: list[File], folders: tuple[str, ...] = (), format: str = "jpg") -> list[str]:
    copying.set_targets([*files, *(File(name, copying.FOLDER) for name in folders)], format)
    return [file.target for file in files]


def same(name: str) -> File:
    return File(name, format="JPEG")


def new(name: str) -> File:
    return File(name, format="HEIC", convert=True)


def test_targets_avoid_other_files() -> None:
    assert targets([new("a.heic"), same("a.png")]) == ["a.jpg", "a.png"]
    assert targets([new("a.heic"), same("a.jpg")]) == ["a.heic.jpg", "a.jpg"]
    assert targets([new("a.HEIC"), same("A.JPG")]) == ["a.HEIC.jpg", "A.JPG"]
    assert targets([new("a.heic"), new("a.tif")]) == ["a.heic.jpg", "a.tif.jpg"]
    assert targets([new("b/a.heic"), same("a.jpg")]) == ["b/a.jpg", "a.jpg"]
    assert targets([new("a.heic")], ("a.jpg",)) == ["a.heic.jpg"]
    files = [new("a.heic"), same("a.heic.jpg"), same("a.jpg")]
    assert targets(files) == ["a.heic.jpg.jpg", "a.heic.jpg", "a.jpg"]


def test_targets_keep_a_suffix_that_is_right() -> None:
    files = [new("a.jpg"), new("b.JPEG"), new("c"), new("d.png"), new("e.b.tif")]
    assert targets(files) == ["a.jpg", "b.JPEG", "c.jpg", "d.jpg", "e.b.jpg"]
    assert targets(files, format="png") == ["a.png", "b.png", "c.png", "d.png", "e.b.png"]


def write(source: Path, destination: Path, *files: File, **renames: str) -> list[File]:
    options = {"format": "png", "max_side": None, "window": None}
    copying.set_targets(list(files), "png")
    return [copying.write_image(source, destination, options, renames, file) for file in files]


def test_write_does_again_what_changed(tmp_path: Path) -> None:
    source, destination = tmp_path / "source", tmp_path / "new"
    for folder in (source, destination):
        folder.mkdir()
    PIL.Image.new("RGB", (5, 7), "red").save(source / "a.tif")
    (source / "b.txt").write_text("one")

    written: dict[str, int | None] = {}

    def outcomes() -> list[str]:
        files = [new("a.tif"), File("b.txt")]
        for file in files:
            file.written = written.get(file.name)
        files = write(source, destination, *files)
        written.update({file.name: file.written for file in files})
        return [file.outcome for file in files]

    assert outcomes() == ["Converted from HEIC", "Copied other files"]
    assert outcomes() == ["Already converted"] * 2
    PIL.Image.new("RGB", (5, 7), "blue").save(source / "a.tif")
    (source / "b.txt").write_text("two")
    assert outcomes() == ["Converted from HEIC", "Copied other files"]
    with PIL.Image.open(destination / "a.png") as image:
        assert image.getpixel((2, 3)) == (0, 0, 255)
    assert (destination / "b.txt").read_text() == "two"
    (source / "a.tif").unlink()
    (failed,) = write(source, destination, new("a.tif"))
    assert failed.failure.startswith("cannot be read: [Errno 2]")
    assert not failed.outcome


def test_write_renames_in_tables_and_keeps_times(tmp_path: Path) -> None:
    source, destination = tmp_path / "source", tmp_path / "new"
    for folder in (source, destination):
        folder.mkdir()
    (source / "labels.csv").write_text("file\na.heic\n")
    os.utime(source / "labels.csv", ns=(3_000_000_007, 5_000_000_011))
    for _ in range(2):  # never taken from an earlier run, where names may have been others
        (table,) = write(
            source, destination, File("labels.csv", is_table=True), **{"a.heic": "a.jpg"}
        )
        assert table.outcome == "Copied other files"
    assert (destination / "labels.csv").read_text() == "file\na.jpg\n"
    assert (destination / "labels.csv").stat().st_mtime_ns == 5_000_000_011


def test_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, destination = tmp_path / "source", tmp_path / "new"
    for folder in (source, destination):
        folder.mkdir()
    (source / "b.txt").write_text("new")
    (destination / "b.txt").write_text("old")
    os.utime(destination / "b.txt", ns=(0, 0))

    def copyfile(old: Path, new: Path) -> None:
        new.write_text("n")
        raise OSError("full")

    monkeypatch.setattr(copying.shutil, "copyfile", copyfile)
    with pytest.raises(OSError, match="full"):
        write(source, destination, File("b.txt", written=0))
    assert (destination / "b.txt").read_text() == "old"
    copying.remove_unfinished(destination)
    assert [path.name for path in destination.iterdir()] == ["b.txt"]
