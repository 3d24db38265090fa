from __future__ import annotations

from pathlib import Path

import pytest

from keras_vit.data.sources.annotations import unusable_annotations


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("train/_annotations.coco.json", "COCO annotations"),
        ("Labels/1.TXT", "YOLO boxes"),
        ("1.xml", "Pascal VOC boxes"),
        ("gt/1.png", "a mask of pixels"),
    ],
)
def test_annotations_are_named_with_their_kind(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    (tmp_path / "zz.json").write_bytes(b"")
    assert unusable_annotations(tmp_path).startswith(f"; {name} contains {kind}, which")


def test_images_and_tables_are_no_annotations(tmp_path: Path) -> None:
    for name in ("1.jpg", "2.png", "labels.csv"):
        (tmp_path / name).write_bytes(b"")
    assert unusable_annotations(tmp_path) == ""
