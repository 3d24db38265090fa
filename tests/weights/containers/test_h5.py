from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from keras_vit.weights.containers.formats import format_of
from keras_vit.weights.containers.h5 import read_h5, read_legacy_h5
from tests.helpers import tiny_model

READERS = pytest.mark.parametrize("read", [read_h5, read_legacy_h5])


def test_read_h5_names_every_layer(tmp_path: Path) -> None:
    model = tiny_model(num_layers=1)
    model.save_weights(tmp_path / "m.weights.h5")
    assert format_of(tmp_path / "m.weights.h5") == "h5"
    stored = read_h5(tmp_path / "m.weights.h5")
    by_layer: dict[str, dict[str, np.ndarray]] = {}
    for variable in model.weights:
        layer, _, name = variable.path.rpartition("/")
        by_layer.setdefault(layer, {})[name] = np.asarray(variable)
    del stored["image_contract/config"]  # which is no variable
    for layer, arrays in by_layer.items():
        for index, (name, expected) in enumerate(arrays.items()):
            key = name if layer == "patch_encoder" else str(index)  # which saves by name
            np.testing.assert_array_equal(stored.pop(f"{layer}/{key}"), expected)
    assert not stored


def test_read_h5_returns_bfloat16_as_float32(tmp_path: Path) -> None:
    dense = keras.layers.Dense(2, name="head", dtype="bfloat16")
    model = keras.Sequential([keras.Input((3,)), dense])
    model.save_weights(tmp_path / "m.weights.h5")
    found = read_h5(tmp_path / "m.weights.h5")
    kernel, bias = found["head/0"], found["head/1"]
    assert (kernel.dtype, kernel.shape, bias.shape) == (np.float32, (3, 2), (2,))
    np.testing.assert_array_equal(kernel, np.asarray(dense.kernel.numpy(), "float32"))


def test_read_legacy_h5_of_weights(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="layers")])
    model.save(tmp_path / "m.h5")  # the format of Keras 2
    assert format_of(tmp_path / "m.h5") == "legacy_h5"
    found = read_legacy_h5(tmp_path / "m.h5")
    kernel = next(name for name in found if name.endswith("kernel"))
    assert kernel.startswith("model_weights/layers/")
    np.testing.assert_array_equal(found[kernel], np.asarray(model.layers[0].kernel))


def test_keras_2_with_a_layer_called_layers(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["layer_names"] = [b"layers"]
        file["layers/layers/kernel:0"] = np.arange(6.0).reshape(2, 3)
    assert format_of(tmp_path / "m.h5") == "legacy_h5"
    found = read_legacy_h5(tmp_path / "m.h5")
    assert list(found) == ["layers/layers/kernel:0"]
    assert found["layers/layers/kernel:0"].shape == (2, 3)


@READERS
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9])
def test_truncated_h5(share: float, read: object, tmp_path: Path) -> None:
    tiny_model().save_weights(tmp_path / "m.weights.h5")
    data = (tmp_path / "m.weights.h5").read_bytes()
    (tmp_path / "m.weights.h5").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match=r"The weight file .* is truncated or damaged"):
        read(tmp_path / "m.weights.h5")


def test_h5_of_something_else(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["layers/table"] = np.zeros(3)
    with pytest.raises(
        ValueError, match=r"not a \.weights\.h5 file written by `model\.save_weights`"
    ):
        read_h5(tmp_path / "m.h5")


@READERS
@pytest.mark.parametrize("kind", ["external", "soft", "external group"])
def test_links_are_never_followed(kind: str, read: object, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["layers/secret"] = np.zeros(3)
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["kernel"] = np.zeros(3)
        if kind == "external":
            file["layers/a"] = h5py.ExternalLink("other.h5", "/layers/secret")
        elif kind == "soft":
            file["layers/a"] = h5py.SoftLink("/kernel")
        else:
            file["layers"] = h5py.ExternalLink("other.h5", "/layers")
    assert format_of(tmp_path / "m.h5") == ("legacy_h5" if kind == "external group" else "h5")
    with pytest.raises(ValueError, match=r"not self-contained: layers(/a)? is a link"):
        read(tmp_path / "m.h5")


@READERS
@pytest.mark.parametrize("kind", ["external", "virtual"])
def test_data_in_other_files_is_never_read(kind: str, read: object, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(24))
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["secret"] = np.zeros(3)
    with h5py.File(tmp_path / "m.h5", "w") as file:
        if kind == "external":
            external = [(str(tmp_path / "secret.bin"), 0, 24)]
            file.create_dataset("layers/a", (3,), "f8", external=external)
        else:
            layout = h5py.VirtualLayout((3,), "f8")
            layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "secret", (3,))
            file.create_virtual_dataset("layers/a", layout)
    with pytest.raises(ValueError, match="not self-contained: layers/a lies in another file"):
        read(tmp_path / "m.h5")


@READERS
def test_loops_and_second_names_are_refused(read: object, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["layers/a"] = np.zeros(3)
        file["layers/b"] = file["layers/a"]
    with pytest.raises(ValueError, match="ambiguous: layers/b is stored under several names"):
        read(tmp_path / "m.h5")
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["layers/loop"] = file["/"]
    with pytest.raises(ValueError, match="ambiguous: layers/loop is stored under several names"):
        read(tmp_path / "m.h5")


@pytest.fixture
def collected() -> Iterator[None]:
    """Stops the collection of garbage, which would count objects of earlier tests as reading."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collected")
@READERS
def test_groups_without_end_are_refused(read: object, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        group = file.create_group("layers")
        for _ in range(1500):
            group = group.create_group("a")
    start = time.thread_time()
    with pytest.raises(ValueError, match=r"truncated or damaged .*recursion"):
        read(tmp_path / "m.h5")
    assert time.thread_time() - start < 1


@pytest.mark.usefixtures("collected")
@READERS
@pytest.mark.parametrize("kind", ["unwritten", "chunk"])
def test_bombs_are_refused_at_once(kind: str, read: object, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        if kind == "unwritten":
            file.create_dataset("layers/a", (10**6, 10**6), "f4")
        else:
            options = {"maxshape": (None,), "chunks": (2**28,)}
            file.create_dataset("layers/a", (3,), "f4", **options)
    start = time.thread_time()
    with pytest.raises(ValueError, match=r"too large: it declares [\d,]+ bytes"):
        read(tmp_path / "m.h5")
    assert time.thread_time() - start < 1


@READERS
@pytest.mark.parametrize("times", [1, 2])
def test_filters_are_refused(times: int, read: object, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_group("layers")
        options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        options.set_chunk((1009,))
        for _ in range(times):  # twice, it unpacks to more than a thousandfold
            options.set_deflate(9)
        space = h5py.h5s.create_simple((1009,))
        kind = h5py.h5t.py_create(np.dtype("f4"))
        stored = h5py.h5d.create(file.id, b"layers/a", kind, space, options)
        h5py.Dataset(stored)[:] = 0
    message = r"compressed, unlike Keras files: store layers/a without filters\.$"
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "m.h5")


def test_a_dataset_called_layers_is_not_of_keras_3(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_dataset("layers", (10**9, 10**9), "f4", chunks=(3, 5))
    assert format_of(tmp_path / "m.h5") == "legacy_h5"


@READERS
@pytest.mark.parametrize("dtype", ["S3", h5py.string_dtype(), h5py.ref_dtype, "i4,f4", "bool"])
def test_h5_of_other_things_is_refused(dtype: object, read: object, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_dataset("layers/a", (3,), dtype)
    with pytest.raises(ValueError, match=r"not numeric: it contains layers/a \("):
        read(tmp_path / "m.h5")


@READERS
def test_an_empty_dataset_and_a_bare_type_are_refused(read: object, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["layers/a"] = h5py.Empty("f4")
    with pytest.raises(ValueError, match="truncated or damaged"):
        read(tmp_path / "m.h5")
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["layers/a"] = np.dtype("f4")
    with pytest.raises(ValueError, match="not made of plain arrays: it contains layers/a"):
        read(tmp_path / "m.h5")
