"""Multi-label image classification task, with any number of classes per image."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np
from sklearn.metrics import accuracy_score

from keras_vit import data, files, models
from keras_vit.evaluation.slices import slice_masks
from keras_vit.runs.config import RunConfig
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.classification.predict import predict
from keras_vit.tasks.classification.task import Classification
from keras_vit.tasks.multi_label import figures
from keras_vit.tasks.multi_label.metrics import choose_thresholds, evaluate_labels
from keras_vit.tasks.multi_label.page import MultiLabelDetails
from keras_vit.tasks.task import Details, Evaluation, Predictions, Task
from keras_vit.visualization.drawing import save_figure
from keras_vit.weights.whole_models import load_model


class MultiLabel(Classification):
    """Multi-label task: sigmoid outputs, a threshold per label, average precision as metric."""

    name = "multi_label"
    monitor = ("average_precision", "max")
    multi_label = True
    has_sets = False
    unused_fields = ("ridge_head", "sampling", "logit_adjustment")
    draw_examples = Task.draw_examples  # no pictures of mistakes

    @classmethod
    def settled(cls, config: RunConfig, examples: data.Examples) -> Task:
        if not examples.multi_label:
            raise ValueError(
                "`data` must have a column `labels`, for any number of classes per image, with the "
                f"task multi_label. Received: data={examples.source!r}"
            )
        # First the fields that the user has set: the loss is changed.
        return cls(fit_to_labels(cls(config).config, examples))

    def evaluate_run(
        self, run: RunFolder, validation: data.Examples, *, verbose: int = 0
    ) -> Evaluation:
        if run.best.exists():
            set_thresholds(run.best, validation)
        predictions = set_thresholds(run.last, validation)
        print(
            "The thresholds are chosen on the validation images, so all metrics on these images "
            "except average precision are optimistic."
        )
        return Evaluation(self.score(predictions), predictions)

    def score(self, predictions: Predictions) -> Any:
        targets, probabilities, preprocessing = predictions
        names = preprocessing.class_names or ()
        return evaluate_labels(targets, probabilities, names, preprocessing.thresholds or ())

    def agreement(
        self, found: np.ndarray, expected: Predictions, close: float
    ) -> tuple[np.ndarray, float]:
        # Probabilities close to their threshold count as agreement.
        thresholds = np.asarray(expected.preprocessing.thresholds, np.float32)
        present, scores = found >= thresholds, expected.outputs
        agrees = (present == (scores >= thresholds)) | (np.abs(scores - thresholds) <= close)
        return agrees.all(axis=1), float(accuracy_score(expected.targets, present.astype(int)))

    def details(
        self, model: keras.Model, examples: data.Examples, evaluation: Evaluation
    ) -> Details:
        labels, outputs, preprocessing = evaluation.found
        slices = {
            (column, value): self.score(Predictions(labels[mask], outputs[mask], preprocessing))
            for column, value, mask in slice_masks(examples.columns)
        }
        return MultiLabelDetails(evaluation.result, slices)

    def draw(self, result: Any, folder: Path) -> dict[str, Path]:
        return {"confusion": save_figure(figures.label_scores(result), folder / "label_scores.png")}


def fit_to_labels(config: RunConfig, examples: data.Examples) -> RunConfig:
    """Changes the loss in a configuration to sigmoid, for multi-label images.

    A softmax requires exclusive classes. The change is printed as a note instead of an error,
    because an explicit softmax cannot be distinguished from the default.
    """
    if config.recipe.distillation != "none":
        raise ValueError(
            "`distillation` must be 'none' for multi-label data. Received: "
            f"distillation={config.recipe.distillation!r} with {examples.source}"
        )
    if config.recipe.loss == "sigmoid":
        return config
    print(f"Note: the data is multi-label, so the loss is sigmoid, not {config.recipe.loss}.")
    return dataclasses.replace(config, recipe=config.recipe.replace(loss="sigmoid"))


def set_thresholds(path: Path, held_out: data.Examples) -> Predictions:
    """Sets a saved model's thresholds to the values that maximize F1; returns its predictions.

    Afterwards, metrics on the same images are optimistic, except for average precision, which
    needs no thresholds.
    """
    model = load_model(path)
    predictions = predict(model, held_out, verbose=0)
    thresholds = choose_thresholds(predictions.targets, predictions.outputs)
    preprocessing = dataclasses.replace(predictions.preprocessing, thresholds=thresholds)
    with files.atomic_path(path) as temporary:
        models.with_preprocessing(model, preprocessing).save(temporary)
    return predictions._replace(preprocessing=preprocessing)
