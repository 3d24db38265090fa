"""Vision Transformer encoder that can run on a subset of the tokens, for pre-training.

Letters: B batch; h, w rows and columns of the grid of patches; N = hw patches; p prefix tokens;
T tokens; P, Q patch height and width; C channels; F = PQC values in a patch; D width.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.layers import Patches, TokenPositions
from keras_vit.layers.token_reduction import take_tokens
from keras_vit.models.metadata import config_of, preprocessing_of

# Validation masks are the same in every epoch, so that the losses can be compared.
VALIDATION_SEED = 2021


class TokenEncoder:
    """The encoder layers of a network, from the patch extraction to the final layer norm.

    The layers are shared with the network, so that training them trains the network.
    """

    def __init__(self, network: keras.Model) -> None:
        self.config = config_of(network)
        if self.config.stem_blocks is not None:
            raise ValueError(
                "`network` must take its patches from pixels: the ResNet of a hybrid mixes "
                f"neighboring patches. Received: stem_blocks={self.config.stem_blocks}"
            )
        if None in self.config.image_size:
            raise ValueError(
                "`network` must be built with a fixed image size. Received: "
                f"image_size={self.config.image_size}"
            )
        self.cut = network.get_layer("patches")
        self.patch_encoder = network.get_layer("patch_encoder")
        positions = [layer for layer in network.layers if isinstance(layer, TokenPositions)]
        self.token_positions = positions[0] if positions else None
        self.before = [layer for layer in network.layers if layer.name == "pre_norm"]
        blocks = [layer for layer in network.layers if layer.name.startswith("block_")]
        self.blocks = sorted(blocks, key=lambda layer: layer.name)
        self.norm = network.get_layer("encoder_norm")
        self.policy = self.norm.dtype_policy
        # Not `cut`: bfloat16 changes a pixel in [-1, 1] by up to a quarter of a gray level, a large
        # error in a patch of uniform color.
        self._cut_exactly = Patches(self.cut.patch_size, self.cut.remainder, dtype="float32")
        _, rows, columns, self.patch_values = self.cut.output.shape
        self.grid = (rows, columns)
        self.num_patches = rows * columns
        self.num_prefix = self.config.num_prefix_tokens
        self.preprocessing = preprocessing_of(network)

    def patches(self, images: Any) -> Any:
        """Returns the flattened float32 patches of images, which are the prediction targets."""
        patches = self._cut_exactly(images)  # (B, h, w, F)
        return ops.reshape(patches, (-1, self.num_patches, self.patch_values))  # (B, N, F)

    def images(self, patches: Any) -> Any:
        """Reassembles images from flattened patches; the inverse of `patches`."""
        (h, w), (p, q), c = self.grid, self.cut.patch_size, self.config.channels
        images = ops.reshape(patches, (-1, h, w, p, q * c))  # (B, h, w, P, QC)
        images = ops.transpose(images, (0, 1, 3, 2, 4))  # (B, h, P, w, QC)
        return ops.reshape(images, (-1, h * p, w * q, c))  # (B, hP, wQ, C)

    def select(self, tokens: Any, visible: Any) -> Any:
        """Returns the prefix tokens and the tokens of the patches with indices (B, k)."""
        patches = take_tokens(tokens[:, self.num_prefix :], visible)
        return ops.concatenate([tokens[:, : self.num_prefix], patches], axis=1)

    def encode(self, tokens: Any, training: bool, visible: Any = None) -> Any:
        """Applies the Transformer blocks and the final layer norm to tokens.

        Args:
            tokens: Tensor of shape (B, T, D), or of the tokens of `select`.
            training: Whether dropout is applied.
            visible: Indices of the patches, if `tokens` are those of `select`.
        """
        z, positions = tokens, None
        if self.token_positions is not None:
            positions = self.token_positions(np.zeros((1, *self.grid, 1)), training=training)
            if visible is not None:
                repeated = ops.broadcast_to(positions, (ops.shape(z)[0], *positions.shape[1:]))
                positions = self.select(repeated, visible)
        for norm in self.before:
            z = norm(z)
        for block in self.blocks:
            z = block(z, positions, training=training)
        return self.norm(z)
