"""Construction of functional Vision Transformers from a configuration.

Letters: B batch; H, W, C image height, width, channels; T tokens; D hidden size.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import keras

from keras_vit import layers
from keras_vit.layers.position_embedding import POSITIONS
from keras_vit.models.cloning import with_loss_scaling
from keras_vit.models.config import ViTConfig
from keras_vit.preprocessing import Preprocessing


def build(
    config: ViTConfig,
    *,
    preprocessing: Preprocessing | None = None,
    input_tensor: Any = None,
    name: str = "vit",
    dtype: Any = None,
) -> keras.Model:
    """Builds a Vision Transformer from a configuration, as a functional Keras model.

    Args:
        config: Configuration of the model.
        preprocessing: Preprocessing of image files, stored in the model.
        input_tensor: Keras tensor of shape (B, H, W, C) to build upon, instead of a new input.
        name: Name of the model.
        dtype: Keras dtype or policy of the layers, for example `"mixed_bfloat16"`; by default the
            global policy. The classifier computes in float32 under mixed precision.

    Returns:
        A functional model from images of shape (B, H, W, C), scaled by `preprocessing`, to
        probabilities (B, classes); without a classifier to the pooled vector (B, D), or to
        the tokens (B, T, D) with `pooling="none"`.

    Raises:
        ValueError: If the input tensor does not have the shape in the configuration.

    Examples:
        >>> config = ViTConfig(
        ...     hidden_size=6, num_layers=2, num_heads=3, mlp_dim=11, patch_size=4,
        ...     image_size=(8, 12), classes=5,
        ... )
        >>> build(config).output_shape
        (None, 5)
    """
    shape = (*config.image_size, config.channels)
    inputs = keras.Input(shape, name="images") if input_tensor is None else input_tensor
    if tuple(inputs.shape[1:]) != shape:
        raise ValueError(
            f"`input_tensor` must have the shape (batch, {shape[0]}, {shape[1]}, {shape[2]}). "
            f"Received: input_tensor.shape={tuple(inputs.shape)}"
        )
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
    layer = functools.partial(_layer, config, policy)
    z = layers.ModelMetadata(
        preprocessing or default_preprocessing(config),
        config.get_config(),
        dtype=policy,
        name="image_contract",
    )(inputs)
    if config.stem_blocks is not None:
        z = layers.ResNetStem(
            config.stem_blocks, width=config.stem_width, dtype=policy, name="stem"
        )(z)
    patches = layer(layers.Patches, "patches")(z)
    z = layer(layers.PatchEncoder, "patch_encoder", position_grid=config.grid)(patches)
    positions: list[Any] = []
    if POSITIONS[config.position_embedding].in_attention:
        head_size = config.hidden_size // config.num_heads
        positions = [layer(layers.TokenPositions, "token_positions", head_size=head_size)(patches)]
    if config.pre_norm:
        z = layer(layers.LayerNorm, "pre_norm")(z)
    for index in range(config.num_layers):
        depth = index / max(config.num_layers - 1, 1)
        z = layer(
            layers.TransformerBlock,
            f"block_{index:02d}",
            stochastic_depth_rate=config.stochastic_depth_rate * depth,
            position_grid=config.image_grid if config.windows[index] else config.grid,
            window_size=config.windows[index],
        )(z, *positions)
    norm = layer(layers.LayerNorm, "encoder_norm")
    if not config.norm_after_pooling:
        z = norm(z)
    tokens = z
    if config.pooling == "map":
        z = layer(layers.AttentionPooling, "pooling")(z)
    elif config.pooling != "none":
        z = layers.TokenPooling(
            config.pooling, config.num_prefix_tokens, dtype=policy, name="pooling"
        )(z)
    if config.norm_after_pooling:
        z = norm(z)
    if config.representation_size:
        z = keras.layers.Dense(
            config.representation_size, activation="tanh", dtype=policy, name="pre_logits"
        )(z)
    if config.classes:
        z = _classify(z, tokens, config, policy)
    if input_tensor is not None:
        sources = keras.utils.get_source_inputs(input_tensor)
        inputs = sources[0] if len(sources) == 1 else sources
    return with_loss_scaling(keras.Model(inputs, z, name=name))


def default_preprocessing(config: ViTConfig) -> Preprocessing:
    """Returns the default preprocessing of a model, which scales pixels to [-1, 1].

    Args:
        config: The model's configuration.

    Returns:
        The preprocessing at the model's image size; images are cropped only to the model's aspect
        ratio.

    Examples:
        >>> from keras_vit.models.config import size
        >>> default_preprocessing(size("Ti/16")).size
        (224, 224)
    """
    return Preprocessing(
        size=config.default_image_size,
        crop_fraction=1.0,
        channels="grayscale" if config.channels == 1 else "rgb",
    )


def _layer(config: ViTConfig, policy: Any, kind: type, name: str, **changes: Any) -> Any:
    """Creates a layer whose arguments are the configuration fields with the same names."""
    names = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    fields = {name: getattr(config, name) for name in names if hasattr(config, name)}
    return kind(**{**fields, **changes}, dtype=policy, name=name)


def _classify(z: Any, tokens: Any, config: ViTConfig, policy: Any) -> Any:
    # Zeros, as in the official code: a new head starts from equal probabilities.
    head = functools.partial(
        keras.layers.Dense, config.classes, kernel_initializer="zeros", dtype=policy.variable_dtype
    )
    if not config.distillation_head:
        return head(activation=config.classifier_activation, name="head")(z)
    z = head(name="head")(z)
    distilled = layers.TokenPooling(
        "token", config.num_prefix_tokens, index=1, dtype=policy, name="distillation_pooling"
    )(tokens)
    distilled = head(name="distillation_head")(distilled)
    z = keras.layers.Average(dtype=policy.variable_dtype, name="mean_of_heads")([z, distilled])
    if config.classifier_activation is None:
        return z
    return keras.layers.Activation(
        config.classifier_activation, dtype=policy.variable_dtype, name="predictions"
    )(z)
