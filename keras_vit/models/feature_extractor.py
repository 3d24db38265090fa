"""Extraction of tokens, attention weights and gradients from a Vision Transformer.

Letters: B batch; H, W, C image height, width, channels; h, w rows and columns of patches; T
tokens; D hidden size; K heads; L blocks; R classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import arguments, layers
from keras_vit.models import cloning, last_activation
from keras_vit.models.out_of_distribution import last_results_of


class _StoresAttentionWeights:
    """Mixin for attention layers that adds `tap` to the attention weights and stores the sum."""

    tap: Any = None
    stored_weights: Any = None
    needs_weights = True

    def attention_weights(self, *args: Any) -> Any:
        weights = super().attention_weights(*args)  # type: ignore[misc]
        self.stored_weights = weights if self.tap is None else weights + self.tap
        return self.stored_weights


class _Float32Softmax(layers.MultiHeadSelfAttention):
    """Self-attention that computes the softmax in float32, whatever its compute dtype."""

    def attention_weights(self, q: Any, k: Any, added: Any = None) -> Any:
        scores = ops.cast(self.attention_scores(q, k, added), "float32")
        return ops.cast(ops.softmax(scores), q.dtype)


class _RecordingAttention(_StoresAttentionWeights, _Float32Softmax):
    """Self-attention layer for a `_RecordingBlock` that stores its attention weights."""


class _RecordingPooling(_StoresAttentionWeights, layers.AttentionPooling):
    """Attention pooling layer that stores its attention weights."""


class _RecordingBlock(layers.TransformerBlock):
    """Transformer block that adds `tap` to its input tokens, and stores its inputs and outputs."""

    attention_class = _RecordingAttention
    outputs_only = False
    tap: Any = None
    block_inputs: Any = None
    block_outputs: Any = None

    def call(self, inputs: Any, positions: Any = None, training: bool | None = None) -> Any:
        self.block_inputs = inputs if self.tap is None else inputs + self.tap
        self.block_outputs = outputs = super().call(self.block_inputs, positions, training=training)
        if (num_queries := self.num_queries) is not None and not self.outputs_only:
            self.num_queries = None
            self.block_outputs = super().call(self.block_inputs, positions, training=training)
            self.num_queries = num_queries
        return outputs


class _RecordingEncoder(layers.PatchEncoder):
    """Patch encoder that records the size of the patch grid, (rows, columns)."""

    grid: tuple[int, int] = (0, 0)

    def call(self, patches: Any, training: bool | None = None) -> Any:
        self.grid = tuple(ops.shape(patches)[1:3])
        return super().call(patches, training=training)


_RECORDING: dict[type, type] = {
    layers.TransformerBlock: _RecordingBlock,
    layers.AttentionPooling: _RecordingPooling,
    layers.PatchEncoder: _RecordingEncoder,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Activations:
    """Tokens, attention weights and gradients of a forward pass; all arrays are float32.

    Args:
        grid: Rows and columns h, w of patches.
        outputs: Outputs of the model, before a final softmax or sigmoid, (B, R).
        tokens: Input tokens of the first block and output tokens of each block, L + 1 arrays
            (B, T, D).
        attention: Attention weights of each block, L arrays (B, K, T, T), one row per query.
        pooling: Weights of the attention pooling, (B, K, 1, T), or None without one.
        attention_gradients: Gradients of the chosen outputs by `attention`; None if not
            computed.
        pooling_gradient: Gradient of the chosen outputs by `pooling`.
        token_gradients: Gradients by the input tokens of the last block, (B, T, D).

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12), classes=5))
        >>> images = np.zeros((1, 8, 12, 3), "float32")
        >>> result = FeatureExtractor(model).activations_and_gradients(images, [2])
        >>> result.outputs.shape, result.token_gradients.shape
        ((1, 5), (1, 7, 96))
    """

    grid: tuple[int, int]
    outputs: np.ndarray
    tokens: list[np.ndarray]
    attention: list[np.ndarray]
    pooling: np.ndarray | None = None
    attention_gradients: list[np.ndarray] | None = None
    pooling_gradient: np.ndarray | None = None
    token_gradients: np.ndarray | None = None


class FeatureExtractor:
    """Extracts tokens, attention weights and gradients from a trained Vision Transformer.

    The extractor contains a copy of the model whose blocks store their tokens and attention
    weights. The original model is not changed, and may be part of a user's own model.

    Args:
        model: A model of keras_vit, or a functional or sequential Keras model that contains one.
        precision: `"float32"`, or `"bfloat16"` for the matrix products.

    Raises:
        ValueError: If the model has no blocks of this package, is not functional or sequential,
            or is from `reduce_tokens`, or the precision is unknown.

    Examples:
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(image_size=(8, 12), classes=5)
        >>> extractor = FeatureExtractor(models.build(config))
        >>> result = extractor.activations(np.zeros((2, 8, 12, 3), "float32"))
        >>> result.grid, len(result.attention), result.attention[0].shape, result.tokens[0].shape
        ((2, 3), 4, (2, 3, 7, 7), (2, 7, 96))
    """

    def __init__(self, model: keras.Model, precision: str = "float32") -> None:
        arguments.one_of("precision", precision, ("float32", "bfloat16"))
        cloning.require_graph(model)
        if any(isinstance(layer, layers.ReducingBlock) for layer in cloning.layers_of(model)):
            raise ValueError(
                "`model` must not have reduced tokens; pass the original model, before "
                f"`reduce_tokens`. Received: model={model.name!r}, whose tokens are reduced"
            )

        def recording_layer(layer: Any) -> Any:
            changes = {"dtype": "float32"} if cloning.is_float(layer) else {}
            return cloning.clone_layer(layer, _RECORDING.get(type(layer)), **changes)

        network = last_activation.without_last_activation(model, recording_layer)
        self.network = cloning.to_bfloat16(network) if precision == "bfloat16" else network
        all_layers = list(cloning.layers_of(self.network))
        self.blocks = [layer for layer in all_layers if isinstance(layer, _RecordingBlock)]
        encoders = [layer for layer in all_layers if isinstance(layer, _RecordingEncoder)]
        if any(block.window_size for block in self.blocks):
            raise ValueError(
                "`model` must attend among all tokens in every block. Received: "
                f"model={model.name!r}, whose blocks have windows"
            )
        if not self.blocks or len(encoders) != 1:
            raise ValueError(
                "`model` must be a Vision Transformer of keras_vit, or contain one. "
                f"Received: model={model.name!r} with {len(self.blocks)} TransformerBlocks and "
                f"{len(encoders)} PatchEncoders"
            )
        self.encoder = encoders[0]
        self._pooling = next((x for x in all_layers if isinstance(x, _RecordingPooling)), None)
        self._token_poolings = [x for x in all_layers if isinstance(x, layers.TokenPooling)]
        self.norm = next((layer for layer in all_layers if layer.name == "encoder_norm"), None)
        self.patches = next(x for x in all_layers if isinstance(x, layers.Patches))
        self.stem = next((x for x in all_layers if isinstance(x, layers.ResNetStem)), None)

    @classmethod
    def of(cls, model: keras.Model | FeatureExtractor) -> FeatureExtractor:
        """Returns an extractor for a model, or `model` itself if it already is an extractor."""
        return model if isinstance(model, cls) else cls(model)

    @property
    def num_prefix_tokens(self) -> int:
        """Number of tokens before the patch tokens, such as the class token."""
        return self.encoder.num_prefix_tokens

    @property
    def reads_class_token(self) -> bool:
        """True if the output is computed from the class token."""
        return self._pooling is None and any(p.reads_token for p in self._token_poolings)

    @property
    def patch_stride(self) -> tuple[int, int]:
        """Height and width, in pixels, of the image region covered by one patch."""
        stride = self.stem.stride if self.stem is not None else 1
        height, width = self.patches.patch_size
        return height * stride, width * stride

    def reading(self, num_tokens: int) -> np.ndarray:
        """Returns the weight with which each token contributes to the pooled output.

        Args:
            num_tokens: Number T of tokens.

        Returns:
            Weights that sum to 1, (T,): on the class token, and on the distillation token if it
            has a head, half of them on the patches with pooling `"token_gap"`; otherwise equal for
            all patches, also for pooling by maximum or attention (`Activations.pooling` contains
            its weights) and without pooling.
        """
        weights = np.zeros(num_tokens, "float32")
        if self.reads_class_token:
            weights[[layer.index for layer in self._token_poolings if layer.reads_token]] = 1
        if not self.reads_class_token or any(p.mode == "token_gap" for p in self._token_poolings):
            patches = num_tokens - self.num_prefix_tokens
            weights[self.num_prefix_tokens :] = max(weights.sum(), 1) / patches
        return weights / weights.sum()

    def activations(self, images: Any) -> Activations:
        """Runs the model on images and returns all tokens and attention weights.

        Args:
            images: Images scaled by the model's preprocessing, (B, H, W, C).

        Returns:
            The activations, without gradients.
        """
        return self._to_activations(self.run(_batch(images)))

    def activations_and_gradients(self, images: Any, classes: Any) -> Activations:
        """Returns the activations, and the gradients of one output per image with respect to them.

        Args:
            images: Images scaled by the model's preprocessing, (B, H, W, C).
            classes: Index of the differentiated output of each image, (B,), or None for the
                highest output. For a model without a classifier these are indices of features.

        Returns:
            The activations, with gradients.

        Raises:
            ValueError: If the model does not return one vector for each image, or a class is not
                an index of its outputs.
        """
        images = _batch(images)
        shape = self.network.output_shape
        if len(self.network.outputs) != 1 or len(shape) != 2:
            raise ValueError(
                "`model` must return one score for each class, (B, classes), to explain a "
                f"class. Received: model={self.network.name!r} with outputs of shape {shape}"
            )
        outputs = ops.convert_to_numpy(self.run(images)["outputs"]) if classes is None else None
        chosen = outputs.argmax(axis=1) if outputs is not None else np.ravel(np.asarray(classes))
        if len(chosen) != len(images) or not 0 <= chosen.min() <= chosen.max() < shape[1]:
            raise ValueError(
                f"`classes` must be one class in [0, {shape[1]}) for each of the {len(images)} "
                f"images. Received: classes={chosen.tolist()[:20]}"
            )
        index = ops.convert_to_tensor(chosen[:, None].astype("int32"))

        def score(taps: list[Any]) -> tuple[Any, dict[str, Any]]:
            run = self.run(images, taps)
            return ops.sum(ops.take_along_axis(run["outputs"], index, axis=1)), run

        first_run = self.run(images[:1])
        tapped_tensors = (first_run["tokens"][0], *first_run["attention"], *first_run["pooling"])
        taps = [ops.zeros((len(images), *tensor.shape[1:])) for tensor in tapped_tensors]
        tap_gradients, run = gradients(score, taps)
        arrays = [ops.convert_to_numpy(gradient) for gradient in tap_gradients]
        return dataclasses.replace(
            self._to_activations(run),
            token_gradients=arrays[0],
            attention_gradients=arrays[1 : 1 + len(self.blocks)],
            pooling_gradient=arrays[-1] if self._pooling is not None else None,
        )

    def run(self, images: Any, taps: list[Any] | None = None) -> dict[str, Any]:
        """Runs the model, also inside a `tf.function`, and returns its activations as tensors.

        Args:
            images: Images scaled by the model's preprocessing, (B, H, W, C), float32.
            taps: Tensors to add to the input tokens of the last block, to each block's attention
                weights, and to the weights of the attention pooling; None to add nothing.

        Returns:
            `outputs`, the lists `tokens`, `attention` and `pooling` (empty without an attention
            pooling), see `Activations`, and `ood_results`, those of `ScoredDense`, if any.
        """
        attentions = [block.attention for block in self.blocks]
        pooling = [] if self._pooling is None else [self._pooling]
        tapped_layers: list[Any] = [self.blocks[-1], *attentions, *pooling]
        try:
            for layer, tap in zip(tapped_layers, taps or (), strict=False):
                layer.tap = tap
            outputs = self.network(images, training=False)
        finally:
            for layer in tapped_layers:
                layer.tap = None
        return {
            "outputs": ops.cast(outputs, "float32"),
            "ood_results": last_results_of(self.network),
            "tokens": [self.blocks[0].block_inputs, *(b.block_outputs for b in self.blocks)],
            "attention": [attention.stored_weights for attention in attentions],
            "pooling": [layer.stored_weights for layer in pooling],
        }

    def run_outputs(self, images: Any) -> dict[str, Any]:
        """Like `run`, but without activations, and with fewer operations after `fold`."""
        self.blocks[-1].outputs_only = True
        try:
            run = self.run(images)
            return {name: run[name] for name in ("outputs", "ood_results")}
        finally:
            self.blocks[-1].outputs_only = False

    def _to_activations(self, run: dict[str, Any]) -> Activations:
        run = keras.tree.map_structure(ops.convert_to_numpy, run)
        run.pop("ood_results")
        pooling = run.pop("pooling")
        return Activations(self.encoder.grid, pooling=pooling[0] if pooling else None, **run)


def _batch(images: Any) -> Any:
    return ops.cast(ops.convert_to_tensor(images), "float32")


def gradients(
    function: Callable[[list[Any]], tuple[Any, Any]], tensors: list[Any]
) -> tuple[list[Any], Any]:
    """Returns the gradients of a function's scalar first output, and its second output."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(tensors)
            scalar, other = function(tensors)
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(scalar, tensors, unconnected_gradients=zero), other
    if backend == "jax":
        import jax

        return jax.grad(function, has_aux=True)(tensors)
    raise ValueError(
        "The Keras backend (KERAS_BACKEND) must be TensorFlow or JAX to compute gradients. "
        f"Received: the backend {backend!r}"
    )
