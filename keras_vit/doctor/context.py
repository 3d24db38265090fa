"""Shared context of all checks: the model, a sample of images and cached predictions.

Letters: N images of the sample; h, w, C model's image height, width, channels; K classes.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import keras
import numpy as np
from scipy import special

from keras_vit import arguments, data
from keras_vit.doctor.layer_outputs import layers_of
from keras_vit.doctor.loading import check_input, preprocessing_for
from keras_vit.doctor.output_kind import as_logits, likely_ending, mean_loss
from keras_vit.doctor.scaling_candidates import scaled
from keras_vit.evaluation.statistics import better_than_guessing
from keras_vit.layers import ModelMetadata
from keras_vit.models import last_activation
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig
from keras_vit.tasks.run_data import Run

# Images that are decoded to find damaged and unusual images.
_DECODED = 5000
# With fewer steps, a learning-rate range test jumps from too low to too high.
_FEWEST_STEPS = 10


class DoctorContext:
    """The model, images, labels and predictions that all checks use."""

    def __init__(
        self,
        model: keras.Model,
        examples: data.Examples,
        *,
        pool: np.ndarray | None = None,
        preprocessing: Preprocessing | None = None,
        run: Run | None = None,
        learning_rate: float | None = None,
        sample: int = 256,
        batch_size: int = 16,
        range_steps: int = 60,
        seed: int = 0,
        progress: bool = False,
    ) -> None:
        arguments.positive_int("sample", sample)
        arguments.positive_int("batch_size", batch_size)
        if range_steps != 0 and arguments.count("range_steps", range_steps) < _FEWEST_STEPS:
            raise ValueError(
                f"`range_steps` must be 0 or at least {_FEWEST_STEPS}. Received: "
                f"range_steps={range_steps}"
            )
        self.model, self.examples, self.run = model, examples, run
        inputs = getattr(model, "inputs", None)
        self.input_dtype = str(inputs[0].dtype) if inputs else "float32"
        self.learning_rate = learning_rate
        self.batch_size, self.range_steps = batch_size, range_steps
        pair = preprocessing_for(model) if preprocessing is None else (preprocessing, True)
        self.preprocessing, self.known = pair
        names = self.preprocessing.class_names
        if names and len(names) == 1 and not self.preprocessing.thresholds:
            names = (f"not {names[0]}", *names)  # one sigmoid output, two classes
            self.preprocessing = dataclasses.replace(self.preprocessing, class_names=names)
        check_input(model, self.preprocessing)
        self._predicted: dict[Preprocessing, np.ndarray] = {}
        generator = np.random.default_rng(seed)
        pool = np.arange(len(examples)) if pool is None else pool
        decoded = _sample_to_decode(pool, len(examples), generator)
        self.check = data.check(examples.subset(decoded), progress=progress)
        self.matched, outputs = _match(self.preprocessing.class_names, examples.class_names)
        indices = _only_class(examples)
        indices[indices >= 0] = outputs[indices[indices >= 0]]
        usable = np.isin(np.array(examples.names)[pool], list(self.check.audit.digests))
        has_class = (indices >= 0)[pool]
        unknown = np.flatnonzero(examples.class_counts() * (outputs < 0))
        self.unknown = tuple(examples.class_names[k] for k in unknown)
        pool = generator.permutation(pool[usable & has_class])
        # One image of each class in turn; the stable sort keeps the random order within a turn.
        sampled = pool[np.argsort(turns(indices[pool]), kind="stable")][:sample]
        if not len(sampled):
            raise ValueError(
                "`examples` must contain images that can be decoded and show one class of the "
                f"model each. Received: {examples.source} with {len(examples)} images, of which "
                f"{len(self.check.audit.bad)} cannot be decoded; classes unknown to the model: "
                f"{', '.join(self.unknown[:20]) or 'none'}"
            )
        self.pixels = _pixels(examples.subset(sampled), self.preprocessing)  # (N, h, w, C)
        self.raw = self.predict(self.preprocessing)  # (N, K)
        if self.raw.ndim != 2 or _is_backbone(model):
            raise ValueError(
                "`model` must be a classifier and return one score per class, with shape (B, "
                f"K). Received: model={model.name!r} with outputs of shape {self.raw.shape}"
            )
        self.num_classes = max(self.raw.shape[1], 2)
        #: Loss of a model that predicts equal probabilities for all K classes.
        self.start = math.log(self.num_classes)
        has_output = indices[sampled] < self.num_classes
        self.labels, self.pixels = indices[sampled][has_output], self.pixels[has_output]
        self.raw = self.raw[has_output]
        self._predicted = {self.preprocessing: self.raw}
        if not len(self.labels):
            raise ValueError(
                "`model` must have outputs for the classes of the images. Received: "
                f"{self.num_classes} outputs and the classes {', '.join(examples.class_names[:20])}"
            )
        #: Configuration of the run that trained the model; None if there is no run.
        self.config: RunConfig | None = run.read_config() if run else None

    @functools.cached_property
    def ending(self) -> str:
        """The model's final activation, inferred from its outputs if the last layer has none."""
        ending = last_activation.ending_of(self.model)
        if ending != "unknown":
            return ending
        return likely_ending(self.raw) if self.finite else "linear"

    @property
    def finite(self) -> bool:
        """True if all outputs of the model are finite."""
        return bool(np.isfinite(self.raw).all())

    @functools.cached_property
    def probabilities(self) -> np.ndarray:
        """Predicted class probabilities, of shape (N, max(K, 2))."""
        return self.as_probabilities(self.raw)

    @property
    def predicted(self) -> np.ndarray:
        """The predicted class of each image, of shape (N,)."""
        return self.probabilities.argmax(axis=1)

    @property
    def correct(self) -> np.ndarray:
        """Returns whether the prediction for each image is correct, bool (N,)."""
        return self.predicted == self.labels

    @property
    def accuracy(self) -> float:
        """Accuracy of the model on the sample of images."""
        return float(self.correct.mean())

    @property
    def loss(self) -> float:
        """Mean cross-entropy of the predictions, in nats."""
        return mean_loss(self.probabilities, self.labels)

    @functools.cached_property
    def new(self) -> bool:
        """True if all predicted probabilities are equal, as with a newly initialized classifier."""
        return bool(np.ptp(self.probabilities, axis=1).max() < 1e-4)

    @property
    def learned(self) -> bool:
        """True if the predictions are significantly better than guessing."""
        return better_than_guessing(self.correct, self.labels, self.num_classes)

    def inputs(self, preprocessing: Preprocessing, count: int | None = None) -> np.ndarray:
        """Returns the sample, or its first `count` images, scaled by a preprocessing."""
        pixels = self.pixels[:count]
        if preprocessing.channels != self.preprocessing.channels:
            pixels = pixels[..., ::-1]
        values = preprocessing.scale(pixels)
        dtype = self.input_dtype
        return values if "float" in dtype else np.round(values).astype(dtype)

    def predict(self, preprocessing: Preprocessing, count: int | None = None) -> np.ndarray:
        """Returns the model's raw outputs for the sample, a float32 array of shape (N, K)."""
        if len(self._predicted.get(preprocessing, ())) < len(self.pixels[:count]):
            x, size = self.inputs(preprocessing, count), self.batch_size
            parts = [self._call(x[begin : begin + size]) for begin in range(0, len(x), size)]
            self._predicted[preprocessing] = np.concatenate(parts)
        return self._predicted[preprocessing][:count]

    def _call(self, batch: np.ndarray) -> np.ndarray:
        # Eager, because for few images tracing twelve blocks takes longer.
        outputs: Any = self.model(batch, training=False)
        if isinstance(outputs, (list, tuple, dict)):
            return np.empty(0, "float32")  # rejected by the constructor
        return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32")))

    def as_probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Converts raw outputs (N, K) to probabilities (N, max(K, 2))."""
        logits = keras.ops.convert_to_numpy(as_logits(outputs, self.ending))
        return special.softmax(logits.astype("float64"), axis=1)

    def assume(self, preprocessing: Preprocessing) -> None:
        """Adopts a different preprocessing, and updates the outputs accordingly."""
        self.raw = self.predict(preprocessing)
        if preprocessing.channels != self.preprocessing.channels:
            self.pixels = self.pixels[..., ::-1]
        self.preprocessing = preprocessing
        for name in ("probabilities", "new", "ending"):
            self.__dict__.pop(name, None)


def _is_backbone(model: keras.Model) -> bool:
    """Returns whether a model of this package has no classifier, not even one added on top."""
    metadata_layers = [layer for layer in layers_of(model) if isinstance(layer, ModelMetadata)]
    has_no_classes = any(layer.architecture.get("classes") == 0 for layer in metadata_layers)
    return has_no_classes and last_activation.ending_of(model) == "unknown"


def turns(labels: np.ndarray) -> np.ndarray:
    """Returns, for each image, how many earlier images have the same class."""
    counts = np.zeros(len(labels), int)
    for label in np.unique(labels):
        same_class = labels == label
        counts[same_class] = np.arange(same_class.sum())
    return counts


def _match(labels: tuple[str, ...] | None, names: tuple[str, ...]) -> tuple[str, np.ndarray]:
    """Returns how classes are matched to outputs, and each class's output index (-1 if none)."""
    if labels is None or labels == names or not set(labels) & set(names):
        return "index", np.arange(len(names))
    return "name", np.array([labels.index(name) if name in labels else -1 for name in names])


def _sample_to_decode(pool: np.ndarray, number: int, generator: np.random.Generator) -> np.ndarray:
    """Selects the indices of the images to decode, half of them from `pool`."""
    if number <= _DECODED:
        return np.arange(number)
    from_pool = generator.permutation(pool)[: _DECODED // 2]
    others = generator.permutation(np.setdiff1d(np.arange(number), from_pool))
    return np.sort(np.concatenate([from_pool, others[: _DECODED - len(from_pool)]]))


def _only_class(examples: data.Examples) -> np.ndarray:
    """Returns each image's class, or -1 unless it has exactly one, in an array of shape (N,)."""
    if not examples.multi_label:
        return examples.targets.astype(int)
    return np.where(examples.targets.sum(axis=1) == 1, examples.targets.argmax(axis=1), -1)


def _pixels(examples: data.Examples, preprocessing: Preprocessing) -> np.ndarray:
    """Decodes, resizes and crops images; returns pixels in [0, 255] of shape (N, h, w, C)."""
    raw = dataclasses.replace(scaled(preprocessing, "0..255"), class_names=None)
    batches = [x.numpy() for x, _ in data.evaluation_dataset(examples, raw, batch_size=32)]
    return np.concatenate(batches)
