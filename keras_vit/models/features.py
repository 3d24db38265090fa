"""Image feature extraction from the classifier's input or from the output of any block.

Letters: N images; T tokens; D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit import arguments
from keras_vit.models.cloning import is_graph, layers_of, require_graph, with_dtype
from keras_vit.models.feature_extractor import FeatureExtractor
from keras_vit.models.metadata import preprocessing_of

POOLS = ("token", "gap", "avg", "all")
_HEADS = ("head", "distillation_head")


def features(
    model: keras.Model,
    data: Any,
    *,
    layers: Sequence[int] | None = None,
    pool: str | None = None,
    batch_size: int = 32,
    verbose: int = 0,
) -> np.ndarray | dict[int, np.ndarray]:
    """Computes image features from one or several layers in a single pass over the images.

    The features are computed in float32; the model itself is not changed.

    Args:
        model: A model of keras_vit, or another functional or sequential model. Without a Vision
            Transformer in the model, `layers` and `pool` must be None.
        data: Labeled images (`keras_vit.data.load`), which the model's preprocessing is applied
            to, or any input of `keras.Model.predict`, with images already scaled.
        layers: Indices of blocks; negative indices count from the last. The features are the
            blocks' output tokens after the encoder's last layer norm. By default the classifier's
            input.
        pool: `"token"`: the class token; `"gap"` or `"avg"`: the mean of the patch tokens;
            `"all"`: every token. By default the classifier's input; with `layers`, or for a model
            that returns tokens, the class token if the classifier reads it, otherwise the mean.
        batch_size: Batch size.
        verbose: 0 is silent, 1 shows a progress bar.

    Returns:
        Features (N, D), float32, or (N, T, D) with `pool="all"`; with `layers` a dictionary from
        the given indices to features.

    Raises:
        ValueError: If a layer or a pool does not exist.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=5))
        >>> images = np.zeros((3, 8, 8, 3), "float32")
        >>> features(model, images).shape
        (3, 96)
        >>> tokens = features(model, images, layers=[0, -1], pool="all")
        >>> tokens[-1].shape
        (3, 5, 96)
    """
    require_graph(model)
    one_vector = len(model.outputs) == 1 and len(model.output_shape) == 2
    if layers is None and pool is None and one_vector:
        extractor = representation(model)
    else:
        extractor = _TokenReader(model, [-1] if layers is None else layers, pool)
    outputs = extractor.predict(_prepared(data, model, batch_size), batch_size, verbose=verbose)
    if layers is None:
        return np.asarray(outputs[0] if isinstance(outputs, list) else outputs)
    return dict(zip(layers, outputs, strict=True))


def representation(model: keras.Model) -> keras.Model:
    """Returns a copy of a model without its classifier.

    Args:
        model: A functional or sequential model.

    Returns:
        A copy in float32 whose outputs, (B, D), are the inputs of the classifier, the last layer
        with a kernel; with two classifiers, the mean of their inputs.

    Examples:
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=5)
        >>> representation(models.build(config)).output_shape
        (None, 96)
    """
    copy = with_dtype(model, "float32")
    heads = classifiers(copy)
    return _cut(copy, heads) if heads else copy


def _cut(model: keras.Model, heads: Sequence[keras.layers.Layer]) -> keras.Model:
    """Returns the part of a model before its heads, which may be in a nested model."""
    inputs = [head.input for head in heads if head in model.layers]
    if not inputs:
        nested = next(x for x in model.layers if is_graph(x) and heads[0] in layers_of(x))
        inputs = [_cut(nested, heads)(*nested._inbound_nodes[-1].arguments.args)]
    features = keras.layers.Average(dtype="float32")(inputs) if len(inputs) > 1 else inputs[0]
    images = model.inputs[0] if len(model.inputs) == 1 else model.inputs
    return keras.Model(images, features, name=model.name)


class _TokenReader(keras.Model):
    """Model that outputs the pooled tokens of selected blocks."""

    def __init__(self, model: keras.Model, numbers: Sequence[int], pool: str | None) -> None:
        super().__init__(name="token_reader")
        self.extractor = extractor = FeatureExtractor(model)
        depth = len(extractor.blocks)
        indices = numbers if np.iterable(numbers) else [None]
        if not all(isinstance(i, (int, np.integer)) and -depth <= i < depth for i in indices):
            raise ValueError(
                f"`layers` must be a list of indices of the {depth} blocks, in "
                f"[{-depth}, {depth}), such as [0, -1]. Received: layers={numbers!r}"
            )
        self.numbers = list(numbers)
        arguments.one_of("pool", pool, (*POOLS, None))
        pool = "gap" if pool == "avg" else pool
        if pool == "token" and not extractor.encoder.class_token:
            raise ValueError(
                "`pool` must be 'gap' or 'all' if the model has no class token. Received: "
                f"pool={pool!r}"
            )
        self.pool = pool or ("token" if extractor.reads_class_token else "gap")
        self.network = extractor.network  # tracked, so that its weights belong to this model

    def call(self, images: Any) -> list[Any]:
        extractor, ops = self.extractor, keras.ops
        self.network(images, training=False)
        outputs = []
        for number in self.numbers:
            tokens = extractor.blocks[number].block_outputs  # (B, T, D)
            if extractor.norm is not None:
                tokens = extractor.norm(tokens)
            if self.pool == "token":
                tokens = tokens[:, 0]  # (B, D)
            elif self.pool == "gap":
                tokens = ops.mean(tokens[:, extractor.num_prefix_tokens :], axis=1)  # (B, D)
            outputs.append(tokens)
        return outputs


def _prepared(data: Any, model: keras.Model, batch_size: int) -> Any:
    """Converts labeled images to a dataset for `predict`; returns other data unchanged."""
    if not (hasattr(data, "class_names") and hasattr(data, "read")):
        return data
    # Only labeled images need TensorFlow.
    from keras_vit.data.pipeline import evaluation_dataset

    dataset = evaluation_dataset(data, preprocessing_of(model), batch_size=batch_size)
    return dataset.map(lambda images, labels: images)


def classifiers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the classifier layers of a model: keras_vit's heads, or else the last Dense layer."""
    layers = list(layers_of(model))
    dense = [layer for layer in layers if isinstance(layer, keras.layers.Dense)]
    last = [layer for layer in layers if layer.weights][-1:]
    if not dense or last != dense[-1:] or dense[-1].name == "pre_logits":
        return []
    heads = [layer for layer in dense if layer.name in _HEADS]
    return heads if dense[-1] in heads else dense[-1:]
