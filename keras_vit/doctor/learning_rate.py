"""Check of the learning rate by a learning-rate range test.

Letters: B batch; K classes.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding
from keras_vit.doctor.lr_range_test import BATCHES, Curve, range_test
from keras_vit.doctor.output_kind import head_of
from keras_vit.models import last_activation
from keras_vit.models.lora import enable_lora
from keras_vit.training import param_groups
from keras_vit.training.optimizers import build_optimizer

# Largest weight of the first steps in the average of the weights; a higher one is too high.
_LARGEST_WEIGHT = 0.1
# Lowest and highest rate tested; the step size of adaptive optimizers is the rate itself.
_ADAPTIVE, _NON_ADAPTIVE = {"low": 1e-6, "high": 1.0}, {"low": 1e-5, "high": 10.0}
# A classifier with a loss below this fraction of log K is trained, and is reset for the test.
_LEARNED = 0.7
# Expected steps until the loss falls, if the length of the run is unknown.
_PATIENCE = 2000
# A loss that stays above this fraction of the initial loss counts as unchanged.
_UNCHANGED = 0.99


def check_learning_rate(context: DoctorContext) -> list[Finding]:
    """Compares the learning rate with the result of a learning-rate range test.

    A copy is trained, or the weights are restored afterwards; no files are written. A trained
    model starts with a reset classifier, because otherwise its loss could not fall.
    """
    if not context.range_steps:
        return [Finding("learning rate", "note", "Not tested, because `range_steps` is 0.")]
    network = context.model
    if context.config is not None:  # a run trains on logits
        recipe = context.config.recipe
        if not recipe.epochs and context.learning_rate is None:
            return [Finding("learning rate", "note", "Not tested, because `epochs` is 0.")]
        network = last_activation.without_last_activation(network)
        if recipe.lora_rank:  # merged in the saved model
            enable_lora(network, recipe.lora_rank, recipe.lora_layers)
        param_groups.set_trainable(network, recipe.trainable)
    if not network.trainable_variables:
        return [Finding("learning rate", "note", "Not tested: no trainable parameters.")]
    optimizer, settings = _optimizer(context, network)
    # A frozen classifier is not reset: no gradient flows through zeros.
    head = [v for v in head_of(network, context.raw.shape[1]) if v.trainable]
    renewed = head if context.loss < _LEARNED * context.start else []
    count = BATCHES * context.batch_size
    images = context.inputs(context.preprocessing, count)
    targets = np.eye(context.num_classes, dtype="float32")[context.labels[:count]]  # (B, K)
    curve = range_test(network, images, targets, optimizer=optimizer, renewed=renewed, **settings)
    name, steps = type(optimizer).__name__, _steps(context)
    return [judge(curve, rate_of(context), name, steps, bool(renewed)), *_averaging(context, steps)]


def _averaging(context: DoctorContext, steps: int | None) -> list[Finding]:
    """Reports an average of the weights whose momentum is too high for the length of the run."""
    momentum = context.config.recipe.ema_momentum if context.config else 0.0
    if not steps or momentum**steps <= _LARGEST_WEIGHT:
        return []
    evidence = (
        f"`ema_momentum` {momentum} to the power of {steps} steps is {momentum**steps:.2f}: the "
        "run ends within the warm-up of the average; without a warm-up, as in runs of earlier "
        "versions, the average is mostly that of the first steps."
    )
    fix = f"Train longer, or set ema_momentum to at most {_LARGEST_WEIGHT ** (1 / steps):.4f}."
    return [Finding("averaged weights", "warning", evidence, fix)]


def judge(
    curve: Curve, rate: float | None, optimizer: str, steps: int | None, renewed: bool
) -> Finding:
    """Judges a learning rate by the curve of a learning-rate range test."""
    drop, best, divergence = curve.first_drop_rate, curve.lowest_loss_rate, curve.divergence_rate
    minimum = float(curve.smooth.min())
    numbers: dict[str, Any] = {
        "falls_from": drop, "lowest_at": best, "rises_from": divergence, "rate": rate,
        "lowest_loss": minimum if math.isfinite(minimum) else None,
    }  # fmt: skip
    evidence = f"{len(curve.rates)} steps of {optimizer}"
    evidence += ", with a new classifier" if renewed else ""
    evidence += f", at learning rates from {curve.rates[0]:.1g} to {curve.rates[-1]:.1g}: "
    if drop is None or best is None or curve.summed_rate_to_drop is None:
        reached = f"at best {minimum:.0%}" if math.isfinite(minimum) else "it is NaN or infinite"
        evidence += f"the loss does not decrease at any of them ({reached})"
        evidence += f", and increases from {divergence:.1g} upward." if divergence else "."
        fix = (
            "Check pixels, labels, dead layers and frozen parameters; if all of these are "
            "correct, the images may not contain enough information to tell the classes apart."
        )
        # Some models only begin to learn in so few steps; without a gradient the loss is constant.
        severity = "serious" if minimum > _UNCHANGED else "warning"
        return Finding("no learning rate works", severity, evidence, fix, numbers)
    evidence += f"the loss starts to decrease at {drop:.1g} and reaches its minimum, "
    evidence += f"{minimum:.0%} of the initial loss, at {best:.1g}"
    evidence += f"; it increases from {divergence:.1g} upward." if divergence else "."
    if rate is None:
        evidence += " The learning rate used in training is unknown."
        return Finding("learning rate", "note", evidence, "", numbers)
    num_steps = math.ceil(curve.summed_rate_to_drop / rate) if rate > 0 else None
    numbers["steps_to_fall"] = num_steps
    upper = best / 3
    advice = f"between {drop:.1g} and {upper:.1g}" if drop < upper else f"of about {drop:.1g}"
    evidence += f" The learning rate is {rate:.3g}."
    if rate >= (divergence or 2 * curve.rates[-1]):  # rates above those tested are too high as well
        fix = f"Choose a learning rate {advice}, with a warm-up."
        return Finding("learning rate too high", "serious", evidence, fix, numbers)
    length = steps or 10 * _PATIENCE
    # A rate in the recommended range is not too low, even in a run of few steps.
    advised = drop <= rate <= best
    if num_steps is None or (num_steps > length / 10 and not (advised and num_steps <= length)):
        note = f" (the run has {steps:,})" if steps else ""
        plural = "" if num_steps == 1 else "s"
        takes = f"takes about {num_steps:,} step{plural}{note}" if num_steps else "is never reached"
        evidence += f" At this learning rate, the minimum {takes}."
        severity = "serious" if num_steps is None or num_steps > length else "warning"
        fix = f"Choose a learning rate {advice}, or train longer."
        return Finding("learning rate too low", severity, evidence, fix, numbers)
    return Finding("learning rate", "fine", evidence, "", numbers)


def rate_of(context: DoctorContext) -> float | None:
    """Returns the learning rate that the model is trained with; None if unknown."""
    if context.learning_rate is not None:
        return context.learning_rate
    if context.config is not None:
        return context.config.recipe.learning_rate
    optimizer = _compiled_optimizer(context.model)
    if optimizer is None:
        return None
    rate = optimizer.get_config()["learning_rate"]
    if isinstance(rate, dict):
        schedule = keras.optimizers.schedules.deserialize(rate)
        # A schedule changes over thousands of steps, so 200 points find its maximum well enough.
        steps = np.unique(np.geomspace(1, 1e6, 200).astype(int) - 1)
        return max(float(schedule(keras.ops.cast(step, "float32"))) for step in steps)
    return float(optimizer.learning_rate)


def _optimizer(
    context: DoctorContext, network: keras.Model
) -> tuple[keras.Optimizer, dict[str, Any]]:
    """Creates an optimizer of the same kind as in training, and returns the test's settings."""
    settings: dict[str, Any] = {"steps": context.range_steps}
    if context.config is not None:
        recipe = context.config.recipe
        # The range test has its own schedule.
        constant_recipe = recipe.replace(ema_momentum=0.0, warmup_steps=0, warmup_fraction=0.0)
        optimizer = build_optimizer(constant_recipe, network, steps=context.range_steps)
        settings |= {"loss": recipe.loss, "clip_norm": recipe.clip_norm}
    else:
        multi_label = context.ending == "sigmoid" and context.raw.shape[1] > 1
        settings |= {"ending": context.ending, "loss": "sigmoid" if multi_label else "softmax"}
        compiled = _compiled_optimizer(context.model) or keras.optimizers.Adam()
        optimizer = type(compiled).from_config({**compiled.get_config(), "learning_rate": 1e-3})
    bounds = _NON_ADAPTIVE if isinstance(optimizer, keras.optimizers.SGD) else _ADAPTIVE
    return optimizer, settings | bounds


def _compiled_optimizer(model: keras.Model) -> keras.Optimizer | None:
    """Returns the model's compiled optimizer without its loss-scaling wrapper, if any."""
    optimizer = getattr(model, "optimizer", None)
    return getattr(optimizer, "inner_optimizer", optimizer)


def _steps(context: DoctorContext) -> int | None:
    """Returns the total number of training steps of the run; None if unknown."""
    if context.run is None or context.config is None:
        return None
    recipe = context.config.recipe
    images = context.run.resolved().get("training_examples")
    return images // recipe.batch_size * recipe.epochs if images else None
