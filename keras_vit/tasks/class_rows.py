"""Rows of a classifier as a file, which is an input of an exported model.

Letters: B images; R classes; D features.
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import tensorflow as tf

from keras_vit.arguments import naming_place

FILE = "classes.pb"  # in the folder assets.extra of a SavedModel
SIGNATURE = "classify_with_classes"  # of the SavedModel


@dataclasses.dataclass(frozen=True, eq=False)
class ClassRows:
    """Classes of a classifier, and its kernel and bias as one row for each class.

    The file is a serialized `tf.train.Example`.

    Args:
        names: Names of the classes.
        rows: Kernel and bias, (R, D + 1), float32.
    """

    names: tuple[str, ...]
    rows: np.ndarray

    @classmethod
    def parse(cls, content: bytes, path: str | os.PathLike[str] = FILE) -> ClassRows:
        """Returns the classes in a file's content; raises `ValueError` for any other content."""
        with naming_place(
            f"`classes` must be a complete file {FILE} of `keras-vit export --prototypes`. "
            f"Received: {os.fspath(path)}"
        ):
            features = tf.train.Example.FromString(content).features.feature
            names = tuple(name.decode() for name in features["names"].bytes_list.value)
            rows = np.array(features["rows"].float_list.value, np.float32)
            return cls(names, rows.reshape(len(names), -1))

    def to_bytes(self) -> bytes:
        """Returns the content of the file."""
        example = tf.train.Example()
        features = example.features.feature
        features["names"].bytes_list.value.extend(name.encode() for name in self.names)
        features["rows"].float_list.value.extend(self.rows.ravel().tolist())
        return example.SerializeToString(deterministic=True)


def in_graph(classes: tf.Tensor, trained: np.ndarray) -> tuple[tf.Tensor, ...]:
    """Parses contents of the file of a model with the rows `trained`, one for each image.

    Returns:
        Names (B, R) and rows (B, R, D + 1), padded to the largest number of classes R; which of
        them are classes, bool (B, R); and which contents are of this model, bool (B,), with rows
        of its length that begin with `trained`. The rows of other contents have no meaning.
    """
    features = {"names": tf.io.RaggedFeature(tf.string), "rows": tf.io.RaggedFeature(tf.float32)}
    parsed = tf.io.parse_example(classes, features)
    names, numbers = parsed["names"].to_tensor(), parsed["rows"]
    num_classes, size = parsed["names"].row_lengths(), trained.shape[1]
    start = numbers.to_tensor(np.nan, shape=(None, trained.size))
    valid = tf.reduce_all(tf.equal(start, trained.ravel()), axis=1)
    valid &= tf.equal(numbers.row_lengths(), num_classes * size)
    # Truncated, so that contents of other lengths cannot fail the batch.
    rows = numbers.to_tensor(shape=[-1, tf.shape(names)[1] * size])
    rows = tf.reshape(rows, [tf.shape(names)[0], -1, size])
    return names, rows, tf.sequence_mask(num_classes, tf.shape(names)[1]), valid
