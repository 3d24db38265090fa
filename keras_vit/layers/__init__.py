"""Keras layers of the Vision Transformer, for every Keras backend."""

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.box_decoder import BoxDecoder
from keras_vit.layers.dropout import Dropout, StochasticDepth
from keras_vit.layers.group_norm import GroupNorm
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.mlp import MLP, Dense
from keras_vit.layers.model_metadata import ModelMetadata
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.patches import Patches
from keras_vit.layers.pooling import AttentionPooling, TokenPooling
from keras_vit.layers.resnet_stem import ResidualUnit, ResNetStem, StandardizedConv2D
from keras_vit.layers.token_positions import TokenPositions
from keras_vit.layers.token_reduction import MergingBlock, PruningBlock, ReducingBlock
from keras_vit.layers.transformer_block import TransformerBlock

__all__ = [
    "MLP",
    "AttentionPooling",
    "BoxDecoder",
    "Dense",
    "Dropout",
    "GroupNorm",
    "LayerNorm",
    "LayerScale",
    "MergingBlock",
    "ModelMetadata",
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
    "TokenPositions",
    "TransformerBlock",
]
