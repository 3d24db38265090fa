"""PyTorch's own files (.pth, .pt, .bin): pickles, which only its restricted reader may touch."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.weights.containers import guards

# Before, a crafted file could run code in spite of `weights_only`: CVE-2025-32434 up to 2.5,
# CVE-2026-24747 up to 2.9.
_SAFE = (2, 10)
_WRAPPERS = ("teacher", "state_dict", "model")  # DINO, many, DeiT and MAE

_CONVERT = """
    import torch, safetensors.torch
    tensors = torch.load({path!r}, weights_only=True, map_location="cpu")
    for name in {wrappers!r}:
        tensors = tensors[name] if isinstance(tensors.get(name), dict) else tensors
    safetensors.torch.save_file(tensors, {target!r})"""


def read_torch(path: Path) -> dict[str, np.ndarray]:
    """Reads a file that `torch.save` wrote, if PyTorch is installed; no code in it runs.

    Args:
        path: The file: tensors by name, or these under "model", "state_dict" or "teacher".

    Returns:
        Arrays by name; those of bfloat16, which NumPy lacks, as float32.

    Raises:
        ValueError: If PyTorch is missing or too old to read files of strangers, with what to
            do instead; or if the file is damaged or holds more than tensors.

    Example:
        >>> read_torch(Path("nowhere.pth"))
        Traceback (most recent call last):
        ...
        ValueError: `weights` must be None or the path of an existing ...
    """
    with guards.reading(path), path.open("rb") as file:
        is_zip = file.read(4) == b"PK\x03\x04"  # as PyTorch decides, so that both read the same
    torch = need_torch(path)
    if is_zip:
        with guards.open_zip(path):
            pass  # its directory is sound
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # PyTorch's own message advises to load with `weights_only=False`
        raise guards.refused(
            path,
            "damaged, or more than tensors: PyTorch refuses it with `weights_only=True`",
            again=True,
        ) from error
    with guards.reading(path):
        return _arrays(path, content, torch)


def need_torch(path: Path) -> Any:
    """Returns PyTorch, which is no requirement of this package.

    Args:
        path: The file that is to be read, which need not be there yet, for the message.

    Returns:
        The module `torch`.

    Raises:
        ValueError: If it is missing or too old to read files of strangers, with what to do
            instead.

    Example:
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
            f"PyTorch must be {safe}: in earlier ones a file can run code "
            f"while it is read. Received: torch {torch.__version__}. Install a later one, or "
            f"convert the file where there is one:{convert}"
        )
    return torch


def _arrays(path: Path, content: Any, torch: Any) -> dict[str, np.ndarray]:
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict):
        raise guards.refused(path, f"not a dictionary of tensors but of {type(content).__name__}")
    others = [str(name) for name, item in content.items() if not isinstance(item, torch.Tensor)]
    if others:
        raise guards.refused(path, f"not made of tensors: it holds {guards.some(others)}")
    # A tensor may repeat one stored number without end.
    guards.check_size(path, sum(item.numel() * item.element_size() for item in content.values()))
    tensors = {str(name): item.detach() for name, item in content.items()}
    arrays = {
        name: (item.float() if item.dtype == torch.bfloat16 else item).numpy()
        for name, item in tensors.items()
    }
    guards.check_numbers(path, {name: array.dtype for name, array in arrays.items()})
    return arrays
