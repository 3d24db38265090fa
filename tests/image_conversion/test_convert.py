from __future__ import annotations

import errno
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import filelock
import numpy as np
import PIL.Image
import pytest

from keras_vit import image_conversion
from keras_vit.image_conversion import Conversion
from tests.image_conversion.samples import DISPLAY_P3, deep_png


def convert(source: Path, destination: Path, **options: object) -> Conversion:
    return image_conversion.convert_images(
        source, destination, **{"processes": 1, "progress": False, **options}
    )


def noise(seed: int = 3, height: int = 13, width: int = 17) -> PIL.Image.Image:
    random = np.random.default_rng(seed)
    return PIL.Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8))


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file, nothing of folders, and no time of the marker and lock."""
    return {
        str(path.relative_to(folder)): (
            path.read_bytes() if path.is_file() else b"",
            0 if path.is_dir() or path.name.startswith(".") else path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What is readable, what must be converted, what cannot be, and other files."""
    folder = tmp_path / "source"
    (folder / "rose" / "empty").mkdir(parents=True)
    for name in ("rose/a.jpg", "rose/a.tif", "b.png", "c.gif", "d.webp", "e.jp2", "f.ppm"):
        noise(len(name)).save(folder / name)
    noise().convert("RGBA").save(folder / "g.webp")
    noise().convert("CMYK").save(folder / "h.jpg")
    noise().convert("P").save(folder / "i.bmp")
    noise().save(folder / "p3.png", icc_profile=DISPLAY_P3)
    noise().save(folder / "bad_profile.jpg", icc_profile=b"nothing")
    noise().save(folder / "pages.tif", save_all=True, append_images=[noise()])
    for name, low in (("k.png", 0), ("l.png", 12)):
        values = np.linspace(low, 4095 - low, 35).astype(int).reshape(5, 7, 1)
        (folder / name).write_bytes(deep_png(values))
    (folder / "damaged.tif").write_bytes((folder / "pages.tif").read_bytes()[:90])
    (folder / "raw.nef").write_bytes(b"II*\0" + bytes(200))
    (folder / "labels.csv").write_text("file,label\nrose/a.tif,x\nrose/a.jpg,y\ndamaged.tif,z\n")
    (folder / "rose" / "other.csv").write_text("name\nb.png\n")
    (folder / "notes.txt").write_text("rose/a.tif")
    for number, path in enumerate(sorted(folder.rglob("*.*"))):
        os.utime(path, ns=(number, 1_700_000_000_000_000_000 + number))
    return folder


def test_convert_images_copies_and_converts(source: Path, tmp_path: Path) -> None:
    before, new = contents(source), tmp_path / "new"
    found = convert(source, new)
    assert contents(source) == before
    assert {str(path.relative_to(new)) for path in new.rglob("*") if path.is_file()} == {
        *("rose/a.jpg", "rose/a.tif.jpg", "b.png", "c.gif", "d.webp", "e.jpg", "f.jpg", "g.webp"),
        *("h.jpg", "i.jpg", "p3.jpg", "bad_profile.jpg", "pages.jpg", "k.jpg", "l.jpg"),
        *("labels.csv", "rose/other.csv", "notes.txt"),
        *(f".keras_vit_convert.{end}" for end in ("json", "lock", "written.json")),
    }
    assert (new / "rose" / "empty").is_dir()
    after = contents(new)
    for name in ("rose/a.jpg", "b.png", "c.gif", "d.webp", "g.webp", "bad_profile.jpg"):
        assert after[name] == before[name]
    for name in ("notes.txt", "rose/other.csv"):
        assert after[name] == before[name]
    table = b"file,label\nrose/a.tif.jpg,x\nrose/a.jpg,y\ndamaged.tif,z\n"
    assert after["labels.csv"] == (table, before["labels.csv"][1])
    assert after["e.jpg"][1] == before["e.jp2"][1]
    assert found.text().splitlines() == [
        *("Converted from BMP: 1", "Converted from JPEG: 1", "Converted from JPEG 2000: 1"),
        *("Converted from Netpbm: 1", "Converted from PNG: 3", "Converted from TIFF: 2"),
        *("Copied images: 6", "Copied other files: 3", "Folders: 2", "Pages left out: 1"),
        "Not converted: 2",
        *(line for line in found.text().splitlines() if line.startswith("  damaged.tif: cannot")),
        "  raw.nef: cannot be read: camera raw: develop it with a raw converter first",
    ]
    for path in new.rglob("*.jpg"):
        if path.name in ("bad_profile.jpg", "a.jpg"):
            continue
        with PIL.Image.open(path) as image:
            assert image.format == "JPEG"
            assert image.mode in ("L", "RGB")
            assert not image.getexif()
            assert "icc_profile" not in image.info
            assert all(layer[1:3] == (1, 1) for layer in image.layer)  # 4:4:4


def test_convert_images_goes_on(source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    convert(source, new)
    before = contents(new)
    (new / "e.jpg").unlink()
    (new / ".keras_vit_convert.tmp-5").touch()
    found = convert(source, new)
    assert found.counts == {
        **{"Converted from JPEG 2000": 1, "Copied other files": 2, "Folders": 2},  # the tables
        "Already converted": 15,
    }
    assert contents(new) == before


def test_changes_in_the_new_folder_are_kept(source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    convert(source, new)
    (new / "labels.csv").write_text("file,label\nrose/a.jpg,corrected\n")
    (new / "e.jpg").write_bytes(b"cropped")
    with (source / "labels.csv").open("a") as file:
        file.write("e.jp2,z\n")
    with (source / "rose" / "other.csv").open("a") as file:
        file.write("c.png\n")
    for _ in range(2):
        found = convert(source, new)
        assert found.counts["Kept, because they were changed in the new folder"] == 2
        assert "corrected" in (new / "labels.csv").read_text()
        assert (new / "e.jpg").read_bytes() == b"cropped"
        assert (new / "rose" / "other.csv").read_text().endswith("c.png\n")


def test_convert_images_writes_png_and_shrinks(source: Path, tmp_path: Path) -> None:
    noise(5, 31, 23).save(source / "large.jpg")
    found = convert(source, tmp_path / "new", format="png", max_side=20)
    with PIL.Image.open(tmp_path / "new" / "large.png") as image:
        assert (image.format, image.size) == ("PNG", (15, 20))
    assert found.counts["Converted from JPEG"] == 2
    assert (tmp_path / "new" / "rose" / "a.jpg").is_file()
    with PIL.Image.open(tmp_path / "new" / "f.png") as image:
        np.testing.assert_array_equal(image, noise(5))


def test_convert_images_takes_one_window_for_all(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "new", window=(0, 8190))
    with PIL.Image.open(tmp_path / "new" / "k.jpg") as image:
        assert np.asarray(image).max() in range(125, 131)


def test_conversion_lists_twenty_names_at_most() -> None:
    failed = tuple((f"{number:02}.tif", "damaged") for number in range(23))
    lines = Conversion({"Folders": 2}, failed=failed).text().splitlines()
    assert lines[:3] == ["Folders: 2", "Not converted: 23", "  00.tif: damaged"]
    assert lines[-2:] == ["  19.tif: damaged", "  ... and 3 more"]
    assert "\N{REPLACEMENT CHARACTER}" in Conversion({}, failed=(("\udcff", ""),)).text()


def test_arguments_are_checked_first(tmp_path: Path) -> None:
    source, new = tmp_path / "source", tmp_path / "new"
    source.mkdir()
    (source / "inner").mkdir()
    (tmp_path / "link").symlink_to(source)
    outside = "`destination` must not contain each other."
    for arguments, options, message in (
        ((tmp_path / "none", new), {}, "`source` must be an existing folder. Received: "),
        ((source, source), {}, outside),
        ((source, source / "inner"), {}, outside),
        ((source, tmp_path), {}, outside),
        ((source, tmp_path / "link" / "new"), {}, outside),
        ((source, new), {"format": "gif"}, "`format` must be one of 'jpg', 'png'"),
        ((source, new), {"max_side": 0}, "`max_side` must be"),
        ((source, new), {"processes": 0}, "`processes` must be"),
        (
            (source, new),
            {"window": (5, 5)},
            "`window` must be two numbers, the smaller number first.",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            convert(*arguments, **options)
    assert not new.exists()


def test_destination_must_be_new_or_of_the_same_run(source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    message = "`destination` must be a new or empty folder, or the output of an earlier conversion "
    new.write_text("a file")
    with pytest.raises(ValueError, match=message):
        convert(source, new)
    new.unlink()
    new.mkdir()
    (new / "photo.jpg").touch()
    with pytest.raises(ValueError, match=message):
        convert(source, new)
    (new / "photo.jpg").unlink()
    (new / ".keras_vit_convert.tmp-7").touch()  # killed before its marker was there
    convert(source, new)
    with pytest.raises(ValueError, match=message):
        convert(source, new, format="png")
    marker = json.loads((new / ".keras_vit_convert.json").read_text())
    expected = {"source": str(source), "format": "jpg", "max_side": None, "window": None}
    assert marker == expected


def test_full_disk_names_the_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.utime", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        convert(source, tmp_path / "new")
    assert error.value.filename == str(tmp_path / "new")


def test_second_run_is_refused(source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    with (
        filelock.FileLock(new / ".keras_vit_convert.lock"),
        pytest.raises(ValueError, match=r"must not be in use.*which is in use by another process"),
    ):
        convert(source, new)
    assert [path.name for path in new.iterdir()] == [".keras_vit_convert.lock"]
    assert convert(source, new).counts["Copied images"] == 6


@pytest.mark.parametrize(
    ("head", "extra"),
    [(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "formats"), (bytes(128) + b"DICM", "dicom")],
)
def test_missing_extra_is_named_before_work_starts(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, extra: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    convert(source, tmp_path / "without")
    (source / "x").write_bytes(head)
    with pytest.raises(ImportError, match=rf'pip install -e "\.\[{extra}\]"'):
        convert(source, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_heic_is_converted(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("pillow_heif").register_heif_opener()
    noise().resize((67, 41)).save(source / "photo.jpg", "HEIF")
    noise().resize((67, 41)).save(source / "phone.heic")
    found = convert(source, tmp_path / "new")
    assert found.counts["Converted from HEIC"] == 2
    for name in ("photo.jpg", "phone.jpg"):
        with PIL.Image.open(tmp_path / "new" / name) as image:
            assert (image.format, image.size) == ("JPEG", (67, 41))


@pytest.fixture
def many(source: Path) -> Path:
    for number in range(60):
        noise(number, 211, 307).save(source / "rose" / f"{number}.tif")
    return source


def kill_and_compare(many: Path, tmp_path: Path, kills: int) -> None:
    script = "import sys, keras_vit_toolkit; sys.argv[0] = 'keras-vit'; keras_vit_toolkit.main()"
    command = [sys.executable, "-c", script, "data", "convert", str(many), "--processes", "3"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    start = time.monotonic()
    assert subprocess.run([*command, str(tmp_path / "whole")], **quiet).returncode == 1
    duration = time.monotonic() - start
    killed, draw = tmp_path / "killed", random.Random(7)
    for _ in range(kills):
        with subprocess.Popen([*command, str(killed)], **quiet) as process:
            time.sleep(duration * draw.uniform(0.3, 0.95))
            process.send_signal(signal.SIGKILL)
    assert subprocess.run([*command, str(killed)], **quiet).returncode == 1
    assert contents(killed) == contents(tmp_path / "whole")
    assert not list(killed.rglob("*.tmp-*"))


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_killed_runs_end_as_an_undisturbed_one(many: Path, tmp_path: Path) -> None:
    kill_and_compare(many, tmp_path, 2)


@pytest.mark.slow  # covered in part by the one above
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_runs_killed_ten_times_end_as_an_undisturbed_one(many: Path, tmp_path: Path) -> None:
    kill_and_compare(many, tmp_path, 10)
