"""Adaptation of a checkpoint to another patch grid, patch size, number of channels or head.

Letters: P, Q patch height and width; C channels; D hidden size.
"""

from __future__ import annotations

import keras
import numpy as np

from keras_vit.layers.position_embedding import POSITIONS
from keras_vit.layers.position_resizing import resize_matrix
from keras_vit.models import ViTConfig
from keras_vit.weights.checkpoint import PROJECTION, ROOT, Checkpoint, Tensors
from keras_vit.weights.positions import RELATIVE, position_traits, split_positions

Names = tuple[str, ...]
Shapes = dict[str, tuple[int, ...]]

# Classifier layers, which can be dropped, or reset if their shapes differ.
PRE_LOGITS, HEADS = "pre_logits/", ("head/", "distillation_head/")


def fit(
    checkpoint: Checkpoint, config: ViTConfig, *, resize_patches: bool
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Adapts a checkpoint's tensors to a model's patch grid, patch size and number of channels."""
    tensors, notes = dict(checkpoint.tensors), {}
    split_positions(tensors, checkpoint, config)
    new_grid = config.grid
    method = checkpoint.inferred.get("position_interpolation", config.position_interpolation)
    # The number of relative positions determines only a square grid.
    traits = checkpoint.inferred if RELATIVE in tensors else position_traits(tensors)
    old_grid = traits.get("position_grid")
    kind = POSITIONS[config.position_embedding]
    shapes = kind.shapes(new_grid, config.hidden_size)
    shapes = shapes | kind.attention_shapes(new_grid, config.num_heads)
    for path in tensors:
        name = path.rpartition("/")[2]
        if name in shapes and old_grid is not None and old_grid != new_grid:
            resized = kind.resize(name, tensors[path], (old_grid, new_grid), method)
            resized = keras.ops.convert_to_numpy(resized)
            if not np.array_equal(resized, tensors[path]):  # unlike rows for a wider grid
                tensors[path] = resized
                notes[path] = f"Position embeddings resized from {old_grid} to {new_grid} patches"
    kernel = ROOT if config.stem_blocks is not None else PROJECTION
    channels = checkpoint.inferred.get("channels", config.channels)
    if kernel in tensors and channels != config.channels:
        shape = tensors[kernel].shape
        stored = tensors[kernel].reshape(-1, channels, shape[-1])  # (.., C, D)
        adapted = adapt_channels(stored, config.channels)
        input_shape = (*shape[:2], config.channels) if kernel == ROOT else (-1,)
        tensors[kernel] = adapted.reshape(*input_shape, shape[-1])
        notes[kernel] = f"Input kernel adapted from {channels} to {config.channels} channels"
    patch = tuple(checkpoint.inferred.get("patch_size") or config.patch)
    if PROJECTION in tensors and patch != config.patch:
        if not resize_patches:
            raise ValueError(
                f"The patch size of the model must match the patch size {patch} of "
                f"{checkpoint.source}; to resize the kernel, pass `resize_patches=True`, or to a "
                "constructor `overrides={'patch_size': ...}`. Received: a model with "
                f"patch_size={config.patch}"
            )
        stored = tensors[PROJECTION]
        stored = stored.reshape(*patch, -1, stored.shape[-1])  # (P, Q, C, D)
        resized = resize_patch_kernel(stored, config.patch)
        tensors[PROJECTION] = resized.reshape(-1, stored.shape[-1])
        note = f"Input kernel resized from patch size {patch} to {config.patch}"
        notes[PROJECTION] = "; ".join(filter(None, [notes.get(PROJECTION), note]))
    return tensors, notes


def variables_to_reset(shapes: Shapes, tensors: Tensors, reset_head: bool) -> Names:
    """Returns the names of the model's classifier variables that must be reset."""

    def compare(prefix: str) -> tuple[bool, Names]:
        ours = {name: shape for name, shape in shapes.items() if name.startswith(prefix)}
        theirs = {name: t.shape for name, t in tensors.items() if name.startswith(prefix)}
        return ours == theirs, tuple(ours)

    same_input, pre_logits = compare(PRE_LOGITS)
    reset = () if same_input else pre_logits
    for same_head, head in map(compare, HEADS):
        # A head cannot follow another representation layer, even if the shapes are equal.
        if reset_head or not (same_head and same_input):
            reset += head
    return reset


def resize_patch_kernel(kernel: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resizes the kernel of the patch projection to another patch size, as in FlexiViT.

    Multiplies by the pseudo-inverse of bicubic patch resizing (section 3.4): the new kernel,
    applied to resized patches, approximates the output of the old kernel for the original patches.

    Reference: https://arxiv.org/abs/2212.08013
    """
    for axis, (old, new) in enumerate(zip(kernel.shape, size, strict=False)):
        if old != new:
            resize = keras.ops.convert_to_numpy(resize_matrix(old, new, "bicubic_antialiased"))
            inverse = np.linalg.pinv(resize.T.astype("float64"))  # (new, old)
            kernel = np.moveaxis(np.tensordot(inverse, kernel, axes=(1, axis)), 0, axis)
    return kernel.astype("float32")


def adapt_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Adapts a convolution kernel for RGB images to another number of channels, as in timm.

    For one channel, the weights of the three channels are added, as if the channel were repeated
    three times. For more channels, the weights of red, green and blue are repeated in turn and
    scaled to keep the sum over the channels.

    Reference: `adapt_input_conv` of
    https://github.com/huggingface/pytorch-image-models/blob/main/timm/models/_manipulate.py
    """
    old = kernel.shape[-2]
    if channels == 1:
        return kernel.sum(axis=-2, keepdims=True)
    return kernel[..., np.arange(channels) % old, :] * np.float32(old / channels)
