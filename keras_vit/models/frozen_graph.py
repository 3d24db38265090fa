"""A model as one layer on TensorFlow whose weights are constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_vit.models import cloning


class FrozenGraph(keras.layers.Layer):
    """A model's inference as one function of TensorFlow, with constants for weights.

    In bfloat16 TensorFlow casts a matrix of weights, and oneDNN brings it into the order of its
    kernels, before it multiplies: constants once, variables at every step, a third to a half of the
    time (docs/decisions/performance.md). A constant is copied from stage to stage of TensorFlow's
    compiler: each byte of weights takes some ten bytes of memory.

    Args:
        model: A functional or sequential model, built.
        few: Number B of images up to which it is so, compiled by XLA, anew for each number; more
            are computed by the model itself. None: all are computed by TensorFlow's graph.

    Call arguments:
        inputs: As the model takes them, (B, ...).

    Returns:
        What the model returns.

    Raises:
        ValueError: If the model cannot be taken apart.

    Example:
        >>> model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
        >>> layer = FrozenGraph(model)  # doctest: +SKIP
        >>> tuple(layer(np.ones((2, 5), "float32")).shape)  # doctest: +SKIP
        (2, 3)
    """

    def __init__(self, model: keras.Model, few: int | None = None, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        cloning.require_graph(model)
        self.few = few
        self._outputs = model.output
        self._frozen = frozen(model, jit_compile=few is not None)
        self._model = None if few is None else model

    def call(self, inputs: Any) -> Any:
        if self._model is None:
            return self._frozen(inputs)
        import tensorflow as tf

        number = tf.shape(keras.tree.flatten(inputs)[0])[0]
        return tf.cond(
            number <= self.few,
            lambda: self._frozen(inputs),
            lambda: self._model(inputs, training=False),
        )

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.tree.map_structure(
            lambda output: keras.KerasTensor(output.shape, output.dtype), self._outputs
        )

    def get_config(self) -> dict[str, Any]:
        raise ValueError(
            "A model made by `optimize_for_inference` is for the process that made it and cannot "
            "be saved: save the model that it was made of."
        )


def frozen(model: keras.Model, jit_compile: bool = False) -> Callable[[Any], Any]:
    """Returns the inference of a model, with constants for its weights.

    Args:
        model: A functional or sequential model, built.
        jit_compile: Whether XLA compiles it.

    Returns:
        From inputs of the model to its outputs; keeps no reference to the model.

    Example:
        >>> frozen(keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)]))  # doctest: +SKIP
    """
    import tensorflow as tf

    trainable, others = (
        [keras.ops.convert_to_numpy(variable) for variable in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
    )

    def forward(inputs: Any) -> Any:
        # Made inside, for a tensor from outside would be an input of the graph.
        weights = ([tf.constant(value) for value in values] for values in (trainable, others))
        outputs, _ = model.stateless_call(*weights, inputs, training=False)
        return outputs

    signature = keras.tree.map_structure(
        lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), model.input
    )
    function = tf.function(
        forward, input_signature=[signature], jit_compile=jit_compile, autograph=False
    )
    return function.get_concrete_function()
