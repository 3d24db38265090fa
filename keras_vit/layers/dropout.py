"""Dropout and stochastic depth with one seed per replica.

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

# Seeds drawn in a computation that may be rematerialized, and the seeds still to be reused.
_SEEDS: ContextVar[tuple[list[Any], Iterator[Any] | None] | None] = ContextVar(
    "seeds", default=None
)


class ReplicaSeedGenerator(keras.random.SeedGenerator):
    """Seed generator with separate seeds for every replica of a tf.distribute strategy.

    Under a tf.distribute strategy all replicas read one state. With the generator of Keras they
    drop the same units: N replicas would use one mask where a single device uses N.

    Args:
        seed: Integer seed; by default it follows `keras.utils.set_random_seed`.

    Example:
        >>> generator = ReplicaSeedGenerator(seed=3)  # on one device as Keras' own
        >>> [int(part) for part in keras.ops.convert_to_numpy(generator.next())]
        [3, 0]
    """

    def next(self, ordered: bool = True) -> Any:
        drawn, repeated = _SEEDS.get() or ([], None)
        if repeated is not None:
            return next(repeated)
        drawn.append(self._draw(ordered))
        return drawn[-1]

    def _draw(self, ordered: bool) -> Any:
        seed = super().next(ordered)
        replica = _replica()
        if replica is None:
            return seed
        step = ops.convert_to_tensor([_REPLICA_STEP, 0], dtype=seed.dtype)
        return seed + ops.cast(replica, seed.dtype) * step


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(BaseLayer):
    """Dropout with a separate mask on every replica.

    In training, the remaining values are divided by 1 - rate; inference changes no values.

    Args:
        rate: Fraction of the values that are dropped, in [0, 1).
        seed: Integer seed of the choice; by default it follows `keras.utils.set_random_seed`.

    Call arguments:
        inputs: Tensor of any shape.

    Returns:
        Tensor of the same shape.

    Raises:
        ValueError: If `rate` is out of range.

    Example:
        >>> float(np.max(Dropout(0.5)(np.ones((2, 3), "float32"))))  # inference: unchanged
        1.0

    Reference: https://jmlr.org/papers/v15/srivastava14a.html
    """

    _config_names = ("rate", "seed")

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
        """Returns the shape of the dropout mask; None for the shape of the inputs."""
        return None


def same_seeds(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a function that uses the same dropout masks in each call.

    For rematerialization, which recomputes a layer in the backward pass: other masks would give
    the gradient of another function.
    """
    drawn: list[Any] = []
    calls = 0

    def run(x: Any) -> Any:
        nonlocal calls
        token = _SEEDS.set((drawn, iter(drawn) if calls else None))
        calls += 1
        try:
            return compute(x)
        finally:
            _SEEDS.reset(token)

    return run


def _replica() -> Any:
    """Returns the index of this replica, or None if there is only one."""
    if keras.backend.backend() != "tensorflow":
        return None  # keras.distribution on JAX draws one mask for the whole batch
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return None
    return context.replica_id_in_sync_group


@keras.saving.register_keras_serializable(package="keras_vit")
class StochasticDepth(Dropout):
    """Sets a residual branch to zero for randomly chosen examples of the batch.

    In training the branch of each example is kept with probability 1 - rate and divided by this
    probability; inference changes no values (the semantics of DeiT's drop path).

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

    def _noise_shape(self, inputs: Any) -> tuple[Any, ...]:
        batch, *others = ops.shape(inputs)
        return (batch, *[1] * len(others))
