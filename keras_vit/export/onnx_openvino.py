"""Export of classifiers for ONNX Runtime and OpenVINO."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit import arguments, files, preprocessing_files
from keras_vit.tasks.registry import TrainedModel

_OPSET = 18
# Required packages by kind; the kind is also the name of the extra.
_NEEDED = {"onnx": ("tf2onnx", "onnxruntime"), "openvino": ("openvino",)}


def require(kind: str) -> None:
    """Raises `ImportError` if the packages required by an export format are not installed."""
    missing = [name for name in _NEEDED.get(kind, ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"{kind} needs {' and '.join(missing)}; {arguments.install_hint(kind)}")


def write_onnx(exported: TrainedModel, path: str | os.PathLike[str]) -> Path:
    """Writes the ONNX file of a trained model, for ONNX Runtime.

    The input `pixels` is a uint8 tensor (B, h, w, C) at the model's size, in [0, 255], which the
    model scales. The output `probabilities` is a float32 tensor (B, classes). Labels and
    preprocessing are in the file's metadata.
    """
    import onnx
    import tf2onnx

    # Without the handler, the exact GELU is silently converted to a file that no runtime loads.
    handlers: dict[str, Any] = {"Erfc": (_one_minus_erf, [])}
    signature = [_pixels(exported)]
    traced = tf.function(exported.outputs, input_signature=signature, autograph=False)
    proto, _ = tf2onnx.convert.from_function(
        traced, signature, opset=_OPSET, custom_op_handlers=handlers
    )
    onnx.helper.set_model_props(proto, preprocessing_files.texts(exported.preprocessing))
    onnx.checker.check_model(proto)
    with files.atomic_path(path) as temporary:
        onnx.save(proto, temporary)
    return Path(path)


def write_openvino(exported: TrainedModel, path: str | os.PathLike[str]) -> Path:
    """Writes the OpenVINO files of a trained model.

    Input and output are the same as for `write_onnx`. Labels and preprocessing are in the `.xml`
    file, below `rt_info`, `keras_vit`. On a CPU with bfloat16, OpenVINO computes in bfloat16 unless
    `{"INFERENCE_PRECISION_HINT": "f32"}` is set.
    """
    import openvino

    path = Path(path)
    with tempfile.TemporaryDirectory() as traced:
        archive = keras.export.ExportArchive()
        archive.add_endpoint("serving_default", exported.outputs, [_pixels(exported)])
        archive.write_out(traced, verbose=False)
        model = openvino.convert_model(traced)
        for name, text in preprocessing_files.texts(exported.preprocessing).items():
            model.set_rt_info(text, ["keras_vit", Path(name).stem])
        openvino.save_model(model, Path(traced) / "model.xml", compress_to_fp16=False)
        # The .xml file last: it requires the weights.
        for suffix in (".bin", ".xml"):
            with files.atomic_path(path.with_suffix(suffix)) as temporary:
                shutil.move(Path(traced) / f"model{suffix}", temporary)
    return path


#: Function and file suffix of each kind of file.
WRITERS = {"onnx": (write_onnx, "onnx"), "openvino": (write_openvino, "xml")}


def _pixels(exported: TrainedModel) -> tf.TensorSpec:
    preprocessing = exported.preprocessing
    shape = (None, *preprocessing.size, preprocessing.num_channels)
    return tf.TensorSpec(shape, tf.uint8, "pixels")


def _one_minus_erf(context: Any, node: Any, name: str, args: Any) -> None:
    """Converts erfc(x), which ONNX does not support, to 1 - erf(x)."""
    (output,) = node.output
    dtype, shape = context.get_dtype(output), context.get_shape(output)
    # Removed and recreated: a node modified in place may be sorted after its consumers.
    context.remove_node(name)
    erf = context.make_node("Erf", list(node.input), shapes=[shape], dtypes=[dtype])
    one = context.make_const(f"{name}_one", np.array(1, np.float32))
    operands = [one.output[0], erf.output[0]]
    context.make_node("Sub", operands, name=name, outputs=[output], shapes=[shape], dtypes=[dtype])
