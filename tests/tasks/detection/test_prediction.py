from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import PIL.Image
import pytest

from keras_vit.preprocessing import Preprocessing
from keras_vit.storage.paths import StoredFile
from keras_vit.tasks.detection.prediction import (
    MAX_OBJECTS,
    DetectionPrediction,
    ObjectTable,
    found_objects,
    suppressed,
)
from tests.tasks.detection.test_assignment import both

pytestmark = pytest.mark.tensorflow


def test_objects_are_in_the_pixels_of_the_image() -> None:
    preprocessing = Preprocessing(size=(32, 64), resize="squash", class_names=("a", "b"))
    output = np.array([[8, 16, 16, 48, 0.2, 0.1], [-9, 0, 99, 64, 0.3, 0.9]], "f")
    found = found_objects(output, preprocessing, (64, 32))  # twice as high, half as wide
    np.testing.assert_allclose(found[0], [0, 0, 64, 32, 0.9, 1])
    np.testing.assert_allclose(found[1], [16, 8, 32, 24, 0.2, 0])


def test_only_the_best_objects_are_kept() -> None:
    preprocessing = Preprocessing(size=(32, 32), class_names=("a",))
    places = np.arange(MAX_OBJECTS + 7)
    boxes = np.stack([places // 20, places % 20, places // 20 + 0.5, places % 20 + 0.5], axis=1)
    output = np.column_stack([boxes, np.linspace(0, 1, len(boxes))]).astype("f")
    found = found_objects(output, preprocessing, (32, 32))
    assert (len(found), found[0, 4]) == (MAX_OBJECTS, 1)


def test_boxes_that_overlap_a_better_one_are_suppressed() -> None:
    generator = np.random.default_rng(5)
    begin = generator.uniform(0, 20, (300, 2))
    boxes = np.concatenate([begin, begin + generator.uniform(4, 12, (300, 2))], axis=1).astype("f")
    labels = generator.integers(0, 3, 300)
    kept: list[int] = []
    for index in range(300):  # one box after another
        if all(
            labels[index] != labels[other] or both(boxes[index], boxes[other])[0] <= 0.5
            for other in kept
        ):
            kept.append(index)
    assert suppressed(boxes, labels).tolist() == kept
    assert 20 < len(kept) < 200


def test_prediction_counts_the_objects_of_each_class() -> None:
    output = np.array([[0, 0, 9, 9, 0.9, 0.1], [0, 9, 9, 19, 0.1, 0.8], [9, 0, 19, 9, 0.2, 0.4]])
    reads = Preprocessing(size=(32, 32), class_names=("cat", "dog"))
    found = DetectionPrediction.of(output.astype("f"), reads)
    assert (found.ok, found.text()) == (True, "2 dog, 1 cat")
    assert found.objects((64, 64))[:, 4].tolist() == pytest.approx([0.9, 0.8, 0.4])
    assert DetectionPrediction.of(output[:0], reads).text() == "no objects"
    assert DetectionPrediction.of(output, reads, "damaged").text() == "damaged"
    rows = np.array([[0, 0, 1, 1, 0.9, label] for label in (3, 0, 1, 3, 2)])
    assert DetectionPrediction("abcd", lambda sides: rows).text(top=3) == "2 d, 1 a, 1 b, 1 c"


def test_table_has_a_row_for_each_object(tmp_path: Path) -> None:
    path = tmp_path / "7.png"
    PIL.Image.new("RGB", (20, 10)).save(path)
    output = np.array([[0, 0, 16, 16, 0.9, 0.1], [16, 0, 32, 32, 0.1, 0.2]], "f")
    reads = Preprocessing(size=(32, 32), class_names=("cat", "dog"), resize="squash")
    table, found = ObjectTable(reads), DetectionPrediction.of(output, reads)
    (row,) = table.rows(path, found)
    box = {"left": 0, "top": 0, "right": 10, "bottom": 5}
    assert row == {"file": str(path), "class": "cat", "score": 0.9, **box, "message": None}
    results = table.coco_rows(path, found)
    assert results[0] == {"image_id": 7, "category_id": 1, "bbox": [0, 0, 10, 5], "score": 0.9}
    assert [result["category_id"] for result in results] == [1, 2]
    (bad,) = table.rows("x.png", DetectionPrediction.of(output, reads, "damaged"))
    assert (bad["file"], bad["class"], bad["message"]) == ("x.png", None, "damaged")
    assert table.coco_rows("x.png", DetectionPrediction.of(output, reads, "damaged")) == []
    memory = SimpleNamespace(source="packed", names=["a/7.png"], read=lambda _: path.read_bytes())
    image = StoredFile(memory, 0)
    assert table.rows(image, found) == [row | {"file": "packed/a/7.png"}]
    assert table.coco_rows(image, found) == results
    table.write_pictures(tmp_path, 25, image, found)
    assert (tmp_path / "00025_7.jpg").is_file()
