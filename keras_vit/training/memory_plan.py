"""Prediction of the memory and operations of a run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from keras_vit import arguments, zoo
from keras_vit.models import (
    Memory,
    ViTConfig,
    count_flops,
    count_memory,
    count_parameters,
    count_training_flops,
)
from keras_vit.runs.recipe import Recipe
from keras_vit.training.optimizers import state_per_weight

GIB = 2**30

# Memory of the framework besides the tensors, measured on a CPU (docs/planning.md): 0.76 GiB of a
# process that has imported this package with TensorFlow 2.21, and up to 0.34 GiB of graph,
# compilers and memory that the allocator does not release.
FRAMEWORK = round(1.1 * GIB)

_LEARNING: dict[tuple[str, ...], str] = {("*",): "all", ("head/*",): "head"}


@dataclasses.dataclass(frozen=True)
class Plan:
    """Memory and operations of a recipe with a model on a device.

    The prediction is a count of tensors (`keras_vit.models.memory.count_memory`) plus a margin for
    the framework, verified with training steps on a CPU, but not on GPUs and TPUs.

    Args:
        config: The configuration of the model.
        recipe: Recipe, of which `batch_size`, `accumulation_steps`, `optimizer`, `ema_momentum`,
            `precision` (float32 for `"auto"`), `remat`, `sam_radius` and `trainable` (all
            parameters or the classifier) count.
        device: Memory of the device, in bytes.
        inference: Whether the plan is for inference, not for training.
        compiled: Whether chains of element-wise operations are compiled, as in training with
            TensorFlow on a CPU, but not on a GPU.
    """

    config: ViTConfig
    recipe: Recipe
    device: int
    inference: bool = False
    compiled: bool = False

    def __post_init__(self) -> None:
        arguments.positive_int("device", self.device)
        if self.inference:
            return
        if self.recipe.trainable not in _LEARNING:
            raise ValueError(
                "`trainable` must be ('*',) or ('head/*',) for a plan: what other patterns keep "
                f"for the way back has no formula. Received: trainable={self.recipe.trainable}"
            )
        if self.recipe.distillation != "none":
            raise ValueError(
                "`distillation` must be 'none' for a plan, which knows no teacher; add what "
                f"inference with it takes. Received: distillation={self.recipe.distillation!r}"
            )

    def replace(self, **changes: Any) -> Plan:
        """Returns the plan for a changed recipe."""
        return dataclasses.replace(self, recipe=self.recipe.replace(**changes))

    @property
    def precision(self) -> str:
        """Keras dtype policy; float32 for `"auto"`, which needs the most memory."""
        return "float32" if self.recipe.precision == "auto" else self.recipe.precision

    @property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        return count_parameters(self.config)

    @property
    def image_flops(self) -> int:
        """Floating-point operations of the prediction for one image."""
        return count_flops(self.config)

    @property
    def step_flops(self) -> int:
        """Floating-point operations of a step, for the whole batch."""
        if self.inference:
            return self.recipe.batch_size * self.image_flops
        gradients = 2 if self.recipe.sam_radius else 1
        return (
            self.recipe.batch_size
            * gradients
            * count_training_flops(
                self.config, remat=self.recipe.remat, head_only=self._learning == "head"
            )
        )

    @functools.cached_property
    def memory(self) -> Memory:
        """Memory of the tensors, in bytes."""
        return self._memory(-(-self.recipe.batch_size // self.recipe.accumulation_steps))

    @property
    def total(self) -> int:
        """Memory of the run including the framework, in bytes."""
        return self.memory.total + FRAMEWORK

    @property
    def fits(self) -> bool:
        """Whether the run fits into the device's memory."""
        return self.total <= self.device

    @property
    def largest_batch(self) -> int:
        """Largest batch size that fits without accumulation; 0 if no image fits."""
        fixed, image = self._memory(1), self._memory(2).total - self._memory(1).total
        return max(0, (self.device - FRAMEWORK - fixed.total) // image + 1)

    def remedies(self) -> Iterator[tuple[str, Plan]]:
        """Yields changes that reduce the memory, in `--set` syntax: first single, then combined.

        The batch size is unchanged; gradient accumulation comes last, with the fewest steps that
        fit. Changes without savings are omitted, such as half precision if casts of the weights
        dominate. All changes have side effects: half precision rounds, rematerialization takes a
        third more operations, and SGD requires another learning rate.
        """
        changes: list[dict[str, Any]] = []
        if self.precision == "float32":
            changes.append({"precision": "mixed_bfloat16"})
        if not self.inference and self._learning == "all":
            if not self.recipe.remat:
                changes.append({"remat": True})
            if state_per_weight(self.recipe) > 1:
                changes.append({"optimizer": "sgd"})
        changes = [change for change in changes if self.replace(**change).total < self.total]
        for change in changes:
            yield _words(change), self.replace(**change)
        together: dict[str, Any] = {}
        least = self
        for change in changes:
            less = least.replace(**change)
            if less.total < least.total:
                together, least = {**together, **change}, less
                if len(together) > 1:
                    yield _words(together), least
        if self.inference:
            return
        for begun, changed in [({}, self), (together, least)] if together else [({}, self)]:
            divided = None if changed.fits else changed._divided()
            if divided is not None:
                steps = {"accumulation_steps": divided.recipe.accumulation_steps}
                yield _words({**begun, **steps}), divided

    def to_json(self) -> dict[str, Any]:
        """Returns the plan as a dictionary of JSON values, with memory in bytes."""
        return {
            "parameters": self.parameters,
            "image_flops": self.image_flops,
            "step_flops": self.step_flops,
            "batch_size": self.recipe.batch_size,
            "accumulation_steps": self.recipe.accumulation_steps,
            "precision": self.precision,
            "memory": {**dataclasses.asdict(self.memory), "framework": FRAMEWORK},
            "total": self.total,
            "device": self.device,
            "fits": self.fits,
            "largest_batch": self.largest_batch,
        }

    @property
    def _learning(self) -> str:
        return "nothing" if self.inference else _LEARNING[self.recipe.trainable]

    def _memory(self, images: int) -> Memory:
        recipe = self.recipe
        return count_memory(
            self.config,
            images,
            precision=self.precision,
            learning=self._learning,
            state=state_per_weight(recipe),
            average=recipe.ema_momentum > 0,
            # The sum, the current micro-batch, and the weights before SAM's ascent step.
            gradient_sets=1 + (recipe.accumulation_steps > 1) + (recipe.sam_radius > 0),
            remat=recipe.remat,
            compiled=self.compiled,
        )

    def _divided(self) -> Plan | None:
        """Returns the plan with the fewest accumulation steps that fits, or None."""
        batch = self.recipe.batch_size
        for steps in range(self.recipe.accumulation_steps + 1, batch + 1):
            if batch % steps == 0 and (found := self.replace(accumulation_steps=steps)).fits:
                return found
        return None


def plan(
    model: str,
    recipe: Recipe,
    device: int,
    *,
    classes: int = 1000,
    inference: bool = False,
    compiled: bool = False,
) -> Plan:
    """Predicts the memory and operations of a run on a device."""
    config = zoo.constructor(model).config.replace(
        classes=arguments.positive_int("classes", classes),
        dropout_rate=recipe.dropout_rate,
        stochastic_depth_rate=recipe.stochastic_depth_rate,
    )
    if recipe.image_size is not None:
        config = config.replace(image_size=recipe.image_size)
    return Plan(config, recipe, device, inference, compiled)


def _words(changes: dict[str, Any]) -> str:
    return " ".join(f"{name}={str(value).lower()}" for name, value in changes.items())
