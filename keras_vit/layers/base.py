"""Base class of this package's layers."""

from __future__ import annotations

from typing import Any, ClassVar

import keras


class BaseLayer(keras.layers.Layer):
    """Base layer whose configuration and sublayers are derived from its attributes.

    The output has the shape of the input unless a subclass overrides `compute_output_shape`.

    Examples:
        >>> from keras_vit.layers import LayerScale
        >>> LayerScale(0.1).get_config()["initial_value"]
        0.1
    """

    # Constructor arguments that are stored in attributes of the same names.
    _config_names: ClassVar[tuple[str, ...]] = ()

    def _part(self, kind: type[Any], *args: Any, **kwargs: Any) -> Any:
        """Creates a sublayer with the dtype policy and the `trainable` flag of this layer."""
        return kind(*args, trainable=self.trainable, dtype=self.dtype_policy, **kwargs)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {name: getattr(self, name) for name in self._config_names}
