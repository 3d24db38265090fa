"""Detection of the kind of a classifier's outputs: logits or probabilities."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.doctor.layer_outputs import layers_of

_MIN_PROBABILITY = 1e-7
# Tolerance of the sum of probabilities, for float32 and, at worst, bfloat16.
_SUM_TOLERANCE = 0.02


def head_of(model: keras.Model, outputs: int) -> list[keras.Variable]:
    """Returns the kernel and bias of the classifier, or of both heads if there are two."""
    variables: list[keras.Variable] = []
    for layer in reversed(layers_of(model)):
        weights = [v for n in ("kernel", "bias") if (v := getattr(layer, n, None)) is not None]
        shape = tuple(weights[0].shape) if weights else ()
        is_head = bool(shape) and shape[-1] == outputs
        if not variables and is_head:
            variables += weights
        elif variables and layer.weights:
            # Two heads have the same input features; a layer before a head, with as many inputs as
            # outputs, is not a head.
            if is_head and shape == tuple(variables[0].shape) and shape[0] != outputs:
                variables += weights
            break
    return variables


def likely_ending(outputs: np.ndarray) -> str:
    """Infers the most likely final activation of a model from its outputs (N, K)."""
    if outputs.min() < 0 or outputs.max() > 1 + _SUM_TOLERANCE:
        return "linear"
    return "softmax" if sums_to_one(outputs) else "sigmoid"


def sums_to_one(outputs: np.ndarray) -> bool:
    """Returns whether every row sums to 1, with a tolerance that allows for half precision."""
    return bool(np.abs(outputs.sum(axis=1) - 1).max() < _SUM_TOLERANCE)


def as_logits(outputs: Any, ending: str) -> Any:
    """Converts outputs of any kind to logits that a softmax can be applied to."""
    outputs = ops.cast(outputs, "float32")
    if ending == "softmax":
        outputs = ops.log(ops.maximum(outputs, _MIN_PROBABILITY))
    elif ending == "sigmoid":
        p = ops.clip(outputs, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        outputs = ops.log(p) - ops.log(1 - p)
    if outputs.shape[-1] == 1:
        outputs = ops.concatenate([ops.zeros_like(outputs), outputs], axis=-1)  # (B, 2)
    return outputs


def mean_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Returns the mean cross-entropy of probabilities, in nats."""
    true_probabilities = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(true_probabilities, _MIN_PROBABILITY)).mean())
