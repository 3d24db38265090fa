"""File operations of an image conversion: search, inspection, renaming and writing."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_vit import arguments, image_formats
from keras_vit.constants import IMAGE_FOLDERS, MASK_FOLDERS, MAX_LINKS
from keras_vit.image_conversion import reading, tables

FORMATS = {"jpg": "JPEG", "png": "PNG"}  # suffix -> name of the format in Pillow
PREFIX = ".keras_vit_convert"  # prefix of the marker, the lock and unfinished files
FOLDER = "Folders"
# Suffixes of further formats of Pillow, not in `image_formats`.
_PILLOW_SUFFIXES = {".tga", ".pcx", ".dds", ".sgi", ".qoi", ".ico", ".icns", ".xbm", ".xpm"}


@dataclasses.dataclass
class File:
    """File or folder in the source folder, with the outcome of its conversion."""

    name: str  # with slashes, relative to the source
    outcome: str = ""
    failure: str = ""
    format: str | None = None  # of an image
    convert: bool = False
    is_table: bool = False
    target: str = ""  # name in the new folder
    pages: int = 0  # omitted further pages
    written: int | None = None  # modification time of the target, in ns, when it was written


def walk(
    folder: Path,
    prefix: str,
    above: set[Path],
    max_side: int | None,
    visits: Counter[Path] | None = None,
    masks: bool = False,
) -> Iterator[File]:
    """Yields all files and folders below a folder; stops at cyclic symbolic links.

    Files in a folder of masks beside one of images, such as `masks/` and `images/`, are not
    converted: JPEG would change the values of pixels.
    """
    visits = Counter() if visits is None else visits
    try:
        paths = sorted(folder.iterdir())
    except PermissionError:
        yield File(prefix, failure="no permission to read this folder")
        return
    has_images = any(path.name.lower() in IMAGE_FOLDERS for path in paths)
    for path in paths:
        name = prefix + path.name
        if os.path.isdir(path):  # unlike Path.is_dir, False without permission
            if (real := path.resolve()) in above:
                continue
            visits[real] += 1
            if visits[real] > MAX_LINKS:
                yield File(name, failure=f"more than {MAX_LINKS} links lead to this folder")
            else:
                yield File(name, FOLDER)
                below = masks or (has_images and path.name.lower() in MASK_FOLDERS)
                yield from walk(path, f"{name}/", above | {real}, max_side, visits, below)
        elif not os.path.exists(path):
            yield File(name, failure="a broken link, or no permission")
        elif not path.is_file():
            yield File(name, "Skipped pipes, sockets and devices")
        elif not name.startswith(PREFIX):
            file = inspected(path, name, max_side)
            file.convert &= not masks
            if path.is_symlink() and not (file.format or file.is_table or file.failure):
                file.outcome = "Skipped links to files other than images and tables"
            yield file


def inspected(path: Path, name: str, max_side: int | None) -> File:
    """Determines the kind of a file from its content."""
    file, suffix = File(name), path.suffix.lower()
    try:
        head = image_formats.read_head(path)
        file.format = image_formats.image_format(head, name)
        if file.format == "camera raw":
            raise ValueError("camera raw: develop it with a raw converter first")
        if file.format:
            file.convert = not reading.is_decoded(path, file.format, head, max_side)
        elif not path.name.startswith(".") and (  # such as macOS's `._a.jpg`
            image_formats.has_image_suffix(name) or suffix in _PILLOW_SUFFIXES
        ):
            file.format = "DICOM" if suffix in (".dcm", ".dicom") else suffix[1:].upper()
            file.convert = True
        file.is_table = not file.format and suffix in arguments.TABLE_SUFFIXES
    except Exception as error:  # Pillow raises many types of errors on damaged files
        file.failure = _reason(error)
    return file


def _reason(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "no permission to read it"
    first_line = str(error).partition("\n")[0]
    return f"cannot be read: {first_line or type(error).__name__}"


def set_targets(files: list[File], format: str) -> None:
    """Sets the file names to use in the new folder."""
    suffixes = (".jpg", ".jpeg") if format == "jpg" else (f".{format}",)
    for file in files:
        stem, suffix = os.path.splitext(file.name)
        keeps_name = not file.convert or suffix.lower() in suffixes
        file.target = file.name if keeps_name else stem + suffixes[0]
    # In lowercase, as some file systems ignore case; counted once if the name does not change.
    name_counts = Counter(name.lower() for file in files for name in {file.name, file.target})
    for file in files:
        if file.target != file.name and name_counts[file.target.lower()] > 1:
            file.target = file.name
            while name_counts[file.target.lower()]:
                file.target += suffixes[0]
            name_counts[file.target.lower()] = 1


def write_image(
    source: Path, destination: Path, options: dict[str, Any], renames: Mapping[str, str], file: File
) -> File:
    """Writes a file to the new folder and returns it with its outcome."""
    old_path, new_path, content = source / file.name, destination / file.target, io.BytesIO()
    try:
        stat = old_path.stat()
        existing_time = new_path.stat().st_mtime_ns if new_path.exists() else None
        if existing_time not in (None, stat.st_mtime_ns, file.written):
            file.outcome = "Kept, because they were changed in the new folder"
            return file
        if not file.is_table and existing_time == stat.st_mtime_ns:
            file.outcome, file.written = "Already converted", existing_time
            return file
        if file.convert:
            window, max_side = options["window"], options["max_side"]
            image, file.pages = reading.read_picture(old_path, str(file.format), window, max_side)
            image.save(content, FORMATS[options["format"]], quality=95, subsampling=0)
        elif file.is_table:
            content.write(tables.renamed(old_path.read_bytes(), file.name, renames))
    except Exception as error:  # Pillow raises many types of errors on damaged files
        file.failure = _reason(error)
        return file
    temporary = destination / f"{PREFIX}.tmp-{os.getpid()}"
    if file.convert or file.is_table:
        temporary.write_bytes(content.getbuffer())
    else:
        shutil.copyfile(old_path, temporary)
    os.utime(temporary, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    file.written = temporary.stat().st_mtime_ns  # rounded by some file systems
    os.replace(temporary, new_path)
    copied_outcome = "Copied images" if file.format else "Copied other files"
    file.outcome = f"Converted from {file.format}" if file.convert else copied_outcome
    return file


def remove_unfinished(destination: Path) -> None:
    """Deletes the temporary files left by killed processes."""
    for path in destination.glob(f"{PREFIX}.tmp-*"):
        path.unlink(missing_ok=True)
