"""TFLite file metadata for MediaPipe and Android tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

from keras_vit import preprocessing_files
from keras_vit.preprocessing import Preprocessing

FIELD = "TFLITE_METADATA"
# First version with GELU in int16; the operator version is that of GELU in int8.
_INT16_RUNTIME = "2.20.0"
_IDENTIFIER = b"M001"

# A FlatBuffers table by field index. Strings, tables, lists of tables and arrays are stored by
# offset; a NumPy scalar is stored in place.
Table = dict[int, Any]

# Indices of the fields; a name has the same index in each of the schema's tables.
_FIELDS = {
    **dict.fromkeys(("name", "content_properties_type", "color_space", "options_type", "mean"), 0),
    **dict.fromkeys(("description", "content_properties", "options", "std"), 1),
    **dict.fromkeys(("input_tensor_metadata", "type"), 2),
    **dict.fromkeys(("subgraph_metadata", "output_tensor_metadata", "content"), 3),
    **{"process_units": 4, "associated_files": 6, "min_parser_version": 7},
}
# Values of the schema's enumerations and unions, of one byte each.
_AXIS_LABELS = np.uint8(2)
_UNKNOWN_COLORS, _RGB, _GRAYSCALE = map(np.uint8, range(3))
_FEATURE, _IMAGE = np.uint8(1), np.uint8(2)
_NORMALIZATION = np.uint8(1)


def add(content: bytes, preprocessing: Preprocessing, name: str) -> bytes:
    """Adds metadata to a TFLite classifier.

    The metadata describe the input as an RGB or grayscale image without normalization, and
    `labels.txt`, which must be appended as a ZIP archive, as the labels of the outputs. The schema
    has no value for BGR: the color space of BGR models is unknown.

    Reference: https://github.com/google-ai-edge/mediapipe/blob/master/mediapipe/tasks/metadata/metadata_schema.fbs
    """
    height, width = preprocessing.size
    colors = {"rgb": _RGB, "grayscale": _GRAYSCALE}.get(preprocessing.channels, _UNKNOWN_COLORS)
    unscaled = _table(mean=np.zeros(1, "f4"), std=np.ones(1, "f4"))
    image = _table(
        name="pixels",
        description=f"The image at {height} x {width} pixels, {preprocessing.channels}, [0, 255].",
        content=_table(
            content_properties_type=_IMAGE, content_properties=_table(color_space=colors)
        ),
        process_units=[_table(options_type=_NORMALIZATION, options=unscaled)],
    )
    labels = _table(
        name=preprocessing_files.LABELS,
        description="The classes, one per line.",
        type=_AXIS_LABELS,
    )
    probabilities = _table(
        name="probabilities",
        description="The probability of each class.",
        content=_table(content_properties_type=_FEATURE, content_properties=_table()),
        associated_files=[labels],
    )
    texts: dict[str, str] = {}
    if preprocessing.set_threshold is not None:
        covered = f"which contains the true class with probability {preprocessing.coverage}"
        texts = {"set": f"The prediction set, {covered}.", "set_size": "Number of its classes."}
    if preprocessing.ood_threshold is not None:
        texts |= {
            "ood_score": "Out-of-distribution score, about 1 for images like the training images.",
            "in_distribution": f"Whether the score is at most {preprocessing.ood_threshold:.3f}.",
        }
    if preprocessing.training_images is not None:
        texts |= {
            "nearest": f"Nearest of `training_images` in {preprocessing_files.PREPROCESSING}.",
            "nearest_similarity": "Their cosine similarities.",
        }
    outputs = {"probabilities": probabilities} | {
        name: _table(name=name, description=text) for name, text in texts.items()
    }
    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    order = ["probabilities"]
    if len(outputs) > 1:  # the order is the converter's
        names = {o.tensorIndex: o.name.decode() for o in model.signatureDefs[0].outputs}
        order = [names[index] for index in model.subgraphs[0].outputs]
    graph = _table(
        input_tensor_metadata=[image],
        output_tensor_metadata=[outputs[name] for name in order],
    )
    metadata = _table(
        name=name,
        description=(
            f"Image classifier; {preprocessing_files.PREPROCESSING} describes its preprocessing."
        ),
        subgraph_metadata=[graph],
        min_parser_version="1.0.0",  # the oldest parser that supports these fields
    )
    builder = flatbuffers.Builder(0)
    builder.Finish(_write(builder, metadata), file_identifier=_IDENTIFIER)
    entry, buffer = schema.MetadataT(), schema.BufferT()
    buffer.data = builder.Output()
    entry.name, entry.buffer = FIELD, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or ()), entry]
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def oldest_runtime(path: Path) -> str:
    """Returns the oldest version of TensorFlow Lite that has the operators of a file."""
    model = flatbuffer_utils.read_model(str(path))
    [index] = [row.buffer for row in model.metadata if row.name == b"min_runtime_version"]
    if any(tensor.type == schema.TensorType.INT16 for tensor in model.subgraphs[0].tensors):
        return _INT16_RUNTIME
    return bytes(model.buffers[index].data).decode().rstrip("\0")


def _table(**fields: Any) -> Table:
    return {_FIELDS[name]: value for name, value in fields.items()}


def _write(builder: Any, table: Table) -> int:
    """Writes a FlatBuffers table, after the objects it references, and returns its offset."""
    stored = {field: _store(builder, value) for field, value in table.items()}
    builder.StartObject(max(table, default=-1) + 1)
    for field, value in stored.items():
        if isinstance(value, np.uint8):
            builder.PrependUint8Slot(field, value, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(field, value, 0)
    return int(builder.EndObject())


def _store(builder: Any, value: Any) -> Any:
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, np.ndarray):
        return builder.CreateNumpyVector(value)
    if isinstance(value, dict):
        return _write(builder, value)
    if isinstance(value, list):
        offsets = [_write(builder, item) for item in value]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()
    return value
