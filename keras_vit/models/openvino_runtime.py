"""Inference with OpenVINO in the current process.

Letters: B images of a batch.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_vit import arguments
from keras_vit.models import cloning
from keras_vit.models.inference_graphs import refuse

_HINTS = {"float32": "f32", "bfloat16": "bf16"}  # precision -> OpenVINO's name
PRECISIONS = tuple(_HINTS)


#: Images that one core computes at a time in large batches: enough for fast matrix products, and
#: few enough for the activations to fit the cache (docs/decisions/0019-performance.md).
PIECE = 4


class OpenVINOModel:
    """Keras model compiled with OpenVINO for the local CPU; supports calls and `predict`.

    In small batches all cores compute one image at a time; large batches are divided into pieces
    of four images, one piece per core. Calls from several threads are serialized.

    Args:
        model: A functional or sequential model with one input, whose shape is static except for
            the batch size, and one output.
        precision: `"float32"`, or `"bfloat16"` for the matrix products if the CPU has bfloat16
            instructions.
        threads: Number of threads; None for one per core.

    Raises:
        ValueError: If an argument is out of range, or the model is not functional or sequential,
            has several inputs or outputs, or an input of unknown shape.
        ImportError: If openvino is not installed.
        RuntimeError: If the Keras backend is not TensorFlow, whose graph OpenVINO reads.

    Examples:
        >>> import keras_vit
        >>> model = keras_vit.ViTMicro4(weights=None, classes=3)
        >>> OpenVINOModel(model).predict(np.ones((2, 28, 28, 1)))  # doctest: +SKIP
    """

    def __init__(
        self, model: keras.Model, precision: str = "float32", threads: int | None = None
    ) -> None:
        arguments.one_of("precision", precision, PRECISIONS)
        arguments.optional(arguments.positive_int)("threads", threads)
        arguments.require_package("openvino", "openvino", "runtime='openvino' needs openvino")
        cloning.require_graph(model)
        if len(model.inputs) != 1 or len(model.outputs) != 1:
            raise ValueError(
                "`model` must have one input and one output. "
                f"Received: {len(model.inputs)} inputs and {len(model.outputs)} outputs"
            )
        self.input_shape, self.output_shape = model.input_shape, model.output_shape
        if None in self.input_shape[1:]:
            raise ValueError(
                "`model` must have an input of known shape, except for the batch size. "
                f"Received: {self.input_shape}"
            )
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "runtime='openvino' needs a TensorFlow graph: save the model and load it in a "
                "process with KERAS_BACKEND=tensorflow. Received: "
                f"KERAS_BACKEND={keras.backend.backend()!r}"
            )
        self.precision = precision
        self._lock = threading.Lock()
        self._request, self._queue, self._cores = self._compile(model, threads)

    def __call__(self, images: Any, training: bool | None = None) -> np.ndarray:
        """Computes the outputs for one batch of images."""
        if training:
            raise ValueError(
                "`training` must be False: OpenVINO models are for inference only. Received: "
                "training=True"
            )
        pixels = keras.ops.convert_to_numpy(images).astype("float32", copy=False)
        if pixels.shape[1:] != self.input_shape[1:]:
            raise ValueError(
                f"`images` must have the shape {('B', *self.input_shape[1:])}. "
                f"Received: {pixels.shape}"
            )
        number = len(pixels)
        outputs = np.empty((number, *self.output_shape[1:]), "float32")
        in_pieces = number // PIECE * PIECE if number >= PIECE * self._cores else 0
        with self._lock:
            for start in range(0, in_pieces, PIECE):
                piece = slice(start, start + PIECE)
                self._queue.start_async([pixels[piece]], outputs[piece], share_inputs=True)
            self._queue.wait_all()
            for index in range(in_pieces, number):
                self._request.infer([pixels[index : index + 1]], share_inputs=True)
                outputs[index] = self._request.get_output_tensor(0).data[0]
        return outputs

    def predict(self, images: Any, batch_size: int = 32, verbose: Any = 0) -> np.ndarray:
        """Computes the outputs for any number of images, like `keras.Model.predict`.

        Args:
            images: Array or tensor of shape (images, ...), or an iterable of batches, for example a
                `tf.data.Dataset`; of tuples only the first entry is used.
            batch_size: Batch size for an array or tensor.
            verbose: Accepted as in Keras and ignored; no progress is shown.

        Returns:
            The outputs of the model, (images, ...), float32.

        Raises:
            ValueError: If there are no images.
        """
        arguments.positive_int("batch_size", batch_size)
        outputs = [self(batch) for batch in _batches(images, batch_size)]
        if not outputs:
            raise ValueError("`images` must contain at least one image. Received: none")
        return np.concatenate(outputs)

    save = save_weights = load_weights = export = refuse
    built = property(refuse)  # functions of `keras.saving` read this attribute first

    def _compile(self, model: keras.Model, threads: int | None) -> tuple[Any, Any, int]:
        """Returns an infer request for one image, a queue for several, and the core count."""
        import openvino

        hints: dict[str, Any] = {"INFERENCE_PRECISION_HINT": _HINTS[self.precision]}
        if threads is not None:
            hints["INFERENCE_NUM_THREADS"] = threads
        core = openvino.Core()
        core.set_property({"ENABLE_MMAP": False})  # the file is deleted after reading
        with tempfile.TemporaryDirectory() as folder:
            # Casts of a mixed policy would interfere with OpenVINO's own. Not format="openvino":
            # its converter of functions in memory fails on Python 3.13.
            cloning.to_float32(model).export(folder, format="tf_saved_model", verbose=False)
            network = core.read_model(folder)

        def compiled(images: int, streams: int) -> Any:
            network.reshape([images, *self.input_shape[1:]])  # a static shape is a fifth faster
            return core.compile_model(network, "CPU", {**hints, "NUM_STREAMS": streams})

        for_one = compiled(1, 1)
        cores = threads or for_one.get_property("INFERENCE_NUM_THREADS")
        queue = openvino.AsyncInferQueue(compiled(PIECE, cores), cores)
        queue.set_callback(lambda request, out: np.copyto(out, request.get_output_tensor(0).data))
        return for_one.create_infer_request(), queue, cores


def _batches(images: Any, batch_size: int) -> Iterator[Any] | Iterable[Any]:
    if hasattr(images, "shape"):
        return (images[i : i + batch_size] for i in range(0, images.shape[0], batch_size))
    return (batch[0] if isinstance(batch, tuple) else batch for batch in images)
