"""Files of the weights that a run with LoRA trained: low-rank updates and all other ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_vit import arguments
from keras_vit.models.lora import FACTORS
from keras_vit.weights.containers.npz import read_npz, write_npz


def save_adapter(
    model: keras.Model, path: str | os.PathLike[str], values: Mapping[int, Any] | None = None
) -> None:
    """Writes the trained weights of a model with LoRA to an .npz file; see `merged_weights`."""
    trained = {v.path: (values or {}).get(id(v), v) for v in model.trainable_variables}
    write_npz(path, {name: keras.ops.convert_to_numpy(value) for name, value in trained.items()})


def load_adapter(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Adds the low-rank updates in a file to the kernels of a model, and sets the other weights.

    A run with `lora_rank` writes the file `adapter.npz`, which is much smaller than the model.

    Args:
        model: A model with the weights that the run started from, and as many classes.
        path: The file.

    Raises:
        ValueError: If the file is not an adapter of such a model.

    Examples:
        >>> from keras_vit.models.lora import enable_lora
        >>> from keras_vit.zoo import ViTMicro4
        >>> settings = {"weights": None, "classes": 3, "input_shape": (8, 8, 3)}
        >>> model = ViTMicro4(**settings)
        >>> enable_lora(model, rank=2)
        >>> save_adapter(model, "adapter.npz")
        >>> load_adapter(ViTMicro4(**settings), "adapter.npz")
    """
    tensors = read_npz(Path(path))
    variables = {variable.path: variable for variable in model.weights}
    new_weights = {n: t for n, t in tensors.items() if n.rpartition("/")[2] not in FACTORS}
    layers = {n.rpartition("/")[0] for n in tensors.keys() - new_weights.keys()}
    updates = {
        f"{n}/kernel": tensors[f"{n}/{FACTORS[0]}"] @ tensors[f"{n}/{FACTORS[1]}"] for n in layers
    }
    changes = new_weights | updates
    misfits = [n for n, t in changes.items() if n not in variables or variables[n].shape != t.shape]
    if misfits or not changes:
        raise ValueError(
            "`path` must be the adapter of a model of this architecture, image size and number of "
            f"classes. Received: {path} with {arguments.shortlist(misfits) or 'no weights'}"
        )
    for name, tensor in changes.items():
        variable = variables[name]
        variable.assign(variable + tensor if name in updates else tensor)
