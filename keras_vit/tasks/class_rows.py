"""Rows of a classifier as a file, which is an input of an exported model.

Letters: B images; R classes; D features.
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

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
        try:
            features = tf.train.Example.FromString(content).features.feature
            names = tuple(name.decode() for name in features["names"].bytes_list.value)
            rows = np.array(features["rows"].float_list.value, np.float32)
            return cls(names, rows.reshape(len(names), -1))
        except (DecodeError, UnicodeDecodeError, ValueError) as error:
            raise ValueError(
                f"`classes` must be a complete file {FILE} of `keras-vit export --prototypes`. "
                f"Received: {os.fspath(path)}"
            ) from error

    def to_bytes(self) -> bytes:
        """Returns the content of the file."""
        names = tf.train.BytesList(value=[name.encode() for name in self.names])
        rows = tf.train.FloatList(value=self.rows.ravel().tolist())
        features = {
            "names": tf.train.Feature(bytes_list=names),
            "rows": tf.train.Feature(float_list=rows),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        return example.SerializeToString(deterministic=True)


def in_graph(classes: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Parses contents of the file, one for each image, with rows of the length `size`.

    Returns:
        Names (B, R) and rows (B, R, size), padded to the largest number of classes R, and which of
        them are classes, bool (B, R).
    """
    features = {"names": tf.io.RaggedFeature(tf.string), "rows": tf.io.RaggedFeature(tf.float32)}
    parsed = tf.io.parse_example(classes, features)
    names = parsed["names"].to_tensor()
    rows = tf.reshape(parsed["rows"].to_tensor(), [tf.shape(names)[0], -1, size])
    return names, rows, tf.sequence_mask(parsed["names"].row_lengths(), tf.shape(names)[1])
