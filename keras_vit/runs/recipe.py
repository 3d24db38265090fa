"""What a training run does, as plain numbers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from keras_vit import arguments
from keras_vit.choices import DECAYS
from keras_vit.data import Augmentation

OPTIMIZERS = ("adamw", "sgd", "lion", "adafactor")
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")
LOSSES = ("softmax", "sigmoid")
DECAYED = ("kernels", "all")
CLASS_WEIGHTS = ("none", "balanced")
DISTILLATIONS = ("none", "soft", "hard")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The numbers of a training run.

    The defaults are plain AdamW. What a run takes if nothing else is said is
    `recipe("finetune")`, and `recipe("finetune").replace(epochs=3)` changes a number of it.

    Args:
        epochs: Passes over the training examples.
        early_stopping: Epochs without a better validation result (mean average precision, accuracy,
            or where there is neither, loss) after which training ends; 0 to train all epochs.
        batch_size: Images in a step, on all devices together.
        accumulation_steps: Parts that a batch is computed in, one after the other, to need less
            memory; the result stays the same.
        image_size: Height and width in pixels; None for the size of the weights.
        optimizer: `"adamw"`, `"sgd"` with momentum, `"lion"` or `"adafactor"`.
        learning_rate: Highest learning rate, 0 or more, for this batch size.
        warmup_fraction: Share of the steps in which the rate rises linearly from 0, in [0, 1).
        warmup_steps: The same in steps; counts where it is not 0.
        decay: How the rate falls afterwards: `"cosine"`, `"linear"`, `"rsqrt"` or `"constant"`.
        final_fraction: Share of the rate left at the end of cosine and linear, in [0, 1].
        timescale: Steps in which rsqrt falls to 1 / sqrt(2).
        layer_decay: What the rate of each layer is, measured by the next one's, in (0, 1].
        beta_1: Momentum, in [0, 1); not of Adafactor.
        beta_2: Decay of the second moment, in [0, 1), or of Lion's momentum; not of Adafactor.
        weight_decay: Weight decay, 0 or more, multiplied by the learning rate of the step.
        weight_decay_on: `"kernels"`: biases, norms, tokens and position embeddings have none; or
            `"all"`.
        weight_decay_coupled: Whether it is added to the gradient, as in PyTorch's SGD, and not
            taken off the weights, as in AdamW.
        clip_norm: Largest norm of all gradients together; 0 for no clipping.
        clip_variable_norm: Largest norm of each variable's gradient; 0 for no clipping.
        sam_radius: Radius rho of sharpness-aware minimisation, which takes two gradients a step;
            0 for the plain one.
        ema_momentum: Momentum of the running average of the weights that is evaluated, saved and
            exported in place of the last ones, in [0, 1); 0 for none.
        trainable: Patterns of the parameters that are trained, such as `("head/*",)`.
        loss: `"softmax"` cross-entropy, or `"sigmoid"`: a yes or no for each class, which data with
            several labels per image needs.
        label_smoothing: Share of the target spread over all classes, in [0, 1); with `"sigmoid"`
            over yes and no.
        class_weights: `"balanced"` weighs a mistake by how rare the image's class is.
        distillation: Whether the model also learns from a teacher's answers: `"hard"`, the class it
            decides for, or `"soft"`, its probabilities. A model with a distillation token
            learns them there, any other one at its only head.
        distillation_weight: Share of the teacher in the loss, in [0, 1].
        distillation_temperature: Divides the logits of both where the teacher is soft, above 0.
        dropout_rate: In [0, 1).
        stochastic_depth_rate: Of the last block, in [0, 1).
        augmentation: Random changes to the images.
        precision: `"float32"`, `"mixed_bfloat16"`, `"mixed_float16"`, or `"auto"`: the fastest
            on this machine.
        remat: Whether the blocks are computed a second time on the way back and not kept.
        seed: Of everything random in training: initial values, order, crops; in [0, 2**32).

    Raises:
        ValueError: If a value is out of range.

    Example:
        >>> Recipe(epochs=3, learning_rate=1e-4).optimizer
        'adamw'

    Reference: warm-up, cosine decay and clipping at 1 are those of the paper's fine-tuning,
    appendix B.1.1 of https://arxiv.org/abs/2010.11929
    """

    epochs: int = 4
    early_stopping: int = 0
    batch_size: int = 16
    accumulation_steps: int = 1
    image_size: tuple[int, int] | None = None
    optimizer: str = "adamw"
    learning_rate: float = 1e-4
    warmup_fraction: float = 0.1
    warmup_steps: int = 0
    decay: str = "cosine"
    final_fraction: float = 0.0
    timescale: float = 10_000.0
    layer_decay: float = 1.0
    beta_1: float = 0.9
    beta_2: float = 0.999
    weight_decay: float = 0.05
    weight_decay_on: str = "kernels"
    weight_decay_coupled: bool = False
    clip_norm: float = 1.0
    clip_variable_norm: float = 0.0
    sam_radius: float = 0.0
    ema_momentum: float = 0.0
    trainable: tuple[str, ...] = ("*",)
    loss: str = "softmax"
    label_smoothing: float = 0.0
    class_weights: str = "none"
    distillation: str = "none"
    distillation_weight: float = 0.5
    distillation_temperature: float = 1.0
    dropout_rate: float = 0.0
    stochastic_depth_rate: float = 0.0
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)
    precision: str = "auto"
    remat: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, options in (
            ("optimizer", OPTIMIZERS),
            ("precision", PRECISIONS),
            ("decay", DECAYS),
            ("loss", LOSSES),
            ("weight_decay_on", DECAYED),
            ("class_weights", CLASS_WEIGHTS),
            ("distillation", DISTILLATIONS),
        ):
            arguments.one_of(name, getattr(self, name), options)
        for name in ("epochs", "batch_size", "accumulation_steps"):
            arguments.positive_int(name, getattr(self, name))
        arguments.count("early_stopping", self.early_stopping)
        arguments.count("warmup_steps", self.warmup_steps)
        for name in (
            "warmup_fraction",
            "beta_1",
            "beta_2",
            "ema_momentum",
            "label_smoothing",
            "dropout_rate",
            "stochastic_depth_rate",
        ):
            arguments.rate(name, getattr(self, name))
        for name in (
            "learning_rate",
            "weight_decay",
            "clip_norm",
            "clip_variable_norm",
            "sam_radius",
        ):
            value = getattr(self, name)
            if not arguments.is_number(value) or not 0 <= value < math.inf:
                raise ValueError(f"`{name}` must be a number from 0 up. Received: {name}={value!r}")
        for name in ("timescale", "distillation_temperature"):
            arguments.positive(name, getattr(self, name))
        for name in ("final_fraction", "distillation_weight"):
            value = getattr(self, name)
            if not arguments.is_number(value) or not 0 <= value <= 1:
                raise ValueError(f"`{name}` must be in [0, 1]. Received: {name}={value!r}")
        if not arguments.is_number(self.layer_decay) or not 0 < self.layer_decay <= 1:
            raise ValueError(
                f"`layer_decay` must be in (0, 1]. Received: layer_decay={self.layer_decay!r}"
            )
        if self.batch_size % self.accumulation_steps:
            raise ValueError(
                "`batch_size` must be a multiple of `accumulation_steps`. Received: "
                f"batch_size={self.batch_size}, accumulation_steps={self.accumulation_steps}"
            )
        if not 0 <= self.seed < 2**32:  # what NumPy takes
            raise ValueError(f"`seed` must be in [0, 2**32). Received: seed={self.seed}")
        # A frozen dataclass can only be normalised through object.__setattr__.
        object.__setattr__(self, "trainable", tuple(self.trainable))
        if self.image_size is not None:
            size = arguments.size_pair("image_size", self.image_size)
            object.__setattr__(self, "image_size", size)

    def replace(self, **changes: Any) -> Recipe:
        """Returns a copy with some numbers changed; None leaves a number as it is.

        Args:
            **changes: Names and values; those of `Augmentation` as well. As an `image_size` None
                is a value.

        Returns:
            The new recipe.

        Raises:
            ValueError: If a value is out of range, or a name unknown.

        Example:
            >>> Recipe().replace(epochs=7, mixup=0.2, seed=None).augmentation.mixup
            0.2
        """
        given = {
            name: value
            for name, value in changes.items()
            if value is not None or name == "image_size"
        }
        own = {field.name for field in dataclasses.fields(Recipe)}
        below = {field.name for field in dataclasses.fields(Augmentation)}
        for name in given:
            if name not in own | below:
                hint = arguments.nearest(name, own | below)
                raise ValueError(f"{name!r} is no field of a recipe.{hint}")
        inner = {name: given.pop(name) for name in list(given) if name in below}
        if inner:
            base = given.get("augmentation", self.augmentation)
            given["augmentation"] = dataclasses.replace(base, **inner)
        return dataclasses.replace(self, **given)
