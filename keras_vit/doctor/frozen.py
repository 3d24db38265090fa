"""Check for parameters that are frozen by mistake."""

from __future__ import annotations

import math

import keras

from keras_vit import arguments
from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding, Findings
from keras_vit.doctor.layer_outputs import layers_of
from keras_vit.doctor.output_kind import head_of
from keras_vit.models import cloning
from keras_vit.models.lora import enable_lora
from keras_vit.training import param_groups


def check_frozen(context: DoctorContext) -> list[Finding]:
    """Counts trainable and frozen parameters, and reports layers that should not be frozen.

    For the model of a run, the parameters that the run's recipe trains count as trainable.
    """
    model, updates = context.model, ""
    if context.config is not None:
        model, recipe = cloning.clone(model), context.config.recipe
        if recipe.lora_rank:  # merged in the saved model
            enable_lora(model, recipe.lora_rank, recipe.lora_layers)
            updates = f", with low-rank updates (LoRA) of rank {recipe.lora_rank}"
        param_groups.set_trainable(model, recipe.trainable)
    trained_ids = {id(variable) for variable in model.trainable_variables}
    # Variables that follow the data instead of the gradient.
    statistics = {
        id(v)
        for layer in layers_of(model)
        for v in layer.weights
        if isinstance(layer, keras.layers.Normalization)
        or v.name.startswith("moving_")
        or not keras.backend.is_float_dtype(v.dtype)
    }
    parameters = [v for v in model.weights if id(v) not in statistics]
    frozen = [v for v in parameters if id(v) not in trained_ids]
    total, num_frozen = (sum(math.prod(v.shape) for v in some) for some in (parameters, frozen))
    trained = total - num_frozen
    layers = list(dict.fromkeys(_layer_of(v) for v in frozen))
    head = head_of(model, context.raw.shape[1])
    evidence = f"{trained:,} of {total:,} parameters are trained ({trained / max(total, 1):.1%})"
    evidence += updates
    evidence += f"; frozen layers: {arguments.shortlist(layers)}." if layers else "."
    findings = Findings(evidence, {"trained": trained, "total": total, "frozen_layers": layers})
    if not trained:
        return findings.add(
            "serious" if total else "note",
            "no trainable parameters",
            "Set trainable = True on the layers to train, and then compile the model again.",
        )
    if head and not any(id(v) in trained_ids for v in head):
        return findings.serious(
            "classifier frozen",
            "Set trainable = True on the classifier, especially if it is new, and compile the "
            "model again. In a recipe, add 'head/*' to `trainable`.",
            f"{evidence} The classifier {_layer_of(head[0])!r} is frozen.",
        )
    if frozen:
        fix = "If this is not intended, set trainable = True and compile again."
        return findings.note("frozen parameters", fix)
    return findings.fine("trainable parameters")


def _layer_of(variable: keras.Variable) -> str:
    return variable.path.rpartition("/")[0]
