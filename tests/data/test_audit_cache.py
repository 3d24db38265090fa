from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from keras_vit.data import audit, audit_cache, image_audit, inspection, load
from keras_vit.storage.packing import pack

Write = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path, write: Write, save: Callable, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(audit_cache, "MIN_CACHED_IMAGES", 3)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    pictures = {f"{name}.png": save(seed, (80, 90)) for seed, name in enumerate(("a/1", "a/2"))}
    damaged = {"b/damaged.png": save(2)[:60], "b/text.png": b"text", "b/3.png": save(3, (7, 9))}
    return write(tmp_path / "data", {**pictures, **damaged})


def same(first: image_audit.ImageAudit, second: image_audit.ImageAudit) -> bool:
    hashes = [
        {name: None if isinstance(f, str) or f.hash is None else f.hash.tolist() for name, f in x}
        for x in (first.findings.items(), second.findings.items())
    ]
    return first == second and hashes[0] == hashes[1]


def test_unchanged_images_are_inspected_once(folder: Path, inspected: list[str]) -> None:
    first = audit(load(folder), progress=False)
    assert sorted(inspected) == sorted(load(folder).names)
    assert same(first, audit(load(folder), progress=False))
    assert len(inspected) == 5


def test_changed_and_new_images_are_inspected(
    folder: Path, inspected: list[str], save: Callable
) -> None:
    audit(load(folder), progress=False)
    inspected.clear()
    (folder / "a" / "1.png").write_bytes(save(11, (80, 90)))
    os.utime(folder / "a" / "1.png", ns=(1, 1))
    (folder / "b" / "4.png").write_bytes(save(4))
    found = audit(load(folder), progress=False)
    assert sorted(inspected) == ["a/1.png", "b/4.png"]
    (folder.parent / "home").rename(folder.parent / "elsewhere")
    assert same(found, audit(load(folder), progress=False))


def test_packed_images_are_inspected_again_after_packing(
    folder: Path, inspected: list[str]
) -> None:
    packed = folder.parent / "packed"
    pack(folder, packed, processes=1, progress=False)
    first = audit(load(packed), progress=False)
    assert same(first, audit(load(packed), progress=False))
    assert len(inspected) == 5
    os.utime(packed / "packed_index.parquet", ns=(1, 1))
    load(packed).encoded.folder.fs.clear_instance_cache()  # type: ignore[union-attr]
    audit(load(packed), progress=False)
    assert len(inspected) == 10


def test_damaged_cache_is_reported(
    folder: Path, inspected: list[str], capsys: pytest.CaptureFixture
) -> None:
    first = audit(load(folder), progress=False)
    audit_cache.cache_file(str(folder)).write_bytes(b"no database" * 100)
    assert same(first, audit(load(folder), progress=False))
    assert "is not cached: file is not a database" in capsys.readouterr().out
    assert len(inspected) == 10


def test_images_in_memory_are_not_cached(folder: Path, inspected: list[str]) -> None:
    digits = load("digits").subset(range(5))
    for _ in range(2):
        audit(digits, progress=False)
    assert len(inspected) == 10
    assert not (folder.parent / "home").exists()


def test_images_are_inspected_again_when_they_are_compared(
    folder: Path, inspected: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (audit_cache, inspection):
            patch.setattr(module, "MAX_COMPARED", 3)
        for _ in range(2):
            assert audit(load(folder), progress=False).findings["a/1.png"].hash is None
    assert len(inspected) == 5
    assert audit(load(folder), progress=False).findings["a/1.png"].hash is not None
