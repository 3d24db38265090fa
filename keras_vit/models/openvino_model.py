"""A model that OpenVINO computes in this process.

Letters: N images; B images of a batch.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit import checks
from keras_vit.models import cloning

PRECISIONS = ("float32", "bfloat16")


class OpenVINOModel:
    """A Keras model compiled by OpenVINO for the processor of this machine; called like it.

    Args:
        model: A functional or sequential model with one input and one output.
        precision: `"float32"`, or `"bfloat16"` for the products of matrices where the processor
            has instructions for it, and float32 where not.
        threads: How many threads compute; None for as many as there are cores.

    Raises:
        ValueError: If an argument is out of range, or the model cannot be taken apart or has
            several inputs or outputs.
        ImportError: If openvino is not installed.

    Example:
        >>> import keras_vit
        >>> model = keras_vit.ViTMicro4(weights=None, classes=3)
        >>> OpenVINOModel(model).predict(np.ones((2, 28, 28, 1)))  # doctest: +SKIP
    """

    def __init__(
        self, model: keras.Model, precision: str = "float32", threads: int | None = None
    ) -> None:
        checks.one_of("precision", precision, PRECISIONS)
        if threads is not None:
            checks.positive_int("threads", threads)
        if importlib.util.find_spec("openvino") is None:
            raise ImportError(
                "runtime='openvino' needs openvino: pip install 'keras-vit-toolkit[openvino]'"
            )
        cloning.require_graph(model)
        if len(model.inputs) != 1 or len(model.outputs) != 1:
            raise ValueError(
                "`model` must have one input and one output. "
                f"Received: {len(model.inputs)} inputs and {len(model.outputs)} outputs"
            )
        import openvino

        self.input_shape, self.output_shape = model.input_shape, model.output_shape
        self.precision = precision
        hints: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision]
        }
        if threads is not None:
            hints["INFERENCE_NUM_THREADS"] = threads
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.xml"
            # Casts of a mixed policy would only be in the way of the runtime's own.
            cloning.to_float32(model).export(str(path), format="openvino", verbose=False)
            self._compiled = openvino.Core().compile_model(path, "CPU", hints)

    def __call__(self, images: Any) -> np.ndarray:
        """Computes one batch.

        Args:
            images: Array or tensor of shape (B, ...), as the Keras model takes it.

        Returns:
            What the Keras model returns, (B, ...), float32.
        """
        pixels = keras.ops.convert_to_numpy(images).astype("float32", copy=False)
        # A request for each call, so that several threads may ask at once.
        found = self._compiled.create_infer_request().infer([pixels])
        return next(iter(found.values()))

    def predict(self, images: Any, batch_size: int = 32) -> np.ndarray:
        """Computes any number of images, like `keras.Model.predict`.

        Args:
            images: Array or tensor of shape (N, ...), or an iterable of batches such as a
                `tf.data.Dataset`, of which the first entry is taken where they are tuples.
            batch_size: Images at a time, where they are one array.

        Returns:
            What the Keras model returns, (N, ...), float32.

        Raises:
            ValueError: If there is no image.
        """
        checks.positive_int("batch_size", batch_size)
        found = [self(batch) for batch in _batches(images, batch_size)]
        if not found:
            raise ValueError("`images` must hold at least one image. Received: none")
        return np.concatenate(found)


def _batches(images: Any, batch_size: int) -> Iterator[Any] | Iterable[Any]:
    if hasattr(images, "shape"):
        return (images[at : at + batch_size] for at in range(0, images.shape[0], batch_size))
    return (batch[0] if isinstance(batch, tuple) else batch for batch in images)
