"""Rows of dense layers and norms, which most dialects write alike."""

from __future__ import annotations

from keras_vit.weights.dialects.dialect import Row

# Names of the two variables of a layer.
TORCH = (".weight", ".bias")
DENSE, NORM = ("/kernel", "/bias"), ("/gamma", "/beta")
NUMBERED = ("/0", "/1")

Theirs = str | tuple[str, ...]


def dense(
    ours: str,
    theirs: Theirs,
    axes: str | tuple[str, str],
    part: str = "",
    bias_part: str = "",
    variables: tuple[str, str] = DENSE,
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
    ours: str, theirs: str, variables: tuple[str, str], part: str = "", axis: str = "D"
) -> tuple[Row, Row]:
    """Returns the rows of a norm, scale and offset."""
    return (
        Row(f"{ours}/gamma", theirs + variables[0], axis, part),
        Row(f"{ours}/beta", theirs + variables[1], axis, part),
    )
