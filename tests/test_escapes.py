from __future__ import annotations

import csv
import importlib
import io
import os
import re
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow.compute import replace_substring_regex

from keras_vit.escapes import CSV_TEXT, csv_cell, markdown, markdown_table, say, terminal

CLEAR = "\x1b[2J\x1b]0;title\x07rose\r\x9b31m"


def test_terminal_writes_control_characters_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert terminal(CLEAR) == r"\x1b[2J\x1b]0;title\x07rose\r\x9b31m"
    assert terminal("a\n\tb é 百合 ✓") == "a\n\tb é 百合 ✓"
    assert terminal("gpj.\u202eexe") == r"gpj.\u202eexe"
    say("caf\udce9.jpg\x1b[A")  # a file name that is not UTF-8 could not be printed
    assert capsys.readouterr().out == "caf\\udce9.jpg\\x1b[A\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("golden_retriever", "golden_retriever"),
        ("<img src=x onerror=alert(1)>", r"\<img src=x onerror=alert(1)\>"),
        ("a|b", r"a\|b"),
        ("[a](http://example.org)", r"\[a\](http\://example.org)"),
        ("__main__ _x_", r"\_\_main\_\_ \_x\_"),
        ("&lt;b&gt; ~~a~~", r"\&lt;b\&gt; \~\~a\~\~"),
        ("www.example.org https://a", r"www\.example.org https\://a"),
        ("two\nlines\r\n| of | a table |", r"two lines \| of \| a table \|"),
        ("`code` **bold** $x$", r"\`code\` \*\*bold\*\* \$x\$"),
    ],
)
def test_markdown_has_no_markup(text: str, expected: str) -> None:
    assert markdown(text) == expected


@pytest.mark.parametrize(
    "text", ["=1+1", "+a", "-a", "@a", "\ta", "\ra", "'=a", "''@a", "=\n'=a", "-\udcff"]
)
def test_csv_cells_are_no_formulas(text: str) -> None:
    assert csv_cell(text) == f"'{text}"
    column = pyarrow.array([os.fsencode(csv_cell(text)), None])
    assert replace_substring_regex(column, *CSV_TEXT).to_pylist() == [os.fsencode(text), None]
    assert re.sub(*CSV_TEXT, csv_cell(text)) == text


@pytest.mark.parametrize("value", ["rose", "'rose'", "a=b", "", None, -0.5, 3])
def test_other_csv_cells_are_as_they_were(value: object) -> None:
    assert csv_cell(value) is value
    if isinstance(value, str):
        assert re.sub(*CSV_TEXT, value) == value


def test_spreadsheets_read_text() -> None:
    file = io.StringIO()
    csv.writer(file).writerow([csv_cell("=HYPERLINK(1)"), csv_cell("b")])
    assert file.getvalue().strip() == "'=HYPERLINK(1),b"


HOSTILE = ("=cmd|' /C calc'!A0", "<script>|x", CLEAR)


def test_model_card_has_no_markup_of_class_names() -> None:
    from keras_vit.preprocessing import Preprocessing
    from keras_vit.reports import model_card

    row = {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 2}
    scores = {"accuracy": 1.0, "interval_95": (0.5, 1.0), "num_examples": 6}
    scores["per_class"] = [{"name": name, **row} for name in HOSTILE]
    text = model_card._metrics(scores) + model_card._uses(Preprocessing(class_names=HOSTILE))
    assert "\x1b" not in text
    assert "<script>" not in text.replace(r"\<script\>", "")
    cells = [line.replace(r"\|", "").count("|") for line in text.splitlines() if line[:1] == "|"]
    assert set(cells) == {6}


def test_tables_of_predictions_have_no_formulas(tmp_path: Path) -> None:
    from keras_vit.cli import prediction_table

    path = tmp_path / "predictions.csv"
    row = {"file": "-a.jpg", "label": HOSTILE[0], "score": -0.5}
    prediction_table.write_table(path, list(row), 1, lambda start: iter([([row], True)]))
    assert path.read_text().splitlines()[1] == f"'-a.jpg,'{HOSTILE[0]},-0.5"


def test_splits_keep_names_that_look_like_formulas(tmp_path: Path) -> None:
    from keras_vit.data.examples import Examples
    from keras_vit.data.splits import read_split, write_split

    names = ("=a.jpg", "-b.jpg", "c.jpg")
    examples = Examples(
        names, np.arange(3), (*HOSTILE[:2], "@a"), "memory", encoded=(b"a", b"b", b"c")
    )
    write_split(tmp_path / "split.csv", examples, [0, 1], [2])
    assert (tmp_path / "split.csv").read_text().splitlines()[1].startswith("'=a.jpg,")
    train, validation = read_split(tmp_path / "split.csv", examples)
    assert (list(train), list(validation)) == ([0, 1], [2])


def test_errors_of_commands_do_not_move_the_cursor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = importlib.import_module("keras_vit.cli.app")

    def fail() -> None:
        raise ValueError(f"`label` must be known. Received: {CLEAR}")

    monkeypatch.setattr(app, "app", fail)
    with pytest.raises(SystemExit):
        app.main()
    assert "\x1b" not in capsys.readouterr().err


def test_markdown_table_has_columns_of_one_width() -> None:
    assert markdown_table(["", "images"], [["rose", "7"], ["daisy", "13"]]).splitlines() == [
        "|       | images |",
        "| ---   | ---    |",
        "| rose  | 7      |",
        "| daisy | 13     |",
    ]
