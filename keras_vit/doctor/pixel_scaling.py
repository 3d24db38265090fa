"""Check of pixel scaling."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_vit.doctor.context import DoctorContext, better_than_guessing, clearly_better
from keras_vit.doctor.finding import Finding, Findings
from keras_vit.doctor.layer_outputs import layers_of, watched
from keras_vit.doctor.output_kind import mean_loss
from keras_vit.doctor.scaling_candidates import PREPARED, REVERSED, TWICE, candidates
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
    """Compares the model's pixel scaling with the scaling of the best accuracy."""
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
    seen = f"What the model is given has values from {given.min():.3g} to {given.max():.3g}, "
    seen += f"mean {given.mean():.3g}, standard deviation {spread:.3g}."
    for s in inside:
        seen += f" Its layer {s['name']!r} {s['place']}makes that mean {s['mean']:.3g} and "
        seen += f"standard deviation {s['std']:.3g}."
    pixels = context.pixels
    if pixels.max() - pixels.min() <= 2:
        return Findings(numbers=numbers).serious(
            "pixels all alike",
            "Images with values in [0, 1] were written as integers: multiply by 255 "
            "before they are stored.",
            f"The pixels of {len(pixels)} images lie between {pixels.min():.0f} and "
            f"{pixels.max():.0f}, of 0 to 255.",
        )
    found = {name: _right(context, preprocessing) for name, preprocessing in _ways(context).items()}
    numbers["accuracies"] = {name: float(right.mean()) for name, (right, _) in found.items()}
    ways = _best(found)
    best, prepared = found[ways[0]][0], found[PREPARED][0]
    gain = float(best.mean() - prepared.mean())
    tells = better_than_guessing(best, context.labels[:_TRIED], context.num_classes)
    if tells:
        scores = ", ".join(f"{name} {value:.1%}" for name, value in numbers["accuracies"].items())
        seen += f" Accuracy on {len(best)} images: {scores}."
    else:
        seen += " The answers are no better than guessing however pixels are scaled."
    report = Findings(seen, numbers)
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
    "Scale pixels once: leave the layer out, or let the images come in [0, 255], for a model of "
    "keras_vit with preprocessing=Preprocessing(mean=0, std=1 / 255, ...)."
)
_SCALE = (
    "Scale the pixels as the pretrained weights had them (see their Preprocessing), or to [-1, 1] "
    "if there are none."
)
_TELL = (
    "The model does not carry its preprocessing, so the one with the best answers was taken. Make "
    "sure that yours is the same, and name it with --pixels (preprocessing=)."
)
_UNTOLD = (
    "Neither the model's layers nor its answers tell what pixels it wants: name it with --pixels "
    "(preprocessing=)."
)


def assume_best(context: DoctorContext) -> None:
    """Replaces a guessed preprocessing by the preprocessing with the best predictions.

    If none is better than chance: [0, 255] for models with scaling layers, else [0, 1].
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
    """Returns the scalings with an accuracy close to the best, lowest loss first."""
    most = max(right.mean() for right, _ in found.values())
    close = [name for name, (right, _) in found.items() if right.mean() > most - _GAIN]
    return sorted(close, key=lambda name: found[name][1])


def _mismatch(ways: list[str], has_layer: bool, spread: float) -> tuple[str, str]:
    best = ways[0]
    if best == REVERSED:
        return "channels swapped", (
            "The weights expect blue, green, red where they get red, green, blue, or the other "
            "way: give Preprocessing the other `channels`."
        )
    if best == TWICE:
        return "pixels scaled otherwise", (
            "The model was trained on pixels that were scaled twice: train it again on pixels "
            "scaled once, or scale twice everywhere."
        )
    if best == "0..255":
        return "pixels scaled twice", (
            _REMOVE if has_layer else "The weights expect pixels in [0, 255]: do not scale them."
        )
    name = "pixels not scaled" if spread > _UNSCALED else "pixels scaled otherwise"
    return name, (
        f"The weights expect {' or '.join(ways)}: prepare images so, for a model of keras_vit with "
        "that mean and standard deviation in its Preprocessing."
    )


def _scalings(context: DoctorContext) -> list[dict[str, Any]]:
    """Returns the effects of the scaling layers on some images, in the order of the calls."""
    layers = layers_of(context.model)
    kinds = (keras.layers.Rescaling, keras.layers.Normalization)
    places = [i for i, layer in enumerate(layers) if isinstance(layer, ModelMetadata)]
    found: list[dict[str, Any]] = []

    def watch(layer: keras.layers.Layer, inputs: Any, outputs: Any) -> None:
        x, y = (keras.ops.convert_to_numpy(z).astype("float32") for z in (inputs, outputs))
        place = ""
        if places:
            before = next(i for i, other in enumerate(layers) if other is layer) < places[0]
            place = f"{'in front of' if before else 'behind'} the preprocessing "
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
    """Returns the pixel scalings that are possible for the model's input."""
    given = context.preprocessing
    return candidates(given) if "float" in context.input_dtype else {PREPARED: given}
