"""Interface of a task: data, network, objective, evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import keras
import numpy as np

from keras_vit import arguments, data
from keras_vit.data.image_reading import Limits
from keras_vit.models import cloning, preprocessing_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.run_folder import Run
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.serving import ServedModel
from keras_vit.visualization.html_page import Section, preformatted


class Result(Protocol):
    """Result of an evaluation."""

    def text(self) -> str:
        """Returns a table."""

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `evaluation.json`."""


class Predictions(NamedTuple):
    """Predictions for N images: targets (N, ...), outputs (N, ...), preprocessing."""

    targets: np.ndarray
    outputs: np.ndarray
    preprocessing: Preprocessing


class Prediction(Protocol):
    """Prediction for one image."""

    @property
    def ok(self) -> bool:
        """Whether the image could be read."""

    @property
    def message(self) -> str:
        """Reason why the image cannot be read; empty if it can."""

    def text(self, top: int = 3) -> str:
        """Returns a line to print."""


class Table(Protocol):
    """Table of predictions."""

    columns: list[str]

    def row(self, file: str, found: Any) -> dict[str, Any]:
        """Returns the row of one image; missing values are None or omitted."""


@dataclasses.dataclass(frozen=True, eq=False)
class Details:
    """Evaluation details for the evaluation page; by default the text of the result.

    Args:
        scores: The result.

    Example:
        >>> import types
        >>> result = types.SimpleNamespace(text=lambda: "error 0.1", to_json=lambda: {"error": 0.1})
        >>> [section.title for section in Details(result).sections()]
        ['Result']
    """

    scores: Any

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `report.json`."""
        return {"scores": self.scores.to_json()}

    def sections(self) -> list[Section]:
        """Returns the sections of the page."""
        return [Section("summary", "Result", [preformatted(self.scores.text())])]


class Task:
    """The task-specific part of a training run; `training.loop.fit_run` contains the rest.

    A subclass builds the network and its objective, and overrides further methods as needed.

    Args:
        config: Configuration of the run.

    Example:
        >>> from keras_vit.runs.config import RunConfig
        >>> class Depth(Task):
        ...     name = "depth"
        >>> Depth(RunConfig("photos", "ViTTi16")).title(data.load("digits"), 1797)
        'Training ViTTi16 (depth) on 1797 images'
    """

    name: ClassVar[str]
    # Command that resumes a run.
    command: ClassVar[str] = "train"
    # Validation metric that selects best.keras, and whether it is maximized; None for no best.
    monitor: ClassVar[tuple[str, str] | None] = None
    # Name of the network's output in exported files.
    output: ClassVar[str] = "outputs"
    # Whether models do not name the task, as those of earlier versions do not.
    unnamed: ClassVar[bool] = False

    def __init__(self, config: Any) -> None:
        self.config: Any = config

    @classmethod
    def check_model(cls, name: str) -> None:
        """Raises `ValueError` unless there is a model of this name to train."""

    def load(self) -> data.Examples:
        """Returns all images of the run, not yet decoded."""
        return data.load(self.config.data)

    def split(
        self, examples: data.Examples, digests: Mapping[str, str], **options: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns indices of training and validation images, as `data.split` does."""
        return data.split(examples, digests, **options)

    def adapted(self, examples: data.Examples) -> Task:
        """Returns the task, or a different task if the targets of the images require it."""
        return self

    def build_network(self, examples: data.Examples, dtype: str, *, resume: bool) -> keras.Model:
        """Builds the network to train.

        Args:
            examples: All images, for class names.
            dtype: Keras dtype policy.
            resume: Whether the weights are later replaced by those of a saved state.

        Returns:
            A functional model with a `ModelMetadata` layer, without the last activation.
        """
        raise NotImplementedError

    def objective(self, network: keras.Model) -> Objective:
        """Returns the training objective."""
        raise NotImplementedError

    def use_training_set(self, objective: Objective, training: data.Examples) -> None:
        """Sets the parts of an objective that depend on the training images."""

    def finished_model(self, network: keras.Model) -> keras.Model:
        """Returns a float32 copy for saving, evaluation and export."""
        return cloning.with_dtype(network, "float32")

    def resolved(self, examples: data.Examples) -> dict[str, Any]:
        """Returns further entries of `resolved` in `config.yaml`."""
        return {}

    def check_resumed(self, run: Run, examples: data.Examples) -> None:
        """Raises `ValueError` if the images differ from those of the original run."""

    def start_run(self, run: Run, examples: data.Examples, validation: data.Examples) -> None:
        """Writes further files into a new run folder."""

    def title(self, examples: data.Examples, count: int) -> str:
        """Returns the title of a run: the model, the task and the number of images."""
        return f"Training {self.config.model} ({self.name}) on {count} images"

    def advise(self, steps: int) -> None:
        """Warns about settings that are probably mistakes in a run of `steps` steps in total."""

    def draw_training(self, run: Run, objective: Any, validation: data.Examples) -> dict[str, Path]:
        """Draws outputs of a trained objective into a run folder; returns pictures by name."""
        return {}

    def finish_models(self, run: Run, validation: data.Examples) -> None:
        """Completes the saved models, for example with thresholds."""

    def finished(self, model: keras.Model) -> tuple[keras.Model, Preprocessing]:
        """Returns the float32 network for evaluation and export, and its preprocessing."""
        return cloning.with_dtype(model, "float32"), preprocessing_of(model)

    def predict(
        self,
        model: keras.Model,
        examples: data.Examples,
        *,
        batch_size: int = 32,
        verbose: int = 0,
    ) -> Predictions:
        """Returns the outputs of a finished model and the targets of the images."""
        network, preprocessing = self.finished(model)
        outputs = network_outputs(network, preprocessing, examples, batch_size, verbose)
        return Predictions(examples.targets, outputs, preprocessing)

    def score(self, predictions: Predictions) -> Result:
        """Evaluates predictions."""
        raise NotImplementedError

    def details(
        self, model: keras.Model, examples: data.Examples, predictions: Predictions
    ) -> Details:
        """Evaluates predictions in detail for the evaluation page."""
        return Details(self.score(predictions))

    def draw(self, result: Any, folder: Path) -> dict[str, Path]:
        """Draws the result of an evaluation into a folder; returns pictures by name."""
        return {}

    def draw_examples(
        self, model: keras.Model, examples: data.Examples, folder: Path
    ) -> dict[str, Path]:
        """Draws images with the predictions of a finished model; returns pictures by name."""
        return {}

    def served(
        self,
        network: keras.Model,
        preprocessing: Preprocessing,
        texts: Path,
        limits: Limits,
        precision: str,
    ) -> ServedModel:
        """Returns the signatures of a finished network in a SavedModel."""
        return ServedModel(network, preprocessing, self.output, texts, limits, precision)

    def agreement(
        self, found: np.ndarray, expected: Predictions, close: float
    ) -> tuple[np.ndarray, float]:
        """Compares outputs of an exported file with those of the Keras model.

        Args:
            found: Outputs of the file (N, ...).
            expected: Predictions of the Keras model.
            close: Tolerance for rounding errors; 0 for a quantized or reduced-precision file.

        Returns:
            Whether both predictions are equal for each image (N,), bool, and the accuracy of the
            exported file.
        """
        raise NotImplementedError

    def prediction(
        self, output: np.ndarray, preprocessing: Preprocessing, message: str = "", top: int = 5
    ) -> Prediction:
        """Returns the prediction for one image from its output, or with an error message."""
        raise NotImplementedError

    def table(self, preprocessing: Preprocessing, *, every_class: bool = False) -> Table:
        """Returns the columns and rows of `keras-vit predict --to`."""
        raise ValueError(
            "`--to` must not be given for a task without a table of predictions. "
            f"Received: the task {self.name}"
        )

    def next_commands(self, run: Run) -> list[str]:
        """Returns the commands that follow a complete run."""
        return [arguments.command("export", run.path, "--to", run.path / "serving")]


def network_outputs(
    network: keras.Model,
    preprocessing: Preprocessing,
    examples: data.Examples,
    batch_size: int = 32,
    verbose: int = 0,
) -> np.ndarray:
    """Returns the outputs of a network for all images (N, ...), float32."""
    dataset = data.evaluation_dataset(examples, preprocessing, batch_size=batch_size)
    # Into one array: Keras collects the batches and joins them, which needs twice the memory.
    outputs = np.empty((len(examples), *network.output_shape[1:]), np.float32)
    progress, done = keras.utils.Progbar(len(dataset), verbose=verbose), 0
    for images, *_ in dataset:
        answers = network.predict_on_batch(np.asarray(images))
        outputs[done : done + len(answers)] = answers
        done += len(answers)
        progress.add(1)
    return outputs
