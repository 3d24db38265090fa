from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from keras_vit.cli import prediction_table
from keras_vit.export import Prediction
from keras_vit.tasks.classification.prediction import Scores

pytestmark = pytest.mark.tensorflow

LABELS = ("ant", "bee", "cow")
GOOD = Prediction(np.float32([0.25, 0.625, 0.125]), ("bee", "ant", "cow"), (0.625, 0.25, 0.125))
BAD = Prediction(np.zeros(3, np.float32), (), (), message="The image is empty")


def test_columns_and_rows_agree() -> None:
    table = Scores(LABELS)
    expected = ["file", "label", "score", "label_2", "score_2", "label_3", "score_3", "message"]
    assert table.columns == expected
    values = ["a.jpg", "bee", 0.625, "ant", 0.25, "cow", 0.125, None]
    assert table.rows("a.jpg", GOOD)[0] == dict(zip(expected, values, strict=True))
    bad = table.rows("b.jpg", BAD)[0]
    assert bad == {"file": "b.jpg", "label": None, "score": None, "message": "The image is empty"}


def test_a_server_that_names_no_classes_gets_the_best_five() -> None:
    table = Scores()
    assert table.columns[-3:] == ["label_5", "score_5", "message"]
    assert table.rows("a.jpg", GOOD)[0].keys() < set(table.columns)


def test_every_class_has_a_column() -> None:
    table = Scores(LABELS, every_class=True)
    row = table.rows("a.jpg", GOOD)[0]
    assert list(row) == table.columns
    assert [row[f"probability_{name}"] for name in LABELS] == [0.25, 0.625, 0.125]


def test_labels_that_are_present_are_named() -> None:
    several = Prediction(GOOD.probabilities, GOOD.top_labels, GOOD.top_scores, ("bee", "ant"))
    table = Scores(LABELS, multi_label=True)
    assert "present" in table.columns
    assert table.rows("a.jpg", several)[0]["present"] == "bee|ant"


def test_features_are_one_column() -> None:
    table = prediction_table.Embeddings()
    row = table.rows("a.jpg", (np.float32([0.1, -2.5]), ""))[0]
    assert row == {"file": "a.jpg", "embedding": [0.1, -2.5], "message": None}
    assert table.rows("b.jpg", (np.zeros(2), "damaged"))[0]["embedding"] is None


@pytest.mark.parametrize("suffix", prediction_table.SUFFIXES)
def test_an_error_leaves_no_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"answers{suffix}"

    def rows() -> Iterator[dict[str, Any]]:
        yield {"file": "a.jpg"}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prediction_table.write_table(path, ["file"], rows())
    assert os.listdir(tmp_path) == []


def test_full_disk_names_the_table(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"path": "a.jpg"}
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left on device") as error:
        prediction_table.write_table(tmp_path / "a.csv", ["path"], rows())
    assert error.value.filename == str(tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())


def test_a_table_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"

    def rows() -> Iterator[dict[str, Any]]:
        yield {"file": "a.jpg"}
        path.write_text("of another program")

    with pytest.raises(ValueError, match=r"`--to` must not exist yet\. Received: .*table\.csv"):
        prediction_table.write_table(path, ["file"], rows())
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [
        ("table.csv", "of another program")
    ]


def test_two_that_write_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"

    def rows() -> Iterator[dict[str, Any]]:
        with pytest.raises(ValueError, match="which is in use by another process"):
            prediction_table.write_table(path, ["file"], [])
        yield {"file": "a.jpg"}

    prediction_table.write_table(path, ["file"], rows())
    assert path.read_text() == "file\na.jpg\n"


def test_parquet_is_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_table, "_PART", 2)
    path = tmp_path / "answers.parquet"
    rows = [{"file": f"{i}.jpg", "score": i / 4} for i in range(5)]
    prediction_table.write_table(path, ["file", "score"], rows)
    assert parquet.read_table(path).to_pylist() == rows
    assert parquet.ParquetFile(path).num_row_groups == 3


def test_names_that_are_not_utf_8_are_written_to_parquet(tmp_path: Path) -> None:
    table = Scores(LABELS)
    prediction_table.write_table(
        tmp_path / "a.parquet", table.columns, [table.rows("x\udcff.png", GOOD)[0]]
    )
    assert parquet.read_table(tmp_path / "a.parquet")["file"].to_pylist() == [r"x\udcff.png"]
