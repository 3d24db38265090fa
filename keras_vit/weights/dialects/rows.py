"""Builders of table rows for dense layers, norms and groups of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from keras_vit.weights.dialects.dialect import SHORTCUT, Row

Theirs = str | tuple[str, ...]
Names = tuple[str, str]

# Names of the two variables of a layer, and pairs of them for a dense layer and a norm.
TORCH = (".weight", ".bias")
DENSE, NORM = ("/kernel", "/bias"), ("/gamma", "/beta")
NUMBERED = ("/0", "/1")
KERAS = (DENSE, NORM)
ALL_TORCH = (TORCH, TORCH)
ALL_IN_PROJ = (("_weight", "_bias"), TORCH)  # `torch.nn.MultiheadAttention` has no layer for them
ALL_NUMBERED = (NUMBERED, NUMBERED)

QKV = ("query", "key", "value")

# Our layers and variables in the order of a dialect's names, each with its axes (those of a kernel
# in Keras, only D for a norm, 1 first for a variable) and its part, or the part of its bias.
_MLP = {"mlp/expand": "DW", "mlp/reduce": "MD"}
_BIAS = {"attention/qkv": "qkv bias"}
_BLOCK = {"norm_1": "D", "attention/qkv": "DU", "attention/out": "ED", "norm_2": "D"} | _MLP
_POOLING = {"probe": "11D", "query": "DE", "key_value": "DV", "out": "ED", "norm": "D"} | _MLP
_GROUPS = {
    "embedding": {
        "patch_encoder/class_token": ("11D", "class token"),
        "patch_encoder/positions": ("1TD -> TD", "positions"),
        "patch_encoder/projection": ("PQCD -> (PQC)D", "patch bias"),
        "patch_encoder/distillation_token": ("11D", "distillation token"),
        "patch_encoder/register_tokens": ("1GD", "registers"),
        "patch_encoder/mask_token": ("11D", "mask token"),
    },
    "scales": {f"block_{{block}}/scale_{n}/gamma": ("D", "layer scale") for n in (1, 2)},
    "block": {f"block_{{block}}/{n}": (axes, _BIAS.get(n, "")) for n, axes in _BLOCK.items()},
    "pooling": {f"pooling/{name}": (axes, "attention pooling") for name, axes in _POOLING.items()},
    "top": {
        "encoder_norm": ("D", ""),
        "pre_logits": ("DR", "representation"),
        "head": ("FY", "head"),
        "distillation_head": ("FY", "distillation head"),
    },
}
# Parts that are not optional in most libraries.
COMMON_PARTS = ("class token", "positions", "patch bias", "qkv bias")
# Axes of each kernel of a layer that has several kernels in the library.
_SEPARATE_AXES = {"DU": "DE", "DV": "DE", "DW": "DM"}
# Axes of kernel and bias, if heads and head size are separate axes.
_HEADS_APART = {"DE": ("DKd -> D(Kd)", "Kd -> (Kd)"), "ED": ("KdD -> (Kd)D", "D")}


def norm(
    ours: str, theirs: str, variables: Names, part: str = "", axis: str = "D"
) -> tuple[Row, Row]:
    """Returns the table entries of a normalization layer: gamma and beta."""
    return (
        Row(f"{ours}/gamma", theirs + variables[0], axis, part),
        Row(f"{ours}/beta", theirs + variables[1], axis, part),
    )


def stem(
    root: Names, scope: str, unit: Names, shortcut: Names, axes: str, variables: tuple[Names, Names]
) -> Iterator[Row]:
    """Yields the rows of a ResNet stem, given the library's layer names."""
    ours = "stem/block{stage1}_unit{unit1}"
    layers = [("stem/conv_root", "", root, "", "stem")]
    layers += [(f"{ours}/conv{n}", scope, unit, n, "stem") for n in "123"]
    layers += [(f"{ours}/conv_proj", scope, shortcut, "", SHORTCUT)]
    for layer, prefix, (convolution, group_norm), n, part in layers:
        kernel = f"{prefix}{convolution}{n}{variables[0][0]}"
        yield Row(f"{layer}/kernel", kernel, axes, part)
        yield from norm(
            layer.replace("conv", "gn"), f"{prefix}{group_norm}{n}", variables[1], part, "o"
        )


def group(
    kind: str,
    names: Sequence[Theirs],
    variables: tuple[Names, Names] = KERAS,
    *,
    scope: str = "",
    optional: Sequence[str] = (),
    part: str = "",
    key_bias: bool = True,
    heads_apart: bool = False,
) -> Iterator[Row]:
    """Yields the rows of a group of layers; a layer with an empty name is skipped.

    `optional` lists the parts of `COMMON_PARTS` that may be missing in the library's files; `part`
    is the part of all rows. Without `key_bias`, only queries and values may have a bias. In the
    names for PyTorch, `/` stands for `.` as well.
    """
    for (layer, (axes, layer_part)), name in zip(_GROUPS[kind].items(), names, strict=False):
        if not name:
            continue
        theirs = tuple(scope + one for one in ((name,) if isinstance(name, str) else name))
        is_required = layer_part in COMMON_PARTS and layer_part not in optional
        row_part = part or ("" if is_required else layer_part)
        axes = axes if len(theirs) == 1 else _SEPARATE_AXES[axes]
        kernel_axes, bias_axes = axes, axes[-1]
        if variables[1] == TORCH:  # whose weights are (outputs, inputs)
            theirs = tuple(one.replace("/", ".") for one in theirs)
            transposed = f"{axes[::-1]} -> {axes}"
            kernel_axes = axes.replace("PQCD", "DCPQ") if "(" in axes else transposed
        elif heads_apart:
            kernel_axes, bias_axes = _HEADS_APART.get(axes, (kernel_axes, bias_axes))
        if axes.startswith("1") or layer.endswith("gamma"):
            yield Row(layer, theirs[0], axes, row_part)
        elif axes == "D":
            yield from norm(layer, theirs[0], variables[1], row_part)
        else:
            kernel, bias = (tuple(one + variable for one in theirs) for variable in variables[0])
            kernel_part = "" if row_part.endswith("bias") else row_part
            yield Row(f"{layer}/kernel", kernel, kernel_axes, kernel_part)
            if key_bias or not layer.endswith("qkv"):
                yield Row(f"{layer}/bias", bias, bias_axes, row_part)
            else:
                ours = layer.replace("qkv", "query_value_bias")
                yield Row(ours, bias[::2], "D", part or "query and value bias")
