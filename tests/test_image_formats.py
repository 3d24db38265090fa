from __future__ import annotations

import base64
import io
from pathlib import Path

import PIL.features
import PIL.Image
import pytest

from keras_vit import image_formats

WRITTEN = {
    "JPEG": "JPEG",
    "MPO": "JPEG",
    "PNG": "PNG",
    "GIF": "GIF",
    "BMP": "BMP",
    "DIB": None,  # a BMP without its first header, for the clipboard
    "WEBP": "WebP",
    "TIFF": "TIFF",
    "JPEG2000": "JPEG 2000",
    "AVIF": "AVIF",
}
STARTS = [
    b"\xff\xd8\xff\xe0\0\x10JFIF",
    b"\x89PNG\r\n\x1a\n\0\0\0",
    b"GIF89a",
    b"RIFF\x24\0\0\0WEBPVP8 ",
]


@pytest.mark.parametrize(("written", "expected"), WRITTEN.items())
def test_image_format_of_what_pillow_writes(written: str, expected: str | None) -> None:
    file = io.BytesIO()
    if written == "AVIF" and not PIL.features.check("avif"):
        pytest.skip("this Pillow writes no AVIF")
    PIL.Image.new("RGB", (5, 7)).save(file, written)
    assert image_formats.image_format(file.getvalue()[:132]) == expected


@pytest.mark.parametrize(
    ("head", "name", "expected"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "a.jpg", "HEIC"),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avif", "a", "AVIF"),
        (b"\0\0\0\x18ftypcrx \0\0\0\1crx isom", "a.CR3", "camera raw"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", "a.mov", None),
        (b"II*\0\x10\0\0\0CR\2\0", "a.CR2", "camera raw"),
        (b"II*\0\x08\0\0\0", "a.NEF", "camera raw"),
        (b"II*\0\x08\0\0\0", "a.tif", "TIFF"),
        (bytes(128) + b"DICM", "IM0001", "DICOM"),
        (b"\xff\x0a", "a.jxl", "JPEG XL"),
        (b"<?xml version='1.0'?><svg/>", "a.svg", "SVG"),
        (b"P6\n5 7\n255\n", "a.ppm", "Netpbm"),
        (b"P6 is a chapter of a book", "notes.txt", None),
        (b"BMW and Audi are cars, and so on", "cars.txt", None),
        (b"", "a.jpg", None),
    ],
)
def test_image_format_of_other_files(head: bytes, name: str, expected: str | None) -> None:
    assert image_formats.image_format(head, name) == expected


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        *((base64.b64encode(head), "base64 text") for head in STARTS),
        (b"data:image/jpeg;base64,/9j/4AAQ", "a data URI"),
        (b"<!DOCTYPE html>\n<html>", "an HTML page"),
        (b"\xef\xbb\xbf\r\n<html lang='en'>", "an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "a Git LFS pointer"),
        (b"<htmlx>", "None"),
        (b"data: a table", "None"),
        *((head, "None") for head in STARTS),
    ],
)
def test_text_format(head: bytes, expected: str) -> None:
    assert str(image_formats.text_format(head)).startswith(expected)


def test_read_head_is_as_long_as_the_longest_signature(tmp_path: Path) -> None:
    (tmp_path / "scan").write_bytes(bytes(128) + b"DICM" + bytes(1000))
    head = image_formats.read_head(tmp_path / "scan")
    assert len(head) == 132
    assert image_formats.image_format(head) == "DICOM"


@pytest.mark.parametrize(
    "name", ["a.jpg", "a.JPE", "a.jfif", "a.MPO", "a.heic", "a.nef", "a.b.tiff"]
)
def test_has_image_suffix(name: str) -> None:
    assert image_formats.has_image_suffix(name)
    assert not image_formats.has_image_suffix(name + "_original")


@pytest.mark.parametrize("name", ["a.jpg_original", "a.jpg~", "a.JPG.BAK"])
def test_is_backup(name: str) -> None:
    assert image_formats.is_backup(name)
    assert not image_formats.is_backup("a.jpg")
