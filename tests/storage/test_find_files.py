from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import PIL.Image
import pytest

from keras_vit import output_folder
from keras_vit.storage.find_files import find_files
from tests.helpers import link_twice

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"


def write(path: Path, content: bytes | str = "jpeg") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        PIL.Image.new("RGB", (5, 7)).save(path, content)
    return path


def test_find_files_decides_by_content(tmp_path: Path) -> None:
    for name in ("a.jfif", "b.jpe", "c.mpo", "d", "e.txt", "f.png"):
        write(tmp_path / name)
    write(tmp_path / "g.jpg", HEIC)
    write(tmp_path / "h.jpg", b"text")
    write(tmp_path / "i.txt", b"text")
    found = find_files(tmp_path)
    assert found.images == ("a.jfif", "b.jpe", "c.mpo", "d", "e.txt", "f.png", "g.jpg", "h.jpg")
    assert found.ignored == {".txt": 1}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("notes.TXT", ".txt"),
        ("a.xml", ".xml"),
        ("LICENSE", "without suffix"),
        ("Thumbs.db", "thumbnail"),
        ("@eaDir/a.jpg/SYNOPHOTO_THUMB_XL.jpg", "thumbnail"),
        ("Preview.lrdata/1/a.jpg", "thumbnail"),
        ("#recycle/a.jpg", "deleted or earlier version"),
        ("$RECYCLE.BIN/S-1-5/a.jpg", "deleted or earlier version"),
        ("lost+found/a.jpg", "of the operating system"),
        ("__MACOSX/a.jpg", "of the operating system"),
        ("__pycache__/a.jpg", "of another program"),
        (".Trash-1000/files/a.jpg", "hidden"),
        (".ipynb_checkpoints/a-checkpoint.jpg", "hidden"),
        ("._a.jpg", "hidden"),
        (".git/objects/a.jpg", "hidden"),
        ("a.jpg_original", "backup copy"),
        ("a.jpg~", "backup copy"),
    ],
)
def test_find_files_counts_what_is_no_image(tmp_path: Path, name: str, kind: str) -> None:
    write(tmp_path / name)  # an image by content: the name decides here
    if name.endswith((".TXT", ".xml", "LICENSE")):
        write(tmp_path / name, b"words")
    found = find_files(tmp_path)
    assert (found.images, found.ignored) == ((), {kind: 1})


def test_find_files_opens_only_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jpg")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "b.jpg"))
    (tmp_path / "c.jpg").symlink_to("/dev/zero")
    (tmp_path / "d.jpg").symlink_to("nowhere")
    found = find_files(tmp_path)
    assert (found.images, found.ignored) == (("d.jpg",), {"special file": 3})


def test_find_files_follows_links_but_not_round_in_circles(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "a.jpg")
    data = tmp_path / "data"
    for name in ("one", "two"):
        (data / name).mkdir(parents=True)
    (data / "rose").symlink_to(tmp_path / "elsewhere")
    (data / "one" / "two").symlink_to(data / "two")
    (data / "two" / "one").symlink_to(data / "one")
    (data / "up").symlink_to(data)
    assert find_files(data).images == ("rose/a.jpg",)


def test_find_files_ends_where_links_lead_to_links(tmp_path: Path) -> None:
    link_twice(tmp_path)
    with pytest.raises(ValueError, match="must be reached by at most 8 links"):
        find_files(tmp_path / "0")


def test_find_files_passes_over_outputs_of_commands(tmp_path: Path) -> None:
    write(tmp_path / "rose" / "a.jpg")
    write(tmp_path / "report" / "confusion_matrix.png")
    (tmp_path / "report" / output_folder.MARKER).touch()
    for name in ("config.yaml", "split.csv", "samples/rose_a.jpg"):  # a run of an earlier version
        write(tmp_path / "runs" / "photos" / name)
    found = find_files(tmp_path)
    assert found.images == ("rose/a.jpg",)
    assert found.ignored == {"written by keras-vit": 5}


def test_find_files_counts_empty_folders(tmp_path: Path) -> None:
    (tmp_path / "rose").mkdir()
    (tmp_path / "tulip" / "2024").mkdir(parents=True)
    assert find_files(tmp_path).ignored == {"empty folder": 2}


def test_find_files_refuses_a_name_that_hides_a_class(tmp_path: Path) -> None:
    write(tmp_path / "..x" / "a.jpg")
    with pytest.raises(ValueError, match=r"must not begin with two dots.*Received: .*\.\.x"):
        find_files(tmp_path)


def test_find_files_refuses_an_unreadable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "rose" / "a.jpg")
    scan: Callable = os.scandir

    def refuse(path: Path) -> object:
        if Path(path).name == "rose":
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ValueError, match=r"must be readable. Received: .*rose: Permission denied"):
        find_files(tmp_path)
