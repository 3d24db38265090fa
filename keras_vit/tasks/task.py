"""Interface that a task implements: data, network, objective and evaluation."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import keras
import numpy as np

from keras_vit import arguments, data
from keras_vit.models import cloning, preprocessing_of
from keras_vit.models.inference_runtime import two_at_a_time
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.recipe import Recipe
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.confidence import Confidence
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.serving_graph import ServedModel
from keras_vit.visualization.contact_sheet import contact_sheet
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


class Evaluation(NamedTuple):
    """Result of an evaluation, and data for its figures and the evaluation page."""

    result: Any
    found: Any


class Prediction(Protocol):
    """Interface and base class of the prediction for one image."""

    @property
    def message(self) -> str:
        """The reason why the image could not be read, or an empty string."""

    @property
    def ok(self) -> bool:
        """True if the image could be read."""
        return not self.message

    def text(self, top: int = 3) -> str:
        """Returns the prediction as one line of text."""


class Table:
    """Table of predictions; by default with a row of text for each image.

    Args:
        names: Names of the columns between `file` and `message`.
    """

    def __init__(self, names: Sequence[str] = ("prediction",)) -> None:
        self.columns = ["file", *names, "message"]

    def cells(self, found: Any) -> dict[str, Any]:
        """Returns the cells of a readable image, by column."""
        return {"prediction": found.text()}

    def rows(self, file: str, found: Any) -> list[dict[str, Any]]:
        """Returns the table rows of one image; missing values are None or omitted."""
        cells = self.cells(found) if found.ok else {"message": found.message}
        return [{**dict.fromkeys(self.columns), "file": str(file), **cells}]


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


# Commands that apply only to classifiers, with the reason.
_CLASSIFIER_COMMANDS = {
    "explain": "relevance maps show what contributes to the score of a class",
    "doctor": "its checks are those of classifiers",
    "probe": "it trains classifiers on features",
}


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
    # Default recipe of `keras-vit train` with pretrained weights.
    recipe: ClassVar[str] = "finetune"
    # Name of the network's output in exported files.
    output: ClassVar[str] = "outputs"
    # Task on model hubs, for the model card.
    pipeline_tag: ClassVar[str | None] = None
    # Class of the exported SavedModel's functions.
    served_model: ClassVar[type[ServedModel]] = ServedModel
    # Signature of the SavedModel that returns the network's output for encoded images.
    compared_signature: ClassVar[str] = "serving_default"
    # Whether saved models omit the name of the task, for compatibility with earlier versions.
    unnamed: ClassVar[bool] = False
    # Splits the images; returns the indices of the training and the validation images.
    split = staticmethod(data.split)

    # Whether exported files can have prediction sets.
    has_sets: ClassVar[bool] = False
    # Fields of a recipe that do not apply to the task.
    unused_fields: ClassVar[tuple[str, ...]] = (
        *("pooling", "ridge_head", "sampling", "logit_adjustment", "focal_gamma", "distillation"),
    )

    def __init__(self, config: Any) -> None:
        self.config: Any = config
        for name in self.unused_fields if config else ():
            value, default = getattr(config.recipe, name), getattr(Recipe, name)
            if value != default:
                raise ValueError(
                    f"`{name}` must be {default!r} with the task {self.name}. Received: "
                    f"{name}={value!r}"
                )

    @classmethod
    def check_model(cls, name: str) -> None:
        """Raises `ValueError` if the task cannot train a model of this name."""

    @classmethod
    def refusal(cls, command: str) -> str | None:
        """Returns why a command, such as `"explain"`, does not apply to the task, or None."""
        return _CLASSIFIER_COMMANDS.get(command)

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> data.Examples:
        """Loads the images and targets of a data source, without decoding them."""
        return data.load(source)

    def draw_batch(
        self, images: np.ndarray, targets: Any, names: Sequence[str], path: Path
    ) -> None:
        """Draws a training batch: `images` (B, h, w, C), pixels in [0, 255]."""
        contact_sheet(images, np.zeros((len(images), 0)), (), path)

    @classmethod
    def settled(cls, config: Any, examples: data.Examples) -> Task:
        """Returns the task of a run, with the task and configuration that the targets require."""
        return cls(config)

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

    def objective(self, network: keras.Model, training: data.Examples) -> Objective:
        """Returns the training objective of a network for a training set."""
        raise NotImplementedError

    def fit_head(self, network: keras.Model, training: data.Examples) -> None:
        """Fits the classifier of a new run's network in closed form, if `ridge_head` is set."""

    def inference_model(self, network: keras.Model) -> keras.Model:
        """Returns a float32 copy of a network for saving, evaluation and export."""
        return cloning.with_dtype(network, "float32")

    def resolved(self, examples: data.Examples) -> dict[str, Any]:
        """Returns additional entries for the section `resolved` of `config.yaml`."""
        return {}

    def check_resumed(self, run: RunFolder, examples: data.Examples) -> None:
        """Raises `ValueError` if the images differ from those of the original run."""

    def start_run(self, run: RunFolder, examples: data.Examples, validation: data.Examples) -> None:
        """Writes additional files into the folder of a new run."""

    def title(self, examples: data.Examples, count: int) -> str:
        """Returns a title for the run, with the model, the task and the number of images."""
        return f"Training {self.config.model} ({self.name}) on {count} images"

    def advise(self, steps: int) -> None:
        """Warns about settings that are probably mistakes in a run with `steps` training steps."""

    def draw_training(
        self, run: RunFolder, objective: Any, validation: data.Examples
    ) -> dict[str, Path]:
        """Draws the trained network's outputs into the run folder; returns the files by name."""
        return {}

    def prediction_network(self, model: keras.Model) -> tuple[keras.Model, Preprocessing]:
        """Returns a model's float32 network for evaluation and export, and its preprocessing."""
        return cloning.with_dtype(model, "float32"), preprocessing_of(model)

    def predict(
        self, model: keras.Model, examples: data.Examples, *, batch_size: int = 32, verbose: int = 0
    ) -> Predictions:
        """Computes the outputs of a trained model for labeled images."""
        network, preprocessing = self.prediction_network(model)
        examples = examples.with_classes(preprocessing.class_names)
        outputs = network_outputs(network, preprocessing, examples, batch_size, verbose)
        return Predictions(examples.kind.loaded(examples), outputs, preprocessing)

    @classmethod
    def has_scores(cls) -> bool:
        """Returns whether models are evaluated: `score` or `evaluate` is overridden."""
        return cls.score is not Task.score or cls.evaluate is not Task.evaluate

    def score(self, predictions: Predictions) -> Result:
        """Computes the evaluation result of predictions."""
        raise NotImplementedError

    def evaluate(
        self, model: keras.Model, examples: data.Examples, *, batch_size: int = 32, verbose: int = 0
    ) -> Evaluation:
        """Evaluates a trained model; by default, scores all predictions, returned as `found`.

        A task with large outputs evaluates them batch by batch, with `output_batches`.
        """
        predictions = self.predict(model, examples, batch_size=batch_size, verbose=verbose)
        return Evaluation(self.score(predictions), predictions)

    def evaluate_run(
        self, run: RunFolder, validation: data.Examples, *, verbose: int = 0
    ) -> Evaluation:
        """Evaluates the last model of a trained run; may first complete its saved models."""
        return self.evaluate(run.model(), validation, verbose=verbose)

    def details(
        self, model: keras.Model, examples: data.Examples, evaluation: Evaluation
    ) -> Details:
        """Returns an evaluation in more detail, for the evaluation page."""
        return Details(evaluation.result)

    def draw(self, result: Any, folder: Path) -> dict[str, Path]:
        """Draws figures of an evaluation result into a folder; returns the files by name."""
        return {}

    def draw_examples(
        self, examples: data.Examples, evaluation: Evaluation, folder: Path
    ) -> dict[str, Path]:
        """Draws images with the predictions for them; returns the files by name."""
        return {}

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
            exported file. By default two predictions are equal if no output differs by more than
            `close` times the largest value of its channel, or without `close` by more than 5% of
            the channel's range, and the accuracy is the fraction of equal predictions.
        """
        outputs = expected.outputs.reshape(-1, expected.outputs.shape[-1])
        limit = close * np.abs(outputs).max(axis=0) if close else 0.05 * np.ptp(outputs, axis=0)
        is_close = np.abs(found - expected.outputs) <= limit
        is_equal = is_close.reshape(len(found), -1).all(axis=1)
        return is_equal, float(is_equal.mean())

    def prediction(
        self, output: np.ndarray, preprocessing: Preprocessing, message: str = "", top: int = 5
    ) -> Prediction:
        """Creates the prediction for an image, with `message` if the image cannot be read."""
        raise NotImplementedError

    def add_confidence(
        self, network: keras.Model, found: Predictions, options: Confidence, verbose: int = 0
    ) -> tuple[keras.Model, Predictions]:
        """Returns a network and predictions with prediction sets and scores; needs `has_sets`."""
        raise NotImplementedError

    def further_outputs(
        self, network: keras.Model, output: Any, preprocessing: Preprocessing
    ) -> dict[str, Any]:
        """Returns further outputs of exported graphs, from the last call of the network."""
        return {}

    def table(self, preprocessing: Preprocessing, *, every_class: bool = False) -> Table:
        """Returns the table of `keras-vit predict --to`; by default predictions as text."""
        return Table()

    def next_commands(self, run: RunFolder) -> list[str]:
        """Returns suggested commands for a user whose run is complete."""
        return [arguments.command("export", run.path, "--to", run.path / "serving")]


def numbers(scores: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of an evaluation result that is stored as JSON, by name."""
    return {name: value for name, value in scores.items() if isinstance(value, (int, float))}


def network_outputs(
    network: keras.Model,
    preprocessing: Preprocessing,
    examples: data.Examples,
    batch_size: int = 32,
    verbose: int = 0,
) -> np.ndarray:
    """Computes a network's float32 outputs, of shape (N, ...), for all images."""
    # One array, because Keras collects the batches and joins them, which takes twice the memory.
    outputs = np.empty((len(examples), *network.output_shape[1:]), np.float32)
    for indices, batch in output_batches(network, preprocessing, examples, batch_size, verbose):
        outputs[indices] = batch
    return outputs


def output_batches(
    network: keras.Model,
    preprocessing: Preprocessing,
    examples: data.Examples,
    batch_size: int = 32,
    verbose: int = 0,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the indices (B,) of each batch of images, and a network's outputs (B, ...) for them.

    To evaluate at an image's original size, see `keras_vit.data.geometry.centered_geometry`.
    """
    dataset = data.evaluation_dataset(examples, preprocessing, batch_size=batch_size)
    progress, start = keras.utils.Progbar(len(dataset), verbose=verbose), 0
    network.make_predict_function()  # otherwise each of two threads creates one
    batches = (np.asarray(images) for images, *_ in dataset)
    for outputs in two_at_a_time(network.predict_on_batch, batches):
        yield np.arange(start, start + len(outputs)), outputs
        start += len(outputs)
        progress.add(1)
