from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from keras_vit.weights.containers import format_of, read_h5, read_npz
from tests.helpers import tiny_model


def test_format_of_trusts_the_content_not_the_suffix(tmp_path: Path) -> None:
    model = tiny_model()
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    np.savez(tmp_path / "m.npz", a=np.zeros(3))
    for name, kind in (("m.keras", "keras"), ("m.weights.h5", "h5"), ("m.npz", "npz")):
        assert format_of((tmp_path / name).rename(tmp_path / "renamed.bin")) == kind


def test_format_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"existing .npz, .weights.h5 or .keras file.*not exist"):
        format_of(tmp_path / "nowhere.npz")


def test_format_of_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_text("<!DOCTYPE html>")
    with pytest.raises(ValueError, match=r"m\.npz is not an \.npz, \.weights\.h5 or \.keras file"):
        format_of(tmp_path / "m.npz")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_truncated_npz(share: float, tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", a=np.arange(5000.0), b=np.arange(7000.0))
    data = (tmp_path / "m.npz").read_bytes()
    (tmp_path / "m.npz").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match=r"The weight file .*m\.npz is .* or write it again"):
        format_of(tmp_path / "m.npz")
    with pytest.raises(ValueError, match=r"The weight file .*m\.npz is damaged"):
        read_npz(tmp_path / "m.npz")


def test_npz_with_a_flipped_bit(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", a=np.arange(5000.0))
    data = bytearray((tmp_path / "m.npz").read_bytes())
    data[20_000] ^= 1
    (tmp_path / "m.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"damaged .*CRC"):
        read_npz(tmp_path / "m.npz")


class Explosive:
    """Unpickling this creates a file named `exploded`."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("exploded", "w")


@pytest.mark.parametrize("container", ["object array", "raw pickle"])
def test_pickles_are_refused_and_not_executed(
    container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.npz"
    if container == "object array":
        np.savez(path, a=np.array([Explosive()], dtype=object))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", pickle.dumps(Explosive()))
    with pytest.raises(ValueError, match=r"holds more than plain arrays|not made of numbers"):
        read_npz(path)
    assert not (tmp_path / "exploded").exists()


def test_npz_of_text_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", a=np.zeros(3), names=np.array(["x", "yz"]))
    with pytest.raises(ValueError, match="not made of numbers: it holds names of <U2"):
        read_npz(tmp_path / "m.npz")


def test_read_npz_returns_every_array(tmp_path: Path) -> None:
    arrays = {"a/b": np.zeros((2, 3), "float32"), "c": np.arange(5, dtype="float16")}
    np.savez(tmp_path / "m.npz", **arrays)
    found = read_npz(tmp_path / "m.npz")
    assert found.keys() == arrays.keys()
    np.testing.assert_array_equal(found["a/b"], arrays["a/b"])
    assert found["c"].dtype == np.float16


def test_read_h5_names_every_layer(tmp_path: Path) -> None:
    model = tiny_model(num_layers=1)
    model.save_weights(tmp_path / "m.weights.h5")
    layers = read_h5(tmp_path / "m.weights.h5")
    by_layer: dict[str, list[np.ndarray]] = {}
    for variable in model.weights:
        by_layer.setdefault(variable.path.rpartition("/")[0], []).append(np.asarray(variable))
    assert layers.keys() == by_layer.keys()
    for name, arrays in by_layer.items():
        for found, expected in zip(layers[name], arrays, strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_truncated_h5(share: float, tmp_path: Path) -> None:
    tiny_model().save_weights(tmp_path / "m.weights.h5")
    data = (tmp_path / "m.weights.h5").read_bytes()
    (tmp_path / "m.weights.h5").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match=r"The weight file .* is truncated or damaged"):
        read_h5(tmp_path / "m.weights.h5")


def test_h5_of_something_else(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["layers/table"] = np.zeros(3)
    with pytest.raises(ValueError, match=r"not a \.weights\.h5 file as `model\.save_weights`"):
        read_h5(tmp_path / "m.h5")
