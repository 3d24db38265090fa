from __future__ import annotations

import math
from pathlib import Path

from keras_vit.runs import history


def test_rows_survive_the_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    assert history.read_rows(path) == []
    rows = [{"epoch": 0, "loss": 1.25}, {"epoch": 1, "loss": 0.1}]
    history.write_rows(path, rows)
    assert path.read_text() == "epoch,loss\n0,1.25\n1,0.1\n"
    assert history.read_rows(path) == rows


def test_every_column_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    history.write_rows(path, [{"epoch": 0, "earlier": 2}, {"epoch": 1, "loss": 0.5}])
    assert path.read_text() == "epoch,loss,earlier\n0,,2\n1,0.5,\n"


def test_missing_metric_is_nan(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("epoch,loss,val_loss\n0,1.5,NA\n1,0.5,\n")  # CSVLogger
    rows = history.read_rows(tmp_path / "a.csv")
    assert [row["loss"] for row in rows] == [1.5, 0.5]
    assert all(math.isnan(row["val_loss"]) for row in rows)
