"""Training objective of masked patch prediction: the mean colors of masked patches.

Letters: B batch; h, w rows and columns of the grid of patches; N = hw patches; p prefix tokens;
C channels; F values in a patch; D width.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.dropout import ReplicaSeedGenerator
from keras_vit.layers.token_reduction import take_tokens
from keras_vit.models.token_encoder import VALIDATION_SEED, TokenEncoder
from keras_vit.tasks.objective import Objective

# Of the corrupted embeddings 80% become the mask, 10% another patch's, 10% are unchanged.
_MASKED, _SWAPPED = 0.8, 0.1
_LEVELS = 8  # 3 bits for each channel


class MaskedPatchesObjective(Objective):
    """Trains an encoder with the self-supervised objective of the ViT paper.

    Half of the patch embeddings are corrupted: 80% of these are replaced by a learned mask, 10%
    by the embedding of another patch of the same image, and 10% are unchanged; positions are
    added afterwards. From the encoder's output for a corrupted patch its mean color is predicted
    with 3 bits for each channel: one of 512 classes. The loss of an image is the mean
    cross-entropy over its corrupted patches.

    Reference: appendix B.1.2 of https://arxiv.org/abs/2010.11929, with its first target, which
    gave the best few-shot results
    """

    def __init__(
        self,
        network: keras.Model,
        *,
        mask_ratio: float = 0.5,
        seed: int | None = None,
    ) -> None:
        super().__init__(network, mean="color_accuracy")
        self.mask_ratio = arguments.rate("mask_ratio", mask_ratio)
        self.encoder = TokenEncoder(network)
        self.num_corrupted = round(self.encoder.num_patches * self.mask_ratio)
        if not self.num_corrupted:
            raise ValueError(
                f"`mask_ratio` must mask at least one patch. Received: mask_ratio={mask_ratio}, "
                f"{self.encoder.num_patches} patches"
            )
        width, policy = self.encoder.config.hidden_size, self.encoder.policy
        self.mask_embedding = self.add_weight(
            name="mask_embedding",
            shape=(width,),
            initializer=keras.initializers.RandomNormal(0.0, 0.02),
        )
        # Zeros, as in the model's classifier: the initial probabilities are equal.
        self.color_classifier = keras.layers.Dense(
            _LEVELS**self.encoder.config.channels,
            kernel_initializer="zeros",
            dtype=policy.variable_dtype,
            name="colors",
        )
        self.color_classifier.build((None, self.encoder.num_patches, width))
        self.seed_generator = ReplicaSeedGenerator(seed)

    def example_losses(self, x: Any, y: Any, training: bool) -> tuple[Any, Any]:
        noise = self.noise(ops.shape(x)[0], self.seed_generator if training else VALIDATION_SEED)
        logits, corrupted = self.predict_colors(x, noise, training)  # (B, N, 512), (B, N)
        colors = self.mean_colors(x)  # (B, N)
        losses = ops.sparse_categorical_crossentropy(colors, logits, from_logits=True)  # (B, N)
        correct = ops.cast(ops.argmax(logits, axis=-1) == colors, "float32")  # (B, N)

        def mean_over_corrupted(values: Any) -> Any:
            return ops.sum(values * corrupted, axis=-1) / self.num_corrupted

        return mean_over_corrupted(losses), mean_over_corrupted(correct)

    def noise(self, batch: Any, seed: Any) -> Any:
        """Samples random numbers that decide which patches are corrupted, and in which way."""
        return keras.random.uniform((3, batch, self.encoder.num_patches), seed=seed)

    def corrupt(self, embeddings: Any, noise: Any) -> tuple[Any, Any]:
        """Corrupts some patch embeddings; also returns a mask of the corrupted patches."""
        number = self.encoder.num_patches
        selection_noise, kind_noise, shift_noise = noise[0], noise[1], noise[2]  # (B, N) each
        ranks = ops.argsort(ops.argsort(selection_noise, axis=-1), axis=-1)
        corrupted = ranks < self.num_corrupted
        masked = ops.logical_and(corrupted, kind_noise < _MASKED)
        replaced = ops.logical_and(corrupted, kind_noise < _MASKED + _SWAPPED)
        # Shifted by 1 to N - 1 positions, so that the other patch is never the same patch.
        shifts = 1 + ops.minimum(ops.cast(shift_noise * (number - 1), "int32"), max(number - 2, 0))
        others = take_tokens(embeddings, (ops.arange(number, dtype="int32") + shifts) % number)
        z = ops.where(replaced[:, :, None], others, embeddings)
        mask = ops.cast(self.mask_embedding, z.dtype)
        return ops.where(masked[:, :, None], mask, z), ops.cast(corrupted, "float32")

    def predict_colors(self, images: Any, noise: Any, training: bool) -> tuple[Any, Any]:
        """Predicts the mean color of each patch after some patches have been corrupted."""
        encoder = self.encoder
        embeddings = encoder.patch_encoder.projection(encoder.cut(images))  # (B, h, w, D)
        width = encoder.config.hidden_size
        flat = ops.reshape(embeddings, (-1, encoder.num_patches, width))  # (B, N, D)
        flat, corrupted = self.corrupt(flat, noise)
        embeddings = ops.reshape(flat, (-1, *encoder.grid, width))  # (B, h, w, D)
        tokens = encoder.patch_encoder.assemble(embeddings, training=training)
        z = encoder.encode(tokens, training)[:, encoder.num_prefix :]  # (B, N, D)
        return ops.cast(self.color_classifier(z), "float32"), corrupted

    def mean_colors(self, images: Any) -> Any:
        """Returns the mean color of each patch as a class index.

        For RGB in [0, 256) the class is 64 floor(r / 32) + 8 floor(g / 32) + floor(b / 32).
        """
        channels = self.encoder.config.channels
        patches = self.encoder.patches(images)  # (B, N, F)
        values = ops.reshape(
            patches, (-1, self.encoder.num_patches, self.encoder.patch_values // channels, channels)
        )
        pixels = self.encoder.preprocessing.unscale(ops.mean(values, axis=2))  # (B, N, C)
        # A mean of up to 1000 integers is less than 1e-3 below a limit only by rounding.
        bins = ops.floor((pixels + 1e-3) / (256 // _LEVELS))
        bins = ops.cast(ops.clip(bins, 0, _LEVELS - 1), "int32")
        place_values = [_LEVELS**power for power in reversed(range(channels))]
        return ops.sum(bins * ops.convert_to_tensor(place_values, "int32"), axis=-1)  # (B, N)
