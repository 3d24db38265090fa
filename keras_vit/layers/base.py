"""Base class of this package's layers."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import keras
from keras.dtype_policies import DTypePolicyMap


class BaseLayer(keras.layers.Layer):
    """Base layer whose configuration and sublayers are derived from its attributes.

    The output has the shape of the input unless a subclass overrides `compute_output_shape`.

    Examples:
        >>> from keras_vit.layers import LayerScale
        >>> LayerScale(0.1).get_config()["initial_value"]
        0.1
    """

    def _part(self, kind: type[Any], *args: Any, name: str, **kwargs: Any) -> Any:
        """Creates a sublayer with the dtype policy and the `trainable` flag of this layer."""
        policy = self.dtype_policy
        if isinstance(policy, DTypePolicyMap):  # of a quantized layer, see `get_config`
            inside = f"{name}/"
            inner = {k.removeprefix(inside): policy[k] for k in policy if k.startswith(inside)}
            policy = DTypePolicyMap(policy.default_policy.name, inner) if inner else policy[name]
        return kind(*args, trainable=self.trainable, dtype=policy, name=name, **kwargs)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        base = super().get_config()
        kinds = itertools.takewhile(lambda kind: kind is not BaseLayer, type(self).mro())
        made = [vars(kind)["__init__"] for kind in kinds if "__init__" in vars(kind)]
        names = [name for init in made for name in inspect.signature(init).parameters]
        parts = self._flatten_layers(include_self=False)
        # `quantize` changes the dtype policies of sublayers only.
        quantized = {p.path.removeprefix(f"{self.path}/"): p for p in parts if p.quantization_mode}
        if quantized:
            own: Any = getattr(self.dtype_policy, "default_policy", self.dtype_policy)
            policies = {path: part.dtype_policy for path, part in quantized.items()}
            base["dtype"] = keras.dtype_policies.serialize(DTypePolicyMap(own.name, policies))
        # Constructor arguments are stored in attributes of the same names.
        return base | {n: getattr(self, n) for n in names if hasattr(self, n)} | base
