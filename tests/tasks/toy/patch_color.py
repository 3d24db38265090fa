"""A task of another package: the mean color of each patch, by regression."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import models
from keras_vit.data import Examples, evaluation_dataset
from keras_vit.models.dense import on_grid
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks import Objective, Task, build
from keras_vit.tasks.task import Predictions

_CLOSE = 0.1  # of [0, 1]: a color that counts as right


def patch_colors(images: Any, preprocessing: Preprocessing, patch_size: Any) -> Any:
    """Returns the mean color of each patch (B, h, w, 3), in [0, 1], of scaled images."""
    pixels = preprocessing.unscale(images) / 255
    return ops.average_pool(pixels, patch_size, patch_size, data_format="channels_last")


class ColorObjective(Objective):
    """Mean squared error of the colors, and their mean absolute error."""

    def __init__(self, network: keras.Model) -> None:
        super().__init__(network)
        self.error = keras.metrics.Mean("error")
        self.preprocessing = models.preprocessing_of(network)
        self.patch_size = models.config_of(network).patch_size

    def example_losses(self, x: Any, y: Any, training: bool) -> tuple[Any, Any]:
        colors = patch_colors(x, self.preprocessing, self.patch_size)
        difference = ops.cast(self.network(x, training=training), "float32") - colors
        axes = (1, 2, 3)
        return ops.mean(difference**2, axis=axes), ops.mean(ops.abs(difference), axis=axes)

    def update_scores(self, y: Any, outputs: Any, weight: Any) -> None:
        self.error.update_state(outputs, sample_weight=weight)

    @property
    def scores(self) -> list[keras.metrics.Metric]:
        return [self.error]


@dataclasses.dataclass(frozen=True)
class ColorResult:
    """Mean absolute error of the colors, in [0, 1]."""

    num_examples: int
    error: float

    def text(self) -> str:
        return f"{self.num_examples} images\nmean absolute error {self.error:.4f}"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, eq=False)
class ColorPrediction:
    """Colors (h, w, 3) of the patches of one image."""

    colors: np.ndarray
    message: str = ""

    @property
    def ok(self) -> bool:
        return not self.message

    def text(self, top: int = 3) -> str:
        red, green, blue = (self.colors.mean((0, 1)).clip(0, 1) * 255).round().astype(int)
        return self.message or f"mean color #{red:02x}{green:02x}{blue:02x}"


class PatchColor(Task):
    """Regression of the mean color of each patch."""

    name = "patch_color"
    monitor = ("error", "min")
    output = "colors"

    @classmethod
    def check_model(cls, name: str) -> None:
        build.check_model(name)

    def build_network(self, examples: Examples, dtype: str, *, resume: bool) -> keras.Model:
        encoder = build.build_encoder(self.config, dtype, (), pooling="none")
        patches = on_grid(encoder, encoder.output, dtype)
        colors = keras.layers.Dense(3, dtype="float32", name="head")(patches)
        return keras.Model(encoder.input, colors, name=encoder.name)

    def objective(self, network: keras.Model, training: Examples) -> ColorObjective:
        return ColorObjective(network)

    def predict(self, model: keras.Model, examples: Examples, **options: Any) -> Predictions:
        found = super().predict(model, examples, **options)
        patch_size = models.config_of(model).patch_size
        batches = evaluation_dataset(examples, found.preprocessing, batch_size=32)
        colors = [patch_colors(np.asarray(x), found.preprocessing, patch_size) for x, _ in batches]
        return found._replace(targets=np.concatenate(colors))

    def score(self, predictions: Predictions) -> ColorResult:
        error = np.abs(predictions.outputs - predictions.targets).mean()
        return ColorResult(len(predictions.outputs), float(error))

    def agreement(
        self, found: np.ndarray, expected: Predictions, close: float
    ) -> tuple[np.ndarray, float]:
        axes = (1, 2, 3)
        same = np.abs(found - expected.outputs).max(axes) <= max(close, _CLOSE)
        return same, float((np.abs(found - expected.targets).mean(axes) <= _CLOSE).mean())

    def prediction(
        self, output: np.ndarray, preprocessing: Preprocessing, message: str = "", top: int = 5
    ) -> ColorPrediction:
        return ColorPrediction(output, message)
