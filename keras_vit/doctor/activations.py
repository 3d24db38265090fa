"""Check for NaN, dead units and exploding values in weights, activations and outputs."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_vit import arguments
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding, Findings
from keras_vit.doctor.layer_outputs import layers_of, watched

# Images of the forward pass in which the outputs of layers are observed.
_OBSERVED_IMAGES = 32
# Activations with outputs near zero for negative inputs.
_GATES = ("relu", "relu6", "gelu", "silu", "elu", "selu", "celu", "mish", "hard_silu")
# A unit is dead if its output is below this fraction of its input for every image; a layer with a
# larger fraction of dead units than the second is reported. Some units are always dead: inputs of a
# new layer after a pooling are nearly equal for all images.
_DEAD, _TOO_MANY = 1e-3, 0.8
# The second is half of the largest float16 value.
_LARGE, _LARGE_IN_HALF = 1e6, 65504 / 2


def check_activations(context: DoctorContext) -> list[Finding]:
    """Checks a model for NaN or infinite values, dead units and exploding activations."""
    findings, weights = Findings(), context.model.weights
    invalid = [weight.path for weight in weights if not np.isfinite(_float32(weight)).all()]
    if invalid:
        findings.serious(
            "NaN or infinite weights",
            "Training diverged: return to an earlier checkpoint, lower the learning rate, use "
            "warm-up, gradient clipping (clip_norm=1), and bfloat16 instead of float16.",
            f"{len(invalid)} of {len(weights)} variables contain NaN or infinity: "
            f"{arguments.shortlist(invalid)}.",
            variables=invalid,
        )
    if not context.finite:
        rows = int((~np.isfinite(context.raw).all(axis=1)).sum())
        findings.serious(
            "NaN or infinite outputs",
            "Check the weights. If they are finite, the pixel scaling is wrong or the precision "
            "is too low.",
            f"The outputs for {rows} of {len(context.raw)} images contain NaN or infinity.",
            images=rows,
        )
    if invalid:  # all later outputs are NaN as well
        return findings
    shares, largest, first_invalid = _layer_statistics(context)
    dead = {name: share for name, share in shares.items() if share > _TOO_MANY}
    if dead:
        dead_layers = arguments.shortlist([f"{name} {share:.0%}" for name, share in dead.items()])
        findings.add(
            "serious" if 1 in dead.values() else "warning",
            "dead activations",
            "Dead units have zero gradients, because the learning rate was too high or the "
            "inputs are far from mean 0. Train again with a lower learning rate, or with "
            "normalization or a leaky activation.",
            f"In {len(dead)} of {len(shares)} layers, more than {_TOO_MANY:.0%} of the units "
            f"are zero for all {min(_OBSERVED_IMAGES, len(context.pixels))} images: {dead_layers}.",
            dead=dead,
        )
    exploding = {name: value for name, (value, limit) in largest.items() if value > limit}
    layer = max(exploding or largest, key=lambda name: largest[name][0], default="")
    highest = largest[layer][0] if layer else 0.0
    if exploding or first_invalid:
        summary = f"The largest activation is {highest:.3g}, in {layer!r}." if layer else ""
        if first_invalid:
            summary = f"{first_invalid!r} is the first layer whose output is not finite. {summary}"
        in_float16 = any(largest[name][1] == _LARGE_IN_HALF for name in exploding)
        findings.add(
            "serious" if first_invalid or in_float16 else "warning",
            "exploding activations",
            "Normalize between the layers, initialize residual branches with small weights, or "
            "lower the learning rate. Use bfloat16 instead of float16, which overflows at 65504.",
            summary.strip(),
            largest=exploding,
            first_bad=first_invalid,
        )
    summary = f"All {len(weights)} variables and {context.raw.size} outputs are finite; "
    summary += f"the largest activation is {highest:.3g}; " if layer else ""
    most = max(shares.values(), default=0.0)
    summary += f"at most {most:.0%} of a layer's units are always zero."
    return findings or findings.fine("activations", "", summary, silent=shares, largest=highest)


def _layer_statistics(context: DoctorContext) -> tuple[dict[str, float], dict[str, Any], str]:
    """Runs the model; returns dead units and maxima per layer, and the first non-finite layer."""
    layers = layers_of(context.model)
    dead_units: dict[str, Any] = {}
    largest: dict[str, tuple[float, float]] = {}
    invalid_layers: list[str] = []

    def watch(layer: keras.layers.Layer, inputs: Any, outputs: Any) -> None:
        if isinstance(outputs, (list, tuple, dict)):
            return
        name = layer.path or layer.name
        values = _float32(outputs)
        if not np.isfinite(values).all():
            invalid_layers.append(name)
            return
        limit = _LARGE_IN_HALF if layer.compute_dtype == "float16" else _LARGE
        maximum = max(float(np.abs(values).max(initial=0.0)), largest.get(name, (0.0, 0.0))[0])
        largest[name] = maximum, limit
        class_name = type(layer).__name__.lower()  # ReLU and ELU are layers too
        if getattr(getattr(layer, "activation", None), "__name__", class_name) in _GATES:
            is_dead = np.abs(values) <= _DEAD * np.abs(_preactivations(layer, inputs))
            dead_channels = is_dead.all(axis=tuple(range(values.ndim - 1)))
            dead_units[name] = dead_units.get(name, True) & dead_channels

    with watched(layers, watch):
        context.model(context.inputs(context.preprocessing, _OBSERVED_IMAGES), training=False)
    dead_shares = {name: float(np.mean(units)) for name, units in dead_units.items()}
    return dead_shares, largest, invalid_layers[0] if invalid_layers else ""


def _preactivations(layer: keras.layers.Layer, inputs: Any) -> np.ndarray:
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
