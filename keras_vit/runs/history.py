"""Reading and writing of a run's CSV files, which have one row per epoch."""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from keras_vit import files


def write_rows(path: str | os.PathLike[str], rows: Sequence[dict[str, float]]) -> None:
    """Writes a CSV file atomically; the columns are those of the last row, and then all others."""
    columns = list(dict.fromkeys(itertools.chain(rows[-1], *rows)))
    files.write_csv(path, [columns, *([row.get(name) for name in columns] for row in rows)])


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, float]]:
    """Reads a CSV file written by `write` or by `keras.callbacks.CSVLogger`."""
    if not Path(path).is_file():
        return []
    with Path(path).open(newline="", encoding="utf-8") as file:
        return [
            {name: float("nan") if n in ("", "NA") else float(n) for name, n in row.items()}
            for row in csv.DictReader(file)
        ]
