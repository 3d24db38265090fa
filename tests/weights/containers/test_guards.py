from __future__ import annotations

import os
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from keras_vit.weights.containers import guards


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "m.npz").write_bytes(b"x" * 1000)
    return tmp_path / "m.npz"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (zlib.error("invalid block type"), "invalid block type"),
        (OSError("read failed"), "read failed"),
        (KeyError(), "KeyError"),
        (RuntimeError("many words " * 100), r"many words many \.\.\."),
    ],
    ids=["zlib", "os", "silent", "long"],
)
def test_reading_turns_errors_into_one(error: Exception, reason: str, path: Path) -> None:
    message = (
        rf"^The weight file .*m\.npz is truncated or damaged \(.*{reason}\)\. Download or save"
    )
    with pytest.raises(ValueError, match=message) as caught, guards.reading(path):
        raise error
    assert len(str(caught.value)) < 200 + 200
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [MemoryError(), PermissionError(13, "no"), KeyboardInterrupt()], ids=repr
)
def test_reading_leaves_what_is_not_the_file_s_fault(error: BaseException, path: Path) -> None:
    with pytest.raises(type(error)) as caught, guards.reading(path):
        raise error
    assert caught.value is error


def test_reading_keeps_a_refusal(path: Path) -> None:
    message = r"^The weight file .*m\.npz is ambiguous: it contains a more than once\.$"
    with pytest.raises(ValueError, match=message), guards.reading(path):
        guards.check_names(path, ["a", "b", "a"])


@pytest.mark.parametrize("name", ["nowhere.npz", "."])
def test_reading_needs_a_file(name: str, tmp_path: Path) -> None:
    message = (
        r"must be None or the path of an existing \.npz, \.safetensors, \.h5, \.keras or \.pth "
        r"file\. Received: weights='.*', which does not exist"
    )
    with pytest.raises(ValueError, match=message), guards.reading(tmp_path / name):
        pass


@pytest.mark.parametrize("name", ["/a", "../a", "a/../b", "..", "\\a", "C:\\a", "a\\..\\b"])
def test_names_that_lead_outside(name: str, path: Path) -> None:
    assert guards.leads_outside(name)
    with pytest.raises(ValueError, match=r"is suspicious: the name '.*' points outside the file"):
        guards.check_names(path, ["a", name])


@pytest.mark.parametrize("name", ["a", "a/b", "a..b", "...", "blocks.0.norm1.weight", "k:0"])
def test_names_that_stay_inside(name: str, path: Path) -> None:
    assert not guards.leads_outside(name)
    guards.check_names(path, [name])


def test_check_size_grows_with_the_file(path: Path) -> None:
    most = 64 * 2**20 + 8 * 1000
    guards.check_size(path, most)
    message = f"too large: it declares {most + 1:,} bytes .*: {most:,}"
    with pytest.raises(ValueError, match=message):
        guards.check_size(path, most + 1)


def test_check_size_has_an_end(path: Path) -> None:
    os.truncate(path, 3 * 2**40)  # a hole, not bytes
    with pytest.raises(ValueError, match=r"limit for a file of this size: 17,179,869,184\)"):
        guards.check_size(path, 16 * 2**30 + 1)


@pytest.mark.parametrize("dtype", ["O", "U2", "S3", "V4", "bool", "complex64", "M8[s]", "i4,f4"])
def test_check_numbers(dtype: str, path: Path) -> None:
    numbers = {"a": np.dtype("float16"), "b": np.dtype(">i8"), "c": np.dtype("uint8")}
    guards.check_numbers(path, numbers)
    with pytest.raises(ValueError, match=r"is not numeric: it contains d \("):
        guards.check_numbers(path, numbers | {"d": np.dtype(dtype)})


@pytest.mark.parametrize(
    "tensor",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.arange(12, dtype="float16").reshape(3, 4).T[::2, :2],
        np.float32(5.5),
    ],
    ids=["as it is", "big endian", "strided", "scalar"],
)
def test_plain_changes_the_storage_alone(tensor: np.ndarray) -> None:
    stored = guards.plain("a", tensor)
    np.testing.assert_array_equal(stored, tensor)
    assert stored.shape == tensor.shape
    assert stored.flags.c_contiguous
    assert stored.dtype.newbyteorder("<") == stored.dtype
    assert (stored.dtype.kind, stored.itemsize) == (tensor.dtype.kind, tensor.itemsize)


def test_plain_copies_nothing_without_need() -> None:
    tensor = np.zeros((2, 3), "float32")
    assert np.shares_memory(guards.plain("a", tensor), tensor)


@pytest.mark.parametrize("dtype", ["O", "U2", "bool", "longdouble", "bfloat16", "complex64"])
def test_plain_needs_numbers(dtype: str) -> None:
    message = r"must be integers, float16, float32 or float64\. Received: a with dtype .*\. Convert"
    with pytest.raises(ValueError, match=message):
        guards.plain("a", np.zeros(3, dtype))


@pytest.mark.parametrize("name", ["", "../a", "/a"])
def test_plain_needs_a_name(name: str) -> None:
    with pytest.raises(ValueError, match=rf"must have non-empty names .* Received: '{name}'"):
        guards.plain(name, np.zeros(3))


def test_open_zip_refuses_a_name_that_stands_twice(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's own, about this
        archive.writestr("a.npy", "1")
        archive.writestr("a.npy", "2")
    message = "ambiguous: it contains a.npy more than once"
    with pytest.raises(ValueError, match=message), guards.open_zip(tmp_path / "m.npz"):
        pass


def test_open_zip_believes_no_size(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.writestr("a.npy", bytes(1003))
    data = (tmp_path / "m.npz").read_bytes()
    size = (1003).to_bytes(4, "little")
    assert data.count(size) == 4  # compressed and not, beside the member and in the directory
    (tmp_path / "m.npz").write_bytes(data.replace(size, b"\xff\xff\xff\xf0"))
    message = "too large: it declares 4,043,309,055 bytes"
    with pytest.raises(ValueError, match=message), guards.open_zip(tmp_path / "m.npz"):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [False, True])
def test_open_zip_refuses_a_long_list_of_members(hidden: bool, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        for number in range(60_000):
            archive.writestr(f"{number:030}", b"")
    data = bytearray((tmp_path / "m.npz").read_bytes())
    if hidden:  # the mark of the record in a field that zipfile ignores
        data[-18:-14] = b"PK\5\6"
    (tmp_path / "m.npz").write_bytes(data)
    with (
        pytest.raises(ValueError, match=r"its list of members has 4,\d"),
        guards.open_zip(tmp_path / "m.npz"),
    ):
        pass
