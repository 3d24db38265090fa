"""Parameter and FLOP counts of a model, computed from its configuration without building it.

Letters: D hidden size; M width of the MLP; T tokens; F filters of a convolution.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from keras_vit.layers.position_embedding import POSITIONS
from keras_vit.models.config import ViTConfig


class Product(NamedTuple):
    """Dimensions of a matrix product with weights, or of a convolution, for one image.

    Args:
        rows: Number of tokens, or of pixels of the output.
        inputs: Number of values that each token or pixel is computed from.
        outputs: Channels of the output.
        offsets: Parameters per channel besides the weights: 1 for a bias.
    """

    rows: int
    inputs: int
    outputs: int
    offsets: int = 1

    @property
    def multiplications(self) -> int:
        """Number of multiplications."""
        return self.rows * self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return (self.inputs + self.offsets) * self.outputs


def count_parameters(config: ViTConfig) -> int:
    """Returns the number of trainable parameters of a model.

    Args:
        config: The configuration.

    Returns:
        The number of parameters.

    Examples:
        >>> from keras_vit.models.config import size
        >>> f"{count_parameters(size('B/16')):,}"
        '86,567,656'
    """
    attention_pooling = config.pooling == "map"
    norms = 2 * config.num_layers + 1 + config.pre_norm + attention_pooling
    scales = 0 if config.layer_scale is None else 2 * config.num_layers
    # Of D values each; a norm has gamma and beta, attention pooling a query.
    vectors = config.num_prefix_tokens + 2 * norms + scales + attention_pooling
    if config.qkv_bias and not config.key_bias:
        vectors -= config.num_layers
    weights = sum(product.parameters for product in _products(config))
    inner_norms = 2 * config.num_layers * config.mlp_dim * config.mlp_norm
    return weights + vectors * config.hidden_size + inner_norms + _count_positions(config)


def count_flops(config: ViTConfig) -> int:
    """Returns the number of floating-point operations in the forward pass of one image.

    Counts matrix products and convolutions, with a multiplication and an addition as two
    operations; norms, activations and softmax, a few per cent, are excluded.

    Args:
        config: The configuration; an unknown side counts as that of the position grid.

    Returns:
        The number of operations.

    Examples:
        >>> from keras_vit.models.config import size
        >>> f"{count_flops(size('B/16')) / 1e9:.1f}"
        '35.1'
    """
    t, d = count_tokens(config), config.hidden_size
    pairs = sum(rows * keys for rows, keys in count_attended(config))
    attention = 2 * d * (pairs + t * (config.pooling == "map"))
    return 2 * (attention + sum(product.multiplications for product in _products(config)))


def count_training_flops(config: ViTConfig, *, remat: bool = False, head_only: bool = False) -> int:
    """Returns the number of floating-point operations per image in a training step.

    The backward pass of a matrix product is two matrix products: for the gradient of the input,
    which the pixels do not need, and for the gradient of the weights or of the second input.

    Args:
        config: The configuration, as for `count_flops`.
        remat: Whether the blocks are recomputed in the backward pass (rematerialization).
        head_only: Whether only the classifier is trained.

    Returns:
        The number, without the optimizer's operations, about ten for each weight and step.

    Examples:
        >>> from keras_vit.models.config import size
        >>> f"{count_training_flops(size('B/16')) / 1e9:.1f}"
        '105.2'
    """
    forward = count_flops(config)
    if head_only:
        return forward + 2 * sum(product.multiplications for product in _head_products(config))
    total = 3 * forward - 2 * _products(config)[0].multiplications
    if remat:
        total += count_flops(config.replace(num_layers=2 * config.num_layers)) - forward
    return total


def count_head(config: ViTConfig) -> int:
    """Returns the number of parameters of the classifier."""
    return sum(product.parameters for product in _head_products(config))


def count_tokens(config: ViTConfig) -> int:
    """Returns the number of tokens per image, including the class token and other prefix tokens."""
    return _patch_product(config).rows + config.num_prefix_tokens


def count_attended(config: ViTConfig) -> list[tuple[int, int]]:
    """Returns the number of queries in each block's attention, and of keys for each query."""
    t = count_tokens(config)
    sides = [n // step for n, step in zip(config.default_image_size, config.stride, strict=True)]

    def attended(window: int | None) -> tuple[int, int]:
        if window is None:
            return t, t
        return math.prod(-(-side // window) * window for side in sides), window**2

    return list(map(attended, config.windows))


def convolutions(config: ViTConfig) -> list[Product]:
    """Lists the convolutions in the ResNet of a hybrid model, without bias, each with a norm."""
    if config.stem_blocks is None:
        return []
    sides, channels = _half_size(config.default_image_size), config.stem_width
    products = [Product(math.prod(sides), 7 * 7 * config.channels, channels, 2)]
    sides = _half_size(sides)  # the pooling
    for stage, units in enumerate(config.stem_blocks):
        f = config.stem_width * 2**stage
        for unit in range(units):
            products.append(Product(math.prod(sides), channels, f, 2))
            if unit == 0 and stage > 0:
                sides = _half_size(sides)
            rows = math.prod(sides)
            products += [Product(rows, 3 * 3 * f, f, 2), Product(rows, f, 4 * f, 2)]
            if unit == 0:  # the shortcut has a projection if the shape changes
                products.append(Product(rows, channels, 4 * f, 2))
            channels = 4 * f
    return products


def _products(config: ViTConfig) -> list[Product]:
    """Lists all products with weights and all convolutions, that with the pixels first."""
    t, d, m = count_tokens(config), config.hidden_size, config.mlp_dim
    products = [*convolutions(config), _patch_product(config)]
    for rows, _ in count_attended(config):
        products += [Product(rows, d, 3 * d, config.qkv_bias), Product(rows, d, d)]
        products += [Product(t, d, m * (1 + config.swiglu)), Product(t, m, d)]
    if config.pooling == "map":
        attention = [Product(1, d, d), Product(t, d, 2 * d), Product(1, d, d)]
        products += [*attention, Product(1, d, m), Product(1, m, d)]
    if config.representation_size:
        products.append(Product(1, _pooled_width(config), config.representation_size))
    return products + _head_products(config)


def _head_products(config: ViTConfig) -> list[Product]:
    head = Product(1, config.representation_size or _pooled_width(config), config.classes)
    return [head] + config.distillation_head * [Product(1, config.hidden_size, config.classes)]


def _pooled_width(config: ViTConfig) -> int:
    """Returns the width of the pooled vector."""
    return config.hidden_size * (1 + (config.pooling == "token_gap"))


def _patch_product(config: ViTConfig) -> Product:
    """Returns the product that embeds the patches of an image."""
    channels = max((c.outputs for c in convolutions(config)), default=config.channels)
    height, width = (-(-side // config.stem_stride) for side in config.default_image_size)
    p, q = config.patch
    number = (height // p) * (width // q)
    return Product(number, p * q * channels, config.hidden_size, config.patch_bias)


def _half_size(sides: tuple[int, int]) -> tuple[int, int]:
    """Returns the height and width of a feature map after a layer of stride 2."""
    return -(-sides[0] // 2), -(-sides[1] // 2)


def _count_positions(config: ViTConfig) -> int:
    kind = POSITIONS[config.position_embedding]
    shapes = kind.shapes(config.grid, config.hidden_size)
    of_blocks = kind.attention_shapes(config.grid, config.num_heads)
    prefix = bool(shapes) * config.prefix_position * config.num_prefix_tokens
    tables = sum(map(math.prod, shapes.values())) + prefix * config.hidden_size
    return tables + config.num_layers * sum(map(math.prod, of_blocks.values()))
