"""What a served model answers, as functions of TensorFlow.

Letters: B images; H, W, C the model's height, width and channels; R classes; K those that are
named, five or fewer, or all R where each is a yes or no by itself; D hidden size; h, w rows and
columns of patches; T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit import accelerators, arguments, preprocessing_files
from keras_vit.data.decode_and_resize import scale
from keras_vit.data.image_reading import Limits, Read, read_each
from keras_vit.models import FeatureExtractor, classifier, cloning
from keras_vit.models.inference_model import with_placeholders
from keras_vit.models.inference_runtime import SMALL
from keras_vit.tf_serving.prediction import BEST

PRECISIONS = ("float32", "bfloat16", "auto")
_MULTIPLY_BFLOAT16 = {"amx_bf16", "avx512_bf16"}  # processors with one of these
# Bytes of weights up to which they are constants: in bfloat16 as many as a graph, a message of less
# than 2 GiB, can hold; in float32, where a server's memory grows for a few percent, few.
_LARGEST_CONSTANTS = {"float32": SMALL, "bfloat16": 2**31 - 2**26}
_LINE_NUMBER = tf.lookup.TextFileIndex.LINE_NUMBER

Answer = dict[str, tf.Tensor]


class Served:
    """A classifier as the functions that a server offers.

    Args:
        model: A classifier of keras_vit, or a Keras model that contains a keras_vit backbone.
        texts: Folder with the files of `preprocessing_files.texts`, which a SavedModel takes along.
        limits: How large an image may be.
        precision: `"float32"`, or `"bfloat16"` for the products of matrices.

    Raises:
        ValueError: If the model is no image classifier.

    Example:
        >>> import tempfile
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12), classes=3))
        >>> preprocessing, texts = classifier.with_probabilities(model)[1], Path(tempfile.mkdtemp())
        >>> preprocessing_files.write(preprocessing, texts)
        >>> served = Served(model, texts, Limits())
        >>> png = tf.io.encode_png(tf.zeros((5, 7, 3), "uint8"))
        >>> served.explain(png[tf.newaxis])["map"].shape
        TensorShape([1, 2, 3])
    """

    def __init__(
        self, model: keras.Model, texts: Path, limits: Limits, precision: str = "float32"
    ) -> None:
        self._network, self.preprocessing = classifier.with_probabilities(model)
        self._precision = precision
        shape = (None, *self.preprocessing.size, self.preprocessing.num_channels)
        self._strings = tf.TensorSpec((None,), tf.string, "image_bytes")
        self._pixels = tf.TensorSpec(shape, tf.uint8, "pixels")
        self._floats = tf.TensorSpec(shape, tf.float32, "images")
        try:
            # One copy of the weights for every function.
            self._anatomy: FeatureExtractor | None = FeatureExtractor(self._network, precision)
        except ValueError:
            self._anatomy = None  # no Vision Transformer: nothing to look into
            self._network = (
                cloning.to_bfloat16(self._network)
                if precision == "bfloat16"
                else cloning.with_dtype(self._network, "float32")
            )
        network = self._network if self._anatomy is None else self._anatomy.network
        classifier.fold(network)
        self._run = self._observe if self._anatomy else partial(network, training=False)
        # Traced once, called by the functions of other inputs.
        self._classify_once = tf.function(
            self._classify, input_signature=[self._floats], autograph=False
        )
        self._read = tf.function(
            lambda encoded: read_each(encoded, self.preprocessing, limits),
            input_signature=[self._strings],
            autograph=False,
        )
        labels = tf.lookup.TextFileInitializer(
            str(texts / preprocessing_files.LABELS),
            *(tf.int64, _LINE_NUMBER),
            *(tf.string, tf.lookup.TextFileIndex.WHOLE_LINE),
        )
        self._labels = tf.lookup.StaticHashTable(labels, "")
        #: What a SavedModel takes along besides the weights.
        self.resources = [self._labels]
        if self.preprocessing.thresholds:
            thresholds = tf.lookup.TextFileInitializer(
                str(texts / preprocessing_files.THRESHOLDS), tf.int64, _LINE_NUMBER, tf.float32, 0
            )
            self._thresholds = tf.lookup.StaticHashTable(thresholds, 1.0)
            self.resources.append(self._thresholds)

    def without_variables(self) -> dict[str, np.ndarray]:
        """Makes the weights constants, of zeros, unless they are large.

        Returns:
            Their values, by the names of the constants, to be written into the file. oneDNN brings
            constants into the order of its kernels once (docs/decisions/0019-performance.md).
        """
        network = self._network if self._anatomy is None else self._anatomy.network
        size = sum(keras.ops.convert_to_numpy(v).nbytes for v in network.variables)
        if size > _LARGEST_CONSTANTS[self._precision]:
            return {}
        run, values = with_placeholders(network, self._run)
        # One function, so that the file has the weights once.
        self._run = tf.function(run, input_signature=[self._floats], autograph=False)
        return values

    def signatures(self) -> dict[str, tuple[Callable[[tf.Tensor], Answer], tf.TensorSpec]]:
        """Returns the functions by the names that requests call them by, with their inputs."""
        found: dict[str, tuple[Callable[[tf.Tensor], Answer], tf.TensorSpec]] = {
            "serving_default": (self.classify_bytes, self._strings),
            "classify_bytes": (self.classify_bytes, self._strings),
            "classify_pixels": (self.classify_pixels, self._pixels),
            "classify_float": (self.classify_float, self._floats),
            "preprocess": (self.preprocess, self._strings),
        }
        if self._anatomy is not None:
            found["embed"] = (self.embed, self._strings)
            found["explain"] = (self.explain, self._strings)
        return found

    def classify_bytes(self, image_bytes: tf.Tensor) -> Answer:
        """Classifies image files, string (B,).

        Returns:
            `probabilities`, float32 (B, R); `top_scores`, float32, `top_indices`, int32, and
            `top_labels`, string, (B, K), best first; where each label is a yes or no by itself
            `present`, bool (B, R); `ok`, bool, and `message`, string, (B,). An image that is not
            `ok` has zeros and empty texts.
        """
        read = self._read(image_bytes)
        return self._guarded(self.classify_pixels(read.pixels), read)

    def classify_pixels(self, pixels_: tf.Tensor) -> Answer:
        """The same, without `ok` and `message`, for pixels, uint8 (B, H, W, C)."""
        return self.classify_float(scale(pixels_, self.preprocessing))

    def classify_float(self, images: tf.Tensor) -> Answer:
        """The same again for images scaled as the preprocessing says, float32 (B, H, W, C)."""
        return self._classify_once(images)

    def preprocess(self, image_bytes: tf.Tensor) -> Answer:
        """Returns `pixels`, uint8 (B, H, W, C), with `ok` and `message`, of image files."""
        read = self._read(image_bytes)
        return {"pixels": read.pixels, "ok": read.ok, "message": read.message}

    def embed(self, image_bytes: tf.Tensor) -> Answer:
        """Returns what the model knows of image files before it decides.

        Returns:
            `mean`, float32 (B, D), of the patches' tokens after the last layer norm, and `token`,
            float32 (B, D), the class token, where there is one; `ok` and `message`.
        """
        extractor = self._opened()
        read = self._read(image_bytes)
        tokens = self._run(scale(read.pixels, self.preprocessing))["features"]
        found = {"mean": tf.reduce_mean(tokens[:, extractor.num_prefix_tokens :], axis=1)}
        if extractor.encoder.class_token:
            found["token"] = tokens[:, 0]
        return self._guarded(found, read)

    def explain(self, image_bytes: tf.Tensor) -> Answer:
        """Classifies image files and says where the model looked.

        Returns:
            What `classify_bytes` does, and `map`, float32 (B, h, w): attention rollout from what
            is read for the answer to each patch.
        """
        read = self._read(image_bytes)
        extractor = self._opened()
        run = self._run(scale(read.pixels, self.preprocessing))
        found = self._named(self._decided(run["outputs"]))
        return self._guarded({**found, "map": rollout_map(extractor, run)}, read)

    def _observe(self, images: tf.Tensor) -> dict[str, Any]:
        """Returns what `FeatureExtractor.run` does, and the tokens after the last norm."""
        extractor = self._opened()
        run = extractor.run(images)
        tokens = run["tokens"][-1]
        normed = tokens if extractor.norm is None else extractor.norm(tokens)
        return {**run, "features": tf.cast(normed, tf.float32)}

    def _opened(self) -> FeatureExtractor:
        if self._anatomy is None:
            raise ValueError(
                "`model` must be a Vision Transformer of keras_vit to look into. "
                f"Received: model={self._network.name!r}"
            )
        return self._anatomy

    def _classify(self, images: tf.Tensor) -> Answer:
        found = self._run(images)
        if self._anatomy is None:
            return self._named(tf.cast(found, tf.float32))
        return self._named(self._decided(found["outputs"]))

    def _decided(self, scores: tf.Tensor) -> tf.Tensor:
        """Returns probabilities of what an opened model returns before its last activation."""
        decide = tf.nn.sigmoid if self.preprocessing.thresholds else tf.nn.softmax
        return decide(scores)

    def _named(self, probabilities: tf.Tensor) -> Answer:
        classes = probabilities.shape[1]
        most = (
            classes if self.preprocessing.thresholds else BEST
        )  # any number of labels may be a yes
        top = tf.math.top_k(probabilities, k=min(most, classes))  # (B, K)
        found = {
            "probabilities": probabilities,
            "top_scores": top.values,
            "top_indices": top.indices,
            "top_labels": self._labels.lookup(tf.cast(top.indices, tf.int64)),
        }
        if self.preprocessing.thresholds:
            thresholds = self._thresholds.lookup(tf.range(classes, dtype=tf.int64))
            found["present"] = probabilities >= thresholds
        return found

    def _guarded(self, answer: Answer, read: Read) -> Answer:
        """Adds what is wrong, and empties what was answered for an image that could not be read."""

        def kept(value: tf.Tensor) -> tf.Tensor:
            ok = tf.reshape(read.ok, [-1] + [1] * (value.shape.rank - 1))
            return tf.where(ok, value, tf.zeros((), value.dtype))

        emptied = {name: kept(value) for name, value in answer.items()}
        return {**emptied, "ok": read.ok, "message": read.message}


def chosen_precision(precision: str, processor: str | None = None) -> str:
    """Returns the precision of the products of a model that is served.

    Args:
        precision: `"float32"`, `"bfloat16"`, or `"auto"`: bfloat16 where the processor multiplies
            it.
        processor: Instruction set of the machine that will serve, such as `"amx_bf16"`; None for
            those of this machine.

    Returns:
        `"float32"` or `"bfloat16"`.

    Raises:
        ValueError: If the precision is unknown.

    Example:
        >>> chosen_precision("auto", "avx512_bf16"), chosen_precision("auto", "avx2")
        ('bfloat16', 'float32')
    """
    arguments.one_of("precision", precision, PRECISIONS)
    if precision != "auto":
        return precision
    features = {processor} if processor else accelerators.cpu_features()
    return "bfloat16" if features & _MULTIPLY_BFLOAT16 else "float32"


def rollout_map(extractor: FeatureExtractor, run: dict[str, Any]) -> tf.Tensor:
    """Returns attention rollout on the patches, as `visualization.relevance_maps` does, in a graph.

    Args:
        extractor: The opened model.
        run: What its `run` returned.

    Returns:
        Maps (B, h, w), float32.

    Example:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 12), classes=3))
        >>> extractor = FeatureExtractor(model)
        >>> rollout_map(extractor, extractor.run(tf.zeros((1, 8, 12, 3)))).shape
        TensorShape([1, 2, 3])
    """
    tokens = run["attention"][0].shape[-1]
    if run["pooling"]:
        row = tf.reduce_mean(tf.cast(run["pooling"][0], tf.float32), axis=1)  # (B, 1, T)
    else:
        row = tf.constant(extractor.reading(tokens))[tf.newaxis, tf.newaxis]  # (1, 1, T)
    # Only the row that is read is needed, so the product goes from the last block down.
    for weights in reversed(run["attention"]):
        mixed = tf.reduce_mean(tf.cast(weights, tf.float32), axis=1) + tf.eye(tokens)  # (B, T, T)
        row = row @ (mixed / tf.reduce_sum(mixed, axis=-1, keepdims=True))
    h, w = extractor.encoder.grid
    return tf.reshape(row[:, 0, tokens - h * w :], (-1, h, w))
