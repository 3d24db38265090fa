"""Learned scaling of a residual branch.

Letters: D hidden size.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.base import BaseLayer


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerScale(BaseLayer):
    """Learned scaling of each channel of a residual branch.

    Equation 1 of "Going deeper with Image Transformers": diag(lambda_1, ..., lambda_D) times the
    branch. With small initial values a deep model starts near the identity.

    Args:
        initial_value: Initial scale of every channel, above 0; 1e-5 in DINOv2 (Appendix A), 1e-4
            to 1e-6 in the paper.

    Call arguments:
        inputs: Tensor of shape (..., D).

    Returns:
        Tensor of the same shape.

    Raises:
        ValueError: If `initial_value` is not positive.

    Examples:
        >>> float(LayerScale(0.5)(np.ones((2, 3, 5), "float32"))[0, 0, 0])
        0.5

    Reference: https://arxiv.org/abs/2103.17239
    """

    def __init__(self, initial_value: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.initial_value = arguments.positive("initial_value", initial_value)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.gamma = self.add_weight(
            name="gamma",
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(self.initial_value),
        )

    def call(self, inputs: Any) -> Any:
        return inputs * ops.cast(self.gamma, inputs.dtype)
