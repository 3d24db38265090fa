from __future__ import annotations

import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from keras_vit.weights.containers.formats import format_of
from keras_vit.weights.containers.npz import write_npz
from keras_vit.weights.containers.safetensors import write_safetensors
from tests.helpers import tiny_model


def test_format_of_trusts_the_content_not_the_suffix(tmp_path: Path) -> None:
    model = tiny_model()
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    model.save_weights(tmp_path / "n.weights.h5")
    with h5py.File(tmp_path / "n.weights.h5", "a") as file:
        file.move("layers", "model_weights")
    write_npz(tmp_path / "m.npz", {"a": np.zeros(3)})
    write_safetensors(tmp_path / "m.safetensors", {"a": np.zeros(3)})
    with zipfile.ZipFile(tmp_path / "m.pth", "w") as archive:
        archive.writestr("m/data.pkl", b"")
    for name, kind in (
        ("m.keras", "keras"),
        ("m.weights.h5", "h5"),
        ("n.weights.h5", "legacy_h5"),
        ("m.npz", "npz"),
        ("m.safetensors", "safetensors"),
        ("m.pth", "torch"),
    ):
        assert format_of((tmp_path / name).rename(tmp_path / "renamed.bin")) == kind


# What `torch.save` wrote until 1.6 starts with this number; others pickle what they hold.
@pytest.mark.parametrize("start", [b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"\x80\x05N."])
def test_format_of_a_pickle(start: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_bytes(start)
    assert format_of(tmp_path / "m.npz") == "torch"


def test_format_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"an existing \.npz, .* or \.pth file.*not exist"):
        format_of(tmp_path / "nowhere.npz")


@pytest.mark.parametrize(
    "content", [b"", b"<!DOCTYPE html>", b"\x93NUMPY", b"\x00" * 100, b"\x80\x01x"]
)
def test_format_of_another_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_bytes(content)
    message = r"m\.npz is not an \.npz, \.weights\.h5, \.keras, \.safetensors, \.h5 or "
    with pytest.raises(ValueError, match=message):
        format_of(tmp_path / "m.npz")


def test_format_of_another_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.writestr("word/document.xml", "<xml>")
    with pytest.raises(ValueError, match=r"is not an \.npz, "):
        format_of(tmp_path / "m.npz")


@pytest.mark.parametrize("magic", [b"PK\x03\x04", b"\x89HDF\r\n\x1a\n"])
def test_format_of_half_a_file(magic: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_bytes(magic + b" and then nothing")
    with pytest.raises(
        ValueError, match=r"m\.npz is truncated or damaged \(.+\)\. Download or save"
    ):
        format_of(tmp_path / "m.npz")
