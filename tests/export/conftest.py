"""One tiny classifier with labels, exported once, and encoded images of many sizes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import models
from keras_vit.data import Examples
from keras_vit.export import Predictor, load_predictor, saved_model, tflite
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.registry import finished
from tests.cli.conftest import nano as nano
from tests.cli.conftest import photos as photos
from tests.cli.conftest import run as run
from tests.cli.conftest import trained as trained

LABELS = ("daisy", "dandelion", "rose", "sunflower", "tulip", "violet", "cornflower")
PREPROCESSING = Preprocessing(
    size=(10, 14), class_names=LABELS, mean=(0.5, 0.4, 0.3), std=(0.5, 0.6, 0.7)
)


def randomise(model: keras.Model) -> keras.Model:
    """Gives all weights values; a new head of zeros would make all probabilities equal."""
    generator = np.random.default_rng(11)
    for variable in model.weights:
        noise = generator.normal(scale=0.3, size=variable.shape)
        variable.assign(noise + (variable.name == "gamma"))
    return model


def tiny(
    preprocessing: Preprocessing = PREPROCESSING, dtype: str = "float32", **changes
) -> keras.Model:
    config = models.ViTConfig(
        hidden_size=24,
        num_layers=1,
        num_heads=3,
        mlp_dim=32,
        patch_size=2,
        image_size=preprocessing.size,
        classes=7,
    )
    return randomise(
        models.build(config.replace(**changes), preprocessing=preprocessing, dtype=dtype)
    )


@pytest.fixture(scope="session")
def model() -> keras.Model:
    return tiny()


@pytest.fixture(scope="session")
def images() -> list[bytes]:
    generator = np.random.default_rng(7)
    encoded = []
    for height, width in ((37, 23), (11, 53), (64, 64), (9, 8), (10, 14)):
        color, noise = generator.integers(0, 200, 3), generator.integers(0, 56, (height, width, 3))
        pixels = (color + noise).astype("uint8")
        encoded += [tf.io.encode_jpeg(pixels).numpy(), tf.io.encode_png(pixels).numpy()]
    return encoded


@pytest.fixture(scope="session")
def loaded(model: keras.Model) -> Predictor:
    """The predictor of `model`, whose graphs are traced once for all tests."""
    return load_predictor(model)


@pytest.fixture(scope="session")
def expected(loaded: Predictor, images: list[bytes]) -> np.ndarray:
    """Its probabilities for `images`."""
    return loaded.probabilities(images)


@pytest.fixture(scope="session")
def labeled(images: list[bytes]) -> Examples:
    return Examples(
        names=tuple(f"{i}.png" for i in range(len(images))),
        targets=np.arange(len(images)) % 7,
        class_names=LABELS,
        source="memory",
        encoded=tuple(images),
    )


@pytest.fixture(scope="session")
def exported(model: keras.Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The three artifacts of `model`; tests that change one must copy it first."""
    folder = tmp_path_factory.mktemp("exported")
    model.save(folder / "model.keras")
    return {
        "keras": folder / "model.keras",
        "saved_model": saved_model.write(model, folder / "saved_model" / "1"),
        "tflite": tflite.write(model, folder / "model.tflite"),
    }


@pytest.fixture(scope="session")
def quantizations(
    model: keras.Model, images: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """`model` in all quantizations, calibrated on `images`; tests only read them."""
    folder = tmp_path_factory.mktemp("converter")
    converter = tflite.TFLiteConverter(finished(model), folder / "traced", images)
    return {
        quantization: converter.write(quantization, folder / f"{quantization}.tflite")
        for quantization in tflite.QUANTIZATIONS
    }


@pytest.fixture(scope="session")
def yes_or_no() -> keras.Model:
    """A classifier that says yes or no to each label, from thresholds that are all different."""
    thresholds = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    preprocessing = dataclasses.replace(PREPROCESSING, thresholds=thresholds)
    return tiny(preprocessing, classifier_activation="sigmoid")


@pytest.fixture(scope="session")
def exported_yes_or_no(yes_or_no: keras.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its SavedModel; tests that change it must copy it first."""
    return saved_model.write(yes_or_no, tmp_path_factory.mktemp("yes_or_no") / "1")
