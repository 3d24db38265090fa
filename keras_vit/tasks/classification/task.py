"""Single-label image classification task."""

from __future__ import annotations

import contextlib
import dataclasses
import filecmp
import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
from sklearn.metrics import accuracy_score

from keras_vit import arguments, data, files, models, zoo
from keras_vit.constants import FEW_STEPS
from keras_vit.evaluation import slice_accuracies
from keras_vit.models import cloning, last_activation
from keras_vit.models.features import classifiers
from keras_vit.models.out_of_distribution import NEIGHBORS, last_results_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.build import check_model, without_dropout
from keras_vit.tasks.classification import out_of_distribution
from keras_vit.tasks.classification.calibration import (
    calibrate,
    choose_temperature,
    with_temperature,
)
from keras_vit.tasks.classification.conformal import conformal_threshold, set_outputs
from keras_vit.tasks.classification.distillation import DistillationObjective, load_teacher
from keras_vit.tasks.classification.figures import confusion_matrix
from keras_vit.tasks.classification.metrics import Report, evaluate_predictions
from keras_vit.tasks.classification.mistakes import draw_mistakes, find_mistakes
from keras_vit.tasks.classification.network import build_network
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.tasks.classification.page import ClassificationDetails
from keras_vit.tasks.classification.predict import predict
from keras_vit.tasks.classification.prediction import Scores, prediction
from keras_vit.tasks.classification.ridge_head import fit_head
from keras_vit.tasks.classification.samples import write_samples
from keras_vit.tasks.classification.serving_graph import ServedClassifier
from keras_vit.tasks.confidence import Confidence
from keras_vit.tasks.registry import get
from keras_vit.tasks.task import Details, Evaluation, Predictions, Task
from keras_vit.visualization.contact_sheet import contact_sheet
from keras_vit.visualization.drawing import save_figure
from keras_vit.weights import list_weights
from keras_vit.weights.whole_models import load_model

_NUM_MISTAKES = 12  # on the evaluation page


def inference_classifier(network: keras.Model) -> keras.Model:
    """Returns a float32 model that outputs probabilities, for saving, evaluation and export."""
    if not models.has_config(network):  # of keras.applications
        return last_activation.with_probabilities(cloning.with_dtype(network, "float32"))[0]
    thresholds = models.preprocessing_of(network).thresholds
    return without_dropout(network, classifier_activation="sigmoid" if thresholds else "softmax")


class Classification(Task):
    """Classification task: one class per image, softmax or sigmoid loss, accuracy as metric."""

    name = "classification"
    monitor = ("accuracy", "max")
    output = "probabilities"
    pipeline_tag = "image-classification"
    unnamed = True
    has_sets = True
    unused_fields: ClassVar[tuple[str, ...]] = ()
    multi_label = False
    served_model = ServedClassifier
    check_model = staticmethod(check_model)
    inference_model = staticmethod(inference_classifier)
    prediction_network = staticmethod(last_activation.with_probabilities)
    predict = staticmethod(predict)
    prediction = staticmethod(prediction)
    config: RunConfig

    @classmethod
    def refusal(cls, command: str) -> str | None:
        return None

    def draw_batch(
        self, images: np.ndarray, targets: Any, names: Sequence[str], path: Path
    ) -> None:
        contact_sheet(images, targets.numpy(), names, path)

    @classmethod
    def settled(cls, config: RunConfig, examples: data.Examples) -> Task:
        return get("multi_label").settled(config, examples) if examples.multi_label else cls(config)

    def build_network(self, examples: data.Examples, dtype: str, *, resume: bool) -> keras.Model:
        # No notes about weights that a saved state replaces.
        with contextlib.redirect_stdout(io.StringIO() if resume else sys.stdout):
            network = build_network(
                self.config, examples.class_names, dtype=dtype, multi_label=self.multi_label
            )
        if self.config.teacher is not None:  # early, to detect a wrong file
            self.teacher = load_teacher(self.config.teacher, models.preprocessing_of(network))
        return network

    def objective(self, network: keras.Model, training: data.Examples) -> ClassificationObjective:
        recipe = self.config.recipe
        balanced = recipe.class_weights == "balanced"
        settings: dict[str, Any] = {
            "loss": recipe.loss,
            "multi_label": self.multi_label,
            "label_smoothing": recipe.label_smoothing,
            "class_weights": class_weights(training) if balanced else None,
            "logit_offsets": _logit_offsets(training, recipe.logit_adjustment),
            "focal_gamma": recipe.focal_gamma,
        }
        if self.config.teacher is None:
            return ClassificationObjective(network, **settings)
        return DistillationObjective(
            network,
            self.teacher,
            kind=recipe.distillation,
            weight=recipe.distillation_weight,
            temperature=recipe.distillation_temperature,
            **settings,
        )

    def fit_head(self, network: keras.Model, training: data.Examples) -> None:
        if self.config.recipe.ridge_head:
            fit_head(network, training, self.config.recipe.seed)

    def resolved(self, examples: data.Examples) -> dict[str, Any]:
        return {
            "flip": self.config.recipe.augmentation.flip and examples.flip_safe,
            "classes": len(examples.class_names),
        }

    def check_resumed(self, run: RunFolder, examples: data.Examples) -> None:
        if run.labels.read_text(encoding="utf-8") != _lines(examples.class_names):
            raise ValueError(
                f"The classes of {self.config.data} must match those in {run.labels}. Restore "
                "the original classes, or start a new run. Received: the classes "
                f"{arguments.shortlist(examples.class_names, shown=20)}"
            )

    def start_run(self, run: RunFolder, examples: data.Examples, validation: data.Examples) -> None:
        files.write_text(run.labels, _lines(examples.class_names))
        write_samples(run, validation)

    def title(self, examples: data.Examples, count: int) -> str:
        start = self.config.weights or "random weights"
        return (
            f"Training {self.config.model} from {start} on {count} images of "
            f"{len(examples.class_names)} classes"
        )

    def advise(self, steps: int) -> None:
        config = self.config
        from_keras_vit = config.model in zoo.CONSTRUCTORS
        recipe = config.recipe
        ignored = {
            "layer-wise decay": recipe.layer_decay < 1,
            "dropout": recipe.dropout_rate > 0,
            "stochastic depth": recipe.stochastic_depth_rate > 0,
            "rematerialization": recipe.remat,
            "another pooling of tokens": recipe.pooling is not None,
        }
        if not from_keras_vit and any(ignored.values()):
            print(
                f"Note: {config.model} has no Transformer blocks, so it is trained without "
                f"{' and '.join(name for name, is_set in ignored.items() if is_set)}."
            )
        if config.weights is None and (not from_keras_vit or list_weights(config.model)):
            print(
                f"Note: without pretrained weights (--weights imagenet) {config.model} reaches "
                "only a low accuracy when trained on few photographs."
            )
        if steps < FEW_STEPS:
            print(
                f"Note: {steps} training steps are few; pass --epochs "
                f"{math.ceil(FEW_STEPS * recipe.epochs / steps)} for at least {FEW_STEPS} steps."
            )

    def score(self, predictions: Predictions) -> Any:
        targets, probabilities, preprocessing = predictions
        return evaluate_predictions(targets, probabilities, preprocessing.class_names or ())

    def evaluate_run(
        self, run: RunFolder, validation: data.Examples, *, verbose: int = 0
    ) -> Evaluation:
        best_is_last = run.best.exists() and filecmp.cmp(run.best, run.last, shallow=False)
        predictions = set_temperature(run.last, validation, verbose)
        if best_is_last:
            files.copy(run.last, run.best)
        elif run.best.exists():
            set_temperature(run.best, validation, verbose)
        return Evaluation(self.score(predictions), predictions)

    def details(
        self, model: keras.Model, examples: data.Examples, evaluation: Evaluation
    ) -> Details:
        labels, probabilities, preprocessing = evaluation.found
        exclusive = preprocessing.thresholds is None and len(labels) > 1
        return ClassificationDetails(
            scores=evaluation.result,
            calibration=calibrate(labels, probabilities) if exclusive else None,
            mistakes=find_mistakes(examples, evaluation.found, _NUM_MISTAKES, model),
            slices=slice_accuracies(labels, probabilities.argmax(axis=1), examples.columns),
        )

    def draw(self, result: Report, folder: Path) -> dict[str, Path]:
        return {"confusion": save_figure(confusion_matrix(result), folder / "confusion_matrix.png")}

    def draw_examples(
        self, examples: data.Examples, evaluation: Evaluation, folder: Path
    ) -> dict[str, Path]:
        picture = draw_mistakes(examples, evaluation.found, folder / "mistakes.png")
        return {"mistakes": picture} if picture else {}

    def agreement(
        self, found: np.ndarray, expected: Predictions, close: float
    ) -> tuple[np.ndarray, float]:
        preprocessing = expected.preprocessing
        (found, score, _), (probabilities, expected_score, _) = (
            out_of_distribution.split(rows, preprocessing) for rows in (found, expected.outputs)
        )
        # Equally probable classes count as agreement.
        predicted = found.argmax(axis=1)
        agreed = np.take_along_axis(probabilities, predicted[:, None], axis=1)[:, 0]
        agrees = agreed >= probabilities.max(axis=1) - close
        if score is not None:
            threshold = preprocessing.ood_threshold
            agrees &= (score <= threshold) == (expected_score <= threshold)
        return agrees, float(accuracy_score(expected.targets, predicted))

    def add_confidence(
        self, network: keras.Model, found: Predictions, options: Confidence, verbose: int = 0
    ) -> tuple[keras.Model, Predictions]:
        if options.coverage is not None:
            threshold = conformal_threshold(found.targets, found.outputs, options.coverage)
            preprocessing = dataclasses.replace(
                found.preprocessing, set_threshold=threshold, coverage=options.coverage
            )
            found = found._replace(preprocessing=preprocessing)
        if options.names() not in ([], ["coverage"]):
            return out_of_distribution.add_scores(network, found, options, verbose)
        return network, found

    def further_outputs(
        self, network: keras.Model, output: Any, preprocessing: Preprocessing
    ) -> dict[str, Any]:
        scores = out_of_distribution.outputs(last_results_of(network), preprocessing)
        return {**set_outputs(output, preprocessing), **scores}

    def table(self, preprocessing: Preprocessing, *, every_class: bool = False) -> Scores:
        columns = ["present"] if preprocessing.thresholds is not None else []
        if preprocessing.set_threshold is not None:
            columns += ["set", "set_size"]
        if preprocessing.ood_threshold is not None:
            columns += ["ood_score", "in_distribution"]
        if preprocessing.training_images is not None:
            columns += [f"nearest_{rank}" for rank in range(1, NEIGHBORS + 1)]
        return Scores(preprocessing.class_names or (), every_class, columns)

    def next_commands(self, run: RunFolder) -> list[str]:
        predict = arguments.command("predict", run.path, run.samples)
        return [f"{predict}/*", *super().next_commands(run)]


def set_temperature(path: Path, held_out: data.Examples, verbose: int = 0) -> Predictions:
    """Divides the logits of a saved model by a temperature; returns its predictions.

    The temperature, fitted on the held-out images, becomes part of the classifier's weights, and
    so of every exported file. It changes no predicted class.
    """
    model = load_model(path)
    predictions = predict(model, held_out, verbose=verbose)
    temperature = choose_temperature(predictions.targets, predictions.outputs)
    if temperature == 1:
        return predictions
    for head in classifiers(model):
        head.set_weights([weight / temperature for weight in head.get_weights()])
    with files.atomic_path(path) as temporary:
        model.save(temporary)
    print(f"{path.name}: logits divided by the temperature {temperature:.3f}, to calibrate them.")
    outputs = with_temperature(predictions.outputs, temperature).astype(np.float32)
    return predictions._replace(outputs=outputs)


def class_weights(training: data.Examples) -> np.ndarray:
    """Returns the weight N / (K n_k) of each class k with n_k of the N images; 0 if n_k is 0.

    For multi-label images, returns (N - n_k) / n_k, so that images with and without a class have
    equal total weight; 1 if the class is in all images or in none.
    """
    counts = training.class_counts()
    if training.multi_label:
        num_without = len(training) - counts
        return np.where(counts * num_without, num_without / np.maximum(counts, 1), 1.0)
    num_present = np.count_nonzero(counts)
    return np.where(counts, len(training) / (num_present * np.maximum(counts, 1)), 0.0)


def _logit_offsets(training: data.Examples, adjustment: float) -> np.ndarray | None:
    """Returns the logarithm of each class's frequency times `adjustment`; None for 0."""
    if not adjustment:
        return None
    counts = training.class_counts()
    return adjustment * np.log(np.maximum(counts, 1) / counts.sum())


def _lines(class_names: tuple[str, ...]) -> str:
    return "\n".join(class_names) + "\n"
