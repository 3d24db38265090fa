"""Classifiers of digits that are solved, not trained, so that they cost no time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import data, models
from keras_vit.doctor import Finding, context
from keras_vit.doctor.context import DoctorContext
from keras_vit.layers import ModelMetadata
from keras_vit.preprocessing import Preprocessing
from tests.training.conftest import nano as nano
from tests.training.conftest import photos as photos
from tests.training.conftest import train as train

DIGITS = data.load("digits").subset(range(300))
PREPROCESSING = Preprocessing(size=8, class_names=DIGITS.class_names)
RAW = dataclasses.replace(PREPROCESSING, mean=0.0, std=1 / 255)  # [0, 255]


def pixels() -> np.ndarray:
    """The digits as they are, (300, 8, 8, 3), [0, 255]."""
    batches = data.evaluation_dataset(DIGITS, RAW, batch_size=100)
    return np.concatenate([x.numpy() for x, _ in batches])


PIXELS = pixels()
CHECKED: dict[tuple[Any, ...], Any] = {}
DECODED: dict[tuple[bytes, Preprocessing], np.ndarray] = {}


def solve(
    trained_on: Preprocessing = PREPROCESSING,
    carries: Preprocessing | None = PREPROCESSING,
    *,
    front: Sequence[keras.layers.Layer] = (),
    activation: str = "tanh",
    ending: str | None = "softmax",
    targets: np.ndarray = DIGITS.targets,
    classes: int = 10,
) -> keras.Model:
    """A random layer and a classifier on it, whose weights are the solution of a linear system.

    Args:
        trained_on: What the weights are solved for.
        carries: What the model says about that; None for a model of another library.
        front: Layers in front of the random one.
        activation: Of the random layer.
        ending: Of the classifier.
        targets: Labels to learn.
        classes: Outputs.
    """
    random = np.random.default_rng(3)
    hidden = keras.layers.Dense(83, activation=activation, name="hidden")
    head = keras.layers.Dense(classes, activation=ending, name="head")
    preprocessing = [ModelMetadata(carries)] if carries else []
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), *preprocessing, *front, keras.layers.Flatten(), hidden, head]
    )
    hidden.set_weights([random.normal(size=(192, 83)) / 8, random.normal(size=83) / 3])
    z = keras.ops.convert_to_numpy(trained_on.scale(PIXELS))
    for layer in model.layers[: model.layers.index(head)]:
        z = layer(z)
    z = np.pad(np.array(z, "float64"), ((0, 0), (0, 1)), constant_values=1)  # (300, 84)
    wanted = np.eye(classes)[targets] - 1 / classes
    solution = 8 * np.linalg.solve(z.T @ z + np.eye(84), z.T @ wanted)
    head.set_weights([solution[:-1], solution[-1]])
    return model


def tiny_vit(classes: int = 10, **options: Any) -> keras.Model:
    """A new model of this package, without names of its classes, for digits."""
    config = models.size("Micro/4").replace(
        hidden_size=15, num_layers=1, num_heads=3, mlp_dim=19, image_size=(8, 8), classes=classes
    )
    return models.build(config, **options)


def several(examples: data.Examples = DIGITS) -> data.Examples:
    """The digits for a model that may see several: every seventh image also counts as a 0."""
    labels = np.eye(10, dtype=int)[examples.targets]
    labels[::7, 0] = 1
    return dataclasses.replace(examples, targets=labels)


@pytest.fixture(autouse=True)
def _decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same images are checked once, and each is decoded once, and not by every test."""
    check, decode = data.check, context._pixels

    def check_once(examples: data.Examples, *more: Any, **options: Any) -> Any:
        fields = dataclasses.asdict(examples) | {
            "targets": examples.targets.tobytes(),
            "columns": tuple(examples.columns.items()),
            "ignored": tuple(examples.ignored.items()),
        }
        key = (*fields.values(), *more)
        if key not in CHECKED:
            CHECKED[key] = check(examples, *more, **options)
        return CHECKED[key]

    def decode_once(examples: data.Examples, preprocessing: Preprocessing) -> np.ndarray:
        unnamed = dataclasses.replace(preprocessing, class_names=None, thresholds=None)
        keys = [(examples.read(i), unnamed) for i in range(len(examples))]
        missing = [i for i, key in enumerate(keys) if key not in DECODED]
        if missing:
            images = decode(examples.subset(missing), preprocessing)
            DECODED.update(zip([keys[i] for i in missing], images, strict=True))
        return np.stack([DECODED[key] for key in keys])

    monkeypatch.setattr(data, "check", check_once)
    monkeypatch.setattr(context, "_pixels", decode_once)


@pytest.fixture(scope="session")
def healthy() -> DoctorContext:
    """A model with which nothing is wrong."""
    return DoctorContext(solve(), DIGITS)


def change(layer: keras.layers.Layer, index: int, value: float, places: object = ...) -> None:
    """Sets some numbers of one of a layer's weights."""
    weights = layer.get_weights()
    weights[index][places] = value
    layer.set_weights(weights)


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [finding.name for finding in findings]
    return findings[0]


def alarms(findings: list[Finding]) -> dict[str, str]:
    """What is serious or may be, with how much."""
    return {f.name: f.severity for f in findings if f.severity in ("serious", "warning")}
