"""Utilities to copy functional Keras models with modified layers or a different dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_vit.models.lora import merged_weights


def clone(
    model: keras.Model,
    change: Callable[[Any], Any] | None = None,
    call: Callable[..., Any] | None = None,
) -> keras.Model:
    """Copies a functional or sequential model and its weights, optionally changing its layers."""
    require_graph(model)
    copies: dict[Any, Any] = {}  # a layer may be shared, also between nested models

    def copy_of(layer: Any) -> Any:
        if layer not in copies:
            if is_graph(layer):
                # A Sequential has no calls that could be changed. Keras' `recursive` stops at the
                # second level before Keras 3.14.
                changed_call = None if isinstance(layer, keras.Sequential) else call
                copies[layer] = keras.models.clone_model(
                    layer, clone_function=copy_of, call_function=changed_call
                )
            else:
                copies[layer] = (change(layer) if change else None) or clone_layer(layer)
        return copies[layer]

    # For a compiled model Keras would also copy losses, metrics and optimizer.
    sequential = isinstance(model, keras.Sequential)
    tensors = (model.inputs[0], model.outputs[0]) if sequential else (model.input, model.output)
    uncompiled = keras.Model(*tensors, name=model.name)
    copy = keras.models.clone_model(uncompiled, clone_function=copy_of, call_function=call)
    for layer, new in copies.items():
        if is_graph(layer) or not isinstance(layer, keras.layers.Layer):
            continue
        if getattr(new, "weights", None):
            new.set_weights(merged_weights(layer))
        if hasattr(new, "finalize_state"):
            new.finalize_state()  # `Normalization` computes with constants from its weights
    return with_loss_scaling(copy)


def with_loss_scaling(model: keras.Model) -> keras.Model:
    """Sets the policy of a model with mixed_float16 layers, so that `compile` scales the loss."""
    if any(layer.dtype_policy.name == "mixed_float16" for layer in layers_of(model)):
        model.dtype_policy, model.autocast = "mixed_float16", False
    return model


def clone_layer(layer: Any, kind: type[keras.layers.Layer] | None = None, **changes: Any) -> Any:
    """Creates a new layer from another layer's configuration, without its weights and LoRA."""
    dropped = ("lora_rank", "lora_alpha") if isinstance(layer, keras.layers.Dense) else ()
    config = {name: value for name, value in layer.get_config().items() if name not in dropped}
    return (kind or type(layer)).from_config({**config, **changes})


def to_float32(model: keras.Model) -> keras.Model:
    """Returns the model itself if it computes in float32, otherwise a float32 copy."""
    has_others = any(_float_dtypes(layer) - {"float32"} for layer in layers_of(model))
    return with_dtype(model, "float32") if has_others else model


def with_dtype(model: keras.Model, dtype: Any) -> keras.Model:
    """Copies a model and gives the copy a different dtype policy."""
    return clone(model, lambda layer: clone_layer(layer, dtype=dtype) if is_float(layer) else None)


def to_bfloat16(model: keras.Model) -> keras.Model:
    """Copies a model to compute matrix products in bfloat16 and the outputs in float32."""
    require_graph(model)
    if any(layer.compute_dtype == "bfloat16" for layer in layers_of(model)):
        return clone(model)
    last = _output_layers(model)

    def changed(layer: Any) -> Any:
        if not is_float(layer):
            return None
        return clone_layer(layer, dtype="float32" if layer in last else "mixed_bfloat16")

    return clone(model, changed)


def _output_layers(model: keras.Model) -> list[Any]:
    """Returns the last layers with a kernel, and those without weights up to the output."""
    found, visited, tensors = [], set(), list(model.outputs)
    while tensors:
        operation, node, _ = history = tensors.pop()._keras_history
        if history in visited:
            continue
        visited.add(history)
        if isinstance(operation, keras.Model):
            found += _output_layers(operation)
        elif not getattr(operation, "weights", None):
            found.append(operation)
            tensors += operation._inbound_nodes[node].input_tensors
        elif hasattr(operation, "kernel"):
            found.append(operation)
    return found if any(hasattr(layer, "kernel") for layer in found) else []


def layers_of(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Yields all layers of a model, including the layers of nested models."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from layers_of(layer)
        else:
            yield layer


def graphs_of(model: keras.Model) -> Iterator[keras.Model]:
    """Yields a model and the models nested in it."""
    yield model
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from graphs_of(layer)


def last_layer(model: keras.Model) -> Any:
    """Returns the last layer or operation of a model, descending into nested models."""
    # A subclassed model has no list of operations and may compute anything after its last layer.
    sequential = isinstance(model, keras.Sequential)
    operations = model.layers if sequential else getattr(model, "operations", None)
    last = operations[-1] if operations else None
    return last_layer(last) if isinstance(last, keras.Model) else last


def _float_dtypes(layer: Any) -> set[str]:
    if not isinstance(layer, keras.layers.Layer):
        return set()  # an operation computes in the dtype of its inputs
    policy = layer.dtype_policy
    dtypes = {policy.compute_dtype, policy.variable_dtype}
    return {dtype for dtype in dtypes if keras.backend.is_float_dtype(dtype)}


def is_float(layer: Any) -> bool:
    """Returns whether a layer computes in floating point; False for operations or if quantized."""
    return bool(_float_dtypes(layer)) and layer.quantization_mode is None


def require_graph(model: keras.Model, name: str = "model") -> None:
    """Raises `ValueError` unless a model is a built functional or sequential model."""
    if not is_graph(model) or not model.built:
        raise ValueError(
            f"`{name}` must be a built functional or sequential Keras model. Received: "
            f"{name}={model!r} of type {type(model).__name__}"
        )


def is_graph(layer: Any) -> bool:
    """Returns whether a layer is a functional or sequential model."""
    return isinstance(layer, keras.Sequential) or (
        isinstance(layer, keras.Model) and hasattr(layer, "operations")
    )
