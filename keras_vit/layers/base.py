"""What the layers have in common."""

from __future__ import annotations

from typing import Any, ClassVar

import keras


class BaseLayer(keras.layers.Layer):
    """A layer whose configuration and whose parts follow from its attributes.

    Its output has the shape of its input where a subclass does not say otherwise.

    Example:
        >>> from keras_vit.layers import LayerScale
        >>> LayerScale(0.1).get_config()["initial_value"]
        0.1
    """

    # The arguments of the constructor that are kept in attributes of the same names.
    _config_names: ClassVar[tuple[str, ...]] = ()

    def _part(self, kind: type[Any], *args: Any, **kwargs: Any) -> Any:
        """Returns a layer for the inside of this one: in its precision, and frozen if it is."""
        return kind(*args, trainable=self.trainable, dtype=self.dtype_policy, **kwargs)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {name: getattr(self, name) for name in self._config_names}
