"""Features of a model: tokens, attention, and gradients with respect to them.

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

from keras_vit import layers
from keras_vit.models import cloning, last_activation


class _KeepsWeights:
    """Mixed into an attention: keeps its weights, after adding what `tap` holds to them."""

    tap: Any = None
    seen: Any = None
    needs_weights = True

    def attention_weights(self, q: Any, k: Any) -> Any:
        weights = super().attention_weights(q, k)  # type: ignore[misc]
        self.seen = weights if self.tap is None else weights + self.tap
        return self.seen


class _Float32Softmax(layers.MultiHeadSelfAttention):
    """Attention with a softmax in float32, whatever the precision of the products."""

    needs_weights = True

    def attention_weights(self, q: Any, k: Any) -> Any:
        scores = ops.cast(self.attention_scores(q, k), "float32")
        return ops.cast(ops.softmax(scores), q.dtype)


class _OpenAttention(_KeepsWeights, _Float32Softmax):
    """The attention of an open block."""


class _OpenPooling(_KeepsWeights, layers.AttentionPooling):
    """Attention pooling, opened."""


class _OpenBlock(layers.TransformerBlock):
    """Keeps the tokens that enter, after adding what `tap` holds to them, and those that leave."""

    attention_class = _OpenAttention
    tap: Any = None
    entered: Any = None
    left: Any = None

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        self.entered = inputs if self.tap is None else inputs + self.tap
        self.left = super().call(self.entered, training=training)
        return self.left


class _OpenEncoder(layers.PatchEncoder):
    """Keeps the grid of the patches."""

    grid: tuple[int, int] = (0, 0)

    def call(self, patches: Any, training: bool | None = None) -> Any:
        self.grid = tuple(ops.shape(patches)[1:3])
        return super().call(patches, training=training)


_OPEN: dict[type, type] = {
    layers.TransformerBlock: _OpenBlock,
    layers.AttentionPooling: _OpenPooling,
    layers.PatchEncoder: _OpenEncoder,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Activations:
    """What happened inside a model while it looked at some images; all arrays are float32.

    Args:
        grid: Rows and columns h, w of patches.
        outputs: What the model answered, before the softmax or sigmoid that it may end in, (B,
            R).
        tokens: The tokens that enter the first block and those that leave each one, L + 1 arrays
            (B, T, D).
        attention: The attention weights of each block, L arrays (B, K, T, T), rows of queries.
        pooling: Those of the attention pooling, (B, K, 1, T), or None where there is none.
        attention_gradients: What the chosen outputs change by with each weight, like `attention`;
            None if they were not asked for.
        pooling_gradient: The same for `pooling`.
        token_gradients: The same for the tokens that enter the last block, (B, T, D).

    Example:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12), classes=5))
        >>> images = np.zeros((1, 8, 12, 3), "float32")
        >>> seen = FeatureExtractor(model).activations_and_gradients(images, [2])
        >>> seen.outputs.shape, seen.token_gradients.shape
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
    """A trained Vision Transformer, opened.

    A copy whose blocks keep what passes through them. The model itself is not
    changed and pays nothing, whatever its precision, and may be part of a user's own model.

    Args:
        model: A model of keras_vit, or a functional or sequential Keras model that contains one.
        precision: `"float32"`, or `"bfloat16"` for the products of matrices.

    Raises:
        ValueError: If there are no blocks of this package in it, it cannot be taken apart, or
            `reduce_tokens` has let some of its tokens go.

    Example:
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(image_size=(8, 12), classes=5)
        >>> extractor = FeatureExtractor(models.build(config))
        >>> seen = extractor.activations(np.zeros((2, 8, 12, 3), "float32"))
        >>> seen.grid, len(seen.attention), seen.attention[0].shape, seen.tokens[0].shape
        ((2, 3), 4, (2, 3, 7, 7), (2, 7, 96))
    """

    def __init__(self, model: keras.Model, precision: str = "float32") -> None:
        cloning.require_graph(model)
        if any(isinstance(layer, layers.ReducingBlock) for layer in cloning.layers_of(model)):
            raise ValueError(
                "`model` must have all its tokens where one looks at them: give the model that "
                "`reduce_tokens` was given. "
                f"Received: model={model.name!r}, in which some go on the way"
            )
        last = cloning.last_layer(model)
        decides = last_activation.ending_of(model) in ("softmax", "sigmoid")

        def opened(layer: Any) -> Any:
            if layer is last and decides and not hasattr(layer, "activation"):
                return keras.layers.Identity()  # a layer or an operation that is nothing else
            changes = {"activation": "linear"} if layer is last and decides else {}
            if cloning.is_float(layer):
                changes["dtype"] = "float32"
            return cloning.clone_layer(layer, _OPEN.get(type(layer)), **changes)

        network = cloning.clone(model, opened)
        self.network = cloning.to_bfloat16(network) if precision == "bfloat16" else network
        found = list(cloning.layers_of(self.network))
        self.blocks = [layer for layer in found if isinstance(layer, _OpenBlock)]
        encoders = [layer for layer in found if isinstance(layer, _OpenEncoder)]
        if not self.blocks or len(encoders) != 1:
            raise ValueError(
                "`model` must be a Vision Transformer of keras_vit, or contain one. "
                f"Received: model={model.name!r} with {len(self.blocks)} TransformerBlocks and "
                f"{len(encoders)} PatchEncoders"
            )
        self.encoder = encoders[0]
        self._pooling = next((layer for layer in found if isinstance(layer, _OpenPooling)), None)
        self._token_poolings = [layer for layer in found if isinstance(layer, layers.TokenPooling)]
        self.norm = next((layer for layer in found if layer.name == "encoder_norm"), None)
        self.patches = next(layer for layer in found if isinstance(layer, layers.Patches))
        self.stem = next((layer for layer in found if isinstance(layer, layers.ResNetStem)), None)
        self.source = model

    @classmethod
    def of(cls, model: keras.Model | FeatureExtractor) -> FeatureExtractor:
        """Returns the extractor of a model; one that is given comes back as it is."""
        return model if isinstance(model, cls) else cls(model)

    @property
    def num_prefix_tokens(self) -> int:
        """Number of tokens in front of the patches."""
        return self.encoder.num_prefix_tokens

    @property
    def reads_class_token(self) -> bool:
        """Whether the answer is made of the class token."""
        return self._pooling is None and any(p.mode == "token" for p in self._token_poolings)

    @property
    def patch_stride(self) -> tuple[int, int]:
        """Height and width in pixels of the images that one patch stands for."""
        stride = self.stem.stride if self.stem is not None else 1
        height, width = self.patches.patch_size
        return height * stride, width * stride

    def reading(self, num_tokens: int) -> np.ndarray:
        """Returns how much of each token goes into the answer, as far as the pooling tells.

        Args:
            num_tokens: Number T of tokens.

        Returns:
            Weights that sum to 1, (T,): the class token, with the distillation token where both
            answer; or all patches alike, also where their maximum is taken or every token is
            returned, and where an attention pooling weighs them (`Activations.pooling`).
        """
        weights = np.zeros(num_tokens, "float32")
        if self.reads_class_token:
            weights[[layer.index for layer in self._token_poolings if layer.mode == "token"]] = 1
        else:
            weights[self.num_prefix_tokens :] = 1
        return weights / weights.sum()

    def activations(self, images: Any) -> Activations:
        """Runs the model on images and returns what happened inside.

        Args:
            images: Scaled as the model's preprocessing says, (B, H, W, C).

        Returns:
            The observation, without gradients.
        """
        return self._observation(self.run(_batch(images)))

    def activations_and_gradients(self, images: Any, classes: Any) -> Activations:
        """Runs the model and returns also what its answers change by with what is inside.

        Args:
            images: Scaled as the model's preprocessing says, (B, H, W, C).
            classes: For each image the output whose gradient is taken, (B,), or None for the
                highest one. Of a model without a classifier that is one of its features.

        Returns:
            The observation, with gradients.

        Raises:
            ValueError: If the model does not return one vector for each image, or a class is none
                of its outputs.
        """
        images = _batch(images)
        shape = self.network.output_shape
        if len(self.network.outputs) != 1 or len(shape) != 2:
            raise ValueError(
                "`model` must return one score for each class, (B, classes), where it is asked "
                f"what one owes to its inside. Received: model={self.source.name!r} with outputs "
                f"of shape {shape}"
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

        taps = [ops.zeros(shape) for shape in self._tap_shapes(images)]
        found, run = gradients(score, taps)
        arrays = [ops.convert_to_numpy(gradient) for gradient in found]
        return dataclasses.replace(
            self._observation(run),
            token_gradients=arrays[0],
            attention_gradients=arrays[1 : 1 + len(self.blocks)],
            pooling_gradient=arrays[-1] if self._pooling is not None else None,
        )

    def run(self, images: Any, taps: list[Any] | None = None) -> dict[str, Any]:
        """Runs the model and returns the tensors of an observation, in a graph as well.

        Args:
            images: Scaled as the model's preprocessing says, (B, H, W, C), float32.
            taps: Added on the way to the tokens that enter the last block, to each block's
                attention weights, and to those of the pooling; None for nothing.

        Returns:
            `outputs`, and the lists `tokens`, `attention` and `pooling` (empty where there is
            none), see `Activations`.
        """
        attentions = [block.attention for block in self.blocks]
        pooling = [] if self._pooling is None else [self._pooling]
        tapped: list[Any] = [self.blocks[-1], *attentions, *pooling]
        try:
            for layer, tap in zip(tapped, taps or (), strict=False):
                layer.tap = tap
            outputs = self.network(images, training=False)
        finally:
            for layer in tapped:
                layer.tap = None
        return {
            "outputs": ops.cast(outputs, "float32"),
            "tokens": [self.blocks[0].entered, *(block.left for block in self.blocks)],
            "attention": [attention.seen for attention in attentions],
            "pooling": [layer.seen for layer in pooling],
        }

    def _tap_shapes(self, images: Any) -> list[tuple[int, ...]]:
        run = self.run(images[:1])
        shapes = [run["tokens"][0].shape]
        shapes += [weights.shape for weights in (*run["attention"], *run["pooling"])]
        return [(len(images), *shape[1:]) for shape in shapes]

    def _observation(self, run: dict[str, Any]) -> Activations:
        run = keras.tree.map_structure(ops.convert_to_numpy, run)
        pooling = run.pop("pooling")
        return Activations(self.encoder.grid, pooling=pooling[0] if pooling else None, **run)


def _batch(images: Any) -> Any:
    return ops.cast(ops.convert_to_tensor(images), "float32")


def gradients(
    function: Callable[[list[Any]], tuple[Any, Any]], tensors: list[Any]
) -> tuple[list[Any], Any]:
    """Returns what a scalar changes by where tensors change."""
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
        "Keras must run on TensorFlow or JAX (KERAS_BACKEND) for gradients. "
        f"Received: the backend {backend!r}"
    )
