"""Interface that a task implements: data, network, objective and evaluation."""

from __future__ import annotations

import dataclasses
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
    """Interface of an evaluation result."""

    def text(self) -> str:
        """Formats the result as a table."""

    def to_json(self) -> dict[str, Any]:
        """Returns the result as a dictionary, for `evaluation.json`."""


class Predictions(NamedTuple):
    """Targets (N, ...) and model outputs (N, ...) for N images, and the model's preprocessing."""

    targets: np.ndarray
    outputs: np.ndarray
    preprocessing: Preprocessing


class Prediction(Protocol):
    """Interface of the prediction for one image."""

    @property
    def ok(self) -> bool:
        """True if the image could be read."""

    @property
    def message(self) -> str:
        """The reason why the image could not be read, or an empty string."""

    def text(self, top: int = 3) -> str:
        """Returns the prediction as one line of text."""


class Table(Protocol):
    """Interface of a table of predictions."""

    columns: list[str]

    def row(self, file: str, found: Any) -> dict[str, Any]:
        """Returns the table row of one image; missing values are None or omitted."""


@dataclasses.dataclass(frozen=True, eq=False)
class Details:
    """Content of the HTML evaluation page; by default only the result as text.

    Args:
        scores: The result.

    Examples:
        >>> import types
        >>> result = types.SimpleNamespace(text=lambda: "error 0.1", to_json=lambda: {"error": 0.1})
        >>> [section.title for section in Details(result).sections()]
        ['Result']
    """

    scores: Any

    def to_json(self) -> dict[str, Any]:
        """Returns the details as a dictionary, for `report.json`."""
        return {"scores": self.scores.to_json()}

    def sections(self) -> list[Section]:
        """Returns the sections of the evaluation page."""
        return [Section("summary", "Result", [preformatted(self.scores.text())])]


class Task:
    """The task-specific part of a training run; `training.loop.fit_run` is the common part.

    A subclass must build the network and its objective, and can override the other methods.

    Args:
        config: Configuration of the run.

    Examples:
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
    # Class of the exported SavedModel's functions.
    served_model: ClassVar[type[ServedModel]] = ServedModel
    # Whether models do not name the task, as those of earlier versions do not.
    unnamed: ClassVar[bool] = False
    # Splits the images; returns the indices of the training and the validation images.
    split = staticmethod(data.split)

    def __init__(self, config: Any) -> None:
        self.config: Any = config

    @classmethod
    def check_model(cls, name: str) -> None:
        """Raises `ValueError` if the task cannot train a model of this name."""

    def load(self) -> data.Examples:
        """Loads all images of the run, without decoding them."""
        return data.load(self.config.data)

    def adapted(self, examples: data.Examples) -> Task:
        """Returns this task, or a different task if the targets of the dataset require it."""
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
        """Returns the training objective for a network."""
        raise NotImplementedError

    def use_training_set(self, objective: Objective, training: data.Examples) -> None:
        """Updates the parts of an objective that depend on the training set."""

    def finished_model(self, network: keras.Model) -> keras.Model:
        """Returns a float32 copy of a network for saving, evaluation and export."""
        return cloning.with_dtype(network, "float32")

    def resolved(self, examples: data.Examples) -> dict[str, Any]:
        """Returns additional entries for the section `resolved` of `config.yaml`."""
        return {}

    def check_resumed(self, run: Run, examples: data.Examples) -> None:
        """Raises `ValueError` if the images differ from those of the original run."""

    def start_run(self, run: Run, examples: data.Examples, validation: data.Examples) -> None:
        """Writes additional files into the folder of a new run."""

    def title(self, examples: data.Examples, count: int) -> str:
        """Returns a title for the run, with the model, the task and the number of images."""
        return f"Training {self.config.model} ({self.name}) on {count} images"

    def advise(self, steps: int) -> None:
        """Warns about settings that are probably mistakes in a run with `steps` training steps."""

    def draw_training(self, run: Run, objective: Any, validation: data.Examples) -> dict[str, Path]:
        """Draws the trained network's outputs into the run folder; returns the files by name."""
        return {}

    def finish_models(self, run: Run, validation: data.Examples) -> None:
        """Completes the saved models after training, for example by setting thresholds."""

    def finished(self, model: keras.Model) -> tuple[keras.Model, Preprocessing]:
        """Returns a model's float32 network for evaluation and export, and its preprocessing."""
        return cloning.with_dtype(model, "float32"), preprocessing_of(model)

    def predict(
        self,
        model: keras.Model,
        examples: data.Examples,
        *,
        batch_size: int = 32,
        verbose: int = 0,
    ) -> Predictions:
        """Computes the outputs of a trained model for labeled images."""
        network, preprocessing = self.finished(model)
        outputs = network_outputs(network, preprocessing, examples, batch_size, verbose)
        return Predictions(examples.targets, outputs, preprocessing)

    def score(self, predictions: Predictions) -> Result:
        """Computes the evaluation result of predictions."""
        raise NotImplementedError

    def details(
        self, model: keras.Model, examples: data.Examples, predictions: Predictions
    ) -> Details:
        """Evaluates predictions in detail for the evaluation page."""
        return Details(self.score(predictions))

    def draw(self, result: Any, folder: Path) -> dict[str, Path]:
        """Draws figures of an evaluation result into a folder; returns the files by name."""
        return {}

    def draw_examples(
        self, examples: data.Examples, predictions: Predictions, folder: Path
    ) -> dict[str, Path]:
        """Draws images with the predictions for them; returns the files by name."""
        return {}

    def served(
        self,
        network: keras.Model,
        preprocessing: Preprocessing,
        texts: Path,
        limits: Limits,
        precision: str,
    ) -> ServedModel:
        """Returns the serving functions for exporting a trained network as a SavedModel."""
        return self.served_model(network, preprocessing, self.output, texts, limits, precision)

    def agreement(
        self, found: np.ndarray, expected: Predictions, close: float
    ) -> tuple[np.ndarray, float]:
        """Compares the outputs of an exported file with the outputs of the Keras model.

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
        """Creates the record of one image: the prediction, or the reason why it cannot be read."""
        raise NotImplementedError

    def table(self, preprocessing: Preprocessing, *, every_class: bool = False) -> Table:
        """Returns the table that is written by `keras-vit predict --to`."""
        raise ValueError(
            "`--to` must not be used with a task that has no table of predictions. Received: "
            f"the task {self.name}"
        )

    def next_commands(self, run: Run) -> list[str]:
        """Returns suggested commands for a user whose run is complete."""
        return [arguments.command("export", run.path, "--to", run.path / "serving")]


def network_outputs(
    network: keras.Model,
    preprocessing: Preprocessing,
    examples: data.Examples,
    batch_size: int = 32,
    verbose: int = 0,
) -> np.ndarray:
    """Computes a network's float32 outputs, of shape (N, ...), for all images."""
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
