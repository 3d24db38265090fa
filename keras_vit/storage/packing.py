"""Packing of folders into TFRecord shards, and unpacking."""

from __future__ import annotations

import dataclasses
import errno
import functools
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import PIL.Image
import PIL.ImageOps
import pyarrow
from pyarrow import parquet
from rich.console import Console
from rich.progress import track

from keras_vit import arguments, output_folder
from keras_vit.constants import IMAGE_FOLDERS, MASK_FOLDERS
from keras_vit.files import atomic_path, naming_full_disk, without_folders, write_bytes, write_json
from keras_vit.image_conversion import workers
from keras_vit.storage.errors import INDEX
from keras_vit.storage.find_files import data_files
from keras_vit.storage.packed_files import HEADER_SIZE, record, shard_name
from keras_vit.storage.paths import is_local, is_packed, to_path

SHARD_BYTES = 2**28
#: Function that yields the name of each file of a shard, whether it is an image, and its content.
Part = Callable[[], Iterable[tuple[str, bool, bytes]]]
_PLAN = "packing.json"
_INDEX_SCHEMA = pyarrow.schema(
    {
        "name": pyarrow.binary(),
        "image": pyarrow.bool_(),
        "shard": pyarrow.int32(),
        "offset": pyarrow.int64(),
        "length": pyarrow.int64(),
        "sha256": pyarrow.binary(32),
    }
)


@dataclasses.dataclass(frozen=True)
class Packed:
    """Result of packing or unpacking.

    Args:
        files: Number of files, images and others.
        images: Number of images among them.
        size: Size of all files in bytes.
        shards: Number of shards.
    """

    files: int
    images: int
    size: int
    shards: int

    def text(self) -> str:
        """Returns the result as a line of text."""
        others = self.files - self.images
        return (
            f"{self.images} images and {others} other files, {self.size / 1e6:,.1f} MB, in "
            f"{self.shards} shards"
        )


def pack(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    max_side: int | None = None,
    processes: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    progress: bool = True,
) -> Packed:
    """Packs a folder into shards that `keras_vit.data.load` reads as it reads the folder.

    Every file of the dataset is a record of a TFRecord file: images, masks, tables and annotations.
    An index (Parquet) contains the name, shard, offset, length and SHA-256 of each. Hidden files,
    backup copies and outputs of this package are omitted. An interrupted call resumes.

    Args:
        source: The folder, local or in object storage. It is never changed.
        destination: A new folder, or the folder of an interrupted call.
        max_side: Maximum side in pixels; larger images are downscaled and encoded again. Masks
            and boxes are not downscaled, so this is for classification.
        processes: Number of processes; by default the number of processor cores.
        shard_bytes: Size of a shard in bytes, before its last file is added.
        progress: Whether to show a progress bar on the terminal.

    Returns:
        The number of files, images, bytes and shards.

    Raises:
        ValueError: If an argument is invalid, the folder has no images, or `destination` contains
            other files.

    Examples:
        >>> import tempfile
        >>> source, destination = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp()) / "packed"
        >>> (source / "daisy").mkdir()
        >>> PIL.Image.new("RGB", (5, 7)).save(source / "daisy" / "a.png")
        >>> pack(source, destination, processes=1, progress=False).files
        1
        >>> sorted(path.name for path in destination.iterdir() if path.name[0] != ".")
        ['files-00000.tfrecord', 'packed_index.parquet', 'packing.json']
    """
    processes = workers.check_options(processes, max_side)
    arguments.positive_int("shard_bytes", shard_bytes)
    folder, destination = to_path(source), Path(destination).resolve()
    if not folder.is_dir():
        raise ValueError(f"`source` must be an existing folder. Received: {source}")
    if is_local(folder) and destination.is_relative_to(folder.resolve()):
        raise ValueError(
            f"`destination` must not be inside `source`. Received: {destination} in {folder}"
        )
    files = data_files(folder)
    if not any(files.values()):
        raise ValueError(f"`source` must contain images. Received: {source}, {len(files)} files")
    folders = {part.lower() for name in files for part in name.split("/")[:-1]}
    if max_side and folders & {*IMAGE_FOLDERS} and folders & {*MASK_FOLDERS}:
        raise ValueError(
            "`max_side` must be left out for images with masks or boxes, which are not downscaled. "
            f"Received: max_side={max_side}, {source}"
        )
    stats = [(folder / name).stat() for name in files]
    sizes = [stat.st_size for stat in stats]
    plan = {
        "source": without_folders(str(source)),
        "max_side": max_side,
        "shard_bytes": shard_bytes,
        "files": len(files),
        "listing": _sha256([*zip(files, sizes, strict=True)]),
        "modified": _sha256([stat.st_mtime for stat in stats]),
    }
    shards = _divide_into_shards(list(files.items()), sizes, shard_bytes)
    parts = [functools.partial(_read_files, source, max_side, shard) for shard in shards]
    return pack_parts(parts, destination, plan, processes=processes, progress=progress)


def pack_parts(
    parts: Sequence[Part],
    destination: str | os.PathLike[str],
    plan: Mapping[str, Any],
    *,
    processes: int = 1,
    progress: bool = True,
) -> Packed:
    """Packs each part of a dataset into a shard; an interrupted call resumes.

    Args:
        parts: For each shard, a function that yields its files; picklable for several processes.
        destination: A new folder, or the folder of an interrupted call.
        plan: Source and options, for JSON; a call with another plan raises `ValueError`.
        processes: Number of processes.
        progress: Whether to show a progress bar on the terminal.
    """
    destination = Path(destination).resolve()
    plan_path = destination / _PLAN
    stored_plan = json.loads(plan_path.read_text()) if plan_path.is_file() else plan
    if stored_plan != {key: plan.get(key) for key in stored_plan}:  # earlier versions store less
        raise ValueError(
            "`destination` must be a new folder, or that of an interrupted call with the same "
            f"files and options. Received: {destination}, packed from {stored_plan['source']}"
        )
    with output_folder.writing(destination, "data pack"), naming_full_disk(destination):
        write_json(plan_path, plan)
        for unfinished in destination.glob(f".{shard_name(0)[:6]}*"):  # of a killed process
            shutil.rmtree(unfinished)
        if not (destination / INDEX).is_file():
            missing = [i for i in range(len(parts)) if not _index_part(destination, i).is_file()]
            with workers.pool(processes, chunksize=1) as pool_map:
                readers = [parts[i] for i in missing]
                written = pool_map(_write_shard, repeat(destination), missing, readers)
                # A disabled progress bar prints a line in rich 13.
                bar = track(written, "Packing", len(missing), console=Console(stderr=True))
                for _ in bar if progress else written:
                    pass
            _join_index(destination, len(parts))
    index = parquet.read_table(destination / INDEX)
    images = int(index["image"].to_numpy().sum())
    return Packed(len(index), images, int(index["length"].to_numpy().sum()), len(parts))


def unpack(
    source: str | os.PathLike[str], destination: str | os.PathLike[str], *, progress: bool = True
) -> Packed:
    """Writes the files of packed shards into a folder, after a check of their SHA-256.

    Args:
        source: Folder of the shards, local or in object storage.
        destination: A new folder, or that of an interrupted call, whose complete files are kept.
        progress: Whether to show a progress bar on the terminal.

    Returns:
        The number of files, images, bytes and shards.

    Raises:
        ValueError: If `source` does not contain packed shards, a name leaves the folder, or a file
            in `destination` differs.
        OSError: If a file in a shard is damaged.
    """
    root = to_path(source)
    if not is_packed(root):
        raise ValueError(f"`source` must be a folder of packed shards. Received: {source}")
    packed, destination = root.fs, Path(destination)
    names = packed.find("")
    bar = track(names, "Unpacking", len(names), console=Console(stderr=True))
    with naming_full_disk(destination):
        for name in bar if progress else names:
            content, target = packed.cat_file(name), destination / name
            if not target.resolve().is_relative_to(destination.resolve()):
                raise ValueError(
                    "The names of packed files must not leave their folder. Received: "
                    f"{name!r} in {source}"
                )
            if hashlib.sha256(content).digest() != packed.sha256(name):
                raise OSError(errno.EIO, "The SHA-256 is wrong; pack the folder again", name)
            if not target.is_file():
                write_bytes(target, content)
            elif target.read_bytes() != content:
                raise ValueError(
                    "`destination` must not contain other files of the same names. Received: "
                    f"{target}, which differs"
                )
    images, size = int(packed.images.sum()), int(packed.lengths.sum())
    return Packed(len(names), images, size, len(packed.sizes))


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()


def _divide_into_shards(
    files: list[tuple[str, bool]], sizes: list[int], shard_bytes: int
) -> list[list[tuple[str, bool]]]:
    """Divides files, in order, into shards of about the same size."""
    shards: list[list[tuple[str, bool]]] = [[]]
    shard_size = 0
    for file, size in zip(files, sizes, strict=True):
        if shard_size >= shard_bytes:
            shards.append([])
            shard_size = 0
        shards[-1].append(file)
        shard_size += size
    return shards


def _index_part(destination: Path, number: int) -> Path:
    return destination / f"{shard_name(number)}.{INDEX}"


def _read_files(
    source: str | os.PathLike[str], max_side: int | None, files: Iterable[tuple[str, bool]]
) -> Iterator[tuple[str, bool, bytes]]:
    """Yields the files of a shard, for `pack_parts`."""
    folder = to_path(source)
    for name, is_image in files:
        content = (folder / name).read_bytes()
        yield name, is_image, _downscale(content, max_side) if is_image and max_side else content


def _write_shard(destination: Path, number: int, read_files: Part) -> None:
    """Writes a shard, and then its part of the index."""
    rows: list[dict[str, Any]] = []
    with atomic_path(destination / shard_name(number)) as temporary, temporary.open("wb") as file:
        for name, is_image, content in read_files():
            digest = hashlib.sha256(content).digest()
            offset = file.tell() + HEADER_SIZE
            row = (os.fsencode(name), is_image, number, offset, len(content), digest)
            rows.append(dict(zip(_INDEX_SCHEMA.names, row, strict=True)))
            file.write(record(content))
    with atomic_path(_index_part(destination, number)) as temporary:
        parquet.write_table(pyarrow.Table.from_pylist(rows, _INDEX_SCHEMA), temporary)


def _join_index(destination: Path, number: int) -> None:
    """Writes the index of all shards, sorted by name, and removes its parts."""
    parts = [_index_part(destination, i) for i in range(number)]
    table = pyarrow.concat_tables(map(parquet.read_table, parts)).sort_by("name")
    sizes = [str((destination / shard_name(i)).stat().st_size) for i in range(number)]
    metadata = {"version": "1", "sizes": " ".join(sizes)}
    with atomic_path(destination / INDEX) as temporary:
        parquet.write_table(table.replace_schema_metadata(metadata), temporary)
    for part in parts:
        part.unlink()


def _downscale(content: bytes, max_side: int) -> bytes:
    """Returns an image with sides of at most `max_side` pixels; damaged images are not changed."""
    try:
        with PIL.Image.open(io.BytesIO(content)) as image:
            if max(image.size) <= max_side:
                return content
            profile, format = image.info.get("icc_profile"), image.format
            smaller = PIL.ImageOps.exif_transpose(image)
        smaller.thumbnail((max_side, max_side), PIL.Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        smaller.save(buffer, format, quality=95, icc_profile=profile)
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError):
        return content
    return buffer.getvalue()
