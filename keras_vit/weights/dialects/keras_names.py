"""Normalization of the variable names in Keras HDF5 files.

Keras 2 repeats the name of a layer (`head/head/kernel:0`), and stores a full model under
`model_weights/`; Keras 3 numbers the variables of a layer (`head/0`). The name of a nested model
comes first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from keras_vit.weights.dialects.dialect import Named

_OPTIMIZER = "optimizer_weights/"
_BESIDE = "beside the model/"

# Patterns of ignored names: the state of the optimizer, and layers beside a nested model.
IGNORED = (f"{_OPTIMIZER}.*", f"{_BESIDE}.*")


def normalize(
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
        new_name = next((match.expand(new) for match, new in matches if match), None)
        if new_name is None or new_name in known:  # the same layer of a second model is unknown
            unknown[path] = (name, tensor)
            continue
        known[new_name] = (name, tensor)
        if new_name == anchor:
            nested = path.split("/")[0] != anchor.split("/")[0]
    if not any(name.startswith(f"{head}/") for name in known) and (dense := _dense(unknown)):
        unknown = {f"{head}/kernel": dense[0], f"{head}/bias": dense[1]}
    elif nested:
        unknown = {f"{_BESIDE}{path}": entry for path, entry in unknown.items()}
    return known | unknown | optimizer


def _dense(entries: Named) -> tuple[tuple[str, np.ndarray], tuple[str, np.ndarray]] | None:
    """Returns the kernel and bias if `entries` is exactly one dense layer, else None."""
    by_rank = sorted(entries.values(), key=lambda entry: entry[1].ndim)
    layers = {path.rpartition("/")[0] for path in entries}
    lengths = {tensor.shape[-1:] for _, tensor in by_rank}
    if [tensor.ndim for _, tensor in by_rank] == [1, 2] and len(layers) == len(lengths) == 1:
        return by_rank[1], by_rank[0]
    return None
