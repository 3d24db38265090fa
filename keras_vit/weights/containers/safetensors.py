"""Reading and writing of safetensors files; sharded checkpoints can be read as well."""

from __future__ import annotations

import collections
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from keras_vit.arguments import shortlist
from keras_vit.files import atomic_path, without_repeats
from keras_vit.weights.containers.guards import plain, reading, refused

# Size of the JSON in an index or a header. Both have one short line per tensor, and the largest
# Vision Transformers have about a thousand tensors.
LARGEST_INDEX = 4 * 2**20

_LARGEST_HEADER = 100_000_000  # the format's own limit
_AT_ONCE = 64 * 2**20  # bytes of tensors read from one memory map
_METADATA = "__metadata__"
_NUMBER = re.compile(r"BF16|F(16|32|64)|[IU](8|16|32|64)")
_SHARD = re.compile(r"\w[\w.-]*")


def is_safetensors(head: bytes) -> bool:
    """Returns whether a file begins like a safetensors file, rather than a JSON index."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= _LARGEST_HEADER


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Reads a safetensors file, or all shards of a `.safetensors.index.json` file.

    Args:
        path: The file, or the index; the shards must be in its folder.

    Returns:
        Arrays by name; bfloat16, which NumPy lacks, as float32.

    Raises:
        ValueError: If the file is damaged or contains non-numeric data, or a shard is missing, is
            in another folder, or has other tensors than in the index.

    Examples:
        >>> write_safetensors("m.safetensors", {"cls": np.zeros(3, "float16")})
        >>> read_safetensors(Path("m.safetensors"))["cls"].dtype
        dtype('float16')
    """
    with reading(path), path.open("rb") as file:
        head = file.read(9)
    if not head.lstrip().startswith(b"{") or is_safetensors(head):
        return _read_file(path)
    tensors: dict[str, np.ndarray] = {}
    for shard, names in read_index(path).items():
        shard_tensors = _read_file(path.with_name(shard))
        if shard_tensors.keys() != names:
            differing = shortlist(sorted(shard_tensors.keys() ^ names))
            raise refused(path, f"inconsistent with {shard}: different {differing}", again=True)
        tensors |= shard_tensors
    return tensors


def read_metadata(path: Path) -> dict[str, str]:
    """Reads the metadata of a safetensors file without reading its tensors.

    Args:
        path: The file. The index of a sharded model has no metadata.

    Returns:
        The metadata as strings by name, whichever program wrote the file.

    Raises:
        ValueError: If the file is damaged.

    Examples:
        >>> write_safetensors("m.safetensors", {"cls": np.zeros(3)}, {"format": "pt"})
        >>> read_metadata(Path("m.safetensors"))
        {'format': 'pt'}
    """
    with reading(path):
        with path.open("rb") as file:
            if not is_safetensors(file.read(9)):
                return {}
        return dict(_read_header(path).get(_METADATA) or {})


def read_index(path: Path) -> dict[str, set[str]]:
    """Returns the tensor names by shard from the index of a sharded checkpoint."""
    with reading(path):
        if path.stat().st_size > LARGEST_INDEX:
            raise refused(path, f"too large: an index may have at most {LARGEST_INDEX:,} bytes")
        content = json.loads(path.read_bytes(), object_pairs_hook=without_repeats)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise refused(path, "not a safetensors index: it has no `weight_map`")
    shards: dict[str, set[str]] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not _SHARD.fullmatch(shard):
            raise refused(path, f"suspicious: the shard {shard!r} is not a plain file name")
        shards.setdefault(shard, set()).add(name)
    if missing := [shard for shard in shards if not path.with_name(shard).is_file()]:
        raise refused(
            path, f"incomplete: {shortlist(missing)} must be in the same folder", again=True
        )
    return shards


def write_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a safetensors file atomically and deterministically.

    Args:
        path: The file to write.
        tensors: Arrays by name.
        metadata: Strings by name; optional for all readers.

    Raises:
        TypeError: If the metadata contains values other than strings.
        ValueError: If a tensor is not numeric, or its name is not allowed.

    Examples:
        >>> tensors = {"cls": np.zeros(3, "float32")}
        >>> write_safetensors("m.safetensors", tensors, {"format": "pt"})

    Reference: https://github.com/huggingface/safetensors (README.md, "Format")
    """
    # Not with the safetensors package, which writes the metadata in random order.
    if any(not isinstance(text, str) for pair in (metadata or {}).items() for text in pair):
        raise TypeError(f"`metadata` must map strings to strings. Received: metadata={metadata}")
    if _METADATA in tensors:
        raise ValueError(f"`tensors` must not contain the reserved name {_METADATA!r}")
    arrays = {name: plain(name, tensor) for name, tensor in tensors.items()}
    # Wide dtypes first, so that each tensor starts at a multiple of its item size.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {_METADATA: dict(sorted(metadata.items()))} if metadata else {}
    start = 0
    for name in order:
        array = arrays[name]
        header[name] = {
            "dtype": f"{array.dtype.kind.upper()}{8 * array.itemsize}",
            "shape": array.shape,
            "data_offsets": (start, start + array.nbytes),
        }
        start += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(arrays[name].data)


def _read_file(path: Path) -> dict[str, np.ndarray]:
    tensors = {}
    with reading(path):
        header = _read_header(path)
        dtypes = {name: entry["dtype"] for name, entry in header.items() if name != _METADATA}
        if others := [f"{n} ({kind})" for n, kind in dtypes.items() if not _NUMBER.fullmatch(kind)]:
            raise refused(path, f"not numeric: it contains {shortlist(others)}")
        names = collections.deque(dtypes)
        while names:
            # Reopened regularly: the pages of a memory map stay in memory until it is closed.
            with safe_open(path, framework="numpy") as file:
                num_bytes = 0
                while names and num_bytes < _AT_ONCE:
                    name = names.popleft()
                    tensor = file.get_tensor(name)
                    num_bytes += tensor.nbytes
                    is_bfloat16 = tensor.dtype.name == "bfloat16"  # registered by Keras' ml_dtypes
                    tensors[name] = tensor.astype("float32") if is_bfloat16 else tensor
    return tensors


def _read_header(path: Path) -> dict[str, Any]:
    """Reads the header of a file; raises an exception if it is huge, invalid, or repeats a name."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if LARGEST_INDEX < length <= _LARGEST_HEADER:  # larger lengths mean a damaged file
            raise refused(path, f"too large: a header may have at most {LARGEST_INDEX:,} bytes")
        with safe_open(path, framework="numpy"):  # checks the whole header
            return json.loads(file.read(length), object_pairs_hook=without_repeats)
