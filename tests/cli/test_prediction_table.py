from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from keras_vit.cli import prediction_table
from keras_vit.export import Prediction

pytestmark = pytest.mark.tensorflow

LABELS = ("ant", "bee", "cow")
GOOD = Prediction(np.float32([0.25, 0.625, 0.125]), ("bee", "ant", "cow"), (0.625, 0.25, 0.125))
BAD = Prediction(np.zeros(3, np.float32), (), (), message="The image is empty")


def test_columns_and_rows_agree() -> None:
    names = prediction_table.columns(LABELS, multi_label=False, every_class=False)
    expected = ["file", "label", "score", "label_2", "score_2", "label_3", "score_3", "message"]
    assert names == expected
    row = prediction_table.row("a.jpg", GOOD, LABELS, every_class=False)
    assert row == dict(
        zip(names, ["a.jpg", "bee", 0.625, "ant", 0.25, "cow", 0.125, None], strict=True)
    )
    bad = prediction_table.row("b.jpg", BAD, LABELS, every_class=False)
    assert bad == {"file": "b.jpg", "label": None, "score": None, "message": "The image is empty"}


def test_every_class_has_a_column() -> None:
    names = prediction_table.columns(LABELS, multi_label=False, every_class=True)
    row = prediction_table.row("a.jpg", GOOD, LABELS, every_class=True)
    assert list(row) == names
    assert [row[f"probability_{name}"] for name in LABELS] == [0.25, 0.625, 0.125]


def test_labels_that_are_present_are_named() -> None:
    several = Prediction(GOOD.probabilities, GOOD.top_labels, GOOD.top_scores, ("bee", "ant"))
    assert "present" in prediction_table.columns(LABELS, multi_label=True, every_class=False)
    row = prediction_table.row("a.jpg", several, LABELS, every_class=False)
    assert row["present"] == "bee|ant"


@pytest.mark.parametrize("suffix", prediction_table.SUFFIXES)
def test_an_error_leaves_no_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"answers{suffix}"
    with contextlib.suppress(KeyboardInterrupt), prediction_table.writing(path, ["file"]) as write:
        write({"file": "a.jpg"})
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_two_that_write_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    second = prediction_table.writing(path, ["file"])
    refused = pytest.raises(ValueError, match="to which another process writes")
    with prediction_table.writing(path, ["file"]), refused:
        second.__enter__()
    assert path.read_text() == "file\n"


def test_parquet_is_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_table, "_PART", 2)
    path = tmp_path / "answers.parquet"
    rows = [{"file": f"{i}.jpg", "score": i / 4} for i in range(5)]
    with prediction_table.writing(path, ["file", "score"]) as write:
        for row in rows:
            write(row)
    assert parquet.read_table(path).to_pylist() == rows
    assert parquet.ParquetFile(path).num_row_groups == 3
