"""TFLite export with embedded class labels, in float32 or quantized."""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_vit import arguments, files, layers, preprocessing_files
from keras_vit.data.image_reading import decode_checked
from keras_vit.export import tflite_metadata
from keras_vit.export.saved_model import require_tensorflow
from keras_vit.layers.layer_norm import is_plain
from keras_vit.models import cloning
from keras_vit.tasks.registry import TrainedModel, trained_model

# Signatures for the converter; the second and third are for calibrated quantizations.
_BYTES, _MEASURED, _FLOATS = "pixels", "measured_pixels", "float_pixels"


@dataclasses.dataclass(frozen=True)
class Quantization:
    """Settings of one kind of TFLite quantization.

    Args:
        optimize: Whether weights are stored in fewer bits.
        calibrated: Whether ranges of activations are calibrated on images.
        weights: Dtypes of the stored weights; none for the converter's choice.
        operators: Operator sets for the converter.
        integer_only: Whether inputs, outputs and all activations are integers.

    Examples:
        >>> QUANTIZATIONS["int8"].integer_only
        True
    """

    optimize: bool = True
    calibrated: bool = False
    weights: tuple[tf.DType, ...] = ()
    operators: tuple[tf.lite.OpsSet, ...] = (tf.lite.OpsSet.TFLITE_BUILTINS,)
    integer_only: bool = False


#: From the largest file to the smallest.
QUANTIZATIONS = {
    "float32": Quantization(optimize=False),
    # Weights in 16 bits; computes in float32, or in float16 if the device supports it.
    "float16": Quantization(weights=(tf.float16,)),
    # Weights in 8 bits, activations in 16, calibrated on images. Slow on a CPU.
    "int16x8": Quantization(
        calibrated=True,
        operators=(
            tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8,
            tf.lite.OpsSet.TFLITE_BUILTINS,  # for the cast of the pixels
        ),
    ),
    # Everything in 8 bits, calibrated on images: for accelerators without floating point.
    "int8": Quantization(
        calibrated=True,
        operators=(tf.lite.OpsSet.TFLITE_BUILTINS_INT8,),
        integer_only=True,
    ),
    # Weights in 8 bits, activations quantized dynamically.
    "dynamic_range": Quantization(),
}

CALIBRATED = {name for name, quantization in QUANTIZATIONS.items() if quantization.calibrated}
#: Written by default: for GPUs and for CPUs.
DEFAULT_QUANTIZATIONS = ("float16", "dynamic_range")


def quantizations_of(model: keras.Model) -> tuple[str, ...]:
    """Returns the names of the quantizations that a model supports.

    Args:
        model: As for `write`.

    Returns:
        Keys of `QUANTIZATIONS`; for models with token reduction (`reduce_tokens`), those without
        calibration: few bits are too imprecise for the similarity of tokens.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=3))
        >>> quantizations_of(models.reduce_tokens(model, 1))
        ('float32', 'float16', 'dynamic_range')
    """
    has_reduced = any(isinstance(layer, layers.ReducingBlock) for layer in cloning.layers_of(model))
    return tuple(name for name in QUANTIZATIONS if not (has_reduced and name in CALIBRATED))


def write(
    model: keras.Model,
    path: str | os.PathLike[str],
    quantization: str = "float32",
    *,
    images: Sequence[bytes] = (),
    batch_size: int = 1,
) -> Path:
    """Exports a classifier as a TFLite file that uses only built-in operators.

    Input: uint8 pixels (B, h, w, C) at the model's size, in [0, 255], which the model scales.
    TFLite has no operator for antialiased resizing, so the caller must resize the image and apply
    its Exif orientation. Output: probabilities (B, classes), float32; for `int8` uint8, with the
    scale stored in the file. Thresholds of multi-label models are in `thresholds.txt`.

    The file of a classifier contains the metadata for MediaPipe and Android's tools.
    `preprocessing.json` and `labels.txt` are appended as a ZIP archive, as these tools expect:
    interpreters read the model from the front, `unzip` reads the files from the back.

    Args:
        model: A classifier of keras_vit, or a Keras model that contains a keras_vit backbone.
            Exported from float32; a missing softmax or sigmoid is added.
        path: The `.tflite` file to write.
        quantization: A key of `QUANTIZATIONS`.
        images: Encoded training images for calibration; about a hundred.
        batch_size: Batch size B.

    Returns:
        The path.

    Raises:
        ValueError: If the quantization is not in `quantizations_of(model)`, the model is not an
            image classifier, images are missing, or Keras does not run on TensorFlow.

    Examples:
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=3)
        >>> path = write(models.build(config), Path(tempfile.mkdtemp()) / "model.tflite")
        >>> zipfile.ZipFile(path).namelist()
        ['preprocessing.json', 'labels.txt']
    """
    require_tensorflow()
    check_quantization(quantization, model, images)
    arguments.positive_int("batch_size", batch_size)
    with tempfile.TemporaryDirectory() as folder:
        converter = TFLiteConverter(trained_model(model), Path(folder), images, batch_size)
        return converter.write(quantization, path)


class TFLiteConverter:
    """Traces a classifier once, then converts it with any number of TFLite quantizations.

    Args:
        exported: The trained model.
        folder: Folder for the traced model; can be deleted after the last `write`.
        images: As for `write`.
        batch_size: As for `write`.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=3))
        >>> folder = Path(tempfile.mkdtemp())
        >>> converter = TFLiteConverter(trained_model(model), folder / "traced")
        >>> sizes = [converter.write(r, folder / r).stat().st_size for r in ("float32", "float16")]
        >>> sizes[0] > sizes[1]
        True
    """

    def __init__(
        self,
        exported: TrainedModel,
        folder: Path,
        images: Sequence[bytes] = (),
        batch_size: int = 1,
    ) -> None:
        self._exported, self._preprocessing = exported, exported.preprocessing
        self._folder, self._images = str(folder), images
        self._shape = (batch_size, *self._preprocessing.size, self._preprocessing.num_channels)

    @functools.cached_property
    def _traced(self) -> str:
        """Traces the model, and returns the folder with its signatures."""

        def function(measured: bool) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
            network = quantizable(self._exported.network, measured)
            return dataclasses.replace(self._exported, network=network).outputs

        signatures = [(_BYTES, function(measured=False), tf.uint8)]
        if self._images:
            measured = function(measured=True)
            signatures += [(_MEASURED, measured, tf.uint8), (_FLOATS, measured, tf.float32)]
        archive = keras.export.ExportArchive()
        for name, classify, dtype in signatures:
            archive.add_endpoint(name, classify, [tf.TensorSpec(self._shape, dtype, "pixels")])
        # Converting from the function itself instead of a SavedModel loses the weights.
        archive.write_out(self._folder, verbose=False)
        return self._folder

    def write(self, quantization: str, path: str | os.PathLike[str]) -> Path:
        """Writes a TFLite file with one of the quantizations.

        Args:
            quantization: A key of `QUANTIZATIONS`, checked with `check_quantization`.
            path: The `.tflite` file.

        Returns:
            The path.
        """
        content = self._convert(QUANTIZATIONS[quantization])
        with files.atomic_path(path) as temporary:
            temporary.write_bytes(content)
            with zipfile.ZipFile(temporary, "a") as archive:
                for name, text in preprocessing_files.texts(self._preprocessing).items():
                    archive.writestr(name, text)
        return Path(path)

    def _convert(self, quantization: Quantization) -> bytes:
        signature = _MEASURED if quantization.calibrated else _BYTES
        if quantization.integer_only:  # the converter itself quantizes the inputs to bytes
            signature = _FLOATS
        converter = tf.lite.TFLiteConverter.from_saved_model(
            self._traced, signature_keys=[signature]
        )
        converter.target_spec.supported_ops = list(quantization.operators)
        if quantization.optimize:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = list(quantization.weights)
        if quantization.integer_only:
            converter.inference_input_type = converter.inference_output_type = tf.uint8
        if quantization.calibrated:
            # The new quantizer cannot write int16x8, but would compute the ranges a second time.
            converter.experimental_new_quantizer = quantization.integer_only
            converter.representative_dataset = lambda: self._samples(signature)
        with warnings.catch_warnings():
            # The converter calibrates with an interpreter that TensorFlow reports as deprecated.
            warnings.filterwarnings("ignore", r"\s*Warning: tf\.lite\.Interpreter is deprecated")
            content = converter.convert()
        if self._exported.task.output != "probabilities" or not self._preprocessing.class_names:
            return content
        return tflite_metadata.add(content, self._preprocessing, self._exported.network.name)

    @functools.cached_property
    def _pixels(self) -> list[np.ndarray]:
        images = map(tf.constant, self._images)
        return [decode_checked(image, self._preprocessing).numpy() for image in images]

    def _samples(self, signature: str) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        dtype = np.float32 if signature == _FLOATS else np.uint8
        for number, pixels in enumerate(self._pixels):
            batch = np.broadcast_to(pixels, self._shape).astype(dtype)
            if not number:  # the input's range is [0, 255], even if all images are dark
                batch.flat[0], batch.flat[-1] = 0, 255
            yield signature, {"pixels": batch}


def check_quantization(quantization: str, model: keras.Model, images: Sequence[bytes]) -> None:
    """Raises `ValueError` if a model cannot be exported with a given quantization.

    Args:
        quantization: A key of `QUANTIZATIONS`.
        model: As for `write`.
        images: As for `write`.

    Raises:
        ValueError: If the quantization is unknown, not supported, or needs images.

    Examples:
        >>> from keras_vit import models
        >>> model = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=3))
        >>> check_quantization("float16", model, images=())
    """
    arguments.one_of("quantization", quantization, tuple(QUANTIZATIONS))
    if quantization not in quantizations_of(model):
        raise ValueError(
            f"`quantization` must be one of {', '.join(map(repr, quantizations_of(model)))} for "
            "a model with reduced tokens; otherwise export the model before `reduce_tokens`. "
            f"Received: {quantization!r}"
        )
    if quantization in CALIBRATED and not images:
        raise ValueError(
            f"`images` must contain images for calibrating the quantization {quantization!r}. "
            "Received: none"
        )


class _MeasuredLayerNorm(layers.LayerNorm):
    """Layer normalization adapted to quantization with a single range for all tokens.

    A few tokens in the last blocks of a ViT have features hundreds of times larger than the others
    (https://arxiv.org/abs/2309.16588). Their squares would set a quantization step that rounds the
    squares of all other tokens to zero. So tokens are first divided by their mean absolute value,
    which differs far less, and squares are summed in a matrix product.
    """

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        centered = inputs - ops.mean(inputs, axis=-1, keepdims=True)
        size = ops.mean(ops.abs(centered), axis=-1, keepdims=True)
        scale = ops.rsqrt(size * size + self.epsilon)
        scaled = centered * scale
        rows, columns = ops.expand_dims(scaled, -2), ops.expand_dims(scaled, -1)
        # (B, T, 1, D) times (B, T, D, 1) is (B, T, 1, 1).
        variance = ops.squeeze(ops.matmul(rows, columns), -1) / scaled.shape[-1]  # (B, T, 1)
        epsilon = self.epsilon * (scale * scale)
        return scaled * ops.rsqrt(variance + epsilon) * self.gamma + self.beta


def _with_measured_norm(kind: type) -> type:
    """Returns a subclass of a layer class that uses `_MeasuredLayerNorm`."""
    return type(kind.__name__, (kind,), {"norm_class": _MeasuredLayerNorm})


_REPLACEMENTS: dict[type, type] = {keras.layers.LayerNormalization: layers.LayerNorm}
_MEASURED_REPLACEMENTS = {
    keras.layers.LayerNormalization: _MeasuredLayerNorm,
    layers.LayerNorm: _MeasuredLayerNorm,
    layers.TransformerBlock: _with_measured_norm(layers.TransformerBlock),
    layers.AttentionPooling: _with_measured_norm(layers.AttentionPooling),
}


def quantizable(model: keras.Model, measured: bool = False) -> keras.Model:
    """Copies a model, replacing operators that TFLite supports only in floating point."""
    replacements = _MEASURED_REPLACEMENTS if measured else _REPLACEMENTS

    def changed(layer: Any) -> Any:
        kind = replacements.get(type(layer))
        is_norm = isinstance(layer, keras.layers.LayerNormalization)
        is_replaceable = kind and (not is_norm or is_plain(layer))
        return cloning.clone_layer(layer, kind) if is_replaceable else None

    return cloning.clone(model, changed)
