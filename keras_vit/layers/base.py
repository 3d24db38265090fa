"""Base class of this package's layers."""

from __future__ import annotations

import inspect
from typing import Any

import keras


class BaseLayer(keras.layers.Layer):
    """Base layer whose configuration and sublayers are derived from its attributes.

    The output has the shape of the input unless a subclass overrides `compute_output_shape`.

    Examples:
        >>> from keras_vit.layers import LayerScale
        >>> LayerScale(0.1).get_config()["initial_value"]
        0.1
    """

    def __init__(self, *, quantized: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._quantized = quantized or {}  # from `get_config`

    def _sublayer(self, kind: type[Any], *args: Any, name: str, **kwargs: Any) -> Any:
        """Creates a sublayer with the dtype policy and the `trainable` flag of this layer."""
        stored = dict(self._quantized.get(name, {}))
        if config := stored.get("quantization_config"):  # Keras' layers require the object
            stored["quantization_config"] = keras.saving.deserialize_keras_object(config)
        settings = {"trainable": self.trainable, "dtype": self.dtype_policy} | stored
        return kind(*args, name=name, **settings, **kwargs)

    def quantized_parts(self) -> dict[str, Any]:
        """Returns the dtype and quantization of each quantized sublayer by name, recursively."""
        keys = ("dtype", "quantization_config", "quantized")
        return {
            layer.name: {k: v for k, v in layer.get_config().items() if k in keys and v}
            for layer in self._flatten_layers(include_self=False, recursive=False)
            if any(part.quantization_mode for part in layer._flatten_layers())
        }

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        base = super().get_config()
        if parts := self.quantized_parts():
            base["quantized"] = parts
        kinds: list[Any] = [kind for kind in type(self).mro() if issubclass(kind, BaseLayer)]
        names = [n for kind in kinds for n in inspect.signature(kind.__init__).parameters]
        # Constructor arguments are stored in attributes of the same names.
        return base | {n: getattr(self, n) for n in names if hasattr(self, n)} | base


class NamedVariables(BaseLayer):
    """Base layer that saves its variables by name instead of by index.

    A file then identifies variables that only some models have.

    Examples:
        >>> from keras_vit.layers import PatchEncoder
        >>> issubclass(PatchEncoder, NamedVariables)
        True
    """

    def save_own_variables(self, store: Any) -> None:
        for variable in self._own_variables():
            store[variable.name] = keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Any) -> None:
        stored = set(store.keys())
        expected = {variable.name for variable in self._own_variables()}
        if stored != expected:
            raise ValueError(
                f"The file's layer {self.name} must contain "
                f"{', '.join(sorted(expected)) or 'nothing'}. Received: "
                f"{', '.join(sorted(stored)) or 'nothing'}"
            )
        for variable in self._own_variables():
            variable.assign(store[variable.name])

    def _own_variables(self) -> list[keras.Variable]:
        return [*self._trainable_variables, *self._non_trainable_variables]
