"""What a training run does, as plain numbers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from keras_vit import checks
from keras_vit.constants import CROP_AREA

OPTIMIZERS = ("adamw", "sgd")
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The numbers of a training run.

    The defaults fine-tune pretrained weights on a few thousand photographs in minutes.

    Args:
        epochs: Passes over the training examples.
        batch_size: Examples in a step.
        optimizer: `"adamw"`, or `"sgd"` with momentum 0.9.
        learning_rate: Highest learning rate, 0 or more, reached after the warm-up; it then
            follows half a cosine to 0.
        warmup_fraction: Share of the steps in which the rate rises linearly from 0, in [0, 1).
        weight_decay: Decoupled weight decay of kernels, 0 or more; biases, norms, tokens and
            position embeddings have none.
        clip_norm: Largest global norm of the gradient; 0 for no clipping.
        label_smoothing: Share of the target spread over all classes, in [0, 1).
        crop_area: Smallest and largest share of the image's area that a random crop keeps.
        flip: Whether images are mirrored at random; never where the data says that a mirrored
            image means something else, as a digit.
        dropout_rate: In [0, 1).
        stochastic_depth_rate: Of the last block, in [0, 1).
        precision: `"float32"`, `"mixed_bfloat16"`, `"mixed_float16"`, or `"auto"`: the fastest
            on this machine.
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
    batch_size: int = 16
    optimizer: str = "adamw"
    learning_rate: float = 1e-4
    warmup_fraction: float = 0.1
    weight_decay: float = 0.05
    clip_norm: float = 1.0
    label_smoothing: float = 0.0
    crop_area: tuple[float, float] = CROP_AREA
    flip: bool = True
    dropout_rate: float = 0.0
    stochastic_depth_rate: float = 0.0
    precision: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        checks.one_of("optimizer", self.optimizer, OPTIMIZERS)
        checks.one_of("precision", self.precision, PRECISIONS)
        for name in ("epochs", "batch_size"):
            checks.positive_int(name, getattr(self, name))
        for name in ("warmup_fraction", "label_smoothing", "dropout_rate", "stochastic_depth_rate"):
            checks.rate(name, getattr(self, name))
        for name in ("learning_rate", "weight_decay", "clip_norm"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(
                    f"`{name}` must be a number from 0 up. Received: {name}={getattr(self, name)}"
                )
        area = tuple(map(float, self.crop_area))
        if len(area) != 2 or not 0 < area[0] <= area[1] <= 1:
            raise ValueError(
                "`crop_area` must be two shares with 0 < smallest <= largest <= 1. "
                f"Received: crop_area={self.crop_area}"
            )
        # A frozen dataclass can only be normalised through object.__setattr__.
        object.__setattr__(self, "crop_area", area)
        if not 0 <= self.seed < 2**32:  # what NumPy takes
            raise ValueError(f"`seed` must be in [0, 2**32). Received: seed={self.seed}")

    def replace(self, **changes: Any) -> Recipe:
        """Returns a copy with some numbers changed; None leaves a number as it is.

        Args:
            **changes: Names and values.

        Returns:
            The new recipe.

        Raises:
            ValueError: If a value is out of range.

        Example:
            >>> FINETUNE.replace(epochs=7, seed=None).epochs
            7
        """
        given = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **given)


FINETUNE = Recipe()

# What SGD needs other numbers for, as in the paper's fine-tuning (Table 4: 0.01, no weight decay).
SGD = {"optimizer": "sgd", "learning_rate": 0.01, "weight_decay": 0.0}

# Without pretrained weights: small images, many passes. `make demo` runs it on scikit-learn's
# digits: accuracy 0.98, 3 minutes on two CPU cores.
FROM_SCRATCH = Recipe(
    epochs=80,
    batch_size=32,
    learning_rate=2e-3,
    weight_decay=0.1,
    label_smoothing=0.1,
    crop_area=(0.8, 1.0),
)
