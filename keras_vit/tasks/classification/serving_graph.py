"""SavedModel signatures of a classifier.

Letters: B images; H, W, C the model's height, width and channels; R classes; K top classes, at
most five, or all R in multi-label models; D hidden size; h, w rows and columns of patches; T
tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit import preprocessing_files
from keras_vit.models import FeatureExtractor, inference_runtime
from keras_vit.models.out_of_distribution import last_results_of, new_classes
from keras_vit.tasks import class_rows
from keras_vit.tasks.classification import out_of_distribution
from keras_vit.tasks.classification.conformal import set_outputs
from keras_vit.tasks.classification.prediction import BEST
from keras_vit.tasks.serving_graph import Answer, ServedModel, Signature

_INDEX = tf.lookup.TextFileIndex


class ServedClassifier(ServedModel):
    """Serving functions of a classifier (see `ServedModel`).

    `answer_bytes`, `answer_pixels` and `answer_images` return `probabilities`, float32 (B, R);
    `top_scores`, float32, `top_indices`, int32, and `top_labels`, string, (B, K), best first; and
    in multi-label models `present`, bool (B, R); with prediction sets `set`, bool (B, R), and
    `set_size`, int32 (B,); with out-of-distribution scores `ood_score`, float32 (B,), and
    `in_distribution`, bool (B,); and with the nearest training images their names
    `nearest_images`, string, their indices `nearest`, int32, and `nearest_similarity`, float32,
    (B, 3), most similar first.
    """

    def prepare(self, network: keras.Model) -> tuple[keras.Model, Callable[[tf.Tensor], Any]]:
        try:
            # All functions share one copy of the weights.
            self._extractor: Any = FeatureExtractor(network, self._precision)
        except ValueError:
            self._extractor = None  # not a Vision Transformer: without `embed` and `explain`
            network, run = super().prepare(network)[0], self._observe_outputs
        else:
            network, run = self._extractor.network, self._observe
        inference_runtime.fold(network)
        self._classes: Any = new_classes(network)
        return network, run

    def tables(self, texts: Path) -> list[Any]:
        def table(name: str, kind: tf.DType, column: int, default: Any) -> Any:
            file = str(texts / name)
            lines = tf.lookup.TextFileInitializer(file, tf.int64, _INDEX.LINE_NUMBER, kind, column)
            return tf.lookup.StaticHashTable(lines, default)

        self._labels = table(preprocessing_files.LABELS, tf.string, _INDEX.WHOLE_LINE, "")
        if not self.preprocessing.thresholds:
            return [self._labels]
        self._thresholds = table(preprocessing_files.THRESHOLDS, tf.float32, 0, 1.0)
        return [self._labels, self._thresholds]

    def signatures(self) -> dict[str, Signature]:
        signatures = super().signatures()
        signatures = {
            "serving_default": signatures.pop("serving_default"),
            "classify_bytes": (self.answer_bytes, self.strings),
            "classify_pixels": (self.answer_pixels, self.pixels),
            "classify_float": (self.answer_images, self.images),
            **signatures,
        }
        if self._extractor is not None:
            signatures["embed"] = (self.embed, self.strings)
            signatures["explain"] = (self.explain, self.strings)
        if self._classes is not None:
            classes = tf.TensorSpec((None,), tf.string, "classes")
            features = tf.TensorSpec((None, self._classes[0].shape[1] - 1), tf.float32, "features")
            signatures[class_rows.SIGNATURE] = (self.classify_with_classes, self.strings, classes)
            signatures["features"] = (self.features, self.strings)
            signatures["class_rows"] = (self.class_rows, features)
        return signatures

    def extra_files(self) -> dict[str, bytes]:
        if self._classes is None:
            return {}
        rows = class_rows.ClassRows(self.preprocessing.class_names or (), self._classes[0])
        return {class_rows.FILE: rows.to_bytes()}

    def classify_with_classes(self, image_bytes: tf.Tensor, classes: tf.Tensor) -> Answer:
        """Classifies encoded images (B,) by the rows in `classes`, (B,), contents of classes.pb."""
        rows, new = self._classes
        run, read = self.run_bytes(image_bytes)
        features = run["ood_results"]["features"]
        names, rows_of_images, present, valid = class_rows.in_graph(classes, rows)
        message = tf.where(valid, read.message, "classes.pb is of another version of the model")
        read = read._replace(ok=read.ok & valid, message=message)
        inputs = tf.pad(features, [[0, 0], [0, 1]], constant_values=1.0)[:, tf.newaxis]  # and bias
        # Each logit is one sum, whose bits do not depend on the number of classes.
        logits = tf.where(present, tf.reduce_sum(rows_of_images * inputs, axis=-1), -np.inf)
        scores = new.ood_score(features, rows_of_images[:, len(rows) :])
        scores = tf.where(present[:, len(rows) :], scores, np.inf)
        scores = tf.concat([run["ood_results"]["ood_score"][:, tf.newaxis], scores], axis=1)
        probabilities = tf.nn.softmax(logits)
        top = tf.math.top_k(probabilities, k=tf.minimum(BEST, tf.shape(names)[1]))
        labels = tf.gather(names, top.indices, batch_dims=1)
        ood = run["ood_results"] | {"ood_score": tf.reduce_min(scores, axis=1)}
        answer = self._answer(probabilities, top, labels, ood)
        return self.guarded({**answer, "logits": logits}, read)

    def features(self, image_bytes: tf.Tensor) -> Answer:
        """Computes the input of the classifier for encoded images in a string tensor (B,)."""
        run, read = self.run_bytes(image_bytes)
        return self.guarded({"features": run["ood_results"]["features"]}, read)

    def class_rows(self, features: tf.Tensor) -> Answer:
        """Computes rows of new classes from the mean features of their images, (B, D)."""
        return {"rows": tf.cast(self._classes[1].rows(features), tf.float32)}

    def embed(self, image_bytes: tf.Tensor) -> Answer:
        """Computes the features of encoded images in a string tensor of shape (B,)."""
        run, read = self.run_bytes(image_bytes)
        tokens = run["features"]
        features = {"mean": tf.reduce_mean(tokens[:, self._extractor.num_prefix_tokens :], axis=1)}
        if self._extractor.encoder.class_token:
            features["token"] = tokens[:, 0]
        return self.guarded(features, read)

    def explain(self, image_bytes: tf.Tensor) -> Answer:
        """Classifies encoded images in a string tensor (B,); adds their attention rollout maps."""
        run, read = self.run_bytes(image_bytes)
        return self.guarded({**self.outputs(run), "map": rollout_map(self._extractor, run)}, read)

    def _observe_outputs(self, images: tf.Tensor) -> dict[str, Any]:
        outputs = self.network(images, training=False)
        return {"outputs": outputs, "ood_results": last_results_of(self.network)}

    def _observe(self, images: tf.Tensor) -> dict[str, Any]:
        """Returns the activations of `FeatureExtractor.run` and the tokens after the final norm."""
        run, norm = self._extractor.run(images), self._extractor.norm
        tokens = run["tokens"][-1]
        normed = tokens if norm is None else norm(tokens)
        return {**run, "features": tf.cast(normed, tf.float32)}

    def run_outputs(self, images: tf.Tensor) -> Any:
        # TensorFlow removes unused operations from the function with constants, but from no other.
        if self._extractor is None or self.has_constants:
            return self.run(images)
        return self._extractor.run_outputs(images)

    def outputs(self, found: Any) -> Answer:
        multi_label = self.preprocessing.thresholds is not None
        if self._extractor is None:
            probabilities = tf.cast(found["outputs"], tf.float32)
        else:  # before the last activation
            probabilities = (tf.nn.sigmoid if multi_label else tf.nn.softmax)(found["outputs"])
        classes = probabilities.shape[1]
        number = classes if multi_label else min(BEST, classes)  # any number of labels may apply
        top = tf.math.top_k(probabilities, k=number)  # (B, K)
        labels = self._labels.lookup(tf.cast(top.indices, tf.int64))
        outputs = self._answer(probabilities, top, labels, found["ood_results"])
        if multi_label:
            thresholds = self._thresholds.lookup(tf.range(classes, dtype=tf.int64))
            outputs["present"] = probabilities >= thresholds
        return outputs

    def _answer(self, probabilities: tf.Tensor, top: Any, labels: tf.Tensor, ood: Any) -> Answer:
        outputs = {
            "probabilities": probabilities,
            "top_scores": top.values,
            "top_indices": top.indices,
            "top_labels": labels,
        }
        outputs |= set_outputs(probabilities, self.preprocessing)
        outputs |= out_of_distribution.outputs(ood, self.preprocessing)
        if "nearest" in outputs:
            names = tf.constant(self.preprocessing.training_images)
            outputs["nearest_images"] = tf.gather(names, outputs["nearest"])
        return outputs


def rollout_map(extractor: FeatureExtractor, run: dict[str, Any]) -> tf.Tensor:
    """Computes the patches' attention rollout as float32 (B, h, w) in a TensorFlow graph."""
    tokens = run["attention"][0].shape[-1]
    if run["pooling"]:
        relevance = tf.reduce_mean(tf.cast(run["pooling"][0], tf.float32), axis=1)  # (B, 1, T)
    else:
        relevance = tf.constant(extractor.reading(tokens))[tf.newaxis, tf.newaxis]  # (1, 1, T)
    # Only one row of the product is needed, so it is computed from the last block to the first.
    for weights in reversed(run["attention"]):
        mixed = tf.reduce_mean(tf.cast(weights, tf.float32), axis=1) + tf.eye(tokens)  # (B, T, T)
        relevance = relevance @ (mixed / tf.reduce_sum(mixed, axis=-1, keepdims=True))
    h, w = extractor.encoder.grid
    return tf.reshape(relevance[:, 0, tokens - h * w :], (-1, h, w))
