"""Reading weight files as {name: array}; the content decides the format, not the suffix."""

from __future__ import annotations

import zipfile
from pathlib import Path

import h5py
import numpy as np

_ZIP_MAGIC = b"PK\x03\x04"
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


def format_of(path: Path) -> str:
    """Returns the container format of a weight file.

    Args:
        path: An existing file.

    Returns:
        `"npz"`, `"keras"` or `"h5"`.

    Raises:
        ValueError: If the file is missing, damaged, or of another format.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "weights.npz"
        >>> np.savez(path, cls=np.zeros(3))
        >>> format_of(path)
        'npz'
    """
    if not path.is_file():
        raise ValueError(
            "`weights` must be None or the path of an existing .npz, .weights.h5 or .keras file. "
            f"Received: weights={str(path)!r}, which does not exist"
        )
    with path.open("rb") as file:
        magic = file.read(8)
    if magic == _HDF5_MAGIC:
        return "h5"
    if magic.startswith(_ZIP_MAGIC):
        try:
            with zipfile.ZipFile(path) as archive:
                return "keras" if "model.weights.h5" in archive.namelist() else "npz"
        except zipfile.BadZipFile as error:
            raise _damaged(path, "truncated or damaged") from error
    raise _damaged(path, "not an .npz, .weights.h5 or .keras file")


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Reads an .npz file; pickled objects are refused.

    Args:
        path: The file.

    Returns:
        Arrays by name.

    Raises:
        ValueError: If the file is damaged or holds anything but plain arrays.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "weights.npz"
        >>> np.savez(path, cls=np.zeros(3))
        >>> read_npz(path)["cls"].shape
        (3,)
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            tensors = {name: np.asarray(archive[name]) for name in archive.files}
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, KeyError) as error:
        raise _damaged(path, f"damaged or holds more than plain arrays ({error})") from error
    others = [f"{name} of {t.dtype}" for name, t in tensors.items() if t.dtype.kind not in "fiu"]
    if others:
        raise _damaged(path, f"not made of numbers: it holds {', '.join(others)}")
    return tensors


def read_h5(path: Path) -> dict[str, list[np.ndarray]]:
    """Reads a `.weights.h5` file that Keras wrote.

    Keras stores the variables of a layer by number, in folders named after classes; the
    layers' own names stand in attributes.

    Args:
        path: The file.

    Returns:
        Lists of arrays by layer, such as `"block_00/attention/qkv"`, in the layer's order.

    Raises:
        ValueError: If the file is damaged or was not written by `save_weights`.

    Example:
        >>> import keras, tempfile
        >>> path = Path(tempfile.mkdtemp()) / "m.weights.h5"
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="head")])
        >>> model.save_weights(path)
        >>> [array.shape for array in read_h5(path)["head"]]
        [(3, 2), (2,)]
    """
    found: dict[str, list[np.ndarray]] = {}

    def visit(group: h5py.Group, layer: str) -> None:
        stored = group.get("vars")
        if stored is not None and "name" in stored.attrs and group.name not in ("/", "/layers"):
            layer = f"{layer}/{stored.attrs['name']}".lstrip("/")
            if len(stored):
                found[layer] = [np.asarray(stored[str(index)]) for index in range(len(stored))]
        for name, child in group.items():
            if name != "vars" and isinstance(child, h5py.Group):
                visit(child, layer)

    try:
        with h5py.File(path) as file:
            if "layers" in file:
                visit(file["layers"], "")
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise _damaged(path, f"truncated or damaged ({error})") from error
    if not found:
        raise _damaged(path, "not a .weights.h5 file as `model.save_weights` writes it")
    return found


def _damaged(path: Path, what: str) -> ValueError:
    return ValueError(f"The weight file {path} is {what}. Fetch or write it again.")
