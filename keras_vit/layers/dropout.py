"""Dropout and stochastic depth with a separate random seed for each replica.

Letters: B batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.base import BaseLayer

# 2**32 / golden ratio: its multiples stay far apart modulo 2**32 (Knuth, The Art of
# Computer Programming, volume 3, section 6.4).
_REPLICA_STEP = 2654435769

# Seeds that a computation has drawn, and in its recomputation the seeds to use again.
_SEEDS: ContextVar[tuple[list[Any], Iterator[Any] | None] | None] = ContextVar(
    "seeds", default=None
)


class ReplicaSeedGenerator(keras.random.SeedGenerator):
    """Seed generator with separate seeds for each replica of a `tf.distribute` strategy.

    Under a `tf.distribute` strategy, all replicas read the same generator state. With Keras'
    generator they would drop the same units: N replicas would share one mask instead of using N
    different masks.

    Args:
        seed: Integer seed; by default derived from `keras.utils.set_random_seed`.

    Examples:
        >>> generator = ReplicaSeedGenerator(seed=3)  # on one device as in Keras
        >>> [int(part) for part in keras.ops.convert_to_numpy(generator.next())]
        [3, 0]
    """

    def next(self, ordered: bool = True) -> Any:
        drawn_seeds, seeds_to_reuse = _SEEDS.get() or ([], None)
        if seeds_to_reuse is not None:
            return next(seeds_to_reuse)
        seed = super().next(ordered)
        if (replica := _replica()) is not None:
            step = ops.convert_to_tensor([_REPLICA_STEP, 0], dtype=seed.dtype)
            seed = seed + ops.cast(replica, seed.dtype) * step
        drawn_seeds.append(seed)
        return seed


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(BaseLayer):
    """Dropout with a separate mask on each replica.

    In training, the remaining values are divided by 1 - rate; inference changes no values.

    Args:
        rate: Fraction of the values that are dropped, in [0, 1).
        seed: Integer seed; by default derived from `keras.utils.set_random_seed`.

    Call arguments:
        inputs: Tensor of any shape.

    Returns:
        Tensor of the same shape.

    Raises:
        ValueError: If `rate` is out of range.

    Examples:
        >>> float(np.max(Dropout(0.5)(np.ones((2, 3), "float32"))))  # inference: unchanged
        1.0

    Reference: https://jmlr.org/papers/v15/srivastava14a.html
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = arguments.rate("rate", rate)
        self.seed = seed
        if self.rate > 0:
            self.seed_generator = ReplicaSeedGenerator(seed)
        self.built = True

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.rate == 0:
            return inputs
        noise_shape = self._noise_shape(inputs)
        return keras.random.dropout(inputs, self.rate, noise_shape, self.seed_generator)

    def _noise_shape(self, inputs: Any) -> tuple[Any, ...] | None:
        """Returns the shape of the dropout mask, or None for the shape of the inputs."""
        return None


def same_seeds(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wraps a function so that every call uses the same dropout masks.

    Needed for rematerialization, which recomputes a layer in the backward pass: with other masks,
    the gradient would be that of another function.
    """
    seeds: list[Any] = []

    def run(x: Any) -> Any:
        token = _SEEDS.set((seeds, iter(seeds) if seeds else None))
        try:
            return compute(x)
        finally:
            _SEEDS.reset(token)

    return run


def _replica() -> Any:
    """Returns the index of the current replica, or None if there is only one."""
    if keras.backend.backend() != "tensorflow":
        return None  # keras.distribution on JAX draws one mask for the whole batch
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return None
    return context.replica_id_in_sync_group


@keras.saving.register_keras_serializable(package="keras_vit")
class StochasticDepth(Dropout):
    """Stochastic depth: drops a residual branch for randomly chosen examples of the batch.

    In training, each example keeps its branch with probability 1 - rate, and these branches are
    divided by this probability; inference changes no values (the semantics of DeiT's drop path).

    Args:
        rate: Fraction of the examples whose branch is dropped, in [0, 1).
        seed: Integer seed; by default derived from `keras.utils.set_random_seed`.

    Call arguments:
        inputs: Tensor of shape (B, ...): the output of a residual branch.

    Returns:
        Tensor of the same shape.

    Raises:
        ValueError: If `rate` is out of range.

    Examples:
        >>> branch = np.ones((2, 3, 5), "float32")
        >>> float(np.max(StochasticDepth(0.5)(branch)))  # inference: unchanged
        1.0

    Reference: https://arxiv.org/abs/1603.09382
    """

    def _noise_shape(self, inputs: Any) -> tuple[Any, ...]:
        batch, *others = ops.shape(inputs)
        return (batch, *[1] * len(others))
