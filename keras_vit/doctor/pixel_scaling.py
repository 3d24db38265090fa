"""Check of the pixel scaling, which finds pixels scaled twice or not at all."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_vit.doctor.context import DoctorContext
from keras_vit.doctor.finding import Finding, Findings
from keras_vit.doctor.layer_outputs import layers_of, watched
from keras_vit.doctor.output_kind import mean_loss
from keras_vit.doctor.scaling_candidates import PREPARED, REVERSED, TWICE, candidates
from keras_vit.evaluation.statistics import better_than_guessing, clearly_better
from keras_vit.layers import ModelMetadata
from keras_vit.preprocessing import Preprocessing

# Images that other pixel scalings are tested on.
_NUM_TESTED = 128
# Gain in accuracy by another scaling that counts, and gain that is serious.
_GAIN, _SERIOUS_GAIN = 0.03, 0.1
# Maximum loss with the other scaling, in units of log K.
_CONFIDENT = 0.8
# Images in [0, 1] have a standard deviation of about 0.25, in [-1, 1] of 0.5, in [0, 255] of 60.
_SCALED_TWICE, _UNSCALED = 0.02, 10.0


def check_pixels(context: DoctorContext) -> list[Finding]:
    """Checks whether the model is more accurate with a different pixel scaling."""
    inputs = context.inputs(context.preprocessing)
    layers = _scaling_layers(context)
    std = float(inputs.std())
    final_std = float(layers[-1]["std"]) if layers else std
    changing = [s for s in layers if s["changes"]]
    numbers: dict[str, Any] = {
        "mean": float(inputs.mean()),
        "std": std,
        "minimum": float(inputs.min()),
        "maximum": float(inputs.max()),
        "std_after_scaling_layers": final_std,
        "scaling_layers": [s["name"] for s in changing],
    }
    summary = f"The inputs of the model have values from {inputs.min():.3g} to {inputs.max():.3g}, "
    summary += f"mean {inputs.mean():.3g}, standard deviation {std:.3g}."
    for s in changing:
        summary += f" Its layer {s['name']!r} {s['place']}changes this to mean {s['mean']:.3g} and "
        summary += f"standard deviation {s['std']:.3g}."
    pixels = context.pixels
    if pixels.max() - pixels.min() <= 2:
        return Findings(numbers=numbers).serious(
            "constant pixels",
            "Images with values in [0, 1] were saved as integers: multiply the values by 255 "
            "before you save them.",
            f"The pixels of {len(pixels)} images lie between {pixels.min():.0f} and "
            f"{pixels.max():.0f}, out of a range of 0 to 255.",
        )
    results = {name: _score(context, p) for name, p in _possible_scalings(context).items()}
    numbers["accuracies"] = {name: float(correct.mean()) for name, (correct, _) in results.items()}
    best_names = _best_names(results)
    best, prepared = results[best_names[0]][0], results[PREPARED][0]
    gain = float(best.mean() - prepared.mean())
    above_chance = better_than_guessing(best, context.labels[:_NUM_TESTED], context.num_classes)
    if above_chance:
        scores = ", ".join(f"{name} {value:.1%}" for name, value in numbers["accuracies"].items())
        summary += f" Accuracy on {len(best)} images: {scores}."
    else:
        summary += " Accuracy is at chance level with every pixel scaling."
    report = Findings(summary, numbers)
    # A broken model may gain by chance, but has neither a high accuracy nor a low loss.
    plausible = results[best_names[0]][1] < _CONFIDENT * context.start
    plausible = plausible or best.mean() > 0.5 + 0.5 / context.num_classes
    if above_chance and plausible and clearly_better(best, prepared, _GAIN):
        severity = "serious" if gain >= _SERIOUS_GAIN else "warning"
        return report.add(severity, *_mismatch(best_names, bool(changing), std))
    accurate = above_chance and gain < _SERIOUS_GAIN
    if not context.known and not changing:
        return report.note("pixels", _GUESSED if above_chance else _UNKNOWN)
    if changing and final_std < _SCALED_TWICE < std:
        return report.add("warning" if accurate else "serious", "pixels scaled twice", _REMOVE)
    if final_std > _UNSCALED and not accurate:
        return report.warning("pixels not scaled", _SCALE)
    return report.fine("pixels")


_REMOVE = (
    "Scale pixels only once: remove the scaling layer, or pass images in [0, 255]. For a model "
    "of keras_vit, use preprocessing=Preprocessing(mean=0, std=1 / 255, ...)."
)
_SCALE = (
    "Scale the pixels as the pretrained weights expect (see their Preprocessing), or to [-1, 1] "
    "if there are no pretrained weights."
)
_GUESSED = (
    "The model has no preprocessing, so the pixel scaling with the highest accuracy was used. If "
    "it is correct, pass it with --pixels (in Python: preprocessing=)."
)
_UNKNOWN = (
    "Neither the layers nor the outputs show which pixel scaling the model expects: pass it with "
    "--pixels (in Python: preprocessing=)."
)


def assume_best(context: DoctorContext) -> None:
    """Replaces a guessed preprocessing with the one that gives the best predictions.

    If none is better than chance, pixels are in [0, 255] for models with scaling layers, and in
    [0, 1] for other models.
    """
    if context.known or not context.finite:
        return
    scalings = {k: v for k, v in _possible_scalings(context).items() if k not in (TWICE, REVERSED)}
    results = {name: _score(context, p) for name, p in scalings.items()}
    best = _best_names(results)[0]
    if better_than_guessing(results[best][0], context.labels[:_NUM_TESTED], context.num_classes):
        context.assume(scalings[best])
    elif "0..1" in scalings and not _scaling_layers(context):
        context.assume(scalings["0..1"])


def _score(context: DoctorContext, preprocessing: Preprocessing) -> tuple[np.ndarray, float]:
    """Returns which predictions are correct with a pixel scaling, and their mean loss."""
    probabilities = context.as_probabilities(context.predict(preprocessing, _NUM_TESTED))
    labels = context.labels[:_NUM_TESTED]
    return probabilities.argmax(axis=1) == labels, mean_loss(probabilities, labels)


def _best_names(results: dict[str, tuple[np.ndarray, float]]) -> list[str]:
    """Returns the scalings whose accuracy is close to the best, sorted by loss."""
    highest = max(correct.mean() for correct, _ in results.values())
    near_best = [name for name, (correct, _) in results.items() if correct.mean() > highest - _GAIN]
    return sorted(near_best, key=lambda name: results[name][1])


def _mismatch(names: list[str], has_layer: bool, std: float) -> tuple[str, str]:
    best = names[0]
    if best == REVERSED:
        return "channels swapped", (
            "The weights expect BGR but receive RGB, or the reverse: change `channels` in the "
            "Preprocessing."
        )
    if best == TWICE:
        return "pixels scaled differently", (
            "The model was trained on pixels that were scaled twice: train it again on pixels "
            "scaled once, or scale the pixels twice everywhere."
        )
    if best == "0..255":
        return "pixels scaled twice", (
            _REMOVE if has_layer else "The weights expect pixels in [0, 255]: do not scale them."
        )
    name = "pixels not scaled" if std > _UNSCALED else "pixels scaled differently"
    return name, (
        f"The weights expect {' or '.join(names)}: scale the images that way; for a model of "
        "keras_vit, set the mean and standard deviation of its Preprocessing."
    )


def _scaling_layers(context: DoctorContext) -> list[dict[str, Any]]:
    """Measures how each scaling layer of the model changes the pixels, in call order."""
    layers = layers_of(context.model)
    kinds_of_scaling = (keras.layers.Rescaling, keras.layers.Normalization)
    metadata = [i for i, layer in enumerate(layers) if isinstance(layer, ModelMetadata)]
    measurements: list[dict[str, Any]] = []

    def watch(layer: keras.layers.Layer, inputs: Any, outputs: Any) -> None:
        x, y = (keras.ops.convert_to_numpy(z).astype("float32") for z in (inputs, outputs))
        position = ""
        if metadata:
            index = next(i for i, other in enumerate(layers) if other is layer)
            position = f"{'before' if index < metadata[0] else 'after'} the preprocessing "
        is_changed = x.shape != y.shape or not np.allclose(x, y, rtol=1e-3, atol=1e-3)
        measurements.append({
            "name": layer.name, "place": position, "changes": is_changed,
            "mean": float(y.mean()), "std": float(y.std()),
        })  # fmt: skip

    scaling_layers = [layer for layer in layers if isinstance(layer, kinds_of_scaling)]
    if scaling_layers:
        with watched(scaling_layers, watch):
            context.model(context.inputs(context.preprocessing, 32), training=False)
    return measurements


def _possible_scalings(context: DoctorContext) -> dict[str, Preprocessing]:
    """Returns all pixel scalings that the dtype of the model's input permits."""
    prepared = context.preprocessing
    return candidates(prepared) if "float" in context.input_dtype else {PREPARED: prepared}
