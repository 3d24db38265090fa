"""Estimation of the memory and the floating-point operations that a run needs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from typing import Any

from keras_vit import arguments, models, zoo
from keras_vit.models.published import PLANNED
from keras_vit.runs.recipe import Recipe
from keras_vit.training.optimizers import state_per_weight

GIB = 2**30

# Memory of the framework besides the tensors, measured on a CPU (docs/planning.md): 0.76 GiB of a
# process that has imported this package with TensorFlow 2.21, up to 0.34 GiB of graph, compilers
# and memory that the allocator does not release, and 0.15 GiB to read and validate images.
FRAMEWORK = round(1.25 * GIB)

_TRAINED_WEIGHTS: dict[tuple[str, ...], str] = {("*",): "all", ("head/*",): "head"}


@dataclasses.dataclass(frozen=True)
class Plan:
    """Estimated memory and operations for training a model with a recipe on a device.

    The estimate is a count of tensors (`keras_vit.models.memory.count_memory`) plus a margin for
    the framework. It was verified with training steps on a CPU, but not on GPUs and TPUs.

    Args:
        config: The configuration of the model.
        recipe: Recipe, of which `batch_size`, `accumulation_steps`, `optimizer`, `ema_momentum`,
            `precision` (float32 for `"auto"`), `remat` and `trainable` (all parameters or the
            classifier) count.
        device: Memory of the device, in bytes.
        inference: Whether the plan is for inference, not for training.
        compiled: Whether chains of element-wise operations are compiled, as in training with
            TensorFlow on a CPU, but not on a GPU.
    """

    config: models.ViTConfig
    recipe: Recipe
    device: int
    inference: bool = False
    compiled: bool = False

    def __post_init__(self) -> None:
        arguments.positive_int("device", self.device)
        if not self.inference and self.recipe.trainable not in _TRAINED_WEIGHTS:
            raise ValueError(
                "`trainable` must be ('*',) or ('head/*',) for a plan: partly frozen models are "
                f"not estimated. Received: trainable={self.recipe.trainable}"
            )
        if not self.inference and self.recipe.lora_rank:
            raise ValueError(
                "`lora_rank` must be 0 for a plan: low-rank updates are not estimated. Received: "
                f"lora_rank={self.recipe.lora_rank}"
            )
        if not self.inference and self.recipe.distillation != "none":
            raise ValueError(
                "`distillation` must be 'none' for a plan; add the memory of the teacher's "
                f"inference. Received: distillation={self.recipe.distillation!r}"
            )

    def replace(self, **changes: Any) -> Plan:
        """Returns a new plan with changes to the recipe."""
        return dataclasses.replace(self, recipe=self.recipe.replace(**changes))

    @property
    def precision(self) -> str:
        """Keras dtype policy; `"auto"` counts as float32, which needs the most memory."""
        return "float32" if self.recipe.precision == "auto" else self.recipe.precision

    @property
    def learning(self) -> str:
        """Trained weights, as for `count_memory`: `"all"`, `"head"` or `"nothing"`."""
        return "nothing" if self.inference else _TRAINED_WEIGHTS[self.recipe.trainable]

    @functools.cached_property
    def memory(self) -> models.Memory:
        """Memory in bytes, broken down by purpose: weights, gradients and so on."""
        return models.count_memory(
            self.config,
            self.recipe.batch_size // self.recipe.accumulation_steps,
            precision=self.precision,
            learning=self.learning,
            state=state_per_weight(self.recipe),
            average=self.recipe.ema_momentum > 0,
            # The sum and the current micro-batch.
            gradient_sets=1 + (self.recipe.accumulation_steps > 1),
            remat=self.recipe.remat,
            compiled=self.compiled,
        )

    @property
    def total(self) -> int:
        """Total memory of the run in bytes, including the overhead of the framework."""
        return self.memory.total + FRAMEWORK

    @property
    def fits(self) -> bool:
        """True if the run fits into the memory of the device."""
        return self.total <= self.device

    @property
    def largest_batch(self) -> int:
        """Largest batch size that fits without gradient accumulation; 0 if no batch size fits."""
        memory, recipe = self.memory, self.recipe
        batch_bytes = memory.images + memory.activations + memory.passing  # the rest is fixed
        image_bytes = batch_bytes * recipe.accumulation_steps // recipe.batch_size
        return max(0, (self.device - self.total + batch_bytes) // image_bytes)

    def remedies(self) -> dict[str, Plan]:
        """Returns memory-saving changes in `--set` syntax: single changes, then combinations.

        The batch size is unchanged; gradient accumulation comes last, with the fewest steps that
        fit. Changes without savings are omitted, such as half precision if casts of the weights
        dominate. All changes have side effects: half precision rounds, rematerialization takes a
        third more operations, and SGD requires another learning rate.
        """
        single: list[dict[str, Any]] = [{"precision": "mixed_bfloat16"}, {"remat": True}]
        if self.learning == "all":
            single.append({"optimizer": "sgd"})
        effective = [change for change in single if self.replace(**change).total < self.total]
        changes = [*effective, *itertools.accumulate(effective, operator.or_)]
        batch_size, current_steps = self.recipe.batch_size, self.recipe.accumulation_steps
        for base in ({}, *changes[-1:]):
            steps = (n for n in range(current_steps, batch_size + 1) if batch_size % n == 0)
            fitting = (n for n in steps if self.replace(**base, accumulation_steps=n).fits)
            if not self.inference and (min_steps := next(fitting, current_steps)) > current_steps:
                changes.append({**base, "accumulation_steps": min_steps})
        return {_settings_text(change): self.replace(**change) for change in changes}

    def to_json(self) -> dict[str, Any]:
        """Returns the plan as a dictionary that can be stored as JSON, with memory in bytes."""
        image_flops = step_flops = models.count_flops(self.config)
        if not self.inference:
            options = {"remat": self.recipe.remat, "head_only": self.learning == "head"}
            step_flops = models.count_training_flops(self.config, **options)
        return {
            "parameters": models.count_parameters(self.config),
            "image_flops": image_flops,
            "step_flops": self.recipe.batch_size * step_flops,
            "batch_size": self.recipe.batch_size,
            "accumulation_steps": self.recipe.accumulation_steps,
            "precision": self.precision,
            "memory": {**dataclasses.asdict(self.memory), "framework": FRAMEWORK},
            "total": self.total,
            "device": self.device,
            "fits": self.fits,
            "largest_batch": self.largest_batch,
        }


def plan(
    model: str,
    recipe: Recipe,
    device: int,
    *,
    classes: int = 1000,
    inference: bool = False,
    compiled: bool = False,
) -> Plan:
    """Estimates the memory and the operations that a run needs on a device."""
    config = PLANNED.get(model) or zoo.constructor(model).config
    config = config.replace(
        classes=arguments.positive_int("classes", classes),
        image_size=recipe.image_size or config.image_size,
        dropout_rate=recipe.dropout_rate,
        stochastic_depth_rate=recipe.stochastic_depth_rate,
    )
    return Plan(config, recipe, device, inference, compiled)


def _settings_text(changes: dict[str, Any]) -> str:
    return " ".join(f"{name}={str(value).lower()}" for name, value in changes.items())
