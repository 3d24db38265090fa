"""Out-of-distribution scores of classifiers, and their threshold for a false alarm rate.

Outputs with scores have these in a last column after the probabilities. Letters: N images; R
classes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_vit.models.features import classifiers, representation
from keras_vit.models.out_of_distribution import scores_of, with_scores
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.conformal import upper_bound
from keras_vit.tasks.confidence import Confidence
from keras_vit.tasks.task import Predictions, network_outputs


def add_scores(
    network: keras.Model, found: Predictions, options: Confidence, verbose: int
) -> tuple[keras.Model, Predictions]:
    """Returns a network that also computes scores, and predictions with scores.

    The threshold, in the preprocessing of the predictions, is exceeded by the score of an image
    like the held-out ones with a probability of at most `options.false_alarm_rate`.
    """
    heads = classifiers(network)
    if not heads:
        raise ValueError(
            "`false_alarm_rate` must be None for a model that does not end in a Dense layer. "
            f"Received: model={network.name!r}"
        )
    encoder = representation(network)
    features, held_out_features = (
        network_outputs(encoder, found.preprocessing, images, verbose=verbose)
        for images in (options.training, options.held_out)
    )
    scored = with_scores(network, heads[0], features, np.asarray(options.training.targets))
    scores = scores_of(scored, held_out_features)
    rate = options.false_alarm_rate or 0.0
    threshold = upper_bound(scores, 1 - rate, largest=1.01 * scores.max())
    preprocessing = dataclasses.replace(
        found.preprocessing, ood_threshold=threshold, false_alarm_rate=rate
    )
    outputs = np.concatenate([found.outputs, scores[:, np.newaxis]], axis=1)
    return scored, Predictions(found.targets, outputs, preprocessing)


def split(outputs: Any, preprocessing: Preprocessing) -> tuple[Any, Any]:
    """Splits outputs into probabilities (..., R), and scores (...) or None without a threshold."""
    if preprocessing.ood_threshold is None:
        return outputs, None
    return outputs[..., :-1], outputs[..., -1]


def outputs(found: dict[str, Any], preprocessing: Preprocessing) -> dict[str, Any]:
    """Returns the outputs `ood_score` and `in_distribution` of a graph, or none without scores."""
    score = found.get("ood_score")
    if score is None:
        return {}
    inside = score <= np.float32(preprocessing.ood_threshold)
    return {"ood_score": score, "in_distribution": inside}
