"""Memory of training and inference in closed form, without building the model.

Letters: B batch; T tokens; N patches; D hidden size; M width of the perceptron; K heads; L blocks.
"""

from __future__ import annotations

import dataclasses
import math

from keras_vit import arguments
from keras_vit.models.config import ViTConfig
from keras_vit.models.counting import convolutions, count_head, count_parameters, count_tokens

# Bytes of a value that layers compute with; weights and sums are float32 in all of them.
PRECISIONS = {"float32": 4, "mixed_bfloat16": 2, "mixed_float16": 2}
FLOAT32 = 4
LEARNING = ("all", "head", "nothing")


@dataclasses.dataclass(frozen=True)
class Memory:
    """What is in memory at the fullest moment of a step, in bytes, by what it is for.

    Args:
        weights: The weights, float32.
        half_weights: Their copies in half precision, which the products take.
        gradients: Of the weights that learn.
        optimizer: What the optimizer keeps of each weight that learns.
        averages: The running average of the weights.
        images: The images of a step, and the same cut into patches.
        activations: What the way back needs of the way forward.
        update: Of the optimizer's update: a step as large as the gradients.
        passing: What the operation at hand, and those around it, hold on top for a moment.

    Example:
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
        """The sum, in bytes."""
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
    """Returns what a training step, or a prediction, holds in memory.

    Of each block the way back needs, for every token, in values, those in half precision in
    brackets, where "compiled" is how TensorFlow trains on a CPU
    (`keras_vit.layers.fused_elementwise`):

    | tensor | needed by | values |
    |---|---|---|
    | the tokens that enter each of the norms, compiled | the norms | 2 D |
    | the same less their mean, and normalised; the deviation; else | the norms | 4 D + 2 |
    | what the norms return | queries, keys and values; first layer | (2 D) |
    | queries, keys, values; queries over sqrt(d), keys transposed | attention | (5 D) |
    | attention weights | attention | (K T) |
    | the joined heads | last layer of the attention | (D) |
    | what enters GELU, compiled | GELU | (M) |
    | three to four factors of it, else | GELU: `"exact"`, `"tanh"` | (3 M), (4 M) |
    | what GELU returns | second layer | (M) |
    | branches before `LayerScale` | its gradient | (2 D) |

    Dropout adds a byte for each value that it may drop, and that of the attention weights their
    copy. With `remat` one of the L blocks at a time has all this, and the others just the tokens
    that enter them. Gradients come into being while activations go; both are counted in full.

    Args:
        config: The configuration; a side of unknown length counts with that of its position grid.
        batch_size: Images computed at once.
        precision: Keras dtype policy: `"float32"`, `"mixed_bfloat16"` or `"mixed_float16"`.
        learning: Which weights learn: `"all"`, `"head"` (the classifier) or `"nothing"`, which is
            inference.
        state: Values that the optimizer keeps of each weight: 2 for AdamW.
        average: Whether there is a running average of the weights.
        gradient_sets: Times that gradients are there at once: 2 where they are summed over parts of
            a batch.
        remat: Whether the blocks are computed a second time on the way back.
        compiled: Whether chains of element-wise operations are one operation each.

    Returns:
        Bytes, without what the framework itself takes.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> from keras_vit.models.config import size
        >>> memory = count_memory(size("B/16"), 8)
        >>> f"{memory.weights / 2**20:.0f}, {memory.activations / 2**20:.0f} MiB"
        '330, 1953 MiB'

    Reference: section 4 of https://arxiv.org/abs/2205.05198 counts another Transformer's
    activations in this way; rematerialisation https://arxiv.org/abs/1604.06174
    """
    arguments.positive_int("batch_size", batch_size)
    arguments.one_of("precision", precision, tuple(PRECISIONS))
    arguments.one_of("learning", learning, LEARNING)
    arguments.count("state", state)
    arguments.positive_int("gradient_sets", gradient_sets)
    half = PRECISIONS[precision]
    weights = count_parameters(config)
    learnt = {"all": weights, "head": count_head(config), "nothing": 0}[learning]
    t, d = count_tokens(config), config.hidden_size
    pixels = math.prod(config.usual_size) * config.channels
    kept = 0
    passing = t * _forward_bytes(config, t, half)
    if learning == "all":
        block = t * _block_bytes(config, t, half, compiled)
        between = t * FLOAT32 * d  # the tokens that enter a block
        kept = config.num_layers * between + block if remat else config.num_layers * block
        # What a convolution of the ResNet returns, less its mean and in float32, and what becomes
        # of it, which the next convolution takes.
        stem = sum(math.prod(c.sides) * c.filters for c in convolutions(config))
        kept += stem * (FLOAT32 + half)
        # The last norm, and one before the first block.
        kept += t * FLOAT32 * (d if compiled else 2 * d + 1) * (1 + config.pre_norm)
        if config.dropout_rate:  # of the tokens that enter the first block
            kept += t * d
        passing = t * _backward_bytes(config, t, half, compiled)
    return Memory(
        weights=FLOAT32 * weights,
        half_weights=half * weights if half < FLOAT32 else 0,
        gradients=FLOAT32 * learnt * gradient_sets,
        optimizer=FLOAT32 * learnt * state,
        averages=FLOAT32 * learnt * average,
        images=batch_size * pixels * (FLOAT32 + half),
        activations=batch_size * kept,
        update=FLOAT32 * learnt,
        passing=batch_size * passing,
    )


def _block_bytes(config: ViTConfig, t: int, half: int, compiled: bool) -> int:
    """Returns the bytes of a token that a block keeps for the way back; see `count_memory`."""
    d, m, scores = config.hidden_size, config.mlp_dim, config.num_heads * t
    norms = 2 * d if compiled else 4 * d + 2
    gelu = 1 if compiled else {"exact": 3, "tanh": 4}[config.gelu]
    values = 8 * d + scores + (gelu + 1) * m
    if config.layer_scale is not None:
        values += 2 * d
    total = FLOAT32 * norms + half * values
    if config.dropout_rate:
        total += 2 * d + m
    if config.attention_dropout_rate:
        total += scores * (half + 1)
    return total


def _backward_bytes(config: ViTConfig, t: int, half: int, compiled: bool) -> int:
    """Returns the bytes of a token that a block's way back holds on top of what was kept."""
    d, m, scores = config.hidden_size, config.mlp_dim, config.num_heads * t
    # Of the weights and the logits; of the three, before and after they are transposed.
    attention = 2 * scores + 6 * d
    # Of what GELU returns and of what enters it; a pass at a time there are factors as well.
    mlp = 2 * m if compiled else 4 * m
    return FLOAT32 * d + half * max(attention, mlp)


def _forward_bytes(config: ViTConfig, t: int, half: int) -> int:
    """Returns the bytes of a token that a block holds at its fullest in inference."""
    d, m, scores = config.hidden_size, config.mlp_dim, config.num_heads * t
    attention = max(7 * d, 4 * d + 2 * scores)  # transposed; softmax
    return FLOAT32 * d + half * max(attention, d + 2 * m)
