"""Optimization of models for inference in the current process."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import keras

from keras_vit import accelerators, arguments
from keras_vit.layers import LayerNorm, ModelMetadata, TokenPooling, TransformerBlock
from keras_vit.layers.fused_elementwise import is_enabled
from keras_vit.models import cloning
from keras_vit.models.inference_graphs import (
    Compute,
    InferenceLayer,
    InferenceModel,
    compiled_for_few,
    frozen,
    without_xla,
)
from keras_vit.models.metadata import preprocessing_of
from keras_vit.models.openvino_runtime import PRECISIONS, OpenVINOModel

RUNTIMES = ("keras", "openvino")
# Measured thresholds: docs/decisions/0019-performance.md.
#: Number of images up to which XLA is faster than TensorFlow's graph for a small model in float32,
#: and without AVX-512 for a large one.
MAX_XLA_IMAGES = 4
#: The same number for a small model without AVX-512.
MAX_XLA_IMAGES_WITHOUT_AVX512 = 16
#: Largest size in bytes of float32 weights that become constants; S/16 has 88e6.
MAX_CONSTANT_BYTES = 128 * 2**20
#: Largest size in bytes of weights that become constants in bfloat16; B/16 has 346e6.
MAX_CONSTANT_BYTES_BFLOAT16 = 512 * 2**20
_NORM_NAMES = ("norm", "norm_1", "norm_2")  # in blocks and poolings


def optimize_for_inference(
    model: keras.Model,
    runtime: str = "keras",
    precision: str | None = None,
    threads: int | None = None,
) -> keras.Model | OpenVINOModel:
    """Returns a faster model with the same outputs, for use in the current process only.

    With `runtime="keras"` the result is a Keras model. With TensorFlow on a CPU it runs in the same
    way as a SavedModel of `keras-vit export`: scales are folded into the weights, the last block
    computes only the tokens that are used, and weights are constants up to 128 MiB in float32 and
    up to 512 MiB in bfloat16; for ViT-B/16 in bfloat16 the conversion takes about 20 seconds and 6
    GB of memory (docs/performance.md). XLA compiles a small float32 model for up to four images;
    without AVX-512 a small one for up to sixteen, and a large one for up to four. The model cannot
    be saved or exported, because saved models must not need XLA. On other backends and devices the
    result is a plain copy, which the backend's compiler optimizes. With `runtime="openvino"` the
    result is an `OpenVINOModel`, which has `predict` and is called like a Keras model: the fastest
    runtime measured on a CPU. To write files, use `keras-vit export` or `keras_vit.export`.

    Args:
        model: A functional or sequential Keras model; layers from outside keras_vit are unchanged.
        runtime: `"keras"` or `"openvino"`.
        precision: `"float32"` or `"bfloat16"`, of the matrix products; None for bfloat16 if the
            model computes in bfloat16, and otherwise float32.
        threads: Threads of OpenVINO; None for one per core. Keras uses the threads of its backend.

    Returns:
        The model, with separate weights. A Keras model contains the preprocessing; an
        `OpenVINOModel` does not.

    Raises:
        ValueError: If an argument is out of range, or the model is not functional or sequential.
        ImportError: If `runtime` is `"openvino"` and openvino is not installed.
        RuntimeError: If `runtime` is `"openvino"` and the Keras backend is not TensorFlow.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=3))
        >>> faster = optimize_for_inference(model)
        >>> images = np.ones((2, 8, 8, 3), "float32")
        >>> float(keras.ops.max(keras.ops.abs(faster(images) - model(images)))) < 1e-6
        True
    """
    arguments.one_of("runtime", runtime, RUNTIMES)
    cloning.require_graph(model)
    if precision is None:
        dtypes = {layer.compute_dtype for layer in cloning.layers_of(model)}
        precision = "bfloat16" if "bfloat16" in dtypes else "float32"
    arguments.one_of("precision", precision, PRECISIONS)
    if runtime == "openvino":
        return OpenVINOModel(model, precision, threads)
    if threads is not None:
        raise ValueError(
            "`threads` must be None with `runtime='keras'`, because the Keras backend fixes its "
            "number of threads before the first computation (for TensorFlow, use "
            f"tf.config.threading). Received: threads={threads}"
        )
    is_bfloat16 = precision == "bfloat16"
    copy = cloning.to_bfloat16(model) if is_bfloat16 else cloning.with_dtype(model, "float32")
    if not is_enabled():
        return copy
    fold(copy)
    limit = MAX_CONSTANT_BYTES_BFLOAT16 if is_bfloat16 else MAX_CONSTANT_BYTES
    is_small = _weight_bytes(copy) <= limit
    max_xla_images = MAX_XLA_IMAGES if is_small else 0
    if is_bfloat16:
        max_xla_images = 0
    elif accelerators.lacks_avx512():
        max_xla_images = MAX_XLA_IMAGES_WITHOUT_AVX512 if is_small else MAX_XLA_IMAGES
    return _wrap_model(copy, _graph_builder(copy, is_small, max_xla_images))


def fold(model: keras.Model) -> None:
    """Folds scale factors into the weights of Transformer blocks and enables fused layer norms.

    The last block computes only the tokens that are used, for example only the class token.
    Changes the model in place. Weights in other dtypes would lose precision and stay unchanged.
    """
    layers = list(cloning.layers_of(model))
    for layer in layers:
        if layer.variable_dtype != "float32":
            continue
        if isinstance(layer, TransformerBlock):
            layer.fold()
        for norm in (layer, *(getattr(layer, name, None) for name in _NORM_NAMES)):
            if isinstance(norm, LayerNorm):
                norm.fused = True
    for graph in cloning.graphs_of(model):
        _drop_unused_tokens(graph, layers)


def _drop_unused_tokens(model: keras.Model, layers: list[Any]) -> None:
    """Limits the last block's output to the prefix tokens if the model's outputs use no others."""
    blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    # A block that is shared by several nested models would be limited in all of them.
    if not blocks or layers.count(blocks[-1]) > 1 or _has_tokens(model.outputs):
        return
    try:
        head = keras.Model(blocks[-1].output, model.outputs)
    except ValueError:  # the outputs also depend on other tensors
        return
    num_used = 0
    for layer in head.operations:
        if isinstance(layer, (keras.layers.InputLayer, LayerNorm)):
            continue
        if isinstance(layer, TokenPooling) and layer.mode == "token":
            num_used = max(num_used, layer.index + 1)
        elif _has_tokens(layer.input):
            return
    blocks[-1].num_queries = num_used


def _has_tokens(tensors: Any) -> bool:
    return any(len(tensor.shape) > 2 for tensor in keras.tree.flatten(tensors))


def predictor_graph(model: keras.Model) -> Compute:
    """Returns a function that runs a copy of a model in float32, as TensorFlow Serving does.

    Without AVX-512, XLA computes a few images of a Vision Transformer faster (docs/performance.md).
    """
    copy = cloning.with_dtype(model, "float32")
    if keras.backend.backend() != "tensorflow":
        return copy.predict_on_batch  # on TensorFlow it would compile with XLA, per batch size
    fold(copy)
    has_blocks = any(isinstance(layer, TransformerBlock) for layer in cloning.layers_of(copy))
    max_xla_images = MAX_XLA_IMAGES if has_blocks and accelerators.lacks_avx512() else 0
    is_small = _weight_bytes(copy) <= MAX_CONSTANT_BYTES
    return _graph_builder(copy, is_small, max_xla_images)(copy)


def two_at_a_time(compute: Callable[[Any], Any], batches: Iterable[Any]) -> Iterator[Any]:
    """Yields the result for each batch, in order, computed while another batch is read or computed.

    Models of JAX keep their state in the model, so that only one thread can call them.
    """
    batches = iter(batches)
    with ThreadPoolExecutor(2 if keras.backend.backend() == "tensorflow" else 1) as threads:
        pending = deque(threads.submit(compute, batch) for batch in islice(batches, 2))
        while pending:
            result = pending.popleft().result()
            pending.extend(threads.submit(compute, batch) for batch in islice(batches, 1))
            yield result


def _weight_bytes(model: keras.Model) -> int:
    return sum(weight.numpy().nbytes for weight in model.weights)


def _graph_builder(
    model: keras.Model, constants: bool, max_xla_images: int
) -> Callable[[keras.Model], Compute]:
    if max_xla_images and all(layer.supports_jit for layer in cloning.layers_of(model)):
        return functools.partial(compiled_for_few, few=max_xla_images, constants=constants)
    return frozen if constants else without_xla


def _wrap_model(model: keras.Model, build_graph: Callable[[keras.Model], Compute]) -> keras.Model:
    """Wraps a model in an `InferenceModel` with the same inputs, outputs and preprocessing."""
    inputs = keras.tree.map_structure(
        lambda tensor: keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name),
        model.input,
    )
    images = inputs
    has_metadata = any(isinstance(layer, ModelMetadata) for layer in cloning.layers_of(model))
    if has_metadata and isinstance(inputs, keras.KerasTensor):
        images = ModelMetadata(preprocessing_of(model), dtype=inputs.dtype)(inputs)
    outputs = InferenceLayer(model, build_graph)(images)
    return InferenceModel(inputs=inputs, outputs=outputs, name=model.name)
