"""Keras layers of the Vision Transformer; they run on every Keras backend."""

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.dense import Dense
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.group_norm import GroupNorm
from keras_vit.layers.image_contract import ImageContract
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.merging_block import MergingBlock
from keras_vit.layers.mlp import MLP
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.patches import Patches
from keras_vit.layers.pooling import AttentionPooling, TokenPooling
from keras_vit.layers.pruning_block import PruningBlock
from keras_vit.layers.reducing_block import ReducingBlock
from keras_vit.layers.residual_unit import ResidualUnit
from keras_vit.layers.resnet_stem import ResNetStem
from keras_vit.layers.standardized_conv import StandardizedConv2D
from keras_vit.layers.stochastic_depth import StochasticDepth
from keras_vit.layers.transformer_block import TransformerBlock

__all__ = [
    "MLP",
    "AttentionPooling",
    "Dense",
    "Dropout",
    "GroupNorm",
    "ImageContract",
    "LayerNorm",
    "LayerScale",
    "MergingBlock",
    "MultiHeadSelfAttention",
    "PatchEncoder",
    "Patches",
    "PruningBlock",
    "ReducingBlock",
    "ResNetStem",
    "ResidualUnit",
    "StandardizedConv2D",
    "StochasticDepth",
    "TokenPooling",
    "TransformerBlock",
]
