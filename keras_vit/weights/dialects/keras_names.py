"""Normalization of the variable names in Keras HDF5 files.

Keras 2 repeats the name of a layer (`head/head/kernel:0`), and stores a full model under
`model_weights/`; Keras 3 numbers the variables of a layer (`head/0`). The name of a nested model
comes first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

Named = dict[str, tuple[str, np.ndarray]]

_OPTIMIZER = "optimizer_weights/"
_BESIDE = "beside the model/"

# Ignored names: the state of the optimizer, and layers around a nested model.
LEFT = (f"{_OPTIMIZER}.*", f"{_BESIDE}.*")


def tidy(
    tensors: Mapping[str, np.ndarray], patterns: Mapping[str, str], anchor: str, head: str
) -> Named:
    """Renames the tensors of a file to match a library's table."""
    known: Named = {}
    unknown: Named = {}
    optimizer: Named = {}
    nested = False
    for name, tensor in tensors.items():
        path = name.removeprefix("model_weights/").removesuffix(":0")
        if path.startswith(_OPTIMIZER):
            optimizer[path] = (name, tensor)
            continue
        matches = ((re.fullmatch(f"(?:.*/)?{old}", path), new) for old, new in patterns.items())
        new = next((match.expand(new) for match, new in matches if match), None)
        if new is None or new in known:  # the same layer of a second model is unknown
            unknown[path] = (name, tensor)
            continue
        known[new] = (name, tensor)
        if new == anchor:
            nested = path.split("/")[0] != anchor.split("/")[0]
    if not any(name.startswith(f"{head}/") for name in known) and (own := _dense(unknown)):
        unknown = {f"{head}/kernel": own[0], f"{head}/bias": own[1]}
    elif nested:
        unknown = {f"{_BESIDE}{path}": entry for path, entry in unknown.items()}
    return known | unknown | optimizer


def _dense(entries: Named) -> tuple[tuple[str, np.ndarray], tuple[str, np.ndarray]] | None:
    """Returns the kernel and bias if `entries` is exactly one dense layer, else None."""
    found = sorted(entries.values(), key=lambda entry: entry[1].ndim)
    layers = {path.rpartition("/")[0] for path in entries}
    lengths = {tensor.shape[-1:] for _, tensor in found}
    if [tensor.ndim for _, tensor in found] == [1, 2] and len(layers) == len(lengths) == 1:
        return found[1], found[0]
    return None
