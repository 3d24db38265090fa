"""Access to the inputs and outputs of all layers in a Keras model, including nested layers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras

Watch = Callable[[keras.layers.Layer, Any, Any], None]


def layers_of(model: keras.Model) -> list[keras.layers.Layer]:
    """Lists all layers of a model, including the layers inside nested models and layers."""
    layers: list[keras.layers.Layer] = []

    def visit(layer: keras.layers.Layer) -> None:
        if any(layer is other for other in layers) or isinstance(layer, keras.layers.InputLayer):
            return
        if not isinstance(layer, keras.Model):
            layers.append(layer)
        # Layers have no public list of their sublayers.
        for sublayer in layer.layers if isinstance(layer, keras.Model) else layer._layers:
            visit(sublayer)

    visit(model)
    return layers


@contextlib.contextmanager
def watched(layers: list[keras.layers.Layer], watch: Watch) -> Iterator[None]:
    """Context manager that calls `watch` with the inputs and outputs of each layer call.

    The model must be called eagerly, not by `predict`, which calls a compiled graph.
    """

    def call(layer: Any, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        outputs = original(*args, **kwargs)
        watch(layer, args[0] if args else next(iter(kwargs.values()), None), outputs)
        return outputs

    with contextlib.ExitStack() as stack:
        for layer in layers:
            # An instance attribute takes precedence over the method of the class.
            layer.__dict__["call"] = functools.partial(call, layer, layer.call)
            stack.callback(layer.__dict__.pop, "call", None)
        yield
