"""Check for NaN, dead units and exploding values in weights, activations and outputs."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_vit import arguments
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding, Findings
from keras_vit.doctor.layer_outputs import layers_of, watched

# Images of the forward pass in which layers are observed.
_FOLLOWED = 32
# Activations with outputs near zero for negative inputs.
_GATES = ("relu", "relu6", "gelu", "silu", "elu", "selu", "celu", "mish", "hard_silu")
# A unit is dead if its output is below this fraction of its input for every image; a layer with a
# larger fraction of dead units than the second is reported. Some units are always dead: inputs of a
# new layer after a pooling are nearly equal for all images.
_CLOSED, _TOO_MANY = 1e-3, 0.8
# The second is half of the largest float16 value.
_LARGE, _LARGE_IN_HALF = 1e6, 65504 / 2


def check_activations(context: DoctorContext) -> list[Finding]:
    """Checks a model for NaN or infinite values, dead units and exploding activations."""
    found, weights = Findings(), context.model.weights
    broken = [weight.path for weight in weights if not np.isfinite(_float32(weight)).all()]
    if broken:
        found.serious(
            "NaN or infinite weights",
            "Training diverged: return to an earlier checkpoint, lower the learning rate, use "
            "warm-up, gradient clipping (clip_norm=1), and bfloat16 instead of float16.",
            f"{len(broken)} of {len(weights)} variables contain NaN or infinity: "
            f"{arguments.shortlist(broken)}.",
            variables=broken,
        )
    if not context.finite:
        rows = int((~np.isfinite(context.raw).all(axis=1)).sum())
        found.serious(
            "NaN or infinite outputs",
            "Check the weights. If they are finite, the pixel scaling is wrong or the precision "
            "is too low.",
            f"The outputs for {rows} of {len(context.raw)} images contain NaN or infinity.",
            images=rows,
        )
    if broken:  # all later outputs are NaN as well
        return found
    silent, largest, first_bad = _follow(context)
    dead = {name: share for name, share in silent.items() if share > _TOO_MANY}
    if dead:
        listed = arguments.shortlist([f"{name} {share:.0%}" for name, share in dead.items()])
        found.add(
            "serious" if 1 in dead.values() else "warning",
            "dead activations",
            "Dead units have zero gradients, because the learning rate was too high or the "
            "inputs are far from mean 0. Train again with a lower learning rate, or with "
            "normalization or a leaky activation.",
            f"In {len(dead)} of {len(silent)} layers, more than {_TOO_MANY:.0%} of the units are "
            f"zero for all {min(_FOLLOWED, len(context.pixels))} images: {listed}.",
            dead=dead,
        )
    over = {name: value for name, (value, limit) in largest.items() if value > limit}
    top = max(over or largest, key=lambda name: largest[name][0], default="")
    if over or first_bad:
        seen = f"The largest activation is {largest[top][0]:.3g}, in {top!r}." if top else ""
        if first_bad:
            seen = f"{first_bad!r} is the first layer whose output is not finite. {seen}"
        in_half = any(largest[name][1] == _LARGE_IN_HALF for name in over)
        found.add(
            "serious" if first_bad or in_half else "warning",
            "exploding activations",
            "Normalize between the layers, initialize residual branches with small weights, or "
            "lower the learning rate. Use bfloat16 instead of float16, which overflows at 65504.",
            seen.strip(),
            largest=over,
            first_bad=first_bad,
        )
    seen = f"All {len(weights)} variables and {context.raw.size} outputs are finite; "
    seen += f"the largest activation is {largest[top][0]:.3g}; " if top else ""
    seen += f"at most {max(silent.values(), default=0.0):.0%} of a layer's units are always zero."
    highest = largest[top][0] if top else 0.0
    return found or found.fine("activations", evidence=seen, silent=silent, largest=highest)


def _follow(context: DoctorContext) -> tuple[dict[str, float], dict[str, Any], str]:
    """Runs the model; returns dead units and maxima per layer, and the first non-finite layer."""
    layers = layers_of(context.model)
    shut: dict[str, Any] = {}
    largest: dict[str, tuple[float, float]] = {}
    bad: list[str] = []

    def watch(layer: keras.layers.Layer, inputs: Any, outputs: Any) -> None:
        if isinstance(outputs, (list, tuple, dict)):
            return
        name = layer.path or layer.name
        values = _float32(outputs)
        if not np.isfinite(values).all():
            bad.append(name)
            return
        limit = _LARGE_IN_HALF if layer.compute_dtype == "float16" else _LARGE
        size = max(float(np.abs(values).max(initial=0.0)), largest.get(name, (0.0, 0.0))[0])
        largest[name] = size, limit
        kind = type(layer).__name__.lower()  # ReLU and ELU are layers too
        if getattr(getattr(layer, "activation", None), "__name__", kind) in _GATES:
            closed = np.abs(values) <= _CLOSED * np.abs(_before_gate(layer, inputs))
            units = closed.all(axis=tuple(range(values.ndim - 1)))  # of each channel
            shut[name] = shut.get(name, True) & units

    with watched(layers, watch):
        context.model(context.inputs(context.preprocessing, _FOLLOWED), training=False)
    silent = {name: float(np.mean(units)) for name, units in shut.items()}
    return silent, largest, bad[0] if bad else ""


def _before_gate(layer: keras.layers.Layer, inputs: Any) -> np.ndarray:
    """Returns the values that a layer passes to its activation function."""
    activation = getattr(layer, "activation", None)
    if activation is not None and not isinstance(layer, keras.layers.Activation):
        try:
            layer.activation = keras.activations.linear
            inputs = type(layer).call(layer, inputs)
        finally:
            layer.activation = activation
    return _float32(inputs)


def _float32(values: Any) -> np.ndarray:
    return keras.ops.convert_to_numpy(keras.ops.cast(values, "float32"))
