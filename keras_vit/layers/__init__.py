"""Keras layers of the Vision Transformer; they run on every Keras backend."""

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.image_contract import ImageContract
from keras_vit.layers.mlp import MLP
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.patches import Patches
from keras_vit.layers.pooling import AttentionPooling, TokenPooling
from keras_vit.layers.stochastic_depth import StochasticDepth
from keras_vit.layers.transformer_block import TransformerBlock

__all__ = [
    "MLP",
    "AttentionPooling",
    "ImageContract",
    "MultiHeadSelfAttention",
    "PatchEncoder",
    "Patches",
    "StochasticDepth",
    "TokenPooling",
    "TransformerBlock",
]
