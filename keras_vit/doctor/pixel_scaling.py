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
_TRIED = 128
# Gain in accuracy by another scaling that counts, and gain that is serious.
_GAIN, _SERIOUS_GAIN = 0.03, 0.1
# Maximum loss with the other scaling, in units of log K.
_CONFIDENT = 0.8
# Images in [0, 1] have a standard deviation of about 0.25, in [-1, 1] of 0.5, in [0, 255] of 60.
_SQUEEZED, _UNSCALED = 0.02, 10.0


def check_pixels(context: DoctorContext) -> list[Finding]:
    """Checks whether the model is more accurate with a different pixel scaling."""
    given = context.inputs(context.preprocessing)
    scalings = _scalings(context)
    spread = float(given.std())
    reaching = float(scalings[-1]["std"]) if scalings else spread
    inside = [s for s in scalings if s["changes"]]
    numbers: dict[str, Any] = {
        "mean": float(given.mean()),
        "std": spread,
        "minimum": float(given.min()),
        "maximum": float(given.max()),
        "std_after_scaling_layers": reaching,
        "scaling_layers": [s["name"] for s in inside],
    }
    summary = f"The inputs of the model have values from {given.min():.3g} to {given.max():.3g}, "
    summary += f"mean {given.mean():.3g}, standard deviation {spread:.3g}."
    for s in inside:
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
    found = {name: _right(context, preprocessing) for name, preprocessing in _ways(context).items()}
    numbers["accuracies"] = {name: float(right.mean()) for name, (right, _) in found.items()}
    ways = _best(found)
    best, prepared = found[ways[0]][0], found[PREPARED][0]
    gain = float(best.mean() - prepared.mean())
    tells = better_than_guessing(best, context.labels[:_TRIED], context.num_classes)
    if tells:
        scores = ", ".join(f"{name} {value:.1%}" for name, value in numbers["accuracies"].items())
        summary += f" Accuracy on {len(best)} images: {scores}."
    else:
        summary += " Accuracy is at chance level with every pixel scaling."
    report = Findings(summary, numbers)
    # A broken model may gain by chance, but has neither a high accuracy nor a low loss.
    good = found[ways[0]][1] < _CONFIDENT * context.start
    good = good or best.mean() > 0.5 + 0.5 / context.num_classes
    if tells and good and clearly_better(best, prepared, _GAIN):
        severity = "serious" if gain >= _SERIOUS_GAIN else "warning"
        return report.add(severity, *_mismatch(ways, bool(inside), spread))
    well = tells and gain < _SERIOUS_GAIN
    if not context.known and not inside:
        return report.note("pixels", _TELL if tells else _UNTOLD)
    if inside and reaching < _SQUEEZED < spread:
        return report.add("warning" if well else "serious", "pixels scaled twice", _REMOVE)
    if reaching > _UNSCALED and not well:
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
_TELL = (
    "The model has no preprocessing, so the pixel scaling with the highest accuracy was used. If "
    "it is correct, pass it with --pixels (in Python: preprocessing=)."
)
_UNTOLD = (
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
    ways = {k: v for k, v in _ways(context).items() if k not in (TWICE, REVERSED)}
    found = {name: _right(context, preprocessing) for name, preprocessing in ways.items()}
    best = _best(found)[0]
    if better_than_guessing(found[best][0], context.labels[:_TRIED], context.num_classes):
        context.assume(ways[best])
    elif "0..1" in ways and not _scalings(context):
        context.assume(ways["0..1"])


def _right(context: DoctorContext, preprocessing: Preprocessing) -> tuple[np.ndarray, float]:
    probabilities = context.as_probabilities(context.predict(preprocessing, _TRIED))
    labels = context.labels[:_TRIED]
    return probabilities.argmax(axis=1) == labels, mean_loss(probabilities, labels)


def _best(found: dict[str, tuple[np.ndarray, float]]) -> list[str]:
    """Returns the scalings whose accuracy is close to the best, sorted by loss."""
    most = max(right.mean() for right, _ in found.values())
    close = [name for name, (right, _) in found.items() if right.mean() > most - _GAIN]
    return sorted(close, key=lambda name: found[name][1])


def _mismatch(ways: list[str], has_layer: bool, spread: float) -> tuple[str, str]:
    best = ways[0]
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
    name = "pixels not scaled" if spread > _UNSCALED else "pixels scaled differently"
    return name, (
        f"The weights expect {' or '.join(ways)}: scale the images that way; for a model of "
        "keras_vit, set the mean and standard deviation of its Preprocessing."
    )


def _scalings(context: DoctorContext) -> list[dict[str, Any]]:
    """Measures how each scaling layer of the model changes the pixels, in call order."""
    layers = layers_of(context.model)
    kinds = (keras.layers.Rescaling, keras.layers.Normalization)
    places = [i for i, layer in enumerate(layers) if isinstance(layer, ModelMetadata)]
    found: list[dict[str, Any]] = []

    def watch(layer: keras.layers.Layer, inputs: Any, outputs: Any) -> None:
        x, y = (keras.ops.convert_to_numpy(z).astype("float32") for z in (inputs, outputs))
        place = ""
        if places:
            before = next(i for i, other in enumerate(layers) if other is layer) < places[0]
            place = f"{'before' if before else 'after'} the preprocessing "
        changes = x.shape != y.shape or not np.allclose(x, y, rtol=1e-3, atol=1e-3)
        found.append({
            "name": layer.name, "place": place, "changes": changes,
            "mean": float(y.mean()), "std": float(y.std()),
        })  # fmt: skip

    scaling = [layer for layer in layers if isinstance(layer, kinds)]
    if scaling:
        with watched(scaling, watch):
            context.model(context.inputs(context.preprocessing, 32), training=False)
    return found


def _ways(context: DoctorContext) -> dict[str, Preprocessing]:
    """Returns all pixel scalings that the dtype of the model's input permits."""
    given = context.preprocessing
    return candidates(given) if "float" in context.input_dtype else {PREPARED: given}
