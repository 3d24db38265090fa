"""What blocks have in common that let some of their tokens go."""

from __future__ import annotations

from typing import Any

from keras_vit import checks
from keras_vit.layers.transformer_block import TransformerBlock


class ReducingBlock(TransformerBlock):
    """A block that lets some of the patches' tokens go between its attention and its perceptron.

    The weights are those of a `TransformerBlock`. `MergingBlock` and `PruningBlock` say which
    tokens go; never more than half of those that are left.

    Args:
        num_heads: As for `TransformerBlock`, like all that is not named here.
        mlp_dim: As for `TransformerBlock`.
        num_reduced: Number r of tokens that go.
        prefix_tokens: Number p of tokens in front of the patches, which never go.

    Raises:
        ValueError: If an argument is out of range or the number of tokens is not known beforehand.

    Example:
        >>> [ReducingBlock(2, 11, num_reduced=8).left_of(t) for t in (197, 12, 2)]
        [189, 7, 2]

    Reference: https://arxiv.org/abs/2210.09461
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        *,
        num_reduced: int = 8,
        prefix_tokens: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, mlp_dim, **kwargs)
        self.num_reduced = checks.count("num_reduced", num_reduced)
        self.prefix_tokens = checks.count("prefix_tokens", prefix_tokens)

    def left_of(self, num_tokens: int | None) -> int:
        """Returns how many tokens leave the block.

        Args:
            num_tokens: How many enter it, the prefix tokens included.

        Returns:
            The number.

        Raises:
            ValueError: If it is not known how many enter.

        Example:
            >>> ReducingBlock(2, 11, num_reduced=3, prefix_tokens=2).left_of(6)
            4
        """
        if num_tokens is None:
            raise ValueError(
                "`inputs` must have a known number of tokens where some of them go: give the "
                "model an image size. Received: inputs of shape (B, None, D)"
            )
        return num_tokens - min(self.num_reduced, (num_tokens - self.prefix_tokens) // 2)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_reduced": self.num_reduced,
            "prefix_tokens": self.prefix_tokens,
        }
