"""Detection of the format of a weight file."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from keras_vit.weights.containers import h5, safetensors
from keras_vit.weights.containers.guards import open_zip, reading, refused

_ZIP_MAGIC = b"PK\x03\x04"
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_PICKLE_MAGICS = tuple(bytes([0x80, protocol]) for protocol in (2, 3, 4, 5))


def format_of(path: Path) -> str:
    """Returns the format of a weight file, detected from its content.

    Args:
        path: An existing file; its suffix does not matter.

    Returns:
        `"npz"`; `"safetensors"`, also for the index of a sharded model; `"h5"` for Keras 3 and
        `"legacy_h5"` for any other HDF5 file; `"keras"`; or `"torch"`.

    Raises:
        ValueError: If the file is missing, damaged, or of another format.

    Examples:
        >>> import numpy as np
        >>> np.savez("weights.npz", cls=np.zeros(3))
        >>> format_of(Path("weights.npz"))
        'npz'
    """
    with reading(path), path.open("rb") as file:
        head = file.read(16)
    if head.startswith(_HDF5_MAGIC):
        return h5.kind_of(path)
    if safetensors.is_safetensors(head):
        return "safetensors"
    if head.lstrip().startswith(b"{"):
        safetensors.read_index(path)
        return "safetensors"
    names: list[str] = []
    if head.startswith(_ZIP_MAGIC):
        with open_zip(path) as archive:
            names = archive.namelist()
    if "model.weights.h5" in names:
        return "keras"
    in_zip = any(PurePosixPath(name).name == "data.pkl" for name in names)
    if in_zip or head.startswith(_PICKLE_MAGICS):
        return "torch"
    if any(name.endswith(".npy") for name in names):
        return "npz"
    what = "not an .npz, .weights.h5, .keras, .safetensors, .h5 or .pth file"
    raise refused(path, what, again=True)  # for example an error page, or an empty file
