"""Reading of HDF5 weight files from Keras 3 (`.weights.h5`), Keras 2 and transformers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from keras_vit.weights.containers.guards import check_numbers, check_size, reading, refused


def kind_of(path: Path) -> str:
    """Returns `"h5"` for a Keras 3 weight file and `"legacy_h5"` for any other HDF5 file."""
    with reading(path), h5py.File(path) as file:
        # Keras 2 lists its layers in an attribute.
        is_keras_3 = "layer_names" not in file.attrs and _is_inside(file, "layers")
        return "h5" if is_keras_3 and isinstance(file["layers"], h5py.Group) else "legacy_h5"


def read_h5(path: Path) -> dict[str, np.ndarray]:
    """Reads a `.weights.h5` file written by Keras 3.

    Keras stores each layer in a group named after its class, with the layer's own name in an
    attribute. Variables are stored by index, unless the layer names them.

    Args:
        path: The file.

    Returns:
        Arrays by the names of the layers and the index or name of the variable in its layer, for
        example `"block_00/attention/qkv/0"`.

    Raises:
        ValueError: If the file is damaged, links to other files, or was not written by
            `save_weights`.

    Examples:
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="head")])
        >>> model.save_weights("m.weights.h5")
        >>> {name: array.shape for name, array in read_h5(Path("m.weights.h5")).items()}
        {'head/0': (3, 2), 'head/1': (2,)}
    """
    arrays: dict[str, np.ndarray] = {}

    def visit(group: h5py.Group, layer: str) -> None:
        stored = group.get("vars")
        if stored is not None and "name" in stored.attrs and group.name not in ("/", "/layers"):
            layer = f"{layer}/{stored.attrs['name']}".lstrip("/")
            for key, dataset in stored.items():
                arrays[f"{layer}/{key}"] = _array(dataset)
        for name, child in group.items():
            if name != "vars" and isinstance(child, h5py.Group):
                visit(child, layer)

    with _self_contained(path) as (file, _):
        if "layers" in file:
            visit(file["layers"], "")
    if not arrays:
        raise refused(path, "not a .weights.h5 file written by `model.save_weights`")
    return arrays


def read_legacy_h5(path: Path) -> dict[str, np.ndarray]:
    """Reads any HDF5 file, for example one from Keras 2 or transformers' `tf_model.h5`.

    Args:
        path: The file.

    Returns:
        Arrays by full path in the file, for example `"dense/dense/kernel:0"`.

    Raises:
        ValueError: If the file is damaged, links to other files, declares more bytes than it can
            contain, or contains non-numeric data.

    Examples:
        >>> with h5py.File("old.h5", "w") as file:
        ...     file["dense/kernel:0"] = np.zeros((3, 2))
        >>> read_legacy_h5(Path("old.h5"))["dense/kernel:0"].shape
        (3, 2)
    """
    with _self_contained(path) as (_, datasets):
        return {name: _array(dataset) for name, dataset in datasets.items()}


@contextlib.contextmanager
def _self_contained(path: Path) -> Iterator[tuple[h5py.File, dict[str, h5py.Dataset]]]:
    """Opens a file after checking that it contains only numeric datasets and no links."""
    with reading(path), h5py.File(path) as file:
        datasets = dict(_datasets(path, file, {_address(file)}))
        check_numbers(path, {name: _dtype(dataset) for name, dataset in datasets.items()})
        check_size(path, sum(map(_declared_size, datasets.values())))
        yield file, datasets


def _datasets(path: Path, group: h5py.Group, seen: set[int]) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yields all datasets with their names; unlike HDF5's own traversal, rejects cycles."""
    for name in group:
        entry = f"{group.name}/{name}".lstrip("/")
        # Links are not resolved: HDF5 would open the linked file or path.
        if not _is_inside(group, name):
            raise refused(path, f"not self-contained: {entry} is a link")
        child = group[name]
        if _address(child) in seen:  # a loop, or a tree that doubles at every level
            raise refused(path, f"ambiguous: {entry} is stored under several names")
        seen.add(_address(child))
        if isinstance(child, h5py.Group):
            yield from _datasets(path, child, seen)
            continue
        if not isinstance(child, h5py.Dataset):
            raise refused(path, f"not made of plain arrays: it contains {entry}")
        if child.is_virtual or child.external:
            raise refused(path, f"not self-contained: {entry} lies in another file")
        # The output of a filter need not have the declared size.
        if child.id.get_create_plist().get_nfilters():
            raise refused(path, f"compressed, unlike Keras files: store {entry} without filters")
        yield entry, child


def _is_inside(group: h5py.Group, name: str) -> bool:
    return isinstance(group.get(name, getlink=True), h5py.HardLink)


def _address(item: h5py.HLObject) -> int:
    return h5py.h5o.get_info(item.id).addr


def _dtype(dataset: h5py.Dataset) -> np.dtype:
    """Returns the dtype of a dataset as read; bfloat16, which HDF5 lacks, becomes float32."""
    half = dataset.dtype == "V2" and dataset.attrs.get("dtype") == "bfloat16"
    return np.dtype("float32") if half else dataset.dtype


def _array(dataset: h5py.Dataset) -> np.ndarray:
    array = np.asarray(dataset)
    dtype = _dtype(dataset)
    return array if array.dtype == dtype else array.view("bfloat16").astype(dtype)


def _declared_size(dataset: h5py.Dataset) -> int:
    """Returns the bytes needed to read a dataset, whose chunks may be larger than its data."""
    return max(dataset.size, math.prod(dataset.chunks or ())) * dataset.dtype.itemsize
