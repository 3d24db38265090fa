"""Reading of PyTorch checkpoints (.pth, .pt, .bin) with PyTorch's restricted unpickler."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.arguments import shortlist
from keras_vit.weights.containers import guards

# In earlier releases a crafted file could run code despite `weights_only`: CVE-2025-32434 up to
# 2.5, CVE-2026-24747 up to 2.9.
_SAFE = (2, 10)
_WRAPPERS = ("teacher", "state_dict", "model")  # DINO, many, DeiT and MAE

_CONVERT = """
    import torch, safetensors.torch
    tensors = torch.load({path!r}, weights_only=True, map_location="cpu")
    for name in {wrappers!r}:
        tensors = tensors[name] if isinstance(tensors.get(name), dict) else tensors
    safetensors.torch.save_file(tensors, {target!r})"""


def read_torch(path: Path) -> dict[str, np.ndarray]:
    """Reads a PyTorch checkpoint without running code from the file; PyTorch must be installed.

    Args:
        path: The file: a state dict, or one under "model", "state_dict" or "teacher".

    Returns:
        Arrays by name; bfloat16, which NumPy lacks, as float32.

    Raises:
        ValueError: If PyTorch is missing or too old to read untrusted files (the message describes
            the alternative), or if the file is damaged or contains more than tensors.

    Examples:
        >>> read_torch(Path("nowhere.pth"))
        Traceback (most recent call last):
        ...
        ValueError: `weights` must be None or the path of an existing ...
    """
    with guards.reading(path), path.open("rb") as file:
        is_zip = file.read(4) == b"PK\x03\x04"  # the same test as in PyTorch
    torch = need_torch(path)
    if is_zip:
        with guards.open_zip(path):
            pass  # checks the directory
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # PyTorch's own message advises to load with `weights_only=False`
        raise guards.refused(
            path,
            "damaged, or more than tensors: PyTorch cannot load it with `weights_only=True`",
            again=True,
        ) from error
    with guards.reading(path):
        return _arrays(path, content, torch)


def need_torch(path: Path) -> Any:
    """Imports PyTorch, an optional dependency.

    Args:
        path: The file to read, for the message; need not exist yet.

    Returns:
        The module `torch`.

    Raises:
        ValueError: If PyTorch is missing or too old to read untrusted files; the message describes
            the alternative.

    Examples:
        >>> import sys
        >>> from unittest import mock
        >>> with mock.patch.dict(sys.modules, torch=None):
        ...     need_torch(Path("a.pth"))
        Traceback (most recent call last):
        ...
        ValueError: `weights` must be readable without PyTorch, ...
    """
    target = str(path.with_suffix(".safetensors"))
    convert = _CONVERT.format(path=str(path), target=target, wrappers=_WRAPPERS)
    safe = f"{_SAFE[0]}.{_SAFE[1]} or later"
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ValueError(
            f"`weights` must be readable without PyTorch, which is not installed. Received: "
            f"weights={str(path)!r}. Convert the file on any machine that has PyTorch {safe}:"
            f"{convert}"
        ) from error
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _SAFE:
        raise ValueError(
            f"PyTorch must be {safe}: in earlier versions, loading a file can execute code. "
            f"Received: torch {torch.__version__}. Install a later version, or convert the file "
            f"on a machine that has a later version:{convert}"
        )
    return torch


def _arrays(path: Path, content: Any, torch: Any) -> dict[str, np.ndarray]:
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict):
        raise guards.refused(path, f"not a dictionary of tensors: {type(content).__name__}")
    others = [str(name) for name, item in content.items() if not isinstance(item, torch.Tensor)]
    if others:
        raise guards.refused(path, f"not made of tensors: it contains {shortlist(others)}")
    # A tensor of any size may repeat one stored number (stride 0).
    guards.check_size(path, sum(item.numel() * item.element_size() for item in content.values()))
    arrays = {
        str(name): (item.float() if item.dtype == torch.bfloat16 else item).detach().numpy()
        for name, item in content.items()
    }
    guards.check_numbers(path, {name: array.dtype for name, array in arrays.items()})
    return arrays
