from __future__ import annotations

import codecs

import pytest

from keras_vit.image_conversion import tables

RENAMES = {"a.heic": "a.jpg", "rose/b,c.tif": "b,c.jpg", "rose/ä.png": "ä.png.jpg"}


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("labels.csv", "file,label\r\na.heic,daisy\r\n", "file,label\r\na.jpg,daisy\r\n"),
        ("labels.csv", 'file,label\n "rose/b,c.tif", x\n', 'file,label\n "rose/b,c.jpg", x\n'),
        ("labels.csv", "file;label\n'a';a.heic", "file;label\n'a';a.jpg"),
        ("labels.csv", "file,label\nrose\\ä.png,1\n", "file,label\nrose\\ä.png.jpg,1\n"),
        ("labels.csv", 'a,b\n"say ""a.heic""",./a.heic\n', 'a,b\n"say ""a.heic""",./a.jpg\n'),
        ("rose/t.TSV", "b,c.tif\t../a.heic\n", "b,c.jpg\t../a.jpg\n"),
        ("x.jsonl", '{"file": "a.heic", "n": [1,2]}\n', '{"file": "a.jpg", "n": [1,2]}\n'),
        ("x.jsonl", '{"a.heic": "rose\\\\\\u00e4.png"}', '{"a.jpg": "rose\\\\\\u00e4.png.jpg"}'),
    ],
)
def test_renamed_replaces_whole_cells(name: str, before: str, after: str) -> None:
    assert tables.renamed(before.encode(), name, RENAMES).decode() == after


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "file,note\nb.heic,see a.heic\nxa.heic,a.heic2\n"),
        ("rose/labels.csv", "file\na.heic\n"),
        ("labels.csv", 'an open quote,"a.heic\n'),
        ("x.jsonl", '{"file": "see a.heic", "broken": "\\x", \n'),
        ("labels.csv", ""),
    ],
)
def test_renamed_leaves_other_text(name: str, text: str) -> None:
    assert tables.renamed(text.encode(), name, RENAMES) == text.encode()


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("latin-1", b""),
    ],
)
def test_renamed_keeps_the_encoding(encoding: str, mark: bytes) -> None:
    before = mark + "a.heic,rose/ä.png\n".encode(encoding)
    after = mark + "a.jpg,rose/ä.png.jpg\n".encode(encoding)
    assert tables.renamed(before, "labels.csv", RENAMES) == after
