"""Memory estimates for training and inference, computed without building the model.

Letters: T tokens; D hidden size; M width of the MLP.
"""

from __future__ import annotations

import dataclasses
import math
import os

from keras_vit import accelerators, arguments
from keras_vit.models.config import ViTConfig
from keras_vit.models.counting import (
    convolutions,
    count_attended,
    count_head,
    count_parameters,
    count_tokens,
)

# Bytes per activation value of each dtype policy; weights and sums are float32 in all of them.
PRECISIONS = {"float32": 4, "mixed_bfloat16": 2, "mixed_float16": 2}
FLOAT32 = 4


@dataclasses.dataclass(frozen=True)
class Memory:
    """Peak memory of one training or inference step, in bytes, broken down by purpose.

    Args:
        weights: Weights, float32.
        half_weights: Copies of the weights in half precision for the matrix products.
        gradients: Gradients of the trained weights.
        optimizer: Optimizer state of the trained weights.
        averages: Running average of the weights.
        images: Images of a step, and their patches.
        activations: Activations of the forward pass that are stored for the backward pass.
        update: Update of the optimizer, of the size of the gradients.
        passing: Temporary tensors of the current and neighboring operations.

    Examples:
        >>> Memory(weights=3, activations=5).total
        8
    """

    weights: int = 0
    half_weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    averages: int = 0
    images: int = 0
    activations: int = 0
    update: int = 0
    passing: int = 0

    @property
    def total(self) -> int:
        """Total memory in bytes."""
        return sum(dataclasses.astuple(self))


def count_memory(
    config: ViTConfig,
    batch_size: int,
    *,
    precision: str = "float32",
    learning: str = "all",
    state: int = 2,
    average: bool = False,
    gradient_sets: int = 1,
    remat: bool = False,
    compiled: bool = False,
) -> Memory:
    """Estimates the peak memory of a training step or of inference on one batch.

    The tensors that are counted are listed in docs/planning.md.

    Args:
        config: The configuration; an unknown side counts as that of the position grid.
        batch_size: Batch size.
        precision: Keras dtype policy: `"float32"`, `"mixed_bfloat16"` or `"mixed_float16"`.
        learning: Trained weights: `"all"`, `"head"` (the classifier) or `"nothing"` (inference).
        state: Values of optimizer state per weight: 2 for AdamW.
        average: Whether there is a running average of the weights.
        gradient_sets: Number of simultaneous copies of the gradients: 2 with gradient
            accumulation.
        remat: Whether the blocks are recomputed in the backward pass (rematerialization).
        compiled: Whether chains of element-wise operations are compiled into one operation each.

    Returns:
        The memory in bytes, without the overhead of the framework.

    Raises:
        ValueError: If an argument is out of range.

    Examples:
        >>> from keras_vit.models.config import size
        >>> memory = count_memory(size("B/16"), 8)
        >>> f"{memory.weights / 2**20:.0f}, {memory.activations / 2**20:.0f} MiB"
        '330, 1953 MiB'

    Reference: section 4 of https://arxiv.org/abs/2205.05198 counts another Transformer's
    activations in this way; rematerialization https://arxiv.org/abs/1604.06174
    """
    weights = count_parameters(config)
    trained = {"all": weights, "head": count_head(config), "nothing": 0}
    arguments.positive_int("batch_size", batch_size)
    arguments.one_of("precision", precision, tuple(PRECISIONS))
    arguments.one_of("learning", learning, tuple(trained))
    arguments.count("state", state)
    arguments.positive_int("gradient_sets", gradient_sets)
    half, num_trained = PRECISIONS[precision], trained[learning]
    t, d, m = count_tokens(config), config.hidden_size, config.mlp_dim
    scores = config.num_heads * max(keys for _, keys in count_attended(config))
    pixels = math.prod(config.default_image_size) * config.channels
    stored_bytes = 0
    # Values per token in half precision at the peak of a block in inference: the transpose of
    # queries, keys and values; the softmax; GELU.
    peak = max(7 * d, 4 * d + 2 * scores, d + 2 * m)
    if learning == "all":
        stored_bytes = _stored_bytes(config, half, remat, compiled)
        # At the peak of its backward pass: attention weights and logits, with queries, keys and
        # values before and after the transpose; output and input of GELU, without compilation
        # also its factors.
        peak = max(2 * scores + 6 * d, 2 * m if compiled else 4 * m)
    return Memory(
        weights=FLOAT32 * weights,
        half_weights=half * weights if half < FLOAT32 else 0,
        gradients=FLOAT32 * num_trained * gradient_sets,
        optimizer=FLOAT32 * num_trained * state,
        averages=FLOAT32 * num_trained * average,
        images=batch_size * pixels * (FLOAT32 + half),
        activations=batch_size * stored_bytes,
        update=FLOAT32 * num_trained,
        passing=batch_size * t * (FLOAT32 * d + half * peak),
    )


def require_memory(config: ViTConfig) -> None:
    """Raises `ValueError` if one image needs more memory than a CPU has, which aborts Python."""
    if accelerators.detect() != "cpu" or "SC_PHYS_PAGES" not in os.sysconf_names:
        return
    required = count_memory(config, 1, learning="nothing").total
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if required > available:
        raise ValueError(
            "`image_size` must be small enough for the memory of this machine ("
            f"{available / 2**30:.0f} GiB). Received: image_size={config.default_image_size}, for "
            f"which one image needs {required / 2**30:.0f} GiB"
        )


def _stored_bytes(config: ViTConfig, half: int, remat: bool, compiled: bool) -> int:
    """Returns how many bytes of an image's forward pass are stored for the backward pass."""
    t, d, m = count_tokens(config), config.hidden_size, config.mlp_dim
    keys = [keys for _, keys in count_attended(config)]
    scores = config.num_heads * max(keys)
    norm = FLOAT32 * (d if compiled else 2 * d + 1)
    gelu = 1 if compiled else {"exact": 3, "tanh": 4, "quick": 3}[config.gelu]
    if config.swiglu:  # both halves, the gate and its sigmoid
        gelu = 4
    scales = 0 if config.layer_scale is None else 2 * d
    block = 2 * norm + half * (8 * d + scores + (gelu + 1) * m + scales)
    if config.dropout_rate:
        block += 2 * d + m
    if config.attention_dropout_rate:
        block += scores * (half + 1)
    # With `remat`, the input tokens of each block, and one block at a time.
    blocks = config.num_layers * (FLOAT32 * d if remat else block) + remat * block
    if not remat:  # blocks with windows store fewer attention weights
        fewer = config.num_heads * sum(max(keys) - number for number in keys)
        blocks -= fewer * (2 * half + 1 if config.attention_dropout_rate else half)
    # The last norm, and the norm before the first block.
    blocks += norm * (1 + config.pre_norm)
    if config.dropout_rate:  # of the input tokens of the first block
        blocks += d
    # The centered float32 output of a convolution of the ResNet, and the normalized input of the
    # next convolution.
    stem = sum(c.rows * c.outputs for c in convolutions(config))
    return t * blocks + stem * (FLOAT32 + half)
