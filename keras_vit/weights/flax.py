"""The dialect of the official code: names and layouts of its .npz files.

Letters: P, Q patch height and width; C channels; D hidden size; K heads; d = D / K.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from keras_vit.weights.checkpoint import Checkpoint, traits_of

# What the official code computes with; the files do not tell. See `MlpBlock` and flax's
# LayerNorm in https://github.com/google-research/vision_transformer (vit_jax/models_vit.py).
NUMERICS = {"gelu": "tanh", "epsilon": 1e-6}

_TOP = {
    "Transformer/encoder_norm/scale": "encoder_norm/gamma",
    "Transformer/encoder_norm/bias": "encoder_norm/beta",
    "embedding/bias": "patch_encoder/projection/bias",
    "pre_logits/kernel": "pre_logits/kernel",
    "pre_logits/bias": "pre_logits/bias",
    "head/kernel": "head/kernel",
    "head/bias": "head/bias",
}
_BLOCK = {
    "LayerNorm_0/scale": "norm_1/gamma",
    "LayerNorm_0/bias": "norm_1/beta",
    "MultiHeadDotProductAttention_1/out/bias": "attention/out/bias",
    "LayerNorm_2/scale": "norm_2/gamma",
    "LayerNorm_2/bias": "norm_2/beta",
    "MlpBlock_3/Dense_0/kernel": "mlp/expand/kernel",
    "MlpBlock_3/Dense_0/bias": "mlp/expand/bias",
    "MlpBlock_3/Dense_1/kernel": "mlp/reduce/kernel",
    "MlpBlock_3/Dense_1/bias": "mlp/reduce/bias",
}
_ATTENTION = "MultiHeadDotProductAttention_1"

# Published files count submodules over all classes of a block, today's code per class.
_NEW_TO_PUBLISHED = {
    "MultiHeadDotProductAttention_0": _ATTENTION,
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}
_BLOCK_PREFIX = re.compile(r"Transformer/encoderblock_(\d+)/([^/]+)/(.+)")


def is_flax(names: set[str]) -> bool:
    """Tells whether tensor names are those of an official Vision Transformer file.

    Args:
        names: Names of the tensors in a file.

    Returns:
        Whether the file speaks this dialect.

    Example:
        >>> is_flax({"embedding/kernel", "Transformer/encoder_norm/scale"})
        True
    """
    return {"embedding/kernel", "Transformer/encoder_norm/scale"} <= names


def read(tensors: dict[str, np.ndarray], source: str) -> Checkpoint:
    """Translates the tensors of an official file.

    Both naming generations are understood: the published one, and the one that today's
    official code writes.

    Args:
        tensors: Arrays by their name in the file.
        source: Where they come from, for messages.

    Returns:
        The checkpoint, every tensor of the file used exactly once.

    Raises:
        ValueError: If tensors are missing, or there are some that no plain Vision Transformer
            has; both are named.

    Example:
        >>> read({}, "empty.npz")
        Traceback (most recent call last):
        ...
        ValueError: empty.npz is not a complete official Vision Transformer...

    Reference: https://github.com/google-research/vision_transformer (vit_jax/checkpoint.py)
    """
    left = {_published_name(name): (name, array) for name, array in tensors.items()}
    missing: list[str] = []

    def take(name: str) -> np.ndarray:
        if name in left:
            return left.pop(name)[1]
        missing.append(name)
        return np.zeros((1, 1, 1, 1), "float32")

    found: dict[str, np.ndarray] = {}
    traits: dict[str, Any] = dict(NUMERICS)
    kernel = take("embedding/kernel")  # (P, Q, C, D)
    traits["patch_size"], traits["channels"] = kernel.shape[:2], kernel.shape[2]
    found["patch_encoder/projection/kernel"] = kernel.reshape(-1, kernel.shape[-1])  # (PQC, D)
    optional = {"pre_logits/kernel", "pre_logits/bias", "head/kernel", "head/bias"}
    for theirs, ours in _TOP.items():
        if theirs in left or theirs not in optional:
            found[ours] = take(theirs)
    found |= _positions(left)
    blocks = sorted({int(m[1]) for name in left if (m := _BLOCK_PREFIX.fullmatch(name))})
    for index in blocks:
        prefix = f"Transformer/encoderblock_{index}/"
        for theirs, ours in _BLOCK.items():
            found[f"block_{index:02d}/{ours}"] = take(prefix + theirs)
        qkv = [f"{prefix}{_ATTENTION}/{part}/" for part in ("query", "key", "value")]
        kernels = [take(name + "kernel") for name in qkv]  # (D, K, d) each
        traits["num_heads"] = kernels[0].shape[1]
        attention = f"block_{index:02d}/attention"
        found[f"{attention}/qkv/kernel"] = np.concatenate(
            [kernel.reshape(len(kernel), -1) for kernel in kernels], axis=1
        )  # (D, 3D)
        found[f"{attention}/qkv/bias"] = np.concatenate(
            [take(name + "bias").reshape(-1) for name in qkv]
        )  # (3D,)
        out = take(f"{prefix}{_ATTENTION}/out/kernel")  # (K, d, D)
        found[f"{attention}/out/kernel"] = out.reshape(-1, out.shape[-1])  # (D, D)
    if missing or left:
        unused = sorted(original for original, _ in left.values())
        raise ValueError(
            f"{source} is not a complete official Vision Transformer checkpoint. "
            f"Missing: {', '.join(sorted(missing)) or 'nothing'}. "
            f"Not understood: {', '.join(unused) or 'nothing'}."
        )
    return Checkpoint(source, found, traits_of(found) | traits)


def _positions(left: dict[str, tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Takes class token and position embedding (1, [1 +] N, D) out of `left`."""
    found = {}
    if "cls" in left:
        found["patch_encoder/class_token"] = left.pop("cls")[1]  # (1, 1, D)
    if "Transformer/posembed_input/pos_embedding" in left:
        table = left.pop("Transformer/posembed_input/pos_embedding")[1][0]
        if "patch_encoder/class_token" in found:
            found["patch_encoder/class_position"] = table[None, :1]  # (1, 1, D)
            table = table[1:]
        found["patch_encoder/position"] = table  # (N, D)
    return found


def _published_name(name: str) -> str:
    match = _BLOCK_PREFIX.fullmatch(name)
    if not match:
        return name
    module = _NEW_TO_PUBLISHED.get(match[2], match[2])
    return f"Transformer/encoderblock_{match[1]}/{module}/{match[3]}"
