"""The description inside a TFLite file that MediaPipe's and Android's tools read."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

from keras_vit.export import contract_files
from keras_vit.preprocessing import Preprocessing

FIELD = "TFLITE_METADATA"
_IDENTIFIER = b"M001"

# A FlatBuffers table by the numbers of its fields. A text, a table, tables or numbers are stored
# elsewhere and pointed to; a NumPy scalar is stored in place.
Table = dict[int, Any]

# Values of the schema's enumerations and unions.
_AXIS_LABELS = np.int8(2)
_RGB, _GRAYSCALE = np.int8(1), np.int8(2)
_FEATURE, _IMAGE = np.uint8(1), np.uint8(2)
_NORMALIZATION = np.uint8(1)


def add(content: bytes, contract: Preprocessing, name: str) -> bytes:
    """Returns a TFLite classifier with its description inside.

    It says that the input is an RGB or grey image whose pixels are taken as they are, and that
    `labels.txt`, which has to be appended as a ZIP archive, names the outputs.

    Args:
        content: The file, with one input and one output.
        contract: The contract, with labels.
        name: What the model is called.

    Returns:
        The file with the description.

    Source:
        https://github.com/google-ai-edge/mediapipe/blob/master/mediapipe/tasks/metadata/metadata_schema.fbs

    Example:
        See `keras_vit.export.tflite.write`.
    """
    height, width = contract.size
    colour = _RGB if contract.num_channels == 3 else _GRAYSCALE
    normalization = {0: np.zeros(1, np.float32), 1: np.ones(1, np.float32)}  # mean, deviation
    image = {
        0: "pixels",
        1: f"The image at {height} x {width} pixels, [0, 255].",
        3: {0: _IMAGE, 1: {0: colour}},
        4: [{0: _NORMALIZATION, 1: normalization}],
    }
    labels = {0: contract_files.LABELS, 1: "The classes, one per line.", 2: _AXIS_LABELS}
    probabilities = {
        0: "probabilities",
        1: "The probability of each class.",
        3: {0: _FEATURE, 1: {}},
        6: [labels],
    }
    description = f"Image classifier. How images are made: {contract_files.PREPROCESSING} in here."
    metadata = {
        0: name,
        1: description,
        3: [{2: [image], 3: [probabilities]}],
        7: "1.0.0",  # the oldest reader that understands all of this
    }
    builder = flatbuffers.Builder(0)
    builder.Finish(_write(builder, metadata), file_identifier=_IDENTIFIER)
    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    entry, buffer = schema.MetadataT(), schema.BufferT()
    buffer.data = builder.Output()
    entry.name, entry.buffer = FIELD, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or ()), entry]
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def _write(builder: Any, table: Table) -> int:
    """Writes a table after all that it points to, and returns where it is."""
    stored = {field: _store(builder, value) for field, value in table.items()}
    builder.StartObject(max(table, default=-1) + 1)
    for field, value in stored.items():
        if isinstance(value, np.uint8):
            builder.PrependUint8Slot(field, value, 0)
        elif isinstance(value, np.int8):
            builder.PrependInt8Slot(field, value, 0)
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
