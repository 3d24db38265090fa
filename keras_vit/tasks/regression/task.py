"""Regression task."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit import data, zoo
from keras_vit.data.target_kinds import NUMBERS
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.build import build_encoder
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.regression.objective import UNITS, RegressionObjective
from keras_vit.tasks.regression.report import RegressionReport, scatter_plot
from keras_vit.tasks.task import Prediction, Predictions, Table, Task
from keras_vit.visualization.contact_sheet import contact_sheet
from keras_vit.visualization.drawing import save_figure


def moments(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean and the standard deviation of each column of targets (N, D), float64."""
    return targets.mean(axis=0, dtype=np.float64), targets.std(axis=0, dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class Values(Prediction):
    """Predicted numbers of one image, by name, or the reason why it cannot be read."""

    values: dict[str, float]
    message: str = ""

    def text(self, top: int = 3) -> str:
        """Returns the numbers as one line of text."""
        return self.message or ", ".join(f"{n} {value:.4g}" for n, value in self.values.items())


class ValueTable(Table):
    """Table of predicted numbers."""

    def cells(self, found: Values) -> dict[str, Any]:
        """Returns the numbers by name."""
        return found.values


class Regression(Task):
    """Regression task: one number or a few for each image, from columns of a table."""

    name = "regression"
    monitor = ("mae", "min")
    recipe = "regression"
    output = "values"
    unused_fields = (*Task.unused_fields, "class_weights", "loss")
    check_model = staticmethod(zoo.require_name)
    config: RunConfig

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> data.Examples:
        examples = data.load(source, NUMBERS)
        if examples.kind is not NUMBERS:
            raise ValueError(
                "`data` must be a table, or a folder with a table, whose columns besides `file` "
                f"and `split` are numbers, for the task regression. Received: data={str(source)!r}"
            )
        return examples

    def draw_batch(
        self, images: np.ndarray, targets: Any, names: Sequence[str], path: Path
    ) -> None:
        captions = [Values(dict(zip(names, row, strict=True))).text() for row in targets.numpy()]
        contact_sheet(images, np.zeros((len(images), 0)), (), path, captions)

    def build_network(self, examples: data.Examples, dtype: str, *, resume: bool) -> keras.Model:
        encoder = build_encoder(self.config, dtype, class_names=examples.class_names, pooling="gap")
        mean, deviation = moments(examples.targets)
        head = keras.layers.Dense(
            len(mean), kernel_initializer="zeros", dtype="float32", name="head"
        )
        units = keras.layers.Rescaling(
            np.maximum(deviation, 1e-6).tolist(), mean.tolist(), dtype="float32", name=UNITS
        )
        return keras.Model(encoder.input, units(head(encoder.output)), name=encoder.name)

    def resolved(self, examples: data.Examples) -> dict[str, Any]:
        return {"target_means": moments(examples.targets)[0].tolist()}

    def check_resumed(self, run: RunFolder, examples: data.Examples) -> None:
        resolved = self.resolved(examples)
        # Earlier versions summed in float32.
        means = resolved["target_means"], examples.targets.mean(axis=0).tolist()
        if run.resolved().get("target_means", means[0]) not in means:
            raise ValueError(
                f"The targets of {self.config.data} must be those that the run was started with, "
                f"because their mean and deviation are stored in the model. Received: {resolved}"
            )

    def objective(self, network: keras.Model, training: data.Examples) -> Objective:
        return RegressionObjective(network)

    def score(self, predictions: Predictions) -> RegressionReport:
        targets, values, preprocessing = predictions
        return RegressionReport(targets, values, preprocessing.class_names or ())

    def draw(self, result: Any, folder: Path) -> dict[str, Path]:
        return {"scatter": save_figure(scatter_plot(result), folder / "scatter.png")}

    def prediction(
        self, output: np.ndarray, preprocessing: Preprocessing, message: str = "", top: int = 5
    ) -> Values:
        names = preprocessing.class_names or ()
        return Values({} if message else dict(zip(names, output.tolist(), strict=True)), message)

    def table(self, preprocessing: Preprocessing, *, every_class: bool = False) -> ValueTable:
        return ValueTable(preprocessing.class_names or ())
