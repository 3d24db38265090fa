from __future__ import annotations

import dataclasses
import errno
import functools
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from keras_vit.cli import prediction_table
from keras_vit.export import Prediction
from keras_vit.export.load import Embeddings
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.prediction import Scores, optional_cells
from keras_vit.tasks.detection.prediction import DetectionPrediction, ObjectTable

pytestmark = pytest.mark.tensorflow

LABELS = ("ant", "bee", "cow")
GOOD = Prediction(np.float32([0.25, 0.625, 0.125]), ("bee", "ant", "cow"), (0.625, 0.25, 0.125))
BAD = Prediction(np.zeros(3, np.float32), (), (), message="The image is empty")


def write(path: Path, names: list[str], rows: Iterable[dict[str, Any]], number: int = 9) -> int:
    """Writes a table whose images have a row each."""
    left = ((([row], "message" not in row)) for row in rows)
    return prediction_table.write_table(
        path, names, number, lambda start: itertools.islice(left, start, None)
    )


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


def test_numbers_of_a_table_without_objects_are_numbers(tmp_path: Path) -> None:
    table = ObjectTable(Preprocessing())
    rows = table.rows("a.jpg", DetectionPrediction((), lambda _: np.zeros((0, 6)), "damaged"))
    write(tmp_path / "found.parquet", table.columns, rows, 1)
    types = parquet.read_schema(tmp_path / "found.parquet").types
    assert list(map(str, types)) == ["string", "string", *["float"] * 5, "string"]


def test_labels_that_are_present_are_named() -> None:
    several = Prediction(GOOD.probabilities, GOOD.top_labels, GOOD.top_scores, ("bee", "ant"))
    assert optional_cells(several) == {"present": "bee|ant"}
    further = {"set": ("bee",), "ood_score": 0.5, "in_distribution": True, "nearest": ("x", "y")}
    whole = dataclasses.replace(several, **further)
    table = Scores(LABELS, further=list(optional_cells(whole)))
    cells = ("bee|ant", "bee", 1, 0.5, True, "x", "y")
    assert tuple(table.rows("a.jpg", whole)[0][name] for name in table.columns[3:10]) == cells


def test_features_are_one_column() -> None:
    table = Embeddings()
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
        write(path, ["file"], rows())
    assert os.listdir(tmp_path) == []


def test_full_disk_names_the_table(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"path": "a.jpg"}
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left on device") as error:
        write(tmp_path / "a.csv", ["path"], rows())
    assert error.value.filename == str(tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())


def test_a_table_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"

    def rows() -> Iterator[dict[str, Any]]:
        yield {"file": "a.jpg"}
        path.write_text("of another program")

    with pytest.raises(ValueError, match=r"`--to` must not exist yet\. Received: .*table\.csv"):
        write(path, ["file"], rows())
    assert path.read_text() == "of another program"
    path.unlink()
    write(path, ["file"], [])  # from the parts
    assert path.read_text() == "file\na.jpg\n"
    assert list(tmp_path.iterdir()) == [path]


def test_names_of_columns_are_no_formulas(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", ["file", "=1+1"], [{"file": "a.jpg", "=1+1": 0.5}])
    assert (tmp_path / "a.csv").read_text() == "file,'=1+1\na.jpg,0.5\n"


def test_two_that_write_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"

    def rows() -> Iterator[dict[str, Any]]:
        with pytest.raises(ValueError, match="which is in use by another process"):
            write(path, ["file"], [])
        yield {"file": "a.jpg"}

    write(path, ["file"], rows())
    assert path.read_text() == "file\na.jpg\n"


@pytest.mark.parametrize("suffix", prediction_table.SUFFIXES)
@pytest.mark.parametrize("number", [0, 1, 7])
def test_parts_make_up_the_table(
    suffix: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"file": f"{i}.jpg", "score": i / 4} for i in range(number)]
    names = ["file", "score"]
    assert write(tmp_path / f"whole{suffix}", names, map(dict, rows), max(number, 1)) == 0
    monkeypatch.setattr(prediction_table, "IMAGES_PER_PART", 2)
    monkeypatch.setattr(prediction_table, "PARTS_PER_ROW_GROUP", 2)
    path = tmp_path / f"parts{suffix}"
    write(path, names, map(dict, rows), max(number, 1))
    assert {p.name for p in tmp_path.iterdir()} == {f"whole{suffix}", f"parts{suffix}"}
    if suffix != ".parquet":
        assert path.read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()
    else:
        assert parquet.read_table(path).to_pylist() == rows
        assert parquet.ParquetFile(path).num_row_groups == max(-(-number // 4), 1)
    if suffix == ".json":
        assert json.loads(path.read_text()) == rows


@pytest.mark.parametrize("suffix", prediction_table.SUFFIXES)
def test_an_interrupted_table_resumes(
    suffix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(prediction_table, "IMAGES_PER_PART", 3)
    path, starts = tmp_path / f"table{suffix}", []

    def rows_from(start: int, stop: int) -> Iterator[tuple[list[dict[str, Any]], bool]]:
        starts.append(start)
        for i in range(start, stop):  # two rows for each image, one of three is unreadable
            yield [{"file": f"{i}.jpg", "score": float(k)} for k in range(2)], bool(i % 3)
        if stop < 10:
            raise KeyboardInterrupt

    def run(stop: int, **identity: str) -> int:
        from_start = functools.partial(rows_from, stop=stop)
        return prediction_table.write_table(path, ["file", "score"], 10, from_start, identity)

    for stop in (2, 4, 8):
        with pytest.raises(KeyboardInterrupt):
            run(stop, model="a")
        assert not path.exists()
    assert run(10, model="a") == 4
    assert starts == [0, 0, 3, 6]
    assert "Resuming after 6 of 10 images." in capsys.readouterr().out
    resumed = path.read_bytes()
    path.unlink()
    assert run(10, model="a") == 4
    assert path.read_bytes() == resumed
    path.unlink()
    with pytest.raises(KeyboardInterrupt):
        run(8, model="a")
    assert run(10, model="b") == 4
    assert starts[-1] == 0
    assert "Starting anew: an interrupted call had another model" in capsys.readouterr().out
    if suffix == ".parquet":
        metadata = {b"images": b"10", b"model": b"b"}
        assert parquet.read_schema(path).metadata == metadata
    assert os.listdir(tmp_path) == [path.name]


def test_names_that_are_not_utf_8_are_written_to_parquet(tmp_path: Path) -> None:
    table = Scores(LABELS)
    write(tmp_path / "a.parquet", table.columns, [table.rows("x\udcff.png", GOOD)[0]])
    assert parquet.read_table(tmp_path / "a.parquet")["file"].to_pylist() == [r"x\udcff.png"]


def test_columns_of_parquet_have_the_types_of_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_table, "IMAGES_PER_PART", 2)
    empty = {"file": "a.jpg", "message": "unreadable"}
    values = {
        "class": "car",
        "set_size": 2,
        "in_distribution": True,
        "left": 0.5,
        "embedding": [1.5],
    }
    rows = [empty, empty, {"file": "b.jpg", **values}]
    names = ["file", *values, "message", "nothing"]
    write(tmp_path / "a.parquet", names, map(dict, rows), 3)
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.to_pylist() == [{**dict.fromkeys(names), **row} for row in rows]
    types = (
        "string",
        "string",
        "int64",
        "bool",
        "float",
        "list<element: float>",
        "string",
        "float",
    )
    assert tuple(map(str, table.schema.types)) == types
