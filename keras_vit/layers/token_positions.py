"""Positions of all tokens, as the attention of the blocks uses them.

Letters: B batch; h, w rows and columns of the grid of patches; F values in a flattened patch; T
tokens; d size of a head.
"""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.base import BaseLayer
from keras_vit.layers.position_embedding import POSITIONS, Augmentation


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenPositions(BaseLayer):
    """Positions of all tokens for the attention of every block: angles, or indices of offsets.

    In training, coordinates of rotary positions can be shifted and scaled randomly, alike for all
    images of a batch and on all devices.

    Args:
        position_embedding: A kind that acts in attention: `"rotary"`, `"learned_rotary"` or
            `"relative"`.
        head_size: Channels d of a head.
        num_prefix_tokens: Number of tokens before the patches.
        position_shift: Largest shift of rows and of columns in training, as a fraction of half the
            image, or None.
        position_jitter: Largest factor of rows and of columns in training, at least 1, or None.
        position_rescale: Largest common factor of both in training, at least 1, or None.
        seed: Integer seed; by default derived from `keras.utils.set_random_seed`.

    Call arguments:
        patches: Tensor of shape (B, h, w, F) from `Patches`.

    Returns:
        Tensor with 1 in place of B: cosines and sines (1, T, 2d), float32, or indices (1, T, T),
        int32.

    Raises:
        ValueError: If an argument is out of range.

    Examples:
        >>> positions = TokenPositions("rotary", head_size=8, num_prefix_tokens=1)
        >>> tuple(positions(np.ones((2, 3, 5, 12), "float32")).shape)
        (1, 16, 16)

    Reference: https://arxiv.org/abs/2508.10104
    """

    def __init__(
        self,
        position_embedding: str,
        head_size: int,
        num_prefix_tokens: int = 0,
        position_shift: float | None = None,
        position_jitter: float | None = None,
        position_rescale: float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        kinds = tuple(name for name, kind in POSITIONS.items() if kind.in_attention)
        arguments.one_of("position_embedding", position_embedding, kinds)
        self.position_embedding = position_embedding
        self.head_size = arguments.positive_int("head_size", head_size)
        self.num_prefix_tokens = arguments.count("num_prefix_tokens", num_prefix_tokens)
        self.position_shift = position_shift
        self.position_jitter = position_jitter
        self.position_rescale = position_rescale
        self.seed = seed
        self.is_random = any((position_shift, position_jitter, position_rescale))
        if self.is_random:
            # Not one seed per replica: all have the same positions.
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.kind = POSITIONS[position_embedding]
        self.built = True

    def call(self, patches: Any, training: bool | None = None) -> Any:
        _, h, w, _ = ops.shape(patches)
        sizes = self.num_prefix_tokens, self.head_size
        augmentation = self._draw() if training and self.is_random else None
        return self.kind.attention_inputs((h, w), *sizes, augmentation)

    def _draw(self) -> Augmentation:
        noise = keras.random.uniform((5,), -1, 1, "float32", self.seed_generator)
        jitter, rescale = math.log(self.position_jitter or 1), math.log(self.position_rescale or 1)
        scale = ops.exp(noise[2:4] * jitter + noise[4] * rescale)
        return ops.unstack(noise[:2] * (self.position_shift or 0)), ops.unstack(scale)

    def compute_output_spec(self, patches: Any, training: bool | None = None) -> Any:
        _, h, w, _ = patches.shape
        is_static = h is not None and w is not None
        grid = (h, w) if is_static else (1, 1)
        inputs = self.kind.attention_inputs(grid, self.num_prefix_tokens, self.head_size)
        shape = tuple(inputs.shape) if is_static else (1, None, *inputs.shape[2:])
        return keras.KerasTensor(shape, dtype=keras.backend.standardize_dtype(inputs.dtype))
