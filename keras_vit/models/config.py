"""Vision Transformer configuration, and the configurations of the published model sizes."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from keras_vit import arguments
from keras_vit.arguments import Count, Positive, PositiveInt, Rate, among, optional
from keras_vit.choices import TOKEN_POOLINGS
from keras_vit.layers.group_norm import channels_in_groups
from keras_vit.layers.mlp import GELUS
from keras_vit.layers.patches import Patches
from keras_vit.layers.position_embedding import POSITIONS
from keras_vit.layers.position_resizing import RESIZE_METHODS
from keras_vit.layers.resnet_stem import resnet_stride

POOLINGS = (*TOKEN_POOLINGS, "map", "none")

# Image size of the position grid of a model for images of any size: 224 px, the training size of
# the published models.
DEFAULT_IMAGE_SIZE = 224


@dataclasses.dataclass(frozen=True)
class ViTConfig:
    """Validated configuration of a Vision Transformer.

    Args:
        hidden_size: Channels D of a token.
        num_layers: Number L of blocks.
        num_heads: Number of heads of each self-attention.
        mlp_dim: Width M of the hidden layer of each MLP.
        patch_size: Side of a patch in pixels, or (height, width).
        image_size: Height and width of the images in pixels; (None, None) for a model for images
            of any size.
        channels: Channels of the images.
        classes: Number of classifier outputs; 0 for a model without a classifier.
        classifier_activation: Name of the activation on the logits, or None.
        pooling: `"token"`, `"gap"`, `"max"`, `"token_gap"` (class token and mean, joined),
            `"map"` (attention pooling), or `"none"`: the model returns every token.
        norm_after_pooling: Whether the last layer norm comes after the pooling, as in timm's
            average pooling, rather than before.
        class_token: Whether there is a class token.
        distillation_token: Whether a distillation token follows the class token, as in DeiT.
        distillation_head: Whether the distillation token has a separate classifier; the output is
            then the mean of both classifiers' logits.
        register_tokens: Number of register tokens; their output is not used.
        representation_size: Width of the tanh layer after the pooling, or None.
        position_embedding: `"learned"`, `"learned_2d"`, `"sincos_2d"`, `"none"`, or a kind that
            acts in the attention of every block: `"rotary"` as in DINOv3, `"learned_rotary"` as in
            EVA-02, `"relative"` as in BEiT.
        prefix_position: Whether class, distillation and register tokens have learned positions.
        position_grid: Rows and columns of the stored position table; by default those of
            `image_size`, or of 224 px if `image_size` is unknown.
        position_interpolation: Method for resizing positions to other grids.
        position_shift: Largest random shift of rotary positions in training, see
            `TokenPositions`; None for none.
        position_jitter: Largest random factor of rows and of columns in training, or None.
        position_rescale: Largest random factor of both in training, or None.
        mask_token: Whether the file has a vector for masked patches, which is kept unused.
        pre_norm: Whether a layer norm comes before the first block, as in CLIP.
        patch_bias: Whether the projection of the patches has a bias.
        qkv_bias: Whether queries, keys and values have a bias.
        key_bias: Whether keys have a bias as well, with `qkv_bias`.
        layer_scale: Initial value of the `LayerScale` of every residual branch, or None.
        gelu: `"tanh"`, `"exact"` or `"quick"`.
        swiglu: Whether MLPs are gated: silu(first half) * second half of a layer of width 2M.
        mlp_norm: Whether there is a layer norm of the hidden layer of each MLP.
        epsilon: Added to the variance in the layer norms.
        stem_blocks: Residual units in each stage of the ResNet stem of a hybrid model; () for the
            root only, None for no ResNet. Patches are then patches of the feature map.
        stem_width: Channels of the ResNet's root, a multiple of 32.
        dropout_rate: In [0, 1), in training.
        attention_dropout_rate: In [0, 1), in training.
        stochastic_depth_rate: Rate of the last block, in [0, 1); the rates grow linearly from 0
            in the first block.
        remainder: Treatment of images whose size is not a multiple of the patch: `"error"` or
            `"drop"`.
        window_size: Side of the windows of patches in which most blocks attend, for large images
            (ViTDet); None for attention among all tokens in every block. Positions must not act in
            attention.
        global_blocks: Number of blocks with attention among all tokens despite `window_size`:
            evenly spaced, with the last block as one of them.

    Raises:
        ValueError: If a value is out of range or values contradict each other.

    Examples:
        >>> ViTConfig(hidden_size=64, num_layers=2, num_heads=4, mlp_dim=128, patch_size=8).grid
        (28, 28)

    Reference: Table 1 and section 3.1 ("Hybrid Architecture") of
    https://arxiv.org/abs/2010.11929
    """

    hidden_size: PositiveInt
    num_layers: PositiveInt
    num_heads: PositiveInt
    mlp_dim: PositiveInt
    patch_size: int | tuple[int, int]
    image_size: tuple[int | None, int | None] = (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)
    channels: PositiveInt = 3
    classes: Count = 1000
    classifier_activation: str | None = "softmax"
    pooling: Annotated[str, among(*POOLINGS)] = "token"
    norm_after_pooling: bool = False
    class_token: bool = True
    distillation_token: bool = False
    distillation_head: bool = False
    register_tokens: Count = 0
    representation_size: Annotated[int | None, optional(arguments.positive_int)] = None
    position_embedding: str = "learned"
    prefix_position: bool = True
    position_grid: tuple[int, int] | None = None
    position_interpolation: Annotated[str, among(*RESIZE_METHODS)] = "bilinear_aligned"
    position_shift: float | None = None
    position_jitter: float | None = None
    position_rescale: float | None = None
    mask_token: bool = False
    pre_norm: bool = False
    patch_bias: bool = True
    qkv_bias: bool = True
    key_bias: bool = True
    layer_scale: Annotated[float | None, optional(arguments.positive)] = None
    gelu: Annotated[str, among(*GELUS)] = "tanh"
    swiglu: bool = False
    mlp_norm: bool = False
    epsilon: Positive = 1e-6
    stem_blocks: tuple[int, ...] | None = None
    stem_width: PositiveInt = 64
    dropout_rate: Rate = 0.0
    attention_dropout_rate: Rate = 0.0
    stochastic_depth_rate: Rate = 0.0
    remainder: str = "error"
    window_size: Annotated[int | None, optional(arguments.positive_int)] = None
    global_blocks: Count = 4

    def __post_init__(self) -> None:
        arguments.check_kinds(self)
        arguments.one_of("position_embedding", self.position_embedding, tuple(POSITIONS))
        self._set("patch_size", arguments.size_pair("patch_size", self.patch_size))
        arguments.hidden_size(self.hidden_size, self.num_heads)
        POSITIONS[self.position_embedding].check(self.hidden_size, self.num_heads)
        self._check_tokens()
        self._check_stem()
        self._check_image_size()
        self._check_positions()
        self._check_windows()

    def _check_windows(self) -> None:
        if self.window_size is None:
            return
        if not 0 < self.global_blocks <= self.num_layers:
            raise ValueError(
                f"`global_blocks` must be in [1, num_layers]. Received: {self.global_blocks}"
            )
        kind = POSITIONS[self.position_embedding]
        if None in self.image_size or kind.in_attention:
            raise ValueError(
                "`window_size` needs a fixed `image_size` and positions that do not act in "
                f"attention. Received: image_size={self.image_size}, position_embedding="
                f"{kind.name!r}"
            )

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Side of the windows of each block, None for attention among all tokens."""
        depth, num_global = self.num_layers, self.global_blocks
        global_blocks = {round((i + 1) * depth / num_global) for i in range(num_global)}
        return tuple(None if i + 1 in global_blocks else self.window_size for i in range(depth))

    def _check_positions(self) -> None:
        kind = POSITIONS[self.position_embedding]
        is_fixed = None not in self.image_size and self.position_grid in (None, self.image_grid)
        if not (kind.any_grid or is_fixed):
            raise ValueError(
                f"position_embedding={kind.name!r} needs a fixed `image_size`, whose patches are "
                "the stored grid; for another size build the model anew from its weights. Received:"
                f" image_size={self.image_size}, position_grid={self.position_grid}"
            )
        augmentations = (self.position_shift, self.position_jitter, self.position_rescale)
        if any(augmentations) and self.position_embedding != "rotary":
            raise ValueError(
                "`position_shift`, `position_jitter` and `position_rescale` must be None unless "
                f"positions are rotary. Received: {augmentations}, position_embedding={kind.name!r}"
            )

    def _check_tokens(self) -> None:
        if self.pooling in ("token", "token_gap") and not self.class_token:
            raise ValueError(
                f"`pooling={self.pooling!r}` needs a class token; use 'gap' or 'map' without one. "
                f"Received: class_token={self.class_token}"
            )
        if self.distillation_head and not (self.distillation_token and self.pooling == "token"):
            raise ValueError(
                "`distillation_head` needs distillation_token=True and pooling='token'. Received: "
                f"distillation_token={self.distillation_token}, pooling={self.pooling!r}"
            )
        if self.distillation_token and not self.class_token:
            raise ValueError(
                "`distillation_token` needs class_token=True. "
                f"Received: class_token={self.class_token}"
            )
        if self.norm_after_pooling and self.pooling not in ("gap", "max"):
            raise ValueError(
                "`norm_after_pooling` needs pooling='gap' or 'max'. "
                f"Received: pooling={self.pooling!r}"
            )
        if self.representation_size and self.pooling == "none":
            raise ValueError(
                "`representation_size` needs pooling. Received: pooling='none', "
                f"representation_size={self.representation_size}"
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Number of rows and columns of the stored position embeddings."""
        return self.position_grid or self.image_grid

    @property
    def image_grid(self) -> tuple[int, int]:
        """Number of rows and columns of the patches, of 224 px if `image_size` is unknown."""
        sides = (side or DEFAULT_IMAGE_SIZE for side in self.image_size)
        rows, columns = (
            -(-side // self.stem_stride) // patch
            for side, patch in zip(sides, self.patch, strict=True)
        )
        return max(1, rows), max(1, columns)

    @property
    def stem_stride(self) -> int:
        """Total stride of the ResNet stem; 1 without a ResNet."""
        return 1 if self.stem_blocks is None else resnet_stride(self.stem_blocks)

    @property
    def stride(self) -> tuple[int, int]:
        """Height and width, in pixels, of the image region that one patch token represents."""
        return self.patch[0] * self.stem_stride, self.patch[1] * self.stem_stride

    @property
    def default_image_size(self) -> tuple[int, int]:
        """Image height and width; unknown sides are derived from the position embedding grid."""
        height, width = (
            side or patches * stride
            for side, patches, stride in zip(self.image_size, self.grid, self.stride, strict=True)
        )
        return height, width

    @property
    def num_prefix_tokens(self) -> int:
        """Number of tokens before the patch tokens, such as the class token."""
        return self.class_token + self.distillation_token + self.register_tokens

    @property
    def patch(self) -> tuple[int, int]:
        """Height and width of a patch, in pixels or in cells of the ResNet's feature map."""
        return self.patch_size  # type: ignore[return-value]  # a pair since `__post_init__`

    def replace(self, **changes: Any) -> ViTConfig:
        """Returns a copy of the configuration with some fields changed.

        Args:
            **changes: Field names and their new values.

        Returns:
            The new configuration, validated again.

        Raises:
            ValueError: If the result is out of range.

        Examples:
            >>> size("Ti/16").replace(classes=5).classes
            5
        """
        return dataclasses.replace(self, **changes)

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration as a dictionary of plain Python values.

        Returns:
            A dictionary for `ViTConfig(**config)` and JSON.

        Examples:
            >>> ViTConfig(**size("Ti/16").get_config()) == size("Ti/16")
            True
        """
        return dataclasses.asdict(self)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_stem(self) -> None:
        if self.stem_blocks is None:
            return
        if not isinstance(self.stem_blocks, (tuple, list)):
            raise ValueError(
                "`stem_blocks` must be a tuple with the number of units of each stage, or None. "
                f"Received: stem_blocks={self.stem_blocks!r}"
            )
        blocks = tuple(arguments.positive_int("stem_blocks", n) for n in self.stem_blocks)
        self._set("stem_blocks", blocks)
        channels_in_groups("stem_width", self.stem_width)

    def _check_image_size(self) -> None:
        if not isinstance(self.image_size, (tuple, list)) or len(self.image_size) != 2:
            raise ValueError(
                "`image_size` must be a pair (height, width). "
                f"Received: image_size={self.image_size!r}"
            )
        check = optional(arguments.positive_int)
        sides = tuple(check("image_size", side) for side in self.image_size)
        self._set("image_size", sides)
        height, width = (None if side is None else -(-side // self.stem_stride) for side in sides)
        Patches(self.patch_size, remainder=self.remainder).grid_size((height, width))
        if self.position_grid is not None:
            self._set("position_grid", arguments.size_pair("position_grid", self.position_grid))


# B, L, H: Table 1 of https://arxiv.org/abs/2010.11929; Ti, S: Table 1 of
# https://arxiv.org/abs/2106.10270; g, G: Table 2 of https://arxiv.org/abs/2106.04560; SO400M: the
# encoder of https://arxiv.org/abs/2303.15343; giant: that of https://arxiv.org/abs/2304.07193.
_WIDTHS: dict[str, dict[str, Any]] = {
    "Ti": {"hidden_size": 192, "num_layers": 12, "num_heads": 3, "mlp_dim": 768},
    "S": {"hidden_size": 384, "num_layers": 12, "num_heads": 6, "mlp_dim": 1536},
    "B": {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "mlp_dim": 3072},
    "L": {"hidden_size": 1024, "num_layers": 24, "num_heads": 16, "mlp_dim": 4096},
    "H": {"hidden_size": 1280, "num_layers": 32, "num_heads": 16, "mlp_dim": 5120},
    "g": {"hidden_size": 1408, "num_layers": 40, "num_heads": 16, "mlp_dim": 6144},
    "G": {"hidden_size": 1664, "num_layers": 48, "num_heads": 16, "mlp_dim": 8192},
    "SO400M": {"hidden_size": 1152, "num_layers": 27, "num_heads": 16, "mlp_dim": 4304},
    "giant": {"hidden_size": 1536, "num_layers": 40, "num_heads": 24, "mlp_dim": 4096},
    # Not published: a size of this package for images of 16 to 64 pixels.
    "Micro": {"hidden_size": 96, "num_layers": 4, "num_heads": 3, "mlp_dim": 192},
}


def published_heads(hidden_size: int, num_layers: int, mlp_dim: int) -> int | None:
    """Returns the number of heads of the published model size with these dimensions, if any."""
    fields = {"hidden_size": hidden_size, "num_layers": num_layers, "mlp_dim": mlp_dim}
    matches = (width for width in _WIDTHS.values() if fields.items() <= width.items())
    return next((int(width["num_heads"]) for width in matches), None)


# Width, patch side in cells of the ResNet's feature map, residual units in each stage:
# vit_jax/configs/models.py of https://github.com/google-research/vision_transformer. Despite its
# name, a token of R+Ti/16 covers 32 x 32 pixels: a root of stride 4 and patches of 8.
_HYBRIDS: dict[str, tuple[str, int, tuple[int, ...]]] = {
    "R+Ti/16": ("Ti", 8, ()),
    "R26+S/32": ("S", 1, (2, 2, 2, 2)),
    "R50+B/16": ("B", 1, (3, 4, 9)),
    "R50+L/32": ("L", 1, (3, 4, 6, 3)),
}


def size(name: str) -> ViTConfig:
    """Returns the configuration of a published model size for images of 224 x 224 pixels.

    Args:
        name: Width and patch side in pixels as in the papers: `"Ti/16"`, `"B/32"`, `"G/14"`,
            `"SO400M/14"` of SigLIP, `"giant/14"` of DINOv2 (for a gated MLP);
            `"R+Ti/16"`, `"R26+S/32"`, `"R50+B/16"` or `"R50+L/32"` for the hybrids; or
            `"Micro/4"`, a tiny model for images of 16 to 64 pixels.

    Returns:
        The configuration with 1000 classes.

    Raises:
        ValueError: If the width is unknown or the patch side is not an integer.

    Examples:
        >>> size("B/16").hidden_size
        768
        >>> size("R26+S/32").stem_blocks
        (2, 2, 2, 2)
    """
    if name in _HYBRIDS:
        width, patch_size, blocks = _HYBRIDS[name]
        return ViTConfig(patch_size=patch_size, stem_blocks=blocks, **_WIDTHS[width])
    width, _, patch = name.partition("/")
    if not patch.isdecimal():
        raise ValueError(f"`name` must have the form 'B/16'. Received: name={name!r}")
    if width not in _WIDTHS:
        arguments.one_of("name", name, (*(f"{known}/{patch}" for known in _WIDTHS), *_HYBRIDS))
    return ViTConfig(patch_size=int(patch), **_WIDTHS[width])
