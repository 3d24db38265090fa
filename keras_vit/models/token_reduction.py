"""Token merging and pruning for faster inference."""

from __future__ import annotations

from typing import Any

import keras

from keras_vit import arguments
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.pooling import TokenPooling
from keras_vit.layers.token_reduction import MergingBlock, PruningBlock, ReducingBlock
from keras_vit.layers.transformer_block import TransformerBlock
from keras_vit.models.cloning import clone, clone_layer, graphs_of, layers_of, require_graph

METHODS: dict[str, type[ReducingBlock]] = {"merge": MergingBlock, "prune": PruningBlock}


def reduce_tokens(model: keras.Model, per_block: int = 8, method: str = "merge") -> keras.Model:
    """Returns a faster copy of a model whose blocks merge or prune tokens.

    No training is needed. Each block removes the same number of tokens for every image, so shapes
    stay static; the class token and other prefix tokens always stay. The copy can be saved, loaded
    and exported like any model; `rebuild` restores a model with all tokens. `FeatureExtractor`,
    attention maps and features of blocks require the original model.

    Args:
        model: A Vision Transformer of keras_vit with pooling by class token, mean or maximum, or a
            functional Keras model that contains one.
        per_block: Number of tokens to remove in each block, limited to half of the remaining patch
            tokens; with 0 the copy computes the same as the model.
        method: `"merge"`: similar tokens are merged (`MergingBlock`); `"prune"`: tokens with the
            least attention from the class token are dropped (`PruningBlock`).

    Returns:
        The copy, with separate weights, in the model's dtype policy; not compiled.

    Raises:
        ValueError: If an argument is out of range, the model has no blocks of this package, its
            number of tokens is unknown, or a layer after its blocks requires all tokens; with
            `"prune"` also if the pooling is not by class token.

    Examples:
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(image_size=(16, 16), classes=5)
        >>> model = reduce_tokens(models.build(config), per_block=2)
        >>> [model.get_layer(f"block_{i:02d}").output[0].shape[1] for i in range(4)]
        [15, 13, 11, 9]

    Reference: https://arxiv.org/abs/2210.09461 and https://arxiv.org/abs/2202.07800
    """
    arguments.count("per_block", per_block)
    arguments.one_of("method", method, tuple(METHODS))
    require_graph(model)
    encoder = _encoder(model)
    blocks = [layer for layer in layers_of(model) if isinstance(layer, TransformerBlock)]
    if any(block.window_size for block in blocks):
        raise ValueError(
            "`model` must attend among all tokens in every block to reduce tokens. Received: "
            f"model={model.name!r}, whose blocks have windows"
        )
    if encoder.kind.in_attention:
        raise ValueError(
            "`model` must have positions only in its tokens, not in the attention of its blocks, "
            "to reduce tokens: a merged token has no position. Received: "
            f"position_embedding={encoder.position_embedding!r}"
        )
    for graph in graphs_of(model):
        nested = graph is not model and isinstance(graph, keras.Sequential)
        if nested and any(isinstance(layer, TransformerBlock) for layer in layers_of(graph)):
            # Keras allows no other calls in a copy of a Sequential.
            raise ValueError(
                "`model` must not contain its Vision Transformer in a Sequential inside another "
                "model; call the layers of the Sequential one after the other instead. "
                f"Received: model={model.name!r} with the Sequential {graph.name!r}"
            )
    if method == "prune" and not encoder.class_token:
        raise ValueError(
            "`method` must be 'merge' without a class token, whose attention ranks the tokens. "
            f"Received: method='prune', model={model.name!r}"
        )
    if not per_block:
        return clone(model)

    def changed(layer: Any) -> Any:
        if type(layer) is not TransformerBlock:
            return None
        changes = {"num_reduced": per_block, "prefix_tokens": encoder.num_prefix_tokens}
        return clone_layer(layer, METHODS[method], **changes)

    call = _SizeTracker(model, method)
    copy = clone(model, changed, call)
    call.refuse_as_output(copy)
    return copy


def _encoder(model: keras.Model) -> PatchEncoder:
    """Returns the `PatchEncoder` layer of a model."""
    layers = list(layers_of(model))
    encoders = [layer for layer in layers if isinstance(layer, PatchEncoder)]
    blocks = [layer for layer in layers if type(layer) is TransformerBlock]
    if len(encoders) != 1 or not blocks:
        reduced = sum(isinstance(layer, ReducingBlock) for layer in layers)
        raise ValueError(
            "`model` must be a Vision Transformer of keras_vit without reduced tokens, or "
            f"contain one. Received: model={model.name!r} with {len(blocks)} TransformerBlocks, "
            f"{reduced} that already reduce tokens, and {len(encoders)} PatchEncoders"
        )
    return encoders[0]


class _SizeTracker:
    """`call` argument of `clone` that passes the sizes of merged tokens from block to block."""

    def __init__(self, model: keras.Model, method: str) -> None:
        self._name, self._method = model.name, method
        # From the id of a token tensor to the tensor, so that its id is not reused, and the sizes
        # if tokens were merged.
        self._reduced: dict[int, list[Any]] = {}

    def __call__(self, layer: Any, *args: Any, **kwargs: Any) -> Any:
        has_reduced = any(id(x) in self._reduced for x in keras.tree.flatten((args, kwargs)))
        reduces = isinstance(layer, ReducingBlock)
        if not has_reduced and not reduces:
            outputs = layer(*args, **kwargs)
            if isinstance(layer, keras.Model):
                self.refuse_as_output(layer)
            return outputs
        # Files of older versions contain Keras' own layer, not the subclass `LayerNorm`.
        normalizes = isinstance(layer, keras.layers.LayerNormalization)
        if not reduces and not normalizes:
            self._check_consumer(layer)
        _, *sizes = self._reduced.get(id(args[0]), [args[0]])
        if normalizes:
            return self._record(layer(*args, **kwargs), *sizes)
        outputs = layer(args[0], *sizes, **kwargs)
        return self._record(*keras.tree.flatten(outputs)) if reduces else outputs

    def refuse_as_output(self, model: keras.Model) -> None:
        """Raises `ValueError` if merged or pruned tokens are an output of the model."""
        if any(id(x) in self._reduced for x in model.outputs):
            raise ValueError(
                "`model` must classify from the class token, or from the mean or maximum of the "
                f"patch tokens, to reduce tokens. Received: model={self._name!r}, in which "
                f"{model.name!r} returns its tokens"
            )

    def _check_consumer(self, layer: Any) -> None:
        if not isinstance(layer, TokenPooling):
            raise ValueError(
                "`model` must pass its tokens only to blocks, layer norms and pooling by class "
                f"token, mean or maximum, to reduce tokens. Received: model={self._name!r}, "
                f"whose layer {layer.name!r} ({type(layer).__name__}) receives them"
            )
        if self._method == "prune" and layer.mode != "token":
            raise ValueError(
                "`method` must be 'merge' if the output is not computed from the class token, "
                "whose attention ranks the tokens. Received: method='prune', "
                f"pooling={layer.mode!r}"
            )

    def _record(self, tokens: Any, *sizes: Any) -> Any:
        self._reduced[id(tokens)] = [tokens, *sizes]
        return tokens
