"""SavedModel signatures of a trained model.

Letters: B images; H, W, C the model's height, width and channels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit.data.decode_and_resize import scale
from keras_vit.data.image_reading import Limits, Read, read_each, upright_sides
from keras_vit.models import cloning
from keras_vit.models.inference_graphs import with_placeholders
from keras_vit.models.inference_runtime import MAX_CONSTANT_BYTES
from keras_vit.preprocessing import Preprocessing

# Largest weights, in bytes, that are stored as constants. In bfloat16 the limit is that of a graph,
# a message of less than 2 GiB. In float32 constants save a few percent of time and cost memory.
_LARGEST_CONSTANTS = {"float32": MAX_CONSTANT_BYTES, "bfloat16": 2**31 - 2**26}

Answer = dict[str, tf.Tensor]
Signature = tuple[Callable[..., Answer], *tuple[tf.TensorSpec, ...]]


class ServedModel:
    """Serving functions of a trained model, to be exported as SavedModel signatures."""

    def __init__(
        self,
        network: keras.Model,
        preprocessing: Preprocessing,
        output: str,
        texts: Path,
        limits: Limits,
        precision: str = "float32",
    ) -> None:
        self.preprocessing = preprocessing
        self._output, self._precision = output, precision
        shape = (None, *preprocessing.size, preprocessing.num_channels)
        self.strings = tf.TensorSpec((None,), tf.string, "image_bytes")
        self.pixels = tf.TensorSpec(shape, tf.uint8, "pixels")
        self.images = tf.TensorSpec(shape, tf.float32, "images")
        self.network, self.run = self.prepare(network)
        self.has_constants = False  # in place of variables
        # Traced once and called by the functions of all inputs.
        self._answer_once = _traced(
            lambda images: self.outputs(self.run_outputs(images)), self.images
        )
        self._read = _traced(
            lambda encoded: read_each(encoded, preprocessing, limits), self.strings
        )
        #: Lookup tables in a SavedModel.
        self.resources = self.tables(texts)

    def prepare(self, network: keras.Model) -> tuple[keras.Model, Callable[[tf.Tensor], Any]]:
        """Returns a copy of the network in the serving precision, and a function that runs it."""
        half = self._precision == "bfloat16"
        copy = cloning.to_bfloat16(network) if half else cloning.with_dtype(network, "float32")
        return copy, partial(copy, training=False)

    def run_outputs(self, images: tf.Tensor) -> Any:
        """Runs the network to compute only `outputs`."""
        return self.run(images)

    def outputs(self, found: Any) -> Answer:
        """Converts the result of running the network to a dictionary of named outputs."""
        return {self._output: tf.cast(found, tf.float32)}

    def tables(self, texts: Path) -> list[Any]:
        """Returns lookup tables that are filled from files in `texts` when the model is loaded."""
        return []

    def without_variables(self) -> dict[str, np.ndarray]:
        """Replaces the weights with zeros and returns them; does nothing if they are too large."""
        size = sum(keras.ops.convert_to_numpy(v).nbytes for v in self.network.variables)
        if size > _LARGEST_CONSTANTS[self._precision]:
            return {}
        run, values = with_placeholders(self.network, self.run)
        # One function, so that the file contains the weights only once.
        self.run = _traced(run, self.images)
        self.has_constants = True
        return values

    def signatures(self) -> dict[str, Signature]:
        """Returns the function and the input specifications of each signature by name."""
        return {
            "serving_default": (self.answer_bytes, self.strings),
            "preprocess": (self.preprocess, self.strings),
        }

    def extra_files(self) -> dict[str, bytes]:
        """Returns files for the folder `assets.extra` of the SavedModel, by name."""
        return {}

    def answer_bytes(self, image_bytes: tf.Tensor) -> Answer:
        """Returns the outputs for encoded images in a string tensor of shape (B,)."""
        read = self._read(image_bytes)
        return self.guarded(self.answer_pixels(read.pixels), read)

    def answer_pixels(self, pixels: tf.Tensor) -> Answer:
        """Returns the outputs for unscaled pixels in a uint8 tensor of shape (B, H, W, C)."""
        return self.answer_images(scale(pixels, self.preprocessing))

    def answer_images(self, images: tf.Tensor) -> Answer:
        """Returns the outputs for scaled images in a float32 tensor of shape (B, H, W, C)."""
        return self._answer_once(images)

    def preprocess(self, image_bytes: tf.Tensor) -> Answer:
        """Decodes images into uint8 `pixels` of shape (B, H, W, C), with `ok` and `message`."""
        read = self._read(image_bytes)
        return {"pixels": read.pixels, "ok": read.ok, "message": read.message}

    def run_bytes(self, image_bytes: tf.Tensor) -> tuple[Any, Read]:
        """Decodes images and runs the network; returns its result and the decoded images."""
        read = self._read(image_bytes)
        return self.run(scale(read.pixels, self.preprocessing)), read

    def upright_sides(self, image_bytes: tf.Tensor, read: Read) -> tf.Tensor:
        """Returns the height and width (B, 2), int32, of each image; 1 for unreadable images."""

        def sides_of(encoded_and_ok: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            encoded, ok = encoded_and_ok
            return tf.cond(
                ok, lambda: upright_sides(encoded, self.preprocessing), lambda: tf.constant([1, 1])
            )

        spec = tf.TensorSpec((2,), tf.int32)
        return tf.map_fn(sides_of, (image_bytes, read.ok), fn_output_signature=spec)

    def guarded(self, answer: Answer, read: Read) -> Answer:
        """Adds `ok` and `message` to outputs, and sets the outputs of unreadable images to zero."""

        def zero_unless_ok(value: tf.Tensor) -> tf.Tensor:
            ok = tf.reshape(read.ok, [-1] + [1] * (value.shape.rank - 1))
            return tf.where(ok, value, tf.zeros((), value.dtype))

        masked = {name: zero_unless_ok(value) for name, value in answer.items()}
        return {**masked, "ok": read.ok, "message": read.message}


def _traced(compute: Callable[[tf.Tensor], Any], spec: tf.TensorSpec) -> Any:
    return tf.function(compute, input_signature=[spec], autograph=False)
