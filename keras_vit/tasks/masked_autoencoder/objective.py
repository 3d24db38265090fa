"""Training objective of masked autoencoders: the reconstruction of masked patches.

Letters: B batch; H, W, C image height, width, channels; N patches; k of them visible; p prefix
tokens; F values in a patch; D, E width of encoder and decoder.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import arguments
from keras_vit.layers import LayerNorm, TransformerBlock
from keras_vit.layers.dropout import ReplicaSeedGenerator
from keras_vit.layers.position_embedding import sincos_2d
from keras_vit.layers.token_reduction import take_tokens
from keras_vit.models.token_encoder import VALIDATION_SEED, TokenEncoder
from keras_vit.tasks.objective import Objective

# Added to the variance of a patch, as in the authors' code.
_EPSILON = 1e-6


class MaskedAutoencoderObjective(Objective):
    """Trains an encoder as a masked autoencoder, with a decoder that is discarded afterwards.

    A random selection of patches of each image is visible. The encoder, the network from patches
    to the last norm, runs only on visible patches. A narrow decoder receives the encoded tokens
    and a learned mask token in every other position, with fixed sine-cosine positions, and
    predicts the pixels of all patches. With x_i the masked patches and y_i their predictions, the
    loss of an image is the mean of |x_i - y_i|^2 / F. With `norm_pix` each x_i is normalized by
    its own mean and standard deviation (of F - 1 degrees of freedom).

    Reference: https://arxiv.org/abs/2111.06377
    """

    def __init__(
        self,
        network: keras.Model,
        *,
        mask_ratio: float = 0.75,
        norm_pix: bool = True,
        decoder_width: int = 512,
        decoder_depth: int = 8,
        decoder_heads: int = 16,
        seed: int | None = None,
    ) -> None:
        super().__init__(network)
        self.mask_ratio = arguments.rate("mask_ratio", mask_ratio)
        self.norm_pix = norm_pix
        self.encoder = TokenEncoder(network)
        num_patches = self.encoder.num_patches
        # In floating point 10 (1 - 0.9) is slightly less than 1.
        self.num_visible = int(num_patches * (1 - self.mask_ratio) + 1e-6)
        if not self.num_visible:
            raise ValueError(
                "`mask_ratio` must leave at least one patch visible. "
                f"Received: mask_ratio={mask_ratio}, {num_patches} patches"
            )
        positions = self.encoder.token_positions
        if positions is not None and not positions.kind.per_token:
            raise ValueError(
                "`position_embedding` must not be of pairs of tokens for a masked autoencoder, "
                "which encodes some of the tokens. Received: position_embedding="
                f"{positions.position_embedding!r}"
            )
        if decoder_width % 4 or decoder_width % decoder_heads:
            raise ValueError(
                "`decoder_width` must be a multiple of 4 and of `decoder_heads`. "
                f"Received: decoder_width={decoder_width}, decoder_heads={decoder_heads}"
            )
        self.decoder = _Decoder(self.encoder, decoder_width, decoder_depth, decoder_heads)
        self.seed_generator = ReplicaSeedGenerator(seed)

    def example_losses(self, x: Any, y: Any, training: bool) -> tuple[Any, Any]:
        noise = self.noise(ops.shape(x)[0], self.seed_generator if training else VALIDATION_SEED)
        predicted, masked = self.predict_patches(x, noise, training)  # (B, N, F), (B, N)
        targets = self.encoder.patches(x)  # (B, N, F)
        if self.norm_pix:
            mean, deviation = _statistics(targets)
            targets = (targets - mean) / deviation
        errors = ops.mean(ops.square(predicted - targets), axis=-1)  # (B, N)
        num_masked = max(self.encoder.num_patches - self.num_visible, 1)
        return ops.sum(errors * masked, axis=-1) / num_masked, predicted

    def noise(self, batch: Any, seed: Any) -> Any:
        """Samples a random number per patch; the patches with the lowest numbers stay visible."""
        return keras.random.uniform((batch, self.encoder.num_patches), seed=seed)

    def encode_visible(self, images: Any, noise: Any, training: bool) -> Any:
        """Runs the encoder on the visible patches only."""
        tokens = self.encoder.patch_encoder(self.encoder.cut(images), training=training)
        visible = ops.argsort(noise, axis=-1)[:, : self.num_visible]  # (B, k)
        tokens = self.encoder.select(tokens, visible)  # (B, p + k, D)
        return self.encoder.encode(tokens, training, visible)

    def predict_patches(self, images: Any, noise: Any, training: bool) -> tuple[Any, Any]:
        """Predicts all patches from the visible ones; also returns a mask of the hidden patches."""
        z = self.encode_visible(images, noise, training)  # (B, p + k, D)
        ranks = ops.argsort(ops.argsort(noise, axis=-1), axis=-1)  # (B, N)
        predicted = ops.cast(self.decoder(z, ranks, training=training), "float32")
        return predicted, ops.cast(ranks >= self.num_visible, "float32")


class _Decoder(keras.layers.Layer):
    """Decoder that predicts the pixel values of all patches from the tokens of visible patches."""

    def __init__(self, encoder: TokenEncoder, width: int, depth: int, heads: int) -> None:
        super().__init__(name="decoder", dtype=encoder.policy)
        config, policy = encoder.config, encoder.policy
        self.num_prefix = encoder.num_prefix
        # The authors' table; prefix tokens have no position.
        table = sincos_2d(encoder.grid, width, endpoint=False).reshape(-1, width)  # (N, E)
        self.positions = np.pad(table, ((self.num_prefix, 0), (0, 0)))  # (p + N, E)
        self.embed = keras.layers.Dense(width, dtype=policy, name="decoder_embed")
        settings: dict[str, Any] = {"epsilon": config.epsilon, "dtype": policy}
        block = functools.partial(TransformerBlock, heads, 4 * width, gelu=config.gelu, **settings)
        self.blocks = [block(name=f"decoder_block_{index:02d}") for index in range(depth)]
        self.norm = LayerNorm(name="decoder_norm", **settings)
        self.output_projection = keras.layers.Dense(
            encoder.patch_values, dtype=policy.variable_dtype, name="decoder_predict"
        )
        self.mask_token = self.add_weight(
            name="mask_token",
            shape=(1, 1, width),
            initializer=keras.initializers.RandomNormal(0.0, 0.02),
        )
        # Optimizers and replicas require all variables before the first step.
        self.embed.build((None, None, config.hidden_size))
        for layer in (*self.blocks, self.norm, self.output_projection):
            layer.build((None, len(self.positions), width))
        self.built = True

    def call(self, tokens: Any, ranks: Any, training: bool = False) -> Any:
        z = self.embed(tokens)  # (B, p + k, E)
        batch, num_encoded, width = ops.shape(z)
        prefix, visible = z[:, : self.num_prefix], z[:, self.num_prefix :]
        shape = (batch, len(self.positions) - num_encoded, width)
        mask_tokens = ops.broadcast_to(ops.cast(self.mask_token, z.dtype), shape)
        patches = take_tokens(ops.concatenate([visible, mask_tokens], axis=1), ranks)  # (B, N, E)
        z = ops.concatenate([prefix, patches], axis=1)  # (B, p + N, E)
        z = z + ops.cast(self.positions, z.dtype)
        for block in self.blocks:
            z = block(z, training=training)
        return self.output_projection(self.norm(z)[:, self.num_prefix :])  # (B, N, F)


def reconstructions(
    objective: MaskedAutoencoderObjective, images: Any, seed: int = 0
) -> tuple[np.ndarray, ...]:
    """Returns the original, the masked and the reconstructed images.

    Visible patches are copied from the original. With `norm_pix` the predictions are scaled by
    the mean and standard deviation of the original patches, as in the authors' demonstration:
    only the structure within a patch is predicted, not its brightness.
    """
    images = ops.convert_to_tensor(images, "float32")
    noise = objective.noise(images.shape[0], seed)
    predicted, masked = objective.predict_patches(images, noise, training=False)
    patches = objective.encoder.patches(images)  # (B, N, F)
    if objective.norm_pix:
        mean, deviation = _statistics(patches)
        predicted = predicted * deviation + mean
    masked = masked[:, :, None]  # (B, N, 1)
    visible = patches * (1 - masked)
    parts = (patches, visible, visible + predicted * masked)
    return tuple(ops.convert_to_numpy(objective.encoder.images(part)) for part in parts)


def _statistics(patches: Any) -> tuple[Any, Any]:
    """Returns the mean and the standard deviation of each patch, both of shape (B, N, 1)."""
    mean = ops.mean(patches, axis=-1, keepdims=True)
    freedom = max(patches.shape[-1] - 1, 1)
    variance = ops.sum(ops.square(patches - mean), axis=-1, keepdims=True) / freedom
    return mean, ops.sqrt(variance + _EPSILON)
