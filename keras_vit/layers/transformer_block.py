"""Transformer encoder block.

Letters: B batch; T tokens; D hidden size; h, w rows and columns of patches; s side of a window of
patches, in which attention is cheaper than among all; n windows of an image.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.base import BaseLayer
from keras_vit.layers.dropout import Dropout, StochasticDepth, same_seeds
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.mlp import MLP

_NEGLIGIBLE = 1e-30  # float32 and bfloat16 have numbers down to 1e-38


@keras.saving.register_keras_serializable(package="keras_vit")
class TransformerBlock(BaseLayer):
    """Transformer block: pre-norm self-attention and MLP, each with a residual connection.

    Equations 2 and 3 of the paper:
    z'_l = MSA(LN(z_{l-1})) + z_{l-1} and z_l = MLP(LN(z'_l)) + z'_l. In mixed precision the sums
    and the norms are float32 and the branches half precision, as in the official code.

    Args:
        num_heads: Number of attention heads.
        mlp_dim: Width of the hidden layer of the MLP.
        qkv_bias: Whether queries, keys and values have a bias.
        gelu: `"tanh"`, `"exact"` or `"quick"`, see `MLP`.
        epsilon: Added to the variance in the layer norms.
        layer_scale: Initial value of the `LayerScale` of both branches; None for no scaling.
        dropout_rate: Fraction of the values dropped in training after each dense layer other
            than queries, keys and values (section 4.1), in [0, 1).
        attention_dropout_rate: Fraction of the attention weights dropped in training, in [0, 1).
        stochastic_depth_rate: Fraction of the examples for which a branch is dropped in
            training, in [0, 1).
        key_bias: As for `MultiHeadSelfAttention`.
        swiglu: Whether the MLP is gated, see `MLP`.
        mlp_norm: Whether there is a layer norm within the MLP.
        position_embedding: As for `MultiHeadSelfAttention`.
        position_grid: As for `MultiHeadSelfAttention`; the rows and columns of patches.
        window_size: Side of square windows of patches, within which attention is computed, padded
            with zeros; prefix tokens then neither attend nor are attended to. None for attention
            among all tokens.

    Call arguments:
        inputs: Tensor of shape (B, T, D).
        positions: Tensor from `TokenPositions`, for positions that act in attention.

    Returns:
        Tensor of the same shape, in the dtype of the weights.

    Raises:
        ValueError: If an argument is out of range or D is not a multiple of `num_heads`.

    Examples:
        >>> tuple(TransformerBlock(num_heads=2, mlp_dim=11)(np.ones((2, 5, 6), "float32")).shape)
        (2, 5, 6)

    Reference: https://arxiv.org/abs/2010.11929
    """

    # A subclass may use an attention layer that keeps its weights, or a norm for other hardware.
    attention_class = MultiHeadSelfAttention
    norm_class = LayerNorm

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        qkv_bias: bool = True,
        gelu: str = "tanh",
        epsilon: float = 1e-6,
        layer_scale: float | None = None,
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        stochastic_depth_rate: float = 0.0,
        key_bias: bool = True,
        swiglu: bool = False,
        mlp_norm: bool = False,
        position_embedding: str = "none",
        position_grid: tuple[int, int] | None = None,
        window_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.window_size = arguments.optional(arguments.positive_int)("window_size", window_size)
        if window_size and position_grid is None:
            raise ValueError(
                "`position_grid` must be (rows, columns) of the patches with `window_size`. "
                f"Received: position_grid=None, window_size={window_size}"
            )
        self.epsilon = arguments.positive("epsilon", epsilon)
        self.layer_scale = layer_scale
        self.dropout_rate = arguments.rate("dropout_rate", dropout_rate)
        self.stochastic_depth_rate = arguments.rate("stochastic_depth_rate", stochastic_depth_rate)
        self.norm_1 = self._sublayer(self.norm_class, epsilon=epsilon, name="norm_1")
        self.attention = self._sublayer(
            self.attention_class,
            num_heads,
            qkv_bias=qkv_bias,
            dropout_rate=attention_dropout_rate,
            key_bias=key_bias,
            position_embedding=position_embedding,
            position_grid=position_grid,
            name="attention",
        )
        self.norm_2 = self._sublayer(self.norm_class, epsilon=epsilon, name="norm_2")
        self.mlp = self._sublayer(
            MLP, mlp_dim, gelu, dropout_rate, swiglu, epsilon if mlp_norm else None, name="mlp"
        )
        self.num_heads, self.qkv_bias = self.attention.num_heads, self.attention.qkv_bias
        self.key_bias, self.swiglu = self.attention.key_bias, self.mlp.swiglu
        self.mlp_norm = bool(mlp_norm)
        self.position_embedding, self.position_grid = position_embedding, position_grid
        self.attention_dropout_rate = self.attention.dropout_rate
        self.mlp_dim, self.gelu = self.mlp.mlp_dim, self.mlp.gelu
        self.scale_1 = self.scale_2 = None
        if layer_scale is not None:
            self.scale_1 = self._sublayer(LayerScale, layer_scale, name="scale_1")
            self.scale_2 = self._sublayer(LayerScale, layer_scale, name="scale_2")
        self.dropout = self._sublayer(Dropout, self.dropout_rate, name="dropout")
        self.drop_path = self._sublayer(StochasticDepth, stochastic_depth_rate, name="drop_path")
        # Whether the backward pass recomputes the block's activations instead of storing them
        # (rematerialization): a setting of a run, not of the model, so not an argument.
        self.remat = False
        # Number of first tokens whose outputs are computed, None for all; only for inference.
        self.num_queries: int | None = None

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        layers = (self.norm_1, self.attention, self.norm_2, self.mlp, self.scale_1, self.scale_2)
        for layer in filter(None, layers):
            layer.build(input_shape)

    def fold(self) -> None:
        """Folds scales into dense layers' weights, for models that will not be saved."""
        if self.quantized_parts():  # integers would be rounded
            return
        if self.window_size is None:  # zeros around the patches do not pass the norm
            self.norm_1.fold_into(self.attention.qkv)
        self.norm_2.fold_into(self.mlp.expand)
        self.attention.fold_scale()
        for dense in (self.attention.qkv, self.attention.out, self.mlp.expand, self.mlp.reduce):
            # TensorFlow removes a sum with a constant of zeros, as in a new model, and then does
            # not fuse the product with GELU and the residual sum.
            if dense.bias is not None and not ops.convert_to_numpy(dense.bias).any():
                dense.bias.assign(ops.full(dense.bias.shape, _NEGLIGIBLE))

    def call(self, inputs: Any, positions: Any = None, training: bool | None = None) -> Any:
        if not (self.remat and training):
            return self._compute(inputs, positions, training)
        # Not `keras.RematScope`: on TensorFlow it cannot call a layer with `training=`, and the
        # recomputation would draw other dropout masks.
        return keras.remat(same_seeds(lambda z: self._compute(z, positions, training)))(inputs)

    def _compute(self, inputs: Any, positions: Any, training: bool | None) -> Any:
        _, t, d_model = ops.shape(inputs)
        z = self._as_matrix(inputs)  # (BT, D)
        normalized = self.norm_1(z, training=training)
        if self.window_size is None:
            branch = self.attention(
                normalized,
                num_tokens=t,
                num_queries=self.num_queries,
                positions=positions,
                training=training,
            )
        else:
            branch = self._attend_in_windows(normalized, t, training)
        if self.num_queries is not None:
            t = self.num_queries
            z = self._as_matrix(inputs[:, :t])
        z = self._add_attention(z, branch, t, training)
        z = self._add_mlp(z, t, training)
        return ops.reshape(z, (-1, t, d_model))  # (B, T, D)

    def _attend_in_windows(self, z: Any, num_tokens: Any, training: bool | None) -> Any:
        (h, w), side = self.position_grid, self.window_size or 0  # type: ignore[misc]
        d_model, prefix = z.shape[-1], num_tokens - h * w
        patches = ops.reshape(z, (-1, num_tokens, d_model))[:, prefix:]
        windows = to_windows(ops.reshape(patches, (-1, h, w, d_model)), side)
        branch = from_windows(self.attention(windows, training=training), (h, w), side)
        branch = ops.reshape(branch, (-1, h * w, d_model))
        branch = ops.pad(branch, ((0, 0), (prefix, 0), (0, 0)))[:, : self.num_queries]
        return ops.reshape(branch, (-1, d_model))

    def _as_matrix(self, inputs: Any) -> Any:
        # Tokens of all examples in one matrix: oneDNN then fuses the residual sum with the product.
        return ops.reshape(ops.cast(inputs, self.variable_dtype), (-1, inputs.shape[-1]))

    def _add_attention(self, z: Any, branch: Any, num_tokens: Any, training: bool | None) -> Any:
        branch = self.dropout(branch, training=training)
        return self._add(z, branch, self.scale_1, num_tokens, training)

    def _add_mlp(self, z: Any, num_tokens: Any, training: bool | None) -> Any:
        branch = self.mlp(self.norm_2(z, training=training), training=training)
        return self._add(z, branch, self.scale_2, num_tokens, training)

    def _add(self, z: Any, branch: Any, scale: Any, num_tokens: Any, training: bool | None) -> Any:
        if scale is not None:
            branch = scale(branch)
        if training and self.stochastic_depth_rate:
            shape = ops.shape(branch)  # (BT, D)
            branch = ops.reshape(branch, (-1, num_tokens, shape[-1]))  # (B, T, D)
            branch = ops.reshape(self.drop_path(branch, training=training), shape)
        return z + ops.cast(branch, self.variable_dtype)

    def compute_output_spec(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return keras.tree.map_shape_structure(
            lambda shape: keras.KerasTensor(shape, dtype=self.variable_dtype),
            self.compute_output_shape(inputs.shape),
        )


def to_windows(patches: Any, side: int) -> Any:
    """Returns the patches (B, h, w, D) of square windows, (B * n, s * s, D).

    Zeros are added below and at the right if the sides are not multiples of `side`.

    Reference: `window_partition` of https://github.com/facebookresearch/detectron2, ViTDet
    """
    _, h, w, d = patches.shape
    rows, columns = -(-h // side), -(-w // side)
    patches = ops.pad(patches, ((0, 0), (0, rows * side - h), (0, columns * side - w), (0, 0)))
    tensor = ops.reshape(patches, (-1, side, columns, side * d))  # rank 4, as phones require
    tensor = ops.transpose(tensor, (0, 2, 1, 3))
    return ops.reshape(tensor, (-1, side * side, d))


def from_windows(windows: Any, grid: tuple[int, int], side: int) -> Any:
    """Returns the patches (B, h, w, D) of a `grid` (h, w), without the added zeros."""
    (h, w), d = grid, windows.shape[-1]
    rows, columns = -(-h // side), -(-w // side)
    tensor = ops.reshape(windows, (-1, columns, side, side * d))
    tensor = ops.transpose(tensor, (0, 2, 1, 3))
    return ops.reshape(tensor, (-1, rows * side, columns * side, d))[:, :h, :w]
