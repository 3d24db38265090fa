from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_vit import data
from keras_vit.data import DatasetReport
from keras_vit.evaluation import slice_accuracies
from keras_vit.files import without_folders
from keras_vit.reports import write_evaluation
from keras_vit.tasks.classification.calibration import calibrate
from keras_vit.tasks.classification.metrics import evaluate_predictions
from keras_vit.tasks.classification.mistakes import Mistake
from keras_vit.tasks.classification.page import ClassificationDetails
from keras_vit.tasks.multi_label.metrics import evaluate_labels
from keras_vit.tasks.multi_label.page import MultiLabelDetails
from keras_vit.tasks.task import Details
from tests.visualization.test_html_page import Balance

pytestmark = pytest.mark.tensorflow

SECTIONS = [
    *("summary", "classes", "confusion", "calibration", "mistakes", "slices", "data"),
    *("configuration", "versions"),
]


@pytest.fixture(scope="module", autouse=True)
def checked_once() -> Iterator[None]:
    """All pages are about the same images: the first page checks them, for all."""
    check, found = data.check, []

    def once(*arguments: Any, **options: Any) -> DatasetReport:
        if not found:
            found.append(check(*arguments, **options))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "check", once)
        yield


def details(
    number: int, classes: int, name: str = "class_{}", **changes: object
) -> ClassificationDetails:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, classes, number)
    probabilities = rng.dirichlet(np.ones(classes), number).astype("float32")
    probabilities[np.arange(number), labels] += 0.3
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    names = [name.format(k) for k in range(classes)]
    predicted = probabilities.argmax(axis=1)
    picture = rng.integers(0, 256, (16, 24, 3), "uint8")
    found = ClassificationDetails(
        scores=evaluate_predictions(labels, probabilities, names),
        calibration=calibrate(labels, probabilities),
        mistakes=(Mistake("folder/a&b.jpg", names[0], names[-1], 0.875, picture, picture),),
        slices=slice_accuracies(labels, predicted, {"camera": ["phone", "reflex"] * (number // 2)}),
    )
    return dataclasses.replace(found, **changes)


def write(found: Details, folder: Path) -> str:
    path = write_evaluation(
        found,
        data.load("digits").subset(range(60)),
        folder,
        title="flowers",
        subtitle="60 images, held out",
        configuration={"data": "/home/somebody/photos", "recipe": {"epochs": 3}},
        versions={"keras": "3.15.1", "jax": None},
    )
    text = path.read_text(encoding="utf-8")
    balance = Balance()
    balance.feed(re.sub(r"<(path|use|rect|image|circle)\b[^>]*/>", "", text))
    return text


def sections(text: str) -> list[str]:
    return re.findall(r'<section id="(\w+)">', text)


def test_page_answers_every_question(tmp_path: Path) -> None:
    found = details(200, 5)
    text = write(found, tmp_path)
    assert sections(text) == SECTIONS
    assert f"<b>{found.scores.accuracy:.1%}</b>" in text
    row = found.scores.per_class[2]
    cells = f"<td>{row.precision:.3f}</td><td>{row.recall:.3f}</td><td>{row.f1:.3f}</td>"
    assert f"<td>class_2</td>{cells}<td>{row.support}</td>" in text
    assert "class_0, predicted as class_4 (88%): folder/a&amp;b.jpg" in text
    assert "camera: phone" in text
    assert f"{found.calibration.temperature:.2f}" in text
    assert "<td>keras</td><td>3.15.1</td>" in text
    assert "<td>jax</td>" not in text


@pytest.mark.slow
def test_page_of_correct_predictions_has_no_temperature(tmp_path: Path) -> None:
    calibration = calibrate([0, 1, 0, 1], np.array([[0.9, 0.1], [0.2, 0.8]] * 2))
    text = write(details(60, 3, calibration=calibration), tmp_path)
    assert "is 0.150 (15 bins). No temperature is fitted: the cross-entropy has no minimum" in text
    assert "best temperature" not in text
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["calibration"]["temperature"] is None


def test_page_knows_no_folder_and_no_network(tmp_path: Path) -> None:
    text = write(details(60, 3), tmp_path)
    content = (tmp_path / "report.json").read_text()
    for written in (text, content):
        assert "somebody" not in written
    assert "data: photos" in text
    addresses = set(re.findall(r"https?://[\w./-]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


@pytest.mark.slow
def test_numbers_are_kept_beside_the_page(tmp_path: Path) -> None:
    found = details(60, 3)
    write(found, tmp_path)
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["scores"] == found.scores.to_json()
    assert content["calibration"]["before"]["expected_calibration_error"] == pytest.approx(
        found.calibration.before.error
    )
    assert content["mistakes"][0]["name"] == "folder/a&b.jpg"
    assert content["slices"][0]["images"] == 30


@pytest.mark.slow
@pytest.mark.parametrize("dense", [1000, 2])
def test_confused_pairs_are_the_most_frequent(
    dense: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keras_vit.tasks.classification.metrics.DENSE_CLASSES", dense)
    labels = np.r_[np.zeros(9, int), np.ones(6, int), [2]]
    predicted = np.r_[[1] * 4, [0] * 5, [2] * 3, [1] * 3, [2]]
    scores = evaluate_predictions(labels, np.eye(3)[predicted], ["ant", "bee", "cow"])
    text = write(details(60, 3, scores=scores), tmp_path)
    pairs = re.findall(r"<tr><td>(\w+)</td><td>(\w+)</td><td>(\d+)</td><td>([\d.]+%)</td>", text)
    assert pairs == [("ant", "bee", "4", "44.4%"), ("bee", "cow", "3", "50.0%")]


@pytest.mark.slow
def test_page_of_more_than_five_classes(tmp_path: Path) -> None:
    assert "top-5 accuracy" in write(details(60, 7), tmp_path)


def test_page_of_a_model_without_a_mistake(tmp_path: Path) -> None:
    text = write(details(60, 3, mistakes=(), slices=(), calibration=None), tmp_path)
    assert "None: every prediction is correct." in text
    assert sections(text) == [s for s in SECTIONS if s not in ("slices", "calibration")]


def test_page_of_one_class_only(tmp_path: Path) -> None:
    scores = evaluate_predictions([1, 1], np.eye(3)[[1, 1]], ["ant", "bee", "cow"])
    text = write(details(60, 3, scores=scores), tmp_path)
    assert "<td>bee</td><td>1.000</td>" in text
    assert "predicted class</th>" not in text


def test_page_of_a_class_without_predictions(tmp_path: Path) -> None:
    scores = evaluate_predictions([0, 1, 2], np.eye(3)[[0, 0, 0]], ["ant", "bee", "cow"])
    text = write(details(60, 3, scores=scores), tmp_path)
    assert "<td>cow</td><td>0.000</td><td>0.000</td><td>0.000</td><td>1</td>" in text


def test_page_of_several_labels(tmp_path: Path) -> None:
    labels, scores = np.eye(3, dtype=int), np.eye(3) * 0.8 + 0.1
    found = MultiLabelDetails(evaluate_labels(labels, scores, "abc", [0.5] * 3))
    text = write(found, tmp_path)
    assert sections(text) == ["summary", "classes", "data", "configuration", "versions"]
    assert "mean average precision" in text


def test_page_of_several_labels_has_results_by_column(tmp_path: Path) -> None:
    labels = np.array([[1, 0], [0, 0], [0, 0]])
    scores = np.array([[0.9, 0.1], [0.2, 0.3], [0.1, 0.6]])
    by_value = {
        ("camera", value): evaluate_labels(labels[rows], scores[rows], "ab", [0.5, 0.5])
        for value, rows in {"": [2], "phone": [0, 1]}.items()
    }
    found = MultiLabelDetails(evaluate_labels(labels, scores, "ab", [0.5, 0.5]), by_value)
    text = write(found, tmp_path)
    assert sections(text)[:3] == ["summary", "classes", "slices"]
    assert "<td>camera: (empty)</td><td>-</td><td>0.000</td><td>0.0%</td><td>1</td>" in text
    assert "<td>camera: phone</td><td>1.000</td><td>1.000</td><td>100.0%</td><td>2</td>" in text
    empty, phone = json.loads((tmp_path / "report.json").read_text())["slices"]
    assert (empty["column"], empty["value"], empty["num_examples"]) == ("camera", "", 1)
    assert phone["mean_average_precision"] == 1


@pytest.mark.slow
def test_page_of_many_classes_and_rows_stays_readable(tmp_path: Path) -> None:
    """1,000 classes with long names and 100,000 rows: some megabytes, and each class in its row."""
    name = "a_rather_long_name_of_the_class_that_is_called_{}"
    text = write(details(100_000, 1000, name), tmp_path)
    assert len(text) < 4e6
    table = text[text.index('id="classes"') : text.index('id="confusion"')]
    assert table.count("<tr>") == 1001
    assert table.count("a_rather_long_name_of_the_class_that_...") == 1000


def test_without_folders_keeps_what_is_no_path() -> None:
    value = {"a": "/x/y.npz", "b": ["/", "text with / in it", 3], "c": "line\n/x/y", "d": None}
    assert without_folders(value) == {
        "a": "y.npz", "b": ["", "text with / in it", 3], "c": "line\n/x/y", "d": None
    }  # fmt: skip
