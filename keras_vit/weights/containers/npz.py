"""Reading and writing of NumPy's .npz files, the format of the official ViT weights."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.arguments import shortlist
from keras_vit.files import atomic_path
from keras_vit.weights.containers.guards import check_numbers, open_zip, plain, refused

_SUFFIX = ".npy"
# Compressions that NumPy writes. Others need memory that the zip directory does not declare.
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# NumPy has no bfloat16 and stores that of JAX as two untyped bytes.
_BFLOAT16 = np.dtype("V2")
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Reads an .npz file; pickled objects are rejected.

    Args:
        path: The file.

    Returns:
        Arrays by name; bfloat16 as float32.

    Raises:
        ValueError: If the file is damaged, declares more bytes than it can contain, or contains
            anything except numeric arrays.

    Examples:
        >>> np.savez("weights.npz", cls=np.zeros(3))
        >>> read_npz(Path("weights.npz"))["cls"].shape
        (3,)
    """
    with open_zip(path) as archive:
        members = archive.infolist()
        others = [
            member.filename
            for member in members
            if not member.filename.endswith(_SUFFIX) or member.compress_type not in _COMPRESSIONS
        ]
        if others:
            raise refused(path, f"not made of plain arrays: it contains {shortlist(others)}")
        by_name = {member.filename.removesuffix(_SUFFIX): member for member in members}
        check_numbers(path, {name: _checked_dtype(path, archive, m) for name, m in by_name.items()})
        return {name: _array(archive, member) for name, member in by_name.items()}


def write_npz(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray]) -> None:
    """Writes an .npz file atomically and deterministically.

    Args:
        path: The file to write.
        tensors: Arrays by name, written in this order.

    Raises:
        ValueError: If a tensor is not numeric, or its name leads out of the file.

    Examples:
        >>> write_npz("weights.npz", {"cls": np.zeros(3, "float32")})
        >>> read_npz(Path("weights.npz"))["cls"].dtype
        dtype('float32')
    """
    arrays: dict[str, Any] = {name: plain(name, tensor) for name, tensor in tensors.items()}
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # with the fixed date 1980


def _checked_dtype(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.dtype:
    """Returns the dtype of an array in the zip file, after checking its declared size."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise refused(path, f"not made of plain arrays: {member.filename} is of {version=}")
        shape, _, dtype = _HEADERS[version](file)
        declared = file.tell() + math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and (declared != member.file_size or min(shape, default=0) < 0):
        sizes = f"of shape {shape} needs {declared:,} bytes but has {member.file_size:,}"
        raise refused(path, f"truncated or damaged ({member.filename} {sizes})", again=True)
    return np.dtype("float32") if dtype == _BFLOAT16 else dtype


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:  # reopened: after seeking, zipfile skips the checksum
        array = np.lib.format.read_array(file, allow_pickle=False)
    return array.view("bfloat16").astype("float32") if array.dtype == _BFLOAT16 else array
