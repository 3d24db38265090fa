"""Rows of dense layers, norms and groups of them, which most dialects write alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from keras_vit.weights.dialects.dialect import SHORTCUT, Row

Theirs = str | tuple[str, ...]
Names = tuple[str, str]

# Names of the two variables of a layer; in pairs, those of a dense layer and of a norm.
TORCH = (".weight", ".bias")
DENSE, NORM = ("/kernel", "/bias"), ("/gamma", "/beta")
NUMBERED = ("/0", "/1")
KERAS, ALL_TORCH, ALL_NUMBERED = (DENSE, NORM), (TORCH, TORCH), (NUMBERED, NUMBERED)

QKV = ("query", "key", "value")

# Our layers in the order in which a dialect lists its names of them; the axes of their kernels in
# Keras, D alone for a norm; and their part.
_MLP = {"mlp/expand": "DM", "mlp/reduce": "MD"}
_BLOCK = {"norm_1": "D", "attention/qkv": "DU", "attention/out": "ED", "norm_2": "D"} | _MLP
_POOLING = {"probe": "11D", "query": "DE", "key_value": "DV", "out": "ED", "norm": "D"} | _MLP
_GROUPS = {
    "block": {f"block_{{block}}/{layer}": (axes, "") for layer, axes in _BLOCK.items()},
    "pooling": {
        f"pooling/{layer}": (axes, "attention pooling") for layer, axes in _POOLING.items()
    },
    "heads": {
        "pre_logits": ("DR", "representation"),
        "head": ("FY", "head"),
        "distillation_head": ("FY", "distillation head"),
    },
}
# Axes of the kernel, or of both, where heads and their size are axes of their own.
_HEADS_APART: dict[str, str | tuple[str, str]] = {
    "DE": ("DKd -> D(Kd)", "Kd -> (Kd)"),
    "ED": "KdD -> (Kd)D",
}


def dense(
    ours: str,
    theirs: Theirs,
    axes: str | tuple[str, str],
    part: str = "",
    bias_part: str = "",
    variables: Names = DENSE,
) -> tuple[Row, Row]:
    """Returns the rows of a dense layer of Keras; `axes` are those of the kernel, or of both."""
    layers = (theirs,) if isinstance(theirs, str) else theirs
    kernel, bias = (axes, axes[-1]) if isinstance(axes, str) else axes
    kernels, biases = (tuple(layer + name for layer in layers) for name in variables)
    return (
        Row(f"{ours}/kernel", kernels, kernel, part),
        Row(f"{ours}/bias", biases, bias, bias_part or part),
    )


def linear(
    ours: str, theirs: Theirs, axes: str, part: str = "", bias_part: str = ""
) -> tuple[Row, Row]:
    """Returns the rows of a dense layer of PyTorch, whose weight is (outputs, inputs)."""
    outputs, inputs = axes[0], axes[1]
    both = (f"{axes} -> {inputs}{outputs}", outputs)
    return dense(ours, theirs, both, part, bias_part, variables=TORCH)


def norm(
    ours: str, theirs: str, variables: Names, part: str = "", axis: str = "D"
) -> tuple[Row, Row]:
    """Returns the rows of a norm, scale and offset."""
    return (
        Row(f"{ours}/gamma", theirs + variables[0], axis, part),
        Row(f"{ours}/beta", theirs + variables[1], axis, part),
    )


def stem(
    root: Names, scope: str, unit: Names, shortcut: Names, axes: str, variables: tuple[Names, Names]
) -> Iterator[Row]:
    """Yields the rows of a ResNet, from their names of a convolution and its group norm each."""
    ours = "stem/block{stage1}_unit{unit1}"
    layers = [("stem/conv_root", "", root, "", "stem")]
    layers += [(f"{ours}/conv{n}", scope, unit, n, "stem") for n in "123"]
    layers += [(f"{ours}/conv_proj", scope, shortcut, "", SHORTCUT)]
    for layer, before, (convolution, group_norm), n, part in layers:
        kernel = f"{before}{convolution}{n}{variables[0][0]}"
        yield Row(f"{layer}/kernel", kernel, axes, part)
        yield from norm(
            layer.replace("conv", "gn"), f"{before}{group_norm}{n}", variables[1], part, "o"
        )


def group(
    kind: str,
    names: Sequence[Theirs],
    variables: tuple[Names, Names] = KERAS,
    *,
    scope: str = "",
    bias_part: str = "",
    heads_apart: bool = False,
) -> Iterator[Row]:
    """Yields the rows of several layers; `bias_part` is that of queries, keys and values."""
    for (layer, (axes, part)), name in zip(_GROUPS[kind].items(), names, strict=False):
        theirs = tuple(scope + one for one in ((name,) if isinstance(name, str) else name))
        bias = bias_part if layer.endswith("/qkv") else ""
        axes = axes if len(theirs) == 1 else "DE"  # of each of those that stand side by side
        if axes == "11D":
            yield Row(layer, theirs[0], axes, part)
        elif axes == "D":
            yield from norm(layer, theirs[0], variables[1], part)
        elif variables[0] == TORCH:
            yield from linear(layer, theirs, axes[::-1], part, bias)
        else:
            apart = _HEADS_APART.get(axes, axes) if heads_apart else axes
            yield from dense(layer, theirs, apart, part, bias, variables[0])
