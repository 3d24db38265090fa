"""The files of a folder whose images are converted: finding, naming and writing them."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from keras_vit import image_formats
from keras_vit.image_conversion import reading, tables

FORMATS = {"jpg": "JPEG", "png": "PNG"}  # suffix -> as Pillow calls it
OURS = ".keras_vit_convert"  # the marker, the lock and unfinished files begin so
_UNFINISHED = f"{OURS}.tmp-"
# What Pillow reads beside the formats that image_formats knows.
_PILLOW_SUFFIXES = {".tga", ".pcx", ".dds", ".sgi", ".qoi", ".ico", ".icns", ".xbm", ".xpm"}
_REFUSED = {
    "camera raw": "camera raw: develop it with the camera's program or a raw converter first",
    "SVG": "SVG: a drawing, which has no pixels yet",
}


@dataclasses.dataclass(frozen=True)
class File:
    """What a file of the source is, and whether it must be converted."""

    name: str  # with slashes, relative to the source
    format: str | None = None
    convert: bool = False
    bad_profile: bool = False
    failure: str = ""

    @property
    def is_table(self) -> bool:
        return not self.failure and self.format is None and tables.is_table(self.name)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a file."""

    present: bool = False
    failure: str = ""
    pages: int = 0
    window: tuple[float, float] | None = None
    bad_profile: bool = False


@dataclasses.dataclass(frozen=True)
class Options:
    """What all conversions have in common."""

    format: str
    max_side: int | None
    window: tuple[float, float] | None


def walk(
    source: Path, destination: Path
) -> tuple[list[str], list[str], list[tuple[str, str]], int]:
    """Returns the names of files and folders, what cannot be read, and how many are special."""
    names, folders, failed, special = [], [], [], 0

    def look(path: Path, prefix: str, above: frozenset[Path]) -> None:
        nonlocal special
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except PermissionError:
            failed.append((prefix, "no permission to read this folder"))
            return
        for entry in entries:
            name = prefix + entry.name
            if not prefix and entry.name.startswith(OURS):
                continue
            if entry.is_dir():
                real = Path(os.path.realpath(entry.path))
                if real not in above:
                    folders.append(name)
                    look(Path(entry.path), f"{name}/", above | {real})
            elif entry.is_file():
                names.append(name)
            elif not os.path.exists(entry.path):
                failed.append((name, "a link to nothing"))
            else:
                special += 1

    look(source, "", frozenset((source, destination)))
    return names, folders, failed, special


def inspected(source: Path, max_side: int | None, name: str) -> File:
    """Returns what a file is, by its content."""
    path, format = source / name, None
    try:
        head = image_formats.read_head(path)
        format = image_formats.image_format(head, name)
        if format is None:
            suffix = path.suffix.lower()
            if suffix in (".dcm", ".dicom"):
                return File(name, "DICOM", True)
            if not image_formats.has_image_suffix(name) and suffix not in _PILLOW_SUFFIXES:
                return File(name)
            return File(name, suffix[1:].upper(), True)
        if format in _REFUSED:
            return File(name, format, failure=_REFUSED[format])
        with reading.pixel_limit():
            decoded, bad = reading.is_decoded(path, format, head, max_side)
        return File(name, format, not decoded, bad)
    except Exception as error:  # Pillow raises all kinds on damaged files
        return File(name, format, failure=reading.failure(error, format))


def targets(files: list[File], folders: list[str], format: str) -> dict[File, str]:
    """Returns for each file its name in the new folder."""
    suffixes = (f".{format}", ".jpeg") if format == "jpg" else (f".{format}",)

    def wanted(file: File) -> str:
        stem, suffix = os.path.splitext(file.name)
        return stem + suffixes[0] if file.convert and suffix.lower() not in suffixes else file.name

    # Some file systems do not distinguish upper from lower case.
    taken = Counter(name.lower() for name in [*folders, *(file.name for file in files)])
    taken.update(wanted(file).lower() for file in files if wanted(file) != file.name)
    names = {}
    for file in files:
        target = wanted(file)
        if target != file.name and taken[target.lower()] > 1:
            target = file.name + suffixes[0]
            while taken[target.lower()]:
                target += suffixes[0]
            taken[target.lower()] += 1
        names[file] = target
    return names


def made(source: Path, destination: Path, options: Options, job: tuple[File, str]) -> Outcome:
    """Writes one file of the new folder."""
    file, target = job
    if file.failure:
        return Outcome(failure=file.failure)
    old, new = source / file.name, destination / target
    outcome = Outcome()
    try:
        times = old.stat()
        if new.exists():
            there = new.stat()
            same_size = file.convert or there.st_size == times.st_size
            if same_size and there.st_mtime_ns == times.st_mtime_ns:
                return Outcome(present=True)
        if file.convert:
            with reading.pixel_limit():
                picture = reading.read_picture(
                    old, str(file.format), options.window, options.max_side
                )
            content = io.BytesIO()
            picture.image.save(content, FORMATS[options.format], quality=95, subsampling=0)
            outcome = Outcome(False, "", picture.pages, picture.window, picture.bad_profile)
    except Exception as error:  # Pillow raises all kinds on damaged files
        return Outcome(failure=reading.failure(error, file.format))
    with unfinished(new) as temporary:
        if file.convert:
            temporary.write_bytes(content.getbuffer())
        else:
            shutil.copyfile(old, temporary)
        os.utime(temporary, ns=(times.st_atime_ns, times.st_mtime_ns))
    return outcome


def copy_table(old: Path, new: Path, name: str, renames: Mapping[str, str]) -> None:
    """Copies a table with the new names of images."""
    times = old.stat()
    with unfinished(new) as temporary:
        temporary.write_bytes(tables.renamed(old.read_bytes(), name, renames))
        os.utime(temporary, ns=(times.st_atime_ns, times.st_mtime_ns))


@contextlib.contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Yields a path beside the final one, which the complete file takes."""
    temporary = path.with_name(f"{_UNFINISHED}{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_unfinished(destination: Path) -> None:
    """Removes what processes that were killed left."""
    for path in destination.rglob(f"{_UNFINISHED}*"):
        path.unlink(missing_ok=True)
