"""TensorFlow graphs for faster in-process inference, which cannot be saved.

Letters: B images of a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import keras

UNSAVED = (
    "A model returned by `optimize_for_inference` cannot be saved, exported, copied or given "
    "weights, and works only in its process: use the original model."
)


def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises `ValueError`; replaces the methods that save, export or load a model."""
    raise ValueError(UNSAVED)


class InferenceModel(keras.Model):
    """Functional model with an `InferenceLayer`; its save methods raise before they open a file.

    The function `keras.saving.save_model`, in contrast, opens the file and leaves it incomplete.
    """

    save = save_weights = load_weights = export = refuse


Compute = Callable[[Any], Any]


class InferenceLayer(keras.layers.Layer):
    """Layer that runs a whole model as an optimized graph, which cannot be saved."""

    def __init__(
        self, model: keras.Model, build_graph: Callable[[keras.Model], Compute], **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.supports_jit = False  # otherwise `predict` would compile the whole model with XLA
        # Without the Keras history, which would keep the model in memory.
        self._outputs = _specs_of(model.output)
        self._compute = build_graph(model)

    def call(self, inputs: Any) -> Any:
        return self._compute(inputs)

    def compute_output_spec(self, inputs: Any) -> Any:
        return _specs_of(self._outputs)

    get_config = save_own_variables = load_own_variables = refuse


def without_xla(model: keras.Model) -> Compute:
    """Returns the forward pass of a model as a `tf.function` without XLA."""
    return graph_of(model.input, functools.partial(model, training=False))


def frozen(model: keras.Model) -> Compute:
    """Returns the forward pass of a model as a graph with its weights as constants.

    Before it multiplies, oneDNN reorders a weight matrix for its kernels, and in bfloat16
    TensorFlow casts the matrix. For constants this happens once, for variables at every step.
    Speed and memory: docs/decisions/0019-performance.md.
    """
    forward = with_constants(model, functools.partial(model, training=False))
    return graph_of(model.input, forward).get_concrete_function()


def with_constants(model: keras.Model, compute: Compute) -> Compute:
    """Returns a traceable function that runs `compute` with a model's weights as constants."""
    values = [(v, keras.ops.convert_to_numpy(v)) for v in model.variables]

    def forward(inputs: Any) -> Any:
        # Created inside the function; tensors from outside would become inputs of the graph.
        weights = [(v, keras.ops.convert_to_tensor(value)) for v, value in values]
        with keras.StatelessScope(state_mapping=weights):
            return compute(inputs)

    return forward


def with_placeholders(model: keras.Model, compute: Compute) -> tuple[Compute, dict[str, Any]]:
    """Returns a function with zeros in place of the weights, and the actual weights by name.

    TensorFlow stores zeros without allocating them; the values are written into the saved graph.
    Saving nested functions with the values would take about fifty times the memory of the weights.
    """
    import tensorflow as tf

    values = {
        f"keras_vit_weight_{index}": keras.ops.convert_to_numpy(variable)
        for index, variable in enumerate(model.variables)
    }

    def forward(inputs: Any) -> Any:
        weights = [
            (v, tf.constant(0, v.dtype, v.shape, name))
            for v, name in zip(model.variables, values, strict=True)
        ]
        with keras.StatelessScope(state_mapping=weights):
            return compute(inputs)

    return forward, values


def compiled_for_few(model: keras.Model, few: int, constants: bool = True) -> Compute:
    """Returns a forward pass that uses XLA for batches of at most `few` images.

    For larger batches the weights are `constants` or variables. In small batches, matrix products
    do not dominate the time. The XLA graph uses variables, because constants would take half a
    gigabyte more memory.
    """
    import tensorflow as tf

    forward = functools.partial(model, training=False)
    compiled = graph_of(model.input, forward, jit_compile=True)
    plain = graph_of(model.input, with_constants(model, forward) if constants else forward)

    def compute(inputs: Any) -> Any:
        first = keras.tree.flatten(inputs)[0]
        if first.shape[0] is not None:
            return (compiled if first.shape[0] <= few else plain)(inputs)
        return tf.cond(tf.shape(first)[0] <= few, lambda: compiled(inputs), lambda: plain(inputs))

    return compute


def graph_of(inputs: Any, compute: Compute, jit_compile: bool = False) -> Any:
    """Wraps a function in a `tf.function` that is traced only once, for all batch sizes."""
    import tensorflow as tf

    signature = keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), inputs)
    return tf.function(
        compute, input_signature=[signature], autograph=False, jit_compile=jit_compile
    )


def _specs_of(tensors: Any) -> Any:
    return keras.tree.map_structure(lambda t: keras.KerasTensor(t.shape, t.dtype), tensors)
