"""From a recipe to a Keras optimizer."""

from __future__ import annotations

import keras

from keras_vit.training.recipe import Recipe


def build_optimizer(recipe: Recipe, model: keras.Model, steps: int) -> keras.Optimizer:
    """Builds the optimizer with its schedule.

    Args:
        recipe: The numbers.
        model: The model to train; its kernels are what decays.
        steps: Steps of the whole run.

    Returns:
        The optimizer, ready to use, with learning rate
        `learning_rate * t / warmup` for t < warmup = warmup_fraction * steps, then
        `learning_rate * (1 + cos(pi * (t - warmup) / (steps - warmup))) / 2`.

    Example:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8)))
        >>> optimizer = build_optimizer(Recipe(learning_rate=0.5), model, steps=100)
        >>> [round(float(optimizer._learning_rate(t)), 3) for t in (0, 5, 10, 55, 100)]
        [0.0, 0.25, 0.5, 0.25, 0.0]
    """
    warmup = round(recipe.warmup_fraction * steps)
    schedule = keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0 if warmup else recipe.learning_rate,
        decay_steps=max(1, steps - warmup),
        warmup_target=recipe.learning_rate if warmup else None,
        warmup_steps=warmup,
    )
    common = {
        "learning_rate": schedule,
        "weight_decay": recipe.weight_decay or None,
        "global_clipnorm": recipe.clip_norm or None,
    }
    if recipe.optimizer == "sgd":
        optimizer = keras.optimizers.SGD(momentum=0.9, **common)
    else:
        optimizer = keras.optimizers.AdamW(**common | {"weight_decay": recipe.weight_decay})
    optimizer.exclude_from_weight_decay(
        var_list=[v for v in model.trainable_variables if v.name != "kernel"]
    )
    if recipe.precision == "mixed_float16":
        # `compile` would do it if it were the policy of the model, not only of its layers.
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    # Whatever the first step has to build has its graph traced twice: 10 s for twelve blocks.
    optimizer.build(model.trainable_variables)
    return optimizer
