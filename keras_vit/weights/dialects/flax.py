"""The dialect of the official code: names and layouts of its .npz files.

Letters: P, Q patch height and width; C channels; D hidden size; K heads; d = D / K; M width of
the perceptron; T positions; R representation size; F inputs and Y outputs of the classifier.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np

from keras_vit.preprocessing import Preprocessing, imagenet_labels
from keras_vit.weights.checkpoint import Checkpoint, traits_of

# What the official code computes with; the files do not tell. See `MlpBlock` and flax's
# LayerNorm in https://github.com/google-research/vision_transformer (vit_jax/models_vit.py).
NUMERICS = {"gelu": "tanh", "epsilon": 1e-6}

_ATTENTION = "MultiHeadDotProductAttention_1"
_QKV = ("query", "key", "value")
_TABLE = "Transformer/posembed_input/pos_embedding"

# Their name: shape, and our name where the tensor is taken over as it is.
_TOP = {
    "embedding/kernel": ("PQCD", None),
    "embedding/bias": ("D", "patch_encoder/projection/bias"),
    "cls": ("11D", "patch_encoder/class_token"),
    _TABLE: ("1TD", None),
    "Transformer/encoder_norm/scale": ("D", "encoder_norm/gamma"),
    "Transformer/encoder_norm/bias": ("D", "encoder_norm/beta"),
    "pre_logits/kernel": ("DR", "pre_logits/kernel"),
    "pre_logits/bias": ("R", "pre_logits/bias"),
    "head/kernel": ("FY", "head/kernel"),
    "head/bias": ("Y", "head/bias"),
}
_BLOCK = {
    "LayerNorm_0/scale": ("D", "norm_1/gamma"),
    "LayerNorm_0/bias": ("D", "norm_1/beta"),
    **{f"{_ATTENTION}/{part}/kernel": ("DKd", None) for part in _QKV},
    **{f"{_ATTENTION}/{part}/bias": ("Kd", None) for part in _QKV},
    f"{_ATTENTION}/out/kernel": ("KdD", None),
    f"{_ATTENTION}/out/bias": ("D", "attention/out/bias"),
    "LayerNorm_2/scale": ("D", "norm_2/gamma"),
    "LayerNorm_2/bias": ("D", "norm_2/beta"),
    "MlpBlock_3/Dense_0/kernel": ("DM", "mlp/expand/kernel"),
    "MlpBlock_3/Dense_0/bias": ("M", "mlp/expand/bias"),
    "MlpBlock_3/Dense_1/kernel": ("MD", "mlp/reduce/kernel"),
    "MlpBlock_3/Dense_1/bias": ("D", "mlp/reduce/bias"),
}
# What a model may do without, each group as a whole.
_OPTIONAL = (
    {"cls"},
    {_TABLE},
    {"pre_logits/kernel", "pre_logits/bias"},
    {"head/kernel", "head/bias"},
)

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
        ValueError: If tensors are missing, of a shape that contradicts the others, or such as
            no plain Vision Transformer has; all are named.

    Example:
        >>> read({}, "empty.npz")
        Traceback (most recent call last):
        ...
        ValueError: empty.npz is not a complete official Vision Transformer...

    Reference: https://github.com/google-research/vision_transformer (vit_jax/checkpoint.py)
    """
    originals = {_published_name(name, tensors): name for name in tensors}
    named = {name: tensors[original] for name, original in originals.items()}
    blocks = sorted({int(m[1]) for name in named if (m := _BLOCK_PREFIX.fullmatch(name))})
    expected = _expected(named, blocks)
    sizes = {"1": 1}
    contradicting = [
        f"{originals[name]} {named[name].shape}"
        for name, (letters, _) in expected.items()
        if name in named and not _bind(sizes, letters, named[name].shape)
    ]
    missing = sorted(expected.keys() - named.keys())
    unknown = sorted(originals[name] for name in named.keys() - expected.keys())
    if missing or unknown or contradicting:
        raise ValueError(
            f"{source} is not a complete official Vision Transformer checkpoint. "
            f"Missing: {', '.join(missing) or 'nothing'}. "
            f"Not understood: {', '.join(unknown) or 'nothing'}. "
            f"Of a shape that does not fit the others: {', '.join(contradicting) or 'nothing'}."
        )

    found = {ours: named[theirs] for theirs, (_, ours) in expected.items() if ours}
    kernel = named["embedding/kernel"]  # (P, Q, C, D)
    found["patch_encoder/projection/kernel"] = kernel.reshape(-1, sizes["D"])  # (PQC, D)
    if _TABLE in named:
        table = named[_TABLE][0]  # (T, D)
        if "cls" in named:
            found["patch_encoder/class_position"] = table[None, :1]  # (1, 1, D)
            table = table[1:]
        found["patch_encoder/position"] = table  # (N, D)
    for index in blocks:
        theirs = f"Transformer/encoderblock_{index}/{_ATTENTION}"
        ours = f"block_{index:02d}/attention"
        kernels = [named[f"{theirs}/{part}/kernel"].reshape(sizes["D"], -1) for part in _QKV]
        biases = [named[f"{theirs}/{part}/bias"].reshape(-1) for part in _QKV]
        found[f"{ours}/qkv/kernel"] = np.concatenate(kernels, axis=1)  # (D, 3D)
        found[f"{ours}/qkv/bias"] = np.concatenate(biases)  # (3D,)
        found[f"{ours}/out/kernel"] = named[f"{theirs}/out/kernel"].reshape(-1, sizes["D"])
    traits = traits_of(found) | {
        "patch_size": (sizes["P"], sizes["Q"]),
        "channels": sizes["C"],
        "num_heads": sizes["K"],
        **NUMERICS,
    }
    traits.setdefault("position_embedding", "none")
    return Checkpoint(source, found, traits, _preprocessing(traits))


def _preprocessing(traits: dict[str, Any]) -> Preprocessing:
    """Returns how timm evaluates these files (crop 0.9, bicubic), with ImageNet's labels."""
    labels = imagenet_labels()
    return Preprocessing(
        crop_fraction=0.9,
        interpolation="bicubic",
        channels="grayscale" if traits["channels"] == 1 else "rgb",
        labels=labels if traits["classes"] == len(labels) else None,
    )


def _expected(named: dict[str, np.ndarray], blocks: list[int]) -> dict[str, tuple[str, str | None]]:
    """Returns shape and our name of every tensor that a file with these ones must hold."""
    expected = dict(_TOP)
    for group in _OPTIONAL:
        if not group & named.keys():
            expected = {name: row for name, row in expected.items() if name not in group}
    for index in blocks or [0]:
        for theirs, (letters, ours) in _BLOCK.items():
            name = f"block_{index:02d}/{ours}" if ours else None
            expected[f"Transformer/encoderblock_{index}/{theirs}"] = (letters, name)
    return expected


def _bind(sizes: dict[str, int], letters: str, shape: tuple[int, ...]) -> bool:
    """Tells whether a shape agrees with the sizes known so far, and learns new ones from it."""
    return len(letters) == len(shape) and all(
        sizes.setdefault(letter, side) == side for letter, side in zip(letters, shape, strict=True)
    )


def _published_name(name: str, names: Collection[str]) -> str:
    match = _BLOCK_PREFIX.fullmatch(name)
    if not match:
        return name
    module = _NEW_TO_PUBLISHED.get(match[2], match[2])
    published = f"Transformer/encoderblock_{match[1]}/{module}/{match[3]}"
    return name if published in names else published  # both in one file: one is left over
