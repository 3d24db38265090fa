"""Out-of-distribution scores of classifiers, and the nearest training images.

Outputs have these in columns after the probabilities. Letters: N images; R classes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_vit.data import Examples
from keras_vit.models.features import classifiers, representation
from keras_vit.models.out_of_distribution import score_features, with_scores
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.conformal import upper_bound
from keras_vit.tasks.confidence import Confidence
from keras_vit.tasks.task import Predictions, network_outputs


def add_scores(
    network: keras.Model, predictions: Predictions, options: Confidence, verbose: int
) -> tuple[keras.Model, Predictions]:
    """Returns a network that also compares images with the training images, and predictions.

    The threshold, in the preprocessing of the predictions, is exceeded by the score of an image
    like the held-out ones with a probability of at most `options.false_alarm_rate`.
    """
    preprocessing = predictions.preprocessing
    training = options.training()  # type: ignore[misc]  # see `Confidence.check`
    further = {"neighbors": options.nearest_images, "new_classes": options.prototypes}
    scored = scored_network(network, preprocessing, training, verbose, **further)
    encoder = representation(network)
    features = network_outputs(encoder, preprocessing, options.held_out, verbose=verbose)
    results = score_features(scored, features)
    columns = [predictions.outputs]
    if (rate := options.false_alarm_rate) is not None:
        scores = results["ood_score"]
        threshold = upper_bound(scores, 1 - rate, largest=1.01 * scores.max())
        preprocessing = dataclasses.replace(
            preprocessing, ood_threshold=threshold, false_alarm_rate=rate
        )
        columns.append(scores[:, np.newaxis])
    if options.nearest_images:
        names = tuple(name.encode(errors="backslashreplace").decode() for name in training.names)
        preprocessing = dataclasses.replace(preprocessing, training_images=names)
        columns.append(results["nearest_similarity"])
    return scored, Predictions(predictions.targets, np.concatenate(columns, axis=1), preprocessing)


def scored_network(
    network: keras.Model,
    preprocessing: Preprocessing,
    training: Examples,
    verbose: int = 0,
    **further: bool,
) -> keras.Model:
    """Returns `with_scores` of a network with one classifier and its training images."""
    heads = classifiers(network)
    if len(heads) != 1:
        raise ValueError(
            "`model` must have one Dense layer as classifier to be compared with its training "
            f"images. Received: model={network.name!r} with {len(heads)}"
        )
    features = network_outputs(representation(network), preprocessing, training, verbose=verbose)
    return with_scores(network, heads[0], features, np.asarray(training.targets), **further)


def split(outputs: np.ndarray, preprocessing: Preprocessing) -> tuple[np.ndarray, Any, Any]:
    """Splits outputs into probabilities (..., R), scores (...) and the columns of neighbors.

    Scores are None without a threshold. The last columns are similarities, then indices.
    """
    compares = preprocessing.ood_threshold is not None or preprocessing.training_images is not None
    classes = len(preprocessing.class_names or ()) if compares else outputs.shape[-1]
    probabilities, further = outputs[..., :classes], outputs[..., classes:]
    if preprocessing.ood_threshold is None:
        return probabilities, None, further
    return probabilities, further[..., 0], further[..., 1:]


def outputs(results: dict[str, Any], preprocessing: Preprocessing) -> dict[str, Any]:
    """Returns the outputs of a graph from `ScoredDense.last_results`, and `in_distribution`."""
    named_outputs = {name: value for name, value in results.items() if name != "features"}
    score = named_outputs.pop("ood_score", None)
    if preprocessing.ood_threshold is not None:
        in_distribution = score <= np.float32(preprocessing.ood_threshold)
        named_outputs |= {"ood_score": score, "in_distribution": in_distribution}
    return named_outputs
