"""Patch embedding: linear projection, position embeddings and prefix tokens.

Letters: B batch; h, w rows and columns of the grid of patches; N = hw patches; p prefix tokens;
T = N + p tokens; F values in a flattened patch; D hidden size.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_vit import arguments
from keras_vit.layers.base import NamedVariables
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.position_embedding import POSITIONS
from keras_vit.layers.position_resizing import RESIZE_METHODS, resize_table


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchEncoder(NamedVariables):
    """Patch embedding: projects patches, adds position embeddings and prepends prefix tokens.

    Equation 1 of the paper: z_0 = [x_class; x_p^1 E; ...; x_p^N E] + E_pos. The position table is
    stored on its grid, (h, w, D), and the positions of the prefix tokens separately. For an image
    of another size, whose patches form another grid, the table is resized. The prefix tokens are in
    the order class, distillation, registers.

    Args:
        hidden_size: Channels D of a token.
        class_token: Whether a learned class token precedes the patches.
        distillation_token: Whether a distillation token follows the class token, as in DeiT.
        register_tokens: Number of register tokens; their output is not used.
        position_embedding: `"learned"`: one vector for each patch; `"learned_2d"`: half of the
            channels for the row and half for the column (appendix D.4); `"sincos_2d"`: fixed
            values; `"learned_rotary"`: as `"learned"`; or a kind that adds nothing to the
            tokens: `"none"`, `"rotary"` or `"relative"`.
        prefix_position: Whether the prefix tokens have learned positions as well; False in
            DeiT III and DINOv2 with registers.
        patch_bias: Whether the projection of the patches has a bias; False in CLIP.
        mask_token: Whether there is a vector for masked patches. It is not used, but kept for
            files that have one.
        position_grid: Rows and columns of the stored table; by default the grid that the layer
            is built with. Required if the build shape has no static grid.
        position_interpolation: Method for resizing the table, see `resize_table`.
        dropout_rate: Fraction of the values of the output tokens dropped in training, in [0, 1).

    Call arguments:
        patches: Tensor of shape (B, h, w, F) from `Patches`.

    Returns:
        Tensor of shape (B, T, D), in the dtype of the weights: the prefix tokens, then the
        patches row by row.

    Raises:
        ValueError: If an argument is out of range or the grid of the table is unknown.

    Examples:
        >>> tuple(PatchEncoder(8)(np.ones((2, 3, 5, 12), "float32")).shape)
        (2, 16, 8)

    Reference: https://arxiv.org/abs/2010.11929; distillation https://arxiv.org/abs/2012.12877;
    registers https://arxiv.org/abs/2309.16588
    """

    def __init__(
        self,
        hidden_size: int,
        class_token: bool = True,
        position_embedding: str = "learned",
        *,
        distillation_token: bool = False,
        register_tokens: int = 0,
        prefix_position: bool = True,
        patch_bias: bool = True,
        mask_token: bool = False,
        position_grid: tuple[int, int] | None = None,
        position_interpolation: str = "bilinear_aligned",
        dropout_rate: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        arguments.one_of("position_embedding", position_embedding, tuple(POSITIONS))
        arguments.one_of("position_interpolation", position_interpolation, RESIZE_METHODS)
        self.hidden_size = arguments.positive_int("hidden_size", hidden_size)
        self.class_token = bool(class_token)
        self.distillation_token = bool(distillation_token)
        self.register_tokens = arguments.count("register_tokens", register_tokens)
        self.prefix_position = bool(prefix_position)
        self.patch_bias = bool(patch_bias)
        self.mask_token = bool(mask_token)
        self.position_embedding = position_embedding
        self.position_grid = arguments.optional(arguments.size_pair)("position_grid", position_grid)
        self.position_interpolation = position_interpolation
        self.dropout_rate = arguments.rate("dropout_rate", dropout_rate)
        self.kind = POSITIONS[position_embedding]
        self.kind.check(self.hidden_size)
        self.projection = self._sublayer(
            keras.layers.Dense,
            self.hidden_size,
            use_bias=self.patch_bias,
            kernel_initializer="lecun_normal",
            name="projection",
        )
        self.dropout = Dropout(self.dropout_rate, dtype=self.variable_dtype, name="dropout")
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.projection.build(input_shape)
        d = self.hidden_size
        normal = keras.initializers.RandomNormal(stddev=0.02)  # as in the official code
        self.prefix = [
            self.add_weight(name=name, shape=(1, number, d), initializer=initializer)
            for name, number, initializer in (
                ("class_token", int(self.class_token), "zeros"),
                ("distillation_token", int(self.distillation_token), "zeros"),
                ("register_tokens", self.register_tokens, normal),  # equal tokens would stay equal
            )
            if number
        ]
        if self.mask_token:
            self.add_weight(name="mask_token", shape=(1, 1, d), trainable=False)
        if not self.kind.in_tokens:
            return
        grid = tuple(input_shape[1:3])
        h, w = self.position_grid or grid
        if h is None or w is None:
            raise ValueError(
                "`position_grid` must be given if the image size is unknown. Received: "
                f"position_grid=None, a grid of {grid} patches"
            )
        self._stored_grid = (h, w)
        shapes = self.kind.shapes((h, w), d)
        if shapes and self.num_prefix_tokens and self.prefix_position:
            self.prefix_table = self.add_weight(
                name="prefix_position", shape=(1, self.num_prefix_tokens, d), initializer=normal
            )
        self.position_variables = {
            name: self.add_weight(name=name, shape=shape, initializer=normal)
            for name, shape in shapes.items()
        }
        self._fixed_table = None if shapes else self.kind.table({}, (h, w), d)

    def call(self, patches: Any, training: bool | None = None) -> Any:
        return self.assemble(self.projection(patches), training)

    def assemble(self, embeddings: Any, training: bool | None = None) -> Any:
        """Builds the token sequence from patch embeddings, which may already be masked.

        Args:
            embeddings: Tensor of shape (B, h, w, D): the output of `projection`.
            training: Whether dropout is applied.

        Returns:
            Tensor of shape (B, T, D): the prefix tokens, then the patches, with their positions.

        Examples:
            >>> encoder = PatchEncoder(8)
            >>> encoder.build((None, 3, 5, 12))
            >>> tuple(encoder.assemble(np.ones((2, 3, 5, 8), "float32")).shape)
            (2, 16, 8)
        """
        batch, h, w, _ = ops.shape(embeddings)
        z = ops.cast(embeddings, self.variable_dtype)  # (B, h, w, D)
        if self.kind.in_tokens:
            z = z + ops.cast(self.positions((h, w)), z.dtype)
        z = ops.reshape(z, (-1, h * w, self.hidden_size))  # (B, N, D)
        if self.prefix:
            prefix = ops.concatenate([ops.convert_to_tensor(t) for t in self.prefix], axis=1)
            if hasattr(self, "prefix_table"):
                prefix = prefix + self.prefix_table  # (1, p, D)
            prefix = ops.broadcast_to(ops.cast(prefix, z.dtype), (batch, *prefix.shape[1:]))
            z = ops.concatenate([prefix, z], axis=1)  # (B, T, D)
        return self.dropout(z, training=training)

    def positions(self, grid: tuple[Any, Any] | None = None) -> Any:
        """Returns the position embeddings of the patches.

        Args:
            grid: Rows and columns h, w of patches; by default those of the stored table.

        Returns:
            Tensor of shape (h, w, D), without the positions of the prefix tokens.

        Raises:
            ValueError: If `position_embedding` adds nothing to the tokens.

        Examples:
            >>> encoder = PatchEncoder(8)
            >>> encoder.build((None, 3, 5, 12))
            >>> tuple(encoder.positions().shape), tuple(encoder.positions((4, 7)).shape)
            ((3, 5, 8), (4, 7, 8))
        """
        if not self.kind.in_tokens:
            raise ValueError(
                "`position_embedding` must be 'learned', 'learned_2d', 'learned_rotary' or "
                "'sincos_2d', which add a vector to each token. Received: "
                f"position_embedding={self.position_embedding!r}"
            )
        table = self._fixed_table
        if table is None:
            table = self.kind.table(self.position_variables, self._stored_grid, self.hidden_size)
        table = ops.convert_to_tensor(table)
        if grid is None:
            return table
        is_static = all(isinstance(side, int) for side in grid)
        if is_static and tuple(table.shape[:2]) == tuple(grid):
            return table
        return resize_table(table, grid, self.position_interpolation)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        batch, h, w, _ = input_shape
        tokens = None if h is None or w is None else h * w + self.num_prefix_tokens
        return (batch, tokens, self.hidden_size)

    def compute_output_spec(self, patches: Any, training: bool | None = None) -> Any:
        shape = self.compute_output_shape(patches.shape)
        return keras.KerasTensor(shape, dtype=self.variable_dtype)

    @property
    def num_prefix_tokens(self) -> int:
        """Number p of prefix tokens, which precede the patches."""
        return self.class_token + self.distillation_token + self.register_tokens
