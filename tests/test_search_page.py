"""The program of the page on search finds the nearest images."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from keras_vit.cli.prediction_table import write_table
from keras_vit.export.load import Embeddings

PAGE = Path(__file__).parents[1] / "docs" / "search.md"


def test_program_finds_the_nearest_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("faiss", reason="faiss-cpu is not installed (extra dev)")
    vectors = np.random.default_rng(3).normal(size=(50, 16)).astype("float32")
    table, found = Embeddings(), [(vector, "") for vector in vectors]
    found.insert(7, (np.zeros(0, "float32"), "not an image"))
    rows = [(table.rows(f"{i}.jpg", one), not one[1]) for i, one in enumerate(found)]
    write_table(
        tmp_path / "vectors.parquet", table.columns, len(rows), lambda start: iter(rows[start:])
    )
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(program, str(PAGE), "exec"), {})
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = unit @ unit[0]
    expected = np.argsort(-similarity)[:5]
    files = [f"{i + (i >= 7)}.jpg" for i in expected]
    lines = [f"{similarity[i]:.3f} {file}" for i, file in zip(expected, files, strict=True)]
    assert capsys.readouterr().out.splitlines() == lines
