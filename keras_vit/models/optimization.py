"""The fastest form of a finished model in this process."""

from __future__ import annotations

from typing import Any

import keras

from keras_vit import checks
from keras_vit.layers import Dense, LayerNorm, TransformerBlock
from keras_vit.models import cloning
from keras_vit.models.openvino_model import PRECISIONS, OpenVINOModel

RUNTIMES = ("keras", "openvino")


def optimize_for_inference(
    model: keras.Model,
    runtime: str = "keras",
    precision: str | None = None,
    threads: int | None = None,
) -> Any:
    """Returns a model that answers the same, sooner, for use in this process.

    With `runtime="keras"` a Keras model. On TensorFlow-CPU chains of element-wise operations are
    compiled by XLA, which training does anyway, and a model that is saved or served must not need;
    elsewhere it is a plain copy, for there the compiler of the whole model does it. With
    `runtime="openvino"` an `OpenVINOModel`, which has `predict` and is called like a Keras model:
    the fastest way on a CPU of those measured (docs/performance.md). To files go `keras-vit export`
    and `keras_vit.export`.

    Args:
        model: A functional or sequential Keras model; what is not of keras_vit stays as it is.
        runtime: `"keras"` or `"openvino"`.
        precision: `"float32"` or `"bfloat16"`, of products of matrices; None for that in which the
            model computes.
        threads: Threads of OpenVINO; None for as many as there are cores. Keras has those that its
            backend was given.

    Returns:
        The model, with weights of its own.

    Raises:
        ValueError: If an argument is out of range, or the model cannot be taken apart.
        ImportError: If openvino is wanted and not installed.

    Example:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=3))
        >>> faster = optimize_for_inference(model)
        >>> images = np.ones((2, 8, 8, 3), "float32")
        >>> float(keras.ops.max(keras.ops.abs(faster(images) - model(images)))) < 1e-6
        True
    """
    checks.one_of("runtime", runtime, RUNTIMES)
    if precision is None:
        half = any(layer.compute_dtype == "bfloat16" for layer in cloning.layers_of(model))
        precision = "bfloat16" if half else "float32"
    checks.one_of("precision", precision, PRECISIONS)
    if runtime == "openvino":
        return OpenVINOModel(model, precision, threads)
    if threads is not None:
        raise ValueError(
            "`threads` must be None where `runtime` is 'keras': TensorFlow has them set by "
            f"tf.config.threading before its first operation. Received: threads={threads}"
        )
    policy = {"float32": "float32", "bfloat16": "mixed_bfloat16"}[precision]
    copy = cloning.with_dtype(model, policy)
    for layer in cloning.layers_of(copy):
        block = isinstance(layer, TransformerBlock)
        parts = [layer.norm_1, layer.norm_2, layer.mlp.expand] if block else [layer]
        for part in parts:
            # In float32 oneDNN takes bias and GELU with the product.
            if isinstance(part, LayerNorm) or (isinstance(part, Dense) and precision == "bfloat16"):
                part.compiled = True
    return copy
