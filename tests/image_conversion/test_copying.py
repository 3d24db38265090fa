from __future__ import annotations

import os
import socket
from pathlib import Path

import PIL.Image
import pytest

from keras_vit.image_conversion import copying
from keras_vit.image_conversion.copying import File


def found_in(source: Path) -> tuple:
    return copying.walk(source, source / "nowhere")


def test_walk_follows_links_but_not_in_circles(tmp_path: Path) -> None:
    source, other = tmp_path / "source", tmp_path / "other"
    for folder in (source / "a" / "empty", other):
        folder.mkdir(parents=True)
    (other / "b.txt").touch()
    (source / "link").symlink_to(other)
    (source / "again").symlink_to(other)
    (source / "file.txt").symlink_to(other / "b.txt")
    (source / "a" / "up").symlink_to(source)
    (source / "gone.jpg").symlink_to(source / "nothing")
    names, folders, failed, special = found_in(source)
    assert names == ["again/b.txt", "file.txt", "link/b.txt"]
    assert folders == ["a", "a/empty", "again", "link"]
    assert failed == [("gone.jpg", "a link to nothing")]
    assert special == 0


def test_walk_stays_out_of_the_new_folder(tmp_path: Path) -> None:
    source, destination = tmp_path / "source", tmp_path / "new"
    for folder in (source, destination):
        folder.mkdir()
    (source / "link").symlink_to(destination)
    (source / ".keras_vit_convert.json").touch()  # of an earlier conversion to this folder
    assert copying.walk(source, destination) == ([], [], [], 0)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes in the file system")
def test_walk_counts_pipes_and_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    os.mkfifo("pipe.jpg")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket")
        assert found_in(tmp_path) == ([], [], [], 2)


def test_walk_names_folders_without_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").mkdir()
    original = os.scandir

    def scandir(path: Path) -> object:
        if path.name == "secret":
            raise PermissionError
        return original(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert found_in(tmp_path)[2] == [("secret/", "no permission to read this folder")]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("labels.csv", b"file,label", File("labels.csv")),
        ("a.nef", b"II*\0" + bytes(9), ("camera raw", "camera raw: develop it with the camera's")),
        ("a.svg", b"<svg/>", ("SVG", "SVG: a drawing, which has no pixels yet")),
        ("a.jpg", b"", File("a.jpg", "JPG", True)),
        ("a.jpg", b"\xff\xd8\xff\xe0", ("JPEG", "damaged, or a kind of JPEG that Pillow")),
        ("a.bmp", b"BM" + bytes(12) + b"\x28\0\0\0", ("BMP", "cannot be read as BMP: index out")),
        ("a.tga", bytes(20), File("a.tga", "TGA", True)),
        ("a.dcm", bytes(20), File("a.dcm", "DICOM", True)),
        ("scan", bytes(128) + b"DICM", File("scan", "DICOM", True)),
        ("photo", b"GIF89a", ("GIF", "damaged, or a kind of GIF that Pillow")),
        ("photo", b"RIFF\0\0\0\0WEBP", File("photo", "WebP")),
    ],
)
def test_inspected_knows_files_by_content(
    tmp_path: Path, name: str, content: bytes, expected: File | tuple[str, str]
) -> None:
    (tmp_path / name).write_bytes(content)
    found = copying.inspected(tmp_path, None, name)
    if isinstance(expected, File):
        assert found == expected
    else:
        assert found.format == expected[0]
        assert found.failure.startswith(expected[1])


def test_inspected_names_files_without_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_head(path: Path) -> bytes:
        raise PermissionError

    monkeypatch.setattr(copying.image_formats, "read_head", read_head)
    found = copying.inspected(tmp_path, None, "labels.csv")
    assert found == File("labels.csv", failure="no permission to read it")
    assert not found.is_table


def targets(files: list[File], folders: tuple[str, ...] = (), format: str = "jpg") -> list[str]:
    return list(copying.targets(files, list(folders), format).values())


def new(name: str) -> File:
    return File(name, "HEIC", True)


def test_targets_avoid_other_files() -> None:
    assert targets([new("a.heic"), File("a.png", "PNG")]) == ["a.jpg", "a.png"]
    assert targets([new("a.heic"), File("a.jpg", "JPEG")]) == ["a.heic.jpg", "a.jpg"]
    assert targets([new("a.HEIC"), File("A.JPG", "JPEG")]) == ["a.HEIC.jpg", "A.JPG"]
    assert targets([new("a.heic"), new("a.tif")]) == ["a.heic.jpg", "a.tif.jpg"]
    assert targets([new("b/a.heic"), File("a.jpg", "JPEG")]) == ["b/a.jpg", "a.jpg"]
    assert targets([new("a.heic")], ("a.jpg",)) == ["a.heic.jpg"]
    files = [new("a.heic"), File("a.heic.jpg", "JPEG"), File("a.jpg", "JPEG")]
    assert targets(files) == ["a.heic.jpg.jpg", "a.heic.jpg", "a.jpg"]


def test_targets_keep_a_suffix_that_is_right() -> None:
    files = [new("a.jpg"), new("b.JPEG"), new("c"), new("d.png"), new("e.b.tif")]
    assert targets(files) == ["a.jpg", "b.JPEG", "c.jpg", "d.jpg", "e.b.jpg"]
    assert targets(files, format="png") == ["a.png", "b.png", "c.png", "d.png", "e.b.png"]


def test_unfinished_leaves_nothing_if_it_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with copying.unfinished(tmp_path / "a.jpg") as temporary:
            temporary.write_bytes(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / ".keras_vit_convert.tmp-17").touch()
    copying.remove_unfinished(tmp_path)
    assert list((tmp_path / "b").iterdir()) == []


def test_made_does_again_what_changed(tmp_path: Path) -> None:
    source, destination = tmp_path / "source", tmp_path / "new"
    for folder in (source, destination):
        folder.mkdir()
    options = copying.Options("png", None, None)
    PIL.Image.new("RGB", (5, 7), "red").save(source / "a.tif")
    (source / "b.txt").write_text("one")
    jobs = [(new("a.tif"), "a.png"), (File("b.txt"), "b.txt")]

    def present() -> list[bool]:
        return [copying.made(source, destination, options, job).present for job in jobs]

    assert present() == [False, False]
    assert present() == [True, True]
    PIL.Image.new("RGB", (5, 7), "blue").save(source / "a.tif")
    times = (source / "b.txt").stat().st_mtime_ns
    (source / "b.txt").write_text("three")
    os.utime(source / "b.txt", ns=(times, times))
    assert present() == [False, False]
    with PIL.Image.open(destination / "a.png") as image:
        assert image.getpixel((2, 3)) == (0, 0, 255)
    assert (destination / "b.txt").read_text() == "three"
    (source / "a.tif").unlink()
    failure = copying.made(source, destination, options, jobs[0]).failure
    assert failure.startswith("cannot be read as HEIC: [Errno 2]")


def test_copy_table_keeps_times(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("file\na.heic\n")
    os.utime(tmp_path / "labels.csv", ns=(3_000_000_007, 5_000_000_011))
    copying.copy_table(
        tmp_path / "labels.csv", tmp_path / "new.csv", "labels.csv", {"a.heic": "a.jpg"}
    )
    assert (tmp_path / "new.csv").read_text() == "file\na.jpg\n"
    assert (tmp_path / "new.csv").stat().st_mtime_ns == 5_000_000_011
