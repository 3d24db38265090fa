"""A finished model made faster by letting some of its tokens go on the way."""

from __future__ import annotations

from typing import Any

import keras

from keras_vit import arguments
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.pooling import TokenPooling
from keras_vit.layers.token_reduction import MergingBlock, PruningBlock, ReducingBlock
from keras_vit.layers.transformer_block import TransformerBlock
from keras_vit.models.cloning import clone, clone_layer, layers_of, require_graph

METHODS: dict[str, type[ReducingBlock]] = {"merge": MergingBlock, "prune": PruningBlock}


def reduce_tokens(model: keras.Model, per_block: int = 8, method: str = "merge") -> keras.Model:
    """Copies a model so that some of its tokens go in each block, which saves their computing.

    No training is needed. In each block the same number of tokens goes for every image, so shapes
    stay known; the class token and other prefix tokens always stay. A copy can be saved, loaded
    and exported as any model; `rebuild` gives all tokens back. What looks at single tokens
    (`FeatureExtractor`, attention maps, features of blocks) needs the model as it was.

    Args:
        model: A Vision Transformer of keras_vit that answers from the class token or the mean or
            maximum of the patches, or a functional Keras model that contains one.
        per_block: Tokens that go in each block, as long as they are at most half of the patches'
            tokens that are left; with 0 the copy computes the same as the model.
        method: `"merge"`: tokens that are alike become one (`MergingBlock`); `"prune"`: those
            go that the class token attends to least (`PruningBlock`).

    Returns:
        The copy, with weights of its own, in the model's precision; not compiled.

    Raises:
        ValueError: If an argument is out of range, the model has no blocks of this package, its
            number of tokens is not known, or what becomes of its tokens needs all of them; with
            `"prune"` also if the answer is not read from the class token.

    Example:
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
    _check_nesting(model)
    if method == "prune" and not encoder.class_token:
        raise ValueError(
            "`method` must be 'merge' where there is no class token, which says what to prune. "
            f"Received: method='prune', model={model.name!r}"
        )
    if not per_block:
        return clone(model)

    def changed(layer: Any) -> Any:
        if type(layer) is not TransformerBlock:
            return None
        changes = {"num_reduced": per_block, "prefix_tokens": encoder.num_prefix_tokens}
        return clone_layer(layer, METHODS[method], **changes)

    follow = _Follower(model, method)
    copy = clone(model, changed, follow)
    follow.refuse_as_output(copy)
    return copy


def _check_nesting(model: keras.Model) -> None:
    for layer in model.layers:
        if isinstance(layer, keras.Sequential) and any(
            isinstance(part, TransformerBlock) for part in layers_of(layer)
        ):
            # Keras does not let copies of these be called otherwise than the original.
            raise ValueError(
                "`model` must not hold its Vision Transformer in a Sequential inside another "
                "model; call its layers one after the other. "
                f"Received: model={model.name!r} with the Sequential {layer.name!r}"
            )
        if isinstance(layer, keras.Model):
            _check_nesting(layer)


def _encoder(model: keras.Model) -> PatchEncoder:
    """Returns the layer that makes tokens of the patches."""
    found = list(layers_of(model))
    encoders = [layer for layer in found if isinstance(layer, PatchEncoder)]
    blocks = [layer for layer in found if type(layer) is TransformerBlock]
    if len(encoders) != 1 or not blocks:
        reduced = sum(isinstance(layer, ReducingBlock) for layer in found)
        raise ValueError(
            "`model` must be a Vision Transformer of keras_vit with all its tokens, or contain "
            f"one. Received: model={model.name!r} with {len(blocks)} TransformerBlocks, {reduced} "
            f"that let tokens go already, and {len(encoders)} PatchEncoders"
        )
    return encoders[0]


class _Follower:
    """Calls the layers of a copy, and follows its tokens and their sizes through them."""

    def __init__(self, model: keras.Model, method: str) -> None:
        self._name, self._method = model.name, method
        # By the identity of a tensor of tokens: it, so that its number stays its own, and its
        # sizes, where tokens were merged.
        self._followed: dict[int, list[Any]] = {}

    def __call__(self, layer: Any, *args: Any, **kwargs: Any) -> Any:
        followed = any(id(x) in self._followed for x in keras.tree.flatten((args, kwargs)))
        reduces = isinstance(layer, ReducingBlock)
        if not followed and not reduces:
            outputs = layer(*args, **kwargs)
            if isinstance(layer, keras.Model):
                self.refuse_as_output(layer)
            return outputs
        # Files of older versions have Keras' own layer.
        normalises = isinstance(layer, (LayerNorm, keras.layers.LayerNormalization))
        if not reduces and not normalises:
            self._check_reader(layer)
        _, *sizes = self._followed.get(id(args[0]), [args[0]])
        if normalises:
            return self._follow(layer(*args, **kwargs), *sizes)
        outputs = layer(args[0], *sizes, **kwargs)
        return self._follow(*keras.tree.flatten(outputs)) if reduces else outputs

    def refuse_as_output(self, model: keras.Model) -> None:
        """Raises `ValueError` if a model returns tokens of which some are gone."""
        if any(id(x) in self._followed for x in model.outputs):
            raise ValueError(
                "`model` must answer from the class token, or the mean or maximum of its patches, "
                f"where tokens are to go. Received: model={self._name!r}, in which "
                f"{model.name!r} returns its tokens"
            )

    def _check_reader(self, layer: Any) -> None:
        if not isinstance(layer, TokenPooling):
            raise ValueError(
                "`model` must hand its tokens to blocks, layer norms and a pooling by class "
                "token, mean or maximum only, where tokens are to go. "
                f"Received: model={self._name!r}, whose layer {layer.name!r} "
                f"({type(layer).__name__}) takes them"
            )
        if self._method == "prune" and layer.mode != "token":
            raise ValueError(
                "`method` must be 'merge' where the answer is not read from the class token, "
                f"which says what to prune. Received: method='prune', pooling={layer.mode!r}"
            )

    def _follow(self, tokens: Any, *sizes: Any) -> Any:
        self._followed[id(tokens)] = [tokens, *sizes]
        return tokens
