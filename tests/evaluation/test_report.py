from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import classification_report

from keras_vit.evaluation import Report, evaluate_predictions

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


def test_write_json_keeps_everything(report: Report, tmp_path: Path) -> None:
    report.write_json(tmp_path / "evaluation.json")
    read = json.loads((tmp_path / "evaluation.json").read_text())
    assert read == report.to_json()
    assert read["num_examples"] == 53
    assert read["top5_accuracy"] == report.top5
    assert [row["name"] for row in read["per_class"]] == NAMES
    assert np.trace(read["confusion"]) / 53 == pytest.approx(read["accuracy"])
