"""Dropping a residual branch for whole examples.

Letters: B batch.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit.layers.dropout import Dropout


@keras.saving.register_keras_serializable(package="keras_vit")
class StochasticDepth(Dropout):
    """Sets a residual branch to zero for randomly chosen examples of the batch.

    In training each example keeps its branch with probability 1 - rate, and a kept branch is
    divided by that probability, so that nothing changes at inference (the semantics of DeiT's
    drop path).

    Args:
        rate: Fraction of the examples whose branch is dropped, in [0, 1).
        seed: Integer seed of the choice; by default it follows `keras.utils.set_random_seed`.

    Call arguments:
        inputs: Tensor of shape (B, ...): the output of a residual branch.

    Returns:
        Tensor of the same shape.

    Raises:
        ValueError: If `rate` is out of range.

    Example:
        >>> branch = np.ones((2, 3, 5), "float32")
        >>> float(np.max(StochasticDepth(0.5)(branch)))  # inference: unchanged
        1.0

    Reference: https://arxiv.org/abs/1603.09382
    """

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.rate == 0:
            return inputs
        shape = ops.shape(inputs)
        return keras.random.dropout(
            inputs,
            self.rate,
            noise_shape=(shape[0],) + (1,) * (len(shape) - 1),
            seed=self.seed_generator,
        )
