from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import classification_report

from keras_vit import files
from keras_vit.tasks.classification.metrics import Report, evaluate_predictions, left_out

NAMES = ["daisy", "dandelion", "rose", "sunflower", "tulip", "a name of " + "very " * 9 + "many"]


@pytest.fixture
def predictions() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    labels = generator.integers(0, 6, size=53)
    return labels, generator.random((53, 6)) + 0.7 * np.eye(6)[labels]


@pytest.fixture
def report(predictions: tuple[np.ndarray, np.ndarray]) -> Report:
    return evaluate_predictions(*predictions, NAMES)


def test_text_has_the_numbers_of_the_classification_report(
    report: Report, predictions: tuple[np.ndarray, np.ndarray]
) -> None:
    labels, scores = predictions
    expected = classification_report(
        labels, scores.argmax(axis=1), target_names=[*NAMES[:5], "long"], digits=4
    )
    table, _, summary = report.text().rpartition("\n\n")
    assert table.replace("a name of very very very very very ve...", "long").split() == (
        expected.split()
    )
    low, high = report.interval
    right = round(report.accuracy * 53)
    assert summary.splitlines() == [
        f"accuracy {report.accuracy:.4f} ({right} of 53, 95% interval {low:.4f} to {high:.4f})",
        f"top-5 accuracy {report.top5:.4f}",
    ]


def test_text_is_aligned(report: Report) -> None:
    table = report.text().rpartition("\n\n")[0]
    assert len({len(line) for line in table.splitlines() if line}) == 1


def test_json_keeps_everything(report: Report, tmp_path: Path) -> None:
    files.write_json(tmp_path / "evaluation.json", report.to_json())
    read = json.loads((tmp_path / "evaluation.json").read_text())
    assert read == report.to_json()
    assert read["num_examples"] == 53
    assert read["top5_accuracy"] == report.top5
    assert [row["name"] for row in read["per_class"]] == NAMES
    assert np.trace(read["confusion"]) / 53 == pytest.approx(read["accuracy"])


def of_many(num_classes: int, num_examples: int) -> Report:
    generator = np.random.default_rng(5)
    labels = np.arange(num_examples) % num_classes
    taken = np.where(generator.random(num_examples) < 0.5, labels, generator.permutation(labels))
    scores = np.zeros((num_examples, num_classes), "float32")
    scores[np.arange(num_examples), taken] = 1
    return evaluate_predictions(labels, scores, [f"class {i}" for i in range(num_classes)])


def test_above_a_thousand_classes_the_confusion_matrix_is_sparse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dense = of_many(13, 101)
    monkeypatch.setattr("keras_vit.tasks.classification.metrics.DENSE_CLASSES", 12)
    found = of_many(13, 101)
    assert isinstance(dense.confusion, np.ndarray)
    assert sparse.issparse(found.confusion)
    np.testing.assert_array_equal(found.confusion.toarray(), dense.confusion)
    np.testing.assert_array_equal(found.confused, dense.confused)
    assert (found.text(), found.num_examples) == (dense.text(), dense.num_examples)
    content, expected = found.to_json(), dense.to_json()
    matrix = np.zeros((content.pop("classes"),) * 2, int)
    for true, predicted, count in content.pop("confusion_sparse"):
        matrix[true, predicted] = count
    assert matrix.tolist() == expected.pop("confusion")
    assert content == expected


def test_a_report_of_5000_classes_is_short(tmp_path: Path) -> None:
    report = of_many(5000, 7000)
    files.write_json(tmp_path / "evaluation.json", report.to_json())
    assert (tmp_path / "evaluation.json").stat().st_size < 5e6  # 1.4 MB; dense it was 225
    assert json.loads((tmp_path / "evaluation.json").read_text()) == report.to_json()
    lines = report.text().splitlines()
    assert lines[51].split()[:2] == ["class", "49"]
    assert lines[52] == "... and 4950 more classes in evaluation.json"
    assert len(lines) < 65


@pytest.mark.parametrize("number", [50, 51])
def test_left_out(number: int) -> None:
    more = ["... and 1 more labels in evaluation.json"]
    assert left_out(range(number), "labels") == more[: number - 50]
