"""What every reader asks of a weight file before it believes it, and every writer of tensors.

Weight files come from strangers. Names and declared sizes are looked at before anything is
allocated, and whatever is wrong with a file ends in a `ValueError`.
"""

from __future__ import annotations

import collections
import contextlib
import json
import textwrap
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Twice ViT-G/14, the largest model of the family: 1.84e9 weights, 7.4 GB in float32.
LARGEST = 16 * 2**30
# Trained weights compress by a tenth, and by half or so where they were rounded before. Zeros
# compress a thousandfold, so a small file may be all zeros: 64 MiB of them do no harm.
MOST_GAIN = 8
ALLOWANCE = 64 * 2**20
# Of JSON that tells of a model. Measured: ViT-B/16 16 kB; the 21,843 labels of ImageNet-21k in the
# two tables of a Hugging Face config.json 3.5 MB. Brackets, of which each becomes an object of some
# hundred bytes: NASNetLarge, of a thousand layers, has 20,000.
LARGEST_JSON = 16 * 2**20
MOST_BRACKETS = 250_000
# A thousand members take 100 kB; zipfile makes an object of half a kilobyte of each.
LARGEST_DIRECTORY = 4 * 2**20


class WeightFileError(ValueError):
    """A weight file that must not or cannot be read; the message says why."""


def refused(path: Path, what: str, *, again: bool = False) -> WeightFileError:
    """Returns the error for a file that will not be read."""
    remedy = " Fetch or write it again." if again else ""
    return WeightFileError(f"The weight file {path} is {what}.{remedy}")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns whatever a parser raises on a damaged file into a `ValueError`."""
    if not path.is_file():
        raise ValueError(
            "`weights` must be None or the path of an existing .npz, .safetensors, .h5, .keras or "
            f".pth file. Received: weights={str(path)!r}, which does not exist"
        )
    try:
        yield
    except (WeightFileError, MemoryError, PermissionError):
        raise
    except Exception as error:  # zlib.error, struct.error, TokenError, RecursionError, ...
        reason = textwrap.shorten(str(error) or type(error).__name__, 200, placeholder=" ...")
        raise refused(path, f"truncated or damaged ({reason})", again=True) from error


@contextlib.contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Opens a zip file whose directory is sound; nothing is decompressed for that."""
    with reading(path):
        _check_directory(path)
    with reading(path), zipfile.ZipFile(path) as archive:
        check_names(path, archive.namelist())
        check_size(path, sum(member.file_size for member in archive.infolist()))
        yield archive


def _check_directory(path: Path) -> None:
    """Refuses a long list of members before zipfile reads it."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 2**16 - 22))
        tail = file.read()
        end = max(0, tail.rfind(b"PK\5\6"))
        size = int.from_bytes(tail[end + 12 : end + 16], "little")
        if tail[max(0, end - 20) :].startswith(b"PK\6\7"):  # zip64, of more than 4 GiB
            file.seek(int.from_bytes(tail[end - 12 : end - 4], "little") + 40)
            size = int.from_bytes(file.read(8), "little")
    if LARGEST_DIRECTORY < size <= path.stat().st_size:  # beyond that it is damaged
        what = f"its list of members has {size:,} bytes, where {LARGEST_DIRECTORY:,} are allowed"
        raise refused(path, f"over-large: {what}")


def read_json(path: Path, archive: zipfile.ZipFile | None = None, name: str = "") -> Any:
    """Reads JSON, unless it is too long or would take too much memory."""
    what = name or "JSON"
    size = archive.getinfo(name).file_size if archive else path.stat().st_size
    over = f"{size:,} bytes and may have {LARGEST_JSON:,} bytes" if size > LARGEST_JSON else ""
    if not over:
        content = archive.read(name) if archive else path.read_bytes()
        brackets = content.count(b"[") + content.count(b"{")
        if brackets <= MOST_BRACKETS:
            return json.loads(content)
        over = f"{brackets:,} brackets and may have {MOST_BRACKETS:,}"
    raise refused(path, f"over-large: its {what} has {over}")


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuses names that stand twice or lead out of the file."""
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise refused(path, f"ambiguous: it holds {some(twice)} more than once")
    outside = [name for name in names if leads_outside(name)]
    if outside:
        raise refused(path, f"suspect: the name {outside[0]!r} leads out of it")


def leads_outside(name: str) -> bool:
    """Tells whether a name, taken as a path, would lead out of its folder."""
    return name.startswith("/") or "\\" in name or ".." in name.split("/")


def check_size(path: Path, declared: int) -> None:
    """Refuses a file that declares more than a file of its size can sensibly hold."""
    limit = min(LARGEST, ALLOWANCE + MOST_GAIN * path.stat().st_size)
    if declared > limit:
        what = f"it declares {declared:,} bytes, where a file of its size may hold {limit:,}"
        raise refused(path, f"over-large: {what}")


def check_numbers(path: Path, dtypes: Mapping[str, np.dtype]) -> None:
    """Refuses a file with anything but integers and floats."""
    others = [f"{name} of {dtype}" for name, dtype in dtypes.items() if dtype.kind not in "fiu"]
    if others:
        raise refused(path, f"not made of numbers: it holds {some(others)}")


def plain(name: str, tensor: np.ndarray) -> np.ndarray:
    """Returns a tensor as it is stored: C-contiguous and little endian."""
    if not name or leads_outside(name):
        raise ValueError(
            "`tensors` must have names that are not empty, absolute or climbing. "
            f"Received: {name!r}"
        )
    array = np.asarray(tensor)
    if array.dtype.kind not in "fiu" or array.itemsize > 8:
        raise ValueError(
            "`tensors` must be integers, float16, float32 or float64. "
            f"Received: {name} of {array.dtype}. Convert it, as bfloat16 to float32."
        )
    return array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)


def some(names: Sequence[str]) -> str:
    """Returns the first few names as text, for messages."""
    return ", ".join([*names[:5], *(["..."] if len(names) > 5 else [])])
