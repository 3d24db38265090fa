from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import flatbuffers
import keras
import numpy as np
import pytest
from flatbuffers import encode, number_types
from flatbuffers.table import Table
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

from keras_vit.data.decode_and_resize import decode, resize_and_crop
from keras_vit.export import load_predictor, tflite, tflite_metadata
from tests.export.conftest import LABELS, PREPROCESSING, tiny

pytestmark = pytest.mark.tensorflow


class Reader:
    """A table of a FlatBuffers file, read by the numbers of its fields."""

    def __init__(self, content: bytes, place: int | None = None) -> None:
        if place is None:
            place = encode.Get(flatbuffers.packer.uoffset, content, 0)
        self._table = Table(content, place)

    def _field(self, field: int) -> int:
        offset = self._table.Offset(4 + 2 * field)
        assert offset, f"field {field} is absent"
        return int(offset + self._table.Pos)

    def number(self, field: int, default: int | None = None) -> int:
        if default is not None and not self._table.Offset(4 + 2 * field):
            return default
        return int(self._table.Get(number_types.Int8Flags, self._field(field)))

    def text(self, field: int) -> str:
        return str(self._table.String(self._field(field)).decode())

    def table(self, field: int) -> Reader:
        return Reader(self._table.Bytes, self._table.Indirect(self._field(field)))

    def tables(self, field: int) -> list[Reader]:
        offset = self._field(field) - self._table.Pos
        start, count = self._table.Vector(offset), self._table.VectorLen(offset)
        return [
            Reader(self._table.Bytes, self._table.Indirect(start + 4 * index))
            for index in range(count)
        ]

    def floats(self, field: int) -> list[float]:
        offset = self._field(field) - self._table.Pos
        start, count = self._table.Vector(offset), self._table.VectorLen(offset)
        return np.frombuffer(self._table.Bytes, "<f4", count, start).tolist()


def metadata(path: Path) -> bytes:
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(path.read_bytes()))
    (entry,) = [m for m in model.metadata if m.name.decode() == tflite_metadata.FIELD]
    return bytes(model.buffers[entry.buffer].data)


def test_a_file_says_what_goes_in_and_what_comes_out(exported: dict[str, Path]) -> None:
    content = metadata(exported["tflite"])
    assert content[4:8] == b"M001"
    root = Reader(content)
    assert root.text(7) == "1.0.0"
    (graph,) = root.tables(3)
    (image,), (probabilities,) = graph.tables(2), graph.tables(3)
    assert image.text(0) == "pixels"
    assert (image.table(3).number(0), image.table(3).table(1).number(0)) == (2, 1)  # image, RGB
    (unit,) = image.tables(4)
    assert unit.number(0) == 1  # normalization, which leaves pixels as they are
    assert (unit.table(1).floats(0), unit.table(1).floats(1)) == ([0.0], [1.0])
    assert probabilities.text(0) == "probabilities"
    assert probabilities.table(3).number(0) == 1  # numbers
    (labels,) = probabilities.tables(6)
    assert (labels.text(0), labels.number(2)) == ("labels.txt", 2)  # of the axis


def test_a_file_of_numbers_is_not_described_as_a_classifier(tmp_path: Path) -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, task="regression")
    path = tflite.write(tiny(preprocessing, classifier_activation=None), tmp_path / "a.tflite")
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(path.read_bytes()))
    assert tflite_metadata.FIELD not in [entry.name.decode() for entry in model.metadata]


@pytest.mark.parametrize(("channels", "expected"), [("rgb", 1), ("grayscale", 2), ("bgr", 0)])
def test_colors_are_those_of_the_model(
    exported: dict[str, Path], tmp_path: Path, channels: str, expected: int
) -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, channels=channels, mean=0.5, std=0.5)
    path = tmp_path / "model.tflite"
    path.write_bytes(tflite_metadata.add(bare(exported["tflite"]), preprocessing, "vit"))
    (graph,) = Reader(metadata(path)).tables(3)
    properties = graph.tables(2)[0].table(3).table(1)
    assert properties.number(0, default=0) == expected


def bare(path: Path) -> bytes:
    """A file without its description."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(path.read_bytes()))
    model.metadata = [m for m in model.metadata if m.name.decode() != tflite_metadata.FIELD]
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def test_mediapipe_reads_a_file(
    model: keras.Model, exported: dict[str, Path], images: list[bytes], tmp_path: Path
) -> None:
    tasks: Any = pytest.importorskip(
        "mediapipe.tasks.python",
        reason="needs MediaPipe, which no extra brings",
        exc_type=ImportError,
    )
    import mediapipe as mp

    files = {
        "float32": exported["tflite"],
        "int8": tflite.write(model, tmp_path / "int8.tflite", "int8", images=images),
    }
    fitted = [
        resize_and_crop(decode(image, PREPROCESSING), PREPROCESSING).numpy() for image in images
    ]
    expected = load_predictor(model).probabilities(images)
    for quantization, path in files.items():
        with tasks.vision.ImageClassifier.create_from_model_path(str(path)) as classifier:
            for image, row in zip(fitted, expected, strict=True):
                shown = mp.Image(image_format=mp.ImageFormat.SRGB, data=image)
                (head,) = classifier.classify(shown).classifications
                found = {c.category_name: c.score for c in head.categories}
                assert set(found) == set(LABELS)
                scores = [found[label] for label in LABELS]
                limit = 1e-5 if quantization == "float32" else 0.2
                np.testing.assert_allclose(scores, row, atol=limit)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quantization", "oldest"),
    [("float32", "2.9.0"), ("dynamic_range", "2.17.0"), ("int8", "2.9.0"), ("int16x8", "2.20.0")],
)
def test_oldest_runtime_has_every_operator(
    quantizations: dict[str, Path], quantization: str, oldest: str
) -> None:
    """The versions were found by running such files in these versions and the ones before."""
    assert tflite_metadata.oldest_runtime(quantizations[quantization]) == oldest
