"""From tokens to one vector for the image.

Letters: B batch; T tokens, the class token first if there is one; D hidden size.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import checks
from keras_vit.layers.mlp import MLP

TOKEN_POOLINGS = ("token", "gap", "max")


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenPooling(keras.layers.Layer):
    """Takes the class token, or the mean or the maximum over the patches.

    Args:
        mode: `"token"`: the first token (equation 4 of the paper); `"gap"`: the mean over the
            patches (appendix D.3); `"max"`: their maximum.
        class_token: Whether the first token is a class token; it takes no part in `"gap"` and
            `"max"`.

    Call arguments:
        inputs: Tensor of shape (B, T, D).

    Returns:
        Tensor of shape (B, D).

    Raises:
        ValueError: If `mode` is unknown, or `"token"` without a class token.

    Example:
        >>> tuple(TokenPooling("gap", class_token=False)(np.ones((2, 5, 6), "float32")).shape)
        (2, 6)

    Reference: https://arxiv.org/abs/2010.11929
    """

    def __init__(self, mode: str = "token", class_token: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        checks.one_of("mode", mode, TOKEN_POOLINGS)
        if mode == "token" and not class_token:
            raise ValueError(
                "Pooling 'token' needs a class token; use 'gap' or 'map' without one. "
                f"Received: mode={mode!r}, class_token={class_token}"
            )
        self.mode = mode
        self.class_token = bool(class_token)
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def call(self, inputs: Any) -> Any:
        if self.mode == "token":
            return inputs[:, 0]  # (B, D)
        patches = inputs[:, 1:] if self.class_token else inputs  # (B, N, D)
        return ops.mean(patches, axis=1) if self.mode == "gap" else ops.max(patches, axis=1)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (input_shape[0], input_shape[2])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mode": self.mode, "class_token": self.class_token}


@keras.saving.register_keras_serializable(package="keras_vit")
class AttentionPooling(keras.layers.Layer):
    """Pools tokens by attention from one learned query, followed by a perceptron.

    The multi-head attention pooling ("MAP") head of section 3.1 of "Scaling Vision
    Transformers": y = MHA(probe, z), then y + MLP(LN(y)).

    Args:
        num_heads: Heads of the attention.
        mlp_dim: Width of the perceptron's hidden layer.
        gelu: `"tanh"` or `"exact"`, see `MLP`.
        epsilon: Added to the variance in the layer norm.

    Call arguments:
        inputs: Tensor of shape (B, T, D).

    Returns:
        Tensor of shape (B, D).

    Raises:
        ValueError: If an argument is out of range or D is no multiple of `num_heads`.

    Example:
        >>> tuple(AttentionPooling(num_heads=2, mlp_dim=11)(np.ones((2, 5, 6), "float32")).shape)
        (2, 6)

    Reference: https://arxiv.org/abs/2106.04560
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        gelu: str = "tanh",
        epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = checks.positive_int("num_heads", num_heads)
        self.epsilon = epsilon
        # A frozen layer out of a file freezes its parts.
        common = {"dtype": self.dtype_policy, "trainable": self.trainable}
        self.norm = keras.layers.LayerNormalization(epsilon=epsilon, name="norm", **common)
        self.mlp = MLP(mlp_dim, gelu=gelu, name="mlp", **common)
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        d_model = checks.hidden_size(input_shape[-1], self.num_heads)
        self.probe = self.add_weight(
            name="probe", shape=(1, 1, d_model), initializer="glorot_uniform"
        )
        self.attention = keras.layers.MultiHeadAttention(
            self.num_heads, d_model // self.num_heads, dtype=self.dtype_policy, name="attention"
        )
        query_shape = (input_shape[0], 1, d_model)
        self.attention.build(query_shape, input_shape)
        self.attention.trainable = self.trainable
        self.norm.build(query_shape)
        self.mlp.build(query_shape)

    def call(self, inputs: Any) -> Any:
        probe = ops.cast(ops.convert_to_tensor(self.probe), inputs.dtype)
        probe = ops.broadcast_to(probe, (ops.shape(inputs)[0], 1, inputs.shape[-1]))
        y = self.attention(probe, inputs)  # (B, 1, D)
        return (y + self.mlp(self.norm(y)))[:, 0]  # (B, D)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (input_shape[0], input_shape[2])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp.mlp_dim,
            "gelu": self.mlp.gelu,
            "epsilon": self.epsilon,
        }
