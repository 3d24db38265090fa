"""Copies of a model with other layers or another precision, for which it need not be our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras


def clone(
    model: keras.Model,
    change: Callable[[Any], Any] | None = None,
    call: Callable[..., Any] | None = None,
) -> keras.Model:
    """Copies a functional or sequential model, with weights of its own that have the same values.

    Args:
        model: The model, which may hold others, however deep.
        change: Called with every layer that is no model, and with every operation of `keras.ops`
            in the graph; what it returns takes its place, a layer or an operation, with as many
            weights or none. None leaves it as it is.
        call: Called with each layer and operation of the copy, and models in it, and with what it
            is called with; returns what takes the place of the outputs. Not inside of a
            `Sequential` within the model.

    Returns:
        The copy, not compiled.

    Raises:
        ValueError: If the model is a subclass of `keras.Model`, which cannot be taken apart.

    Example:
        >>> model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
        >>> clone(model, lambda layer: keras.layers.Identity()).output_shape
        (None, 5)
    """
    require_graph(model)
    copies: dict[Any, Any] = {}  # a layer may be shared, also by the models within

    def copied(layer: Any) -> Any:
        if layer not in copies:
            if _is_graph(layer):
                # A Sequential has no calls that could be changed. Keras' own `recursive` stops at
                # the second level before Keras 3.14.
                changed_call = None if isinstance(layer, keras.Sequential) else call
                copies[layer] = keras.models.clone_model(
                    layer, clone_function=copied, call_function=changed_call
                )
            else:
                copies[layer] = (change(layer) if change else None) or clone_layer(layer)
        return copies[layer]

    # Of a model that was compiled Keras would also copy losses, metrics and optimizer.
    sequential = isinstance(model, keras.Sequential)
    ends = (model.inputs[0], model.outputs[0]) if sequential else (model.input, model.output)
    bare = keras.Model(*ends, name=model.name)
    copy = keras.models.clone_model(bare, clone_function=copied, call_function=call)
    for layer, new in copies.items():
        if _is_graph(layer) or not isinstance(layer, keras.layers.Layer):
            continue
        if getattr(new, "weights", None):
            new.set_weights(layer.get_weights())
        if hasattr(new, "finalize_state"):
            new.finalize_state()  # `Normalization` computes with constants made of its weights
    return copy


def clone_layer(layer: Any, kind: type[keras.layers.Layer] | None = None, **changes: Any) -> Any:
    """Builds a layer again from its configuration, without its weights.

    Args:
        layer: The layer, or an operation of `keras.ops` in a graph.
        kind: Class of the new layer; by default the same.
        **changes: Entries of the configuration that are replaced.

    Returns:
        The new layer, of the same name.

    Example:
        >>> clone_layer(keras.layers.Dense(3, activation="relu"), activation="linear").units
        3
    """
    return (kind or type(layer)).from_config({**layer.get_config(), **changes})


def to_float32(model: keras.Model) -> keras.Model:
    """Returns a model that computes in float32.

    Args:
        model: A functional or sequential model.

    Returns:
        The model itself if all of it is in float32, or else a copy with weights of its own.

    Example:
        >>> layer = keras.layers.Dense(3, dtype="mixed_bfloat16")
        >>> to_float32(keras.Sequential([keras.Input((5,)), layer])).layers[-1].compute_dtype
        'float32'
    """
    return model if is_float32(model) else with_dtype(model, "float32")


def with_dtype(model: keras.Model, dtype: Any) -> keras.Model:
    """Copies a model into another precision.

    Args:
        model: A functional or sequential model.
        dtype: Keras dtype or policy of the copy's layers; those for whole numbers keep theirs.

    Returns:
        The copy, with weights of its own.

    Example:
        >>> model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
        >>> with_dtype(model, "mixed_bfloat16").layers[-1].compute_dtype
        'bfloat16'
    """
    return clone(model, lambda layer: clone_layer(layer, dtype=dtype) if is_float(layer) else None)


def to_bfloat16(model: keras.Model) -> keras.Model:
    """Copies a model with products of matrices in bfloat16, and a classifier's answer in float32.

    Args:
        model: A functional or sequential model.

    Returns:
        The copy, with weights of its own. If layers of the model compute in bfloat16 already, all
        keep their precision; if not, all get the policy `mixed_bfloat16`. But where a Dense, or the
        mean of several, answers, also through an activation, these are in float32, for the answer
        would lose digits; features and other outputs are in bfloat16.

    Example:
        >>> layers = [keras.layers.Dense(5), keras.layers.Dense(3), keras.layers.Softmax()]
        >>> model = to_bfloat16(keras.Sequential([keras.Input((5,)), *layers]))
        >>> [layer.compute_dtype for layer in layers_of(model)][-3:]
        ['bfloat16', 'float32', 'float32']
    """
    found = list(layers_of(model))
    if any(layer.compute_dtype == "bfloat16" for layer in found):
        return clone(model)
    last = _answer(found)

    def changed(layer: Any) -> Any:
        if not is_float(layer):
            return None
        return clone_layer(layer, dtype="float32" if layer in last else "mixed_bfloat16")

    return clone(model, changed)


def _answer(layers: list[Any]) -> list[Any]:
    """Returns the Dense that answers, or those whose mean does, and what follows; or nothing."""
    kinds = keras.layers
    follow = (kinds.Activation, kinds.Softmax, kinds.Average, kinds.Identity)
    end = len(layers)
    while end and isinstance(layers[end - 1], follow):
        end -= 1
    means = [layer for layer in layers[end:] if isinstance(layer, kinds.Average)]
    heads = max((len(layer.input) for layer in means), default=1)
    dense = [i for i in range(end) if isinstance(layers[i], kinds.Dense)][-heads:]
    return layers[dense[0] :] if dense and dense[-1] == end - 1 else []


def is_float32(model: keras.Model) -> bool:
    """Tells whether a model computes in float32 and keeps its weights in it.

    Args:
        model: The model.

    Returns:
        Whether all of its layers do, however deep.

    Example:
        >>> is_float32(keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)]))
        True
    """
    return all(_floats(layer) <= {"float32"} for layer in layers_of(model))


def layers_of(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Yields the layers of a model and of the models in it.

    Args:
        model: The model.

    Yields:
        Layers that are no models, in the order of the models' lists.

    Example:
        >>> inner = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
        >>> [layer.name for layer in layers_of(keras.Sequential([inner]))]
        ['dense']
    """
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from layers_of(layer)
        else:
            yield layer


def last_layer(model: keras.Model) -> Any:
    """Returns the layer or operation that a model ends in, however deep.

    Args:
        model: Any Keras model; only functional and sequential ones tell it.

    Returns:
        The layer, or None if the model, or one that it ends in, does not tell.

    Example:
        >>> inner = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, name="a")])
        >>> last_layer(keras.Sequential([inner])).name
        'a'
    """
    # A subclass, which has no list of operations, may do anything behind its last layer.
    sequential = isinstance(model, keras.Sequential)
    operations = model.layers if sequential else getattr(model, "operations", None)
    last = operations[-1] if operations else None
    return last_layer(last) if isinstance(last, keras.Model) else last


def _floats(layer: Any) -> set[str]:
    if not isinstance(layer, keras.layers.Layer):
        return set()  # an operation computes in the precision of what it gets
    policy = layer.dtype_policy
    dtypes = {policy.compute_dtype, policy.variable_dtype}
    return {dtype for dtype in dtypes if keras.backend.is_float_dtype(dtype)}


def is_float(layer: Any) -> bool:
    """Tells layers that compute with floating-point numbers from others, and from operations.

    Args:
        layer: A layer, or an operation of `keras.ops` in a graph.

    Returns:
        Whether its precision can be changed.

    Example:
        >>> is_float(keras.layers.Dense(3)), is_float(keras.layers.Dense(3, dtype="mixed_bfloat16"))
        (True, True)
    """
    return bool(_floats(layer))


def require_graph(model: keras.Model) -> None:
    """Raises `ValueError` unless a model can be taken apart.

    Args:
        model: The model.

    Raises:
        ValueError: If it is a subclass of `keras.Model`, whose layers may do anything, or not
            built yet.

    Example:
        >>> require_graph(keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)]))
    """
    if not _is_graph(model) or not model.built:
        raise ValueError(
            "`model` must be a functional or sequential Keras model that is built, whose layers "
            f"are known. Received: model={model!r} of the class {type(model).__name__}"
        )


def _is_graph(layer: Any) -> bool:
    return isinstance(layer, keras.Sequential) or (
        isinstance(layer, keras.Model) and hasattr(layer, "operations")
    )
