"""Check of the learning rate by a learning-rate range test.

Letters: B batch; K classes.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from keras_vit import models
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding
from keras_vit.doctor.lr_range_test import BATCHES, Curve, range_test
from keras_vit.doctor.output_kind import head_of
from keras_vit.training import param_groups
from keras_vit.training.optimizers import build_optimizer

# A weight of the first steps in the average above this fraction is too high.
_REMEMBERED = 0.1
# Lowest and highest rate tested; the step size of adaptive optimizers is the rate itself.
_ADAPTIVE, _PLAIN = {"low": 1e-6, "high": 1.0}, {"low": 1e-5, "high": 10.0}
# A classifier with a loss below this fraction of log K is trained, and is reset for the test.
_LEARNED = 0.7
# Expected steps until the loss falls, if the length of the run is unknown.
_PATIENCE = 2000
# A loss that stays above this fraction of the initial loss is unchanged.
_UNMOVED = 0.99


def check_learning_rate(context: DoctorContext) -> list[Finding]:
    """Compares the learning rate with the result of a learning-rate range test.

    A copy is trained, or the weights are restored afterwards; no files are written. A trained
    model starts with a reset classifier, because otherwise its loss could not fall.
    """
    if not context.range_steps:
        return [Finding("learning rate", "note", "Not tested, because `range_steps` is 0.")]
    network = context.model
    if context.config is not None:  # a run trains on logits
        network = models.rebuild(network, classifier_activation=None)
        param_groups.set_trainable(network, context.config.recipe.trainable)
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
    if not steps or momentum**steps <= _REMEMBERED:
        return []
    evidence = (
        f"`ema_momentum` {momentum} to the power of {steps} steps is {momentum**steps:.2f}: the "
        "run ends within the warm-up of the average; without a warm-up, as in runs of earlier "
        "versions, the average is mostly that of the first steps."
    )
    fix = f"Train longer, or set ema_momentum to at most {_REMEMBERED ** (1 / steps):.4f}."
    return [Finding("averaged weights", "warning", evidence, fix)]


def judge(
    curve: Curve, rate: float | None, optimizer: str, steps: int | None, renewed: bool
) -> Finding:
    """Judges a learning rate by the curve of a learning-rate range test."""
    falls, lowest, rises = curve.falls_from, curve.lowest_at, curve.rises_from
    least = float(curve.smooth.min())
    numbers: dict[str, Any] = {
        "falls_from": falls, "lowest_at": lowest, "rises_from": rises, "rate": rate,
        "lowest_loss": least if math.isfinite(least) else None,
    }  # fmt: skip
    evidence = f"{len(curve.rates)} steps of {optimizer}"
    evidence += ", with a new classifier" if renewed else ""
    evidence += f", at learning rates from {curve.rates[0]:.1g} to {curve.rates[-1]:.1g}: "
    if falls is None or lowest is None or curve.traveled is None:
        best = f"at best {least:.0%}" if math.isfinite(least) else "it is NaN or infinite"
        evidence += f"the loss does not decrease at any of them ({best})"
        evidence += f", and increases from {rises:.1g} upward." if rises else "."
        fix = (
            "Check pixels, labels, dead layers and frozen parameters; if all of these are "
            "correct, the images may not contain enough information to tell the classes apart."
        )
        # Some models only begin to learn in so few steps; without a gradient the loss is constant.
        severity = "serious" if least > _UNMOVED else "warning"
        return Finding("no learning rate works", severity, evidence, fix, numbers)
    evidence += f"the loss starts to decrease at {falls:.1g} and reaches its minimum, "
    evidence += f"{least:.0%} of the initial loss, at {lowest:.1g}"
    evidence += f"; it increases from {rises:.1g} upward." if rises else "."
    if rate is None:
        evidence += " The learning rate used in training is unknown."
        return Finding("learning rate", "note", evidence, "", numbers)
    needed = math.ceil(curve.traveled / rate) if rate > 0 else None
    numbers["steps_to_fall"] = needed
    third = lowest / 3
    good = f"between {falls:.1g} and {third:.1g}" if falls < third else f"of about {falls:.1g}"
    evidence += f" The learning rate is {rate:.3g}."
    if rate >= (rises or 2 * curve.rates[-1]):  # rates above those tested are too high as well
        fix = f"Choose a learning rate {good}, with a warm-up."
        return Finding("learning rate too high", "serious", evidence, fix, numbers)
    length = steps or 10 * _PATIENCE
    # A rate in the recommended range is not too low, even in a run of few steps.
    advised = falls <= rate <= lowest
    if needed is None or (needed > length / 10 and not (advised and needed <= length)):
        there_are = f" (the run has {steps:,})" if steps else ""
        plural = "" if needed == 1 else "s"
        takes = f"takes about {needed:,} step{plural}{there_are}" if needed else "is never reached"
        evidence += f" At this learning rate, the minimum {takes}."
        severity = "serious" if needed is None or needed > length else "warning"
        fix = f"Choose a learning rate {good}, or train longer."
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
        places = np.unique(np.geomspace(1, 1e6, 200).astype(int) - 1)
        return max(float(schedule(keras.ops.cast(place, "float32"))) for place in places)
    return float(optimizer.learning_rate)


def _optimizer(
    context: DoctorContext, network: keras.Model
) -> tuple[keras.Optimizer, dict[str, Any]]:
    """Creates an optimizer of the same kind as in training, and returns the test's settings."""
    settings: dict[str, Any] = {"steps": context.range_steps}
    if context.config is not None:
        recipe = context.config.recipe
        # The range test has its own schedule.
        plain = recipe.replace(ema_momentum=0.0, warmup_steps=0, warmup_fraction=0.0)
        optimizer = build_optimizer(plain, network, steps=context.range_steps)
        settings |= {"loss": recipe.loss, "clip_norm": recipe.clip_norm}
    else:
        several = context.ending == "sigmoid" and context.raw.shape[1] > 1
        settings |= {"ending": context.ending, "loss": "sigmoid" if several else "softmax"}
        used = _compiled_optimizer(context.model) or keras.optimizers.Adam()
        optimizer = type(used).from_config({**used.get_config(), "learning_rate": 1e-3})
    bounds = _PLAIN if isinstance(optimizer, keras.optimizers.SGD) else _ADAPTIVE
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
