from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest

from keras_vit.data.sources.csv_text import Row, read_rows

IMAGES = {"1.png", "2.png", "sub/3.png", "Bär.png", "gs://1.png"}
PLAIN = [{"file": "1.png", "label": "Möwe"}, {"file": "2.png", "label": "ant"}]


def read(path: Path, content: str | bytes) -> tuple[list[Row], tuple[str, ...]]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    rows, notes = read_rows(path, IMAGES.__contains__)
    return rows, notes


def test_apostrophes_before_formulas_are_no_text(tmp_path: Path) -> None:
    text = "file,label,note\n1.png,'-1,'tis\n2.png,''=a,-2\n"
    rows, _ = read(tmp_path / "t.csv", text)
    assert [(row["label"], row["note"]) for row in rows] == [("-1", "'tis"), ("'=a", "-2")]


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("file,label\n1.png,Möwe\n2.png,ant\n", ()),
        ("\ufefffile,label\r\n1.png,Möwe\r\n\r\n,\r\n2.png,ant", ()),
        (' File , "LABEL"\n 1.png , "Möwe"\n2.png,ant \n', ()),
        ("label,file\rMöwe,1.png\rant,2.png\r", ()),
        ("file,label,,\n1.png,Möwe,,\n2.png,ant,,,,\n", ("Columns without a name in t.csv are i",)),
        (
            "file;label\n1.png;Möwe\n2.png;ant\n",
            ("The columns of t.csv are separated by semicolon",),
        ),
        (
            "file\tlabel\n1.png\tMöwe\n2.png\tant\n",
            ("The columns of t.csv are separated by tabs.",),
        ),
        ("1.png,Möwe\n2.png,ant\n", ("t.csv has no header line: its columns are file, label.",)),
        ("Möwe,1.png\nant,2.png\n", ("t.csv has no header line: its columns are label, file.",)),
        ("1.png;Möwe\n2.png;ant\n", ("The columns of", "t.csv has no header line: its columns a")),
        (
            "path,class\n1.png,Möwe\n2.png,ant\n",
            ("The column `path`", "The column `class` of t.csv"),
        ),
        (
            "Image;Category\n1.png;Möwe\n2.png;ant\n",
            ("The columns", "The column `image`", "The col"),
        ),
        ("file_name,target\n1.png,Möwe\n2.png,ant\n", ("The column `file_name`", "The column `t")),
    ],
)
def test_one_table_in_many_forms(tmp_path: Path, text: str, notes: tuple[str, ...]) -> None:
    rows, found = read(tmp_path / "t.csv", text)
    assert rows == PLAIN
    assert len(found) == len(notes)
    assert all(note.startswith(start) for note, start in zip(found, notes, strict=True))


@pytest.mark.parametrize(
    ("cells", "expected", "note"),
    [
        (("a;b", "a", "b"), ["a|b", "a", "b"], "are separated by ';'."),
        (("a b", "b", ""), ["a b", "b", ""], "contain ' ', because not all parts occur alone"),
        (("5 17", "5", "3 4"), ["5|17", "5", "3|4"], "are separated by ' '."),
        (("a b|c", "a", "b"), ["a b|c", "a", "b"], ""),
    ],
)
def test_separator_of_names_that_occur_alone(
    cells: tuple[str, ...], expected: list[str], note: str, tmp_path: Path
) -> None:
    text = "".join(f"{i}.png,{cell}\n" for i, cell in enumerate(cells))
    rows, notes = read(tmp_path / "t.csv", f"file,labels\n{text}")
    assert [row["labels"] for row in rows] == expected
    assert len(notes) == bool(note)
    assert note in "".join(notes)


def test_names_of_columns_and_of_lists_are_whole(tmp_path: Path) -> None:
    text = "file,red,car,red car\n1.png,0,0,1\n2.png,1,0,0\n3.png,0,0,0"
    rows, _ = read(tmp_path / "t.csv", text)
    assert [row["labels"] for row in rows] == ["red car", "red", ""]
    lines = "".join(f'{{"file": "1.png", "labels": ["{name}"]}}\n' for name in ("a b", "a", "b"))
    rows, notes = read(tmp_path / "t.jsonl", lines)
    assert [row["labels"] for row in rows] == ["a b", "a", "b"]
    assert notes == ()


@pytest.mark.parametrize(
    ("encoding", "mark", "note"),
    [
        (
            "utf-16-le",
            codecs.BOM_UTF16_LE,
            "t.csv is read as UTF-16, which gives words such as Möwe.",
        ),
        (
            "utf-16-be",
            codecs.BOM_UTF16_BE,
            "t.csv is read as UTF-16, which gives words such as Möwe.",
        ),
        ("utf-16-le", b"", "t.csv is read as UTF-16, which gives words such as Möwe."),
        ("utf-16-be", b"", "t.csv is read as UTF-16, which gives words such as Möwe."),
        ("latin-1", b"", "t.csv is read as Windows-1252, which gives words such as Möwe."),
    ],
)
def test_encodings_are_recognized(tmp_path: Path, encoding: str, mark: bytes, note: str) -> None:
    text = "file,label\n1.png,Möwe\n2.png,ant\n"
    assert read(tmp_path / "t.csv", mark + text.encode(encoding)) == (PLAIN, (note,))


def test_euro_sign_of_windows_is_read(tmp_path: Path) -> None:
    assert read(tmp_path / "t.csv", b"file,label\n1.png,\x80\n")[0][0]["label"] == "€"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("TRAIN,gs://1.png,a\nTEST,gs://2.png,b\n", "split, file, label"),
        ("1.png,a,val\n2.png,b,train\n", "file, label, split"),
    ],
)
def test_column_of_splits_needs_no_header(tmp_path: Path, text: str, columns: str) -> None:
    rows, notes = read(tmp_path / "t.csv", text)
    assert [row["label"] for row in rows] == ["a", "b"]
    assert notes == (f"t.csv has no header line: its columns are {columns}.",)


@pytest.mark.parametrize(
    "text", ["1.png,a,x\n2.png,b,y\n", "1.png,a,b,c\n2.png,a,b,c\n", "0.png,a\nx\n"]
)
def test_first_row_that_says_too_little_is_a_header(tmp_path: Path, text: str) -> None:
    rows, notes = read(tmp_path / "t.csv", text)
    assert list(rows[0]) == text.split("\n")[0].split(",")
    assert notes == ()


def test_lines_are_counted_where_rows_begin(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('file,label,text\n\n1.png,a,"two\nlines"\n2.png,b\n')
    rows, _ = read_rows(path, IMAGES.__contains__)
    assert {row.line: row for row in rows} == {
        3: {"file": "1.png", "label": "a", "text": "two\nlines"},
        5: {"file": "2.png", "label": "b", "text": ""},
    }


def test_names_of_classes_go_before_their_synonyms(tmp_path: Path) -> None:
    rows, notes = read(tmp_path / "t.csv", "file,path,labels,category\n1.png,x,a|b,c\n")
    assert rows == [{"file": "1.png", "path": "x", "labels": "a|b", "category": "c"}]
    assert notes == ()


def test_json_lines_are_rows(tmp_path: Path) -> None:
    lines = [
        {"file_name": "1.png", "label": 3, "camera": "x", "bbox": [1, 2], "odd": 1},
        {"label": True, "file_name": " 2.png ", "height": 1.5, "odd": {"a": 1}},
        {"file_name": "sub/3.png", "label": "ant", "camera": None},
    ]
    rows, notes = read(tmp_path / "t.JSONL", "\r\n\n".join(map(json.dumps, lines)))
    assert rows == [
        {
            "file": "1.png",
            "label": "3",
            "camera": "x",
            "bbox": "[1, 2]",
            "odd": "1",
            "height": "",
        },
        {
            "file": "2.png",
            "label": "true",
            "camera": "",
            "bbox": "",
            "odd": '{"a": 1}',
            "height": "1.5",
        },
        {
            "file": "sub/3.png",
            "label": "ant",
            "camera": "",
            "bbox": "",
            "odd": "",
            "height": "",
        },
    ]
    assert notes == ("The column `file_name` of t.JSONL is used as `file`.",)


def test_lists_of_labels_are_those_of_a_table(tmp_path: Path) -> None:
    text = '{"file": "1.png", "labels": ["b", 2]}\n{"file": "2.png", "labels": []}\n'
    rows, _ = read(tmp_path / "t.jsonl", text)
    assert [row["labels"] for row in rows] == ["b|2", ""]


@pytest.mark.parametrize(
    "line",
    [
        '{"file": "1.png", "label": "a"',
        '["1.png", "a"]',
        "1.png,a",
        '{"file": "1.png", "label": "a", "label": "b"}',
        '{"file": "1.png", "label": ["a"]}',
        '{"file": "1.png", "class": {}}',
        '{"file": "1.png", "labels": ["a|b"]}',
        '{"file": "1.png", "labels": [""]}',
        '{"file": "1.png", "labels": [["a"]]}',
        r'{"file": "1.png", "label": "\ud800"}',
        r'{"file": "1.png", "label": "\u0000"}',
        "[" * 100_000,
        f'{{"file": "1.png", "label": {"9" * 5000}}}',
    ],
)
def test_damaged_json_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    text = f'{{"file": "1.png", "label": "x"}}\n\n{line}\n'
    with pytest.raises(
        ValueError, match=r"must be a JSON object .* in line 3 of .*t\.jsonl$"
    ) as error:
        read(tmp_path / "t.jsonl", text)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must contain at least one image. Received: .*t.csv$"),
        ("\n \n", "must contain at least one image."),
        ("file,label\n", "must contain at least one image."),
        (
            "file,label,file\n1.png,a,b\n",
            r"different names. Received: \['file'\] more than once in",
        ),
        (
            "File,label,file\n1.png,a,b\n",
            r"different names. Received: \['file'\] more than once in",
        ),
        ("file,label,x,x\n1.png,a,b,c\n", r"different names. Received: \['x'\] more than once in"),
        ("file,label\n1.png,a\n2.png,b,c\n", "3 cells and 2 columns in line 3 of .*csv"),
        ("1.png,a\n2.png,b\nx.png,b,c\n", "3 cells and 2 columns in line 3 of .*csv"),
        ("file,label\n1.png,a\n2.png,\0b\n", "without NUL bytes.*a NUL byte in line 3 of .*csv"),
        ('file,label\n1.png,a\n2.png,"b\nsub/3.png,c\n', "quote.*row at line 3 of .*csv"),
        ('file,label\n1.png,"a\n2.png,"b"\n', "quote.*row at line 2 of .*csv"),
        ('file;label\n1.png;"a\n2.png;"b"\n', "quote.*row at line 2 of .*csv"),
        (
            f"file,label\n1.png,a\n2.png,{'b' * 131073}\n",
            r"quote.*limit \(131072\), in.* at line 3",
        ),
        (b"file,label\n1.png,\x81\n", "must be text in UTF-8, UTF-16 or Windows-1252.*csv$"),
        (codecs.BOM_UTF16_LE + b"\x00\xd8", "must be text in UTF-8, UTF-16"),
    ],
)
def test_damaged_table_is_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "t.csv", content)
