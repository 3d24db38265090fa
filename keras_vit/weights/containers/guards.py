"""Safety checks for untrusted weight files, and for tensors before writing.

Names and declared sizes are checked before any allocation, and every defect of a file raises a
`ValueError`.
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

from keras_vit.arguments import shortlist

# Twice ViT-G/14, the largest model of the family: 1.84e9 weights, 7.4 GB in float32.
MAX_BYTES = 16 * 2**30
# Trained weights compress by a tenth, and by about half if rounded. Zeros compress a
# thousandfold, so a small file may be all zeros: 64 MiB of zeros are harmless.
MAX_COMPRESSION_RATIO = 8
ALLOWANCE_BYTES = 64 * 2**20
# JSON configuration of a model. Measured: ViT-B/16 16 kB; the 21,843 class names of ImageNet-21k in
# the two tables of a Hugging Face config.json 3.5 MB. Each bracket becomes an object of about a
# hundred bytes: NASNetLarge, with a thousand layers, has 20,000.
MAX_JSON_BYTES = 16 * 2**20
MAX_JSON_BRACKETS = 250_000
# A thousand members take 100 kB; zipfile allocates half a kilobyte for each.
MAX_DIRECTORY_BYTES = 4 * 2**20


class WeightFileError(ValueError):
    """Raised for a weight file that cannot be read, or that is unsafe to read."""


def refused(path: Path, what: str, *, again: bool = False) -> WeightFileError:
    """Returns the exception to raise for a rejected weight file."""
    remedy = " Download or save the file again." if again else ""
    return WeightFileError(f"The weight file {path} is {what}.{remedy}")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Converts parser exceptions in a `with` block to a `ValueError` about a damaged file."""
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
    """Opens a zip file after checking its directory, without decompressing any member."""
    with reading(path):
        _check_directory(path)
    with reading(path), zipfile.ZipFile(path) as archive:
        check_names(path, archive.namelist())
        check_size(path, sum(member.file_size for member in archive.infolist()))
        yield archive


def _check_directory(path: Path) -> None:
    """Raises `ValueError` for a huge list of zip members, before zipfile reads it."""
    with path.open("rb") as file:
        # The function of zipfile itself: a second parser could find another list.
        record = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    size = record[zipfile._ECD_SIZE] if record else 0  # type: ignore[attr-defined]
    if MAX_DIRECTORY_BYTES < size <= path.stat().st_size:  # larger sizes mean a damaged file
        what = f"its list of members has {size:,} bytes (limit: {MAX_DIRECTORY_BYTES:,})"
        raise refused(path, f"too large: {what}")


def read_json(path: Path, archive: zipfile.ZipFile | None = None, name: str = "") -> Any:
    """Reads JSON; raises `ValueError` if parsing it would take too much memory."""
    what = name or "JSON"
    size = archive.getinfo(name).file_size if archive else path.stat().st_size
    excess = f"{size:,} bytes (limit: {MAX_JSON_BYTES:,})" if size > MAX_JSON_BYTES else ""
    if not excess:
        content = archive.read(name) if archive else path.read_bytes()
        brackets = content.count(b"[") + content.count(b"{")
        if brackets <= MAX_JSON_BRACKETS:
            return json.loads(content)
        excess = f"{brackets:,} brackets (limit: {MAX_JSON_BRACKETS:,})"
    raise refused(path, f"too large: its {what} has {excess}")


def check_names(path: Path, names: Sequence[str]) -> None:
    """Raises `ValueError` for duplicate names and for names that point outside the file."""
    if duplicates := [name for name, count in collections.Counter(names).items() if count > 1]:
        raise refused(path, f"ambiguous: it contains {shortlist(duplicates)} more than once")
    if outside := [name for name in names if leads_outside(name)]:
        raise refused(path, f"suspicious: the name {outside[0]!r} points outside the file")


def leads_outside(name: str) -> bool:
    """Returns whether a name, interpreted as a path, points outside its folder."""
    return name.startswith("/") or "\\" in name or ".." in name.split("/")


def check_size(path: Path, declared: int) -> None:
    """Raises `ValueError` if a file declares implausibly many bytes for its size."""
    limit = min(MAX_BYTES, ALLOWANCE_BYTES + MAX_COMPRESSION_RATIO * path.stat().st_size)
    if declared > limit:
        what = f"it declares {declared:,} bytes (limit for a file of this size: {limit:,})"
        raise refused(path, f"too large: {what}")


def check_numbers(path: Path, dtypes: Mapping[str, np.dtype]) -> None:
    """Raises `ValueError` if any tensor has a dtype other than integer or float."""
    if others := [f"{name} ({dtype})" for name, dtype in dtypes.items() if dtype.kind not in "fiu"]:
        raise refused(path, f"not numeric: it contains {shortlist(others)}")


def plain(name: str, tensor: np.ndarray) -> np.ndarray:
    """Returns a tensor in the form in which it is stored: C-contiguous and little-endian."""
    if not name or leads_outside(name):
        raise ValueError(
            "`tensors` must have non-empty names without a leading `/`, without `..` and "
            f"without backslashes. Received: {name!r}"
        )
    array = np.asarray(tensor)
    if array.dtype.kind not in "fiu" or array.itemsize > 8:
        raise ValueError(
            f"`tensors` must be integers, float16, float32 or float64. Received: {name} with "
            f"dtype {array.dtype}. Convert the tensor first, for example bfloat16 to float32."
        )
    return array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
