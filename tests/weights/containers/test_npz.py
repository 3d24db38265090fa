from __future__ import annotations

import pickle
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from keras_vit.weights.containers.npz import read_npz, write_npz
from tests.weights.containers.malicious_pickle import Explosive

TENSORS = {
    "embedding/kernel": np.random.default_rng(3).normal(size=(3, 2, 5)).astype("float32"),
    "cls": np.arange(7, dtype="float16"),
    "step": np.array(11),
    "empty": np.zeros((0, 13)),
    "transposed": np.arange(6.0).reshape(2, 3).T,
}


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        np.testing.assert_array_equal(found[name], tensor)


@pytest.mark.parametrize(
    "save", [np.savez, np.savez_compressed, "ours"], ids=["savez", "compressed", "ours"]
)
def test_read_npz_returns_every_array(save: object, tmp_path: Path) -> None:
    if save == "ours":
        write_npz(tmp_path / "m.npz", TENSORS)
    else:
        save(tmp_path / "m.npz", **TENSORS)
    assert_equal(read_npz(tmp_path / "m.npz"), TENSORS)


def test_write_npz_is_read_by_numpy(tmp_path: Path) -> None:
    write_npz(tmp_path / "m.npz", TENSORS)
    with np.load(tmp_path / "m.npz") as archive:
        assert list(archive) == list(TENSORS)
        assert_equal(dict(archive), TENSORS)


def test_write_npz_keeps_every_bit(tmp_path: Path) -> None:
    bits = np.array([0x00000001, 0x80000000, 0x7F800001, 0xFFC12345, 0x3F800001], "uint32")
    write_npz(tmp_path / "m.npz", {"a": bits.view("float32")})
    np.testing.assert_array_equal(read_npz(tmp_path / "m.npz")["a"].view("uint32"), bits)


def test_write_npz_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_npz(tmp_path / "a.npz", TENSORS)
    monkeypatch.setattr(time, "time", lambda: 2e9)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(2e9))
    other = {
        name: np.array(tensor, order="F") for name, tensor in read_npz(tmp_path / "a.npz").items()
    }
    write_npz(tmp_path / "b.npz", other)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_write_npz_refuses_before_it_writes(tmp_path: Path) -> None:
    write_npz(tmp_path / "m.npz", {"a": np.zeros(3)})
    before = (tmp_path / "m.npz").read_bytes()
    with pytest.raises(ValueError, match="Received: b with dtype object"):
        write_npz(tmp_path / "m.npz", {"a": np.ones(3), "b": np.array([None])})
    assert (tmp_path / "m.npz").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m.npz"]


def test_bfloat16_becomes_float32(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", a=np.array([[1.5, -3.0]]).astype("bfloat16"))  # as JAX has it
    found = read_npz(tmp_path / "m.npz")["a"]
    np.testing.assert_array_equal(found, np.array([[1.5, -3.0]], "float32"))
    assert found.dtype == np.float32


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_truncated_npz(share: float, tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", a=np.arange(5000.0), b=np.arange(7000.0))
    data = (tmp_path / "m.npz").read_bytes()
    (tmp_path / "m.npz").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match=r"The weight file .*m\.npz is truncated or damaged"):
        read_npz(tmp_path / "m.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_with_a_flipped_bit(save: object, tmp_path: Path) -> None:
    save(tmp_path / "m.npz", a=np.random.default_rng(3).normal(size=5000))
    data = bytearray((tmp_path / "m.npz").read_bytes())
    data[20_000] ^= 1
    (tmp_path / "m.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"damaged \((Bad CRC|Error -3 while decompressing)"):
        read_npz(tmp_path / "m.npz")


def test_npz_with_a_flipped_bit_in_an_empty_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", a=np.zeros((0, 3)))
    data = (tmp_path / "m.npz").read_bytes()
    (tmp_path / "m.npz").write_bytes(data.replace(b"(0, 3)", b"(0, 5)"))
    with pytest.raises(ValueError, match="Bad CRC"):
        read_npz(tmp_path / "m.npz")


def test_an_object_array_is_refused_and_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "m.npz", a=np.array([Explosive()], dtype=object), b=np.zeros(3))
    with pytest.raises(ValueError, match=r"not numeric: it contains a \(object"):
        read_npz(tmp_path / "m.npz")
    assert not (tmp_path / "exploded").exists()
    np.load(tmp_path / "m.npz", allow_pickle=True)["a"]
    assert (tmp_path / "exploded").exists()  # so the check above can fail


@pytest.mark.parametrize(
    ("name", "message"),
    [("a.npy", "the magic string is not correct"), ("a.pkl", "plain arrays: it contains a.pkl")],
)
def test_a_pickle_is_refused_and_not_executed(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("m.npz", "w") as archive:
        archive.writestr(name, pickle.dumps(Explosive()))
    with pytest.raises(ValueError, match=message):
        read_npz(tmp_path / "m.npz")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("tensor", "dtype"),
    [
        (np.array(["x", "yz"]), "<U2"),
        (np.array([True]), "bool"),
        (np.array([1j]), "complex128"),
        (np.zeros(3, "V4"), r"\|V4"),
        (np.zeros(3, "i4,f4"), r"\[\('f0', '<i4'\), \('f1', '<f4'\)\]"),
    ],
)
def test_npz_of_other_things_is_refused(tensor: np.ndarray, dtype: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", a=np.zeros(3), names=tensor)
    with pytest.raises(ValueError, match=rf"not numeric: it contains names \({dtype}"):
        read_npz(tmp_path / "m.npz")


def save_header(path: Path, header: str, data: bytes, version: int = 1) -> None:
    """Writes an .npz file with one member, whose header says what it likes."""
    text = header.encode() + b"\n"
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY" + bytes([version, 0]) + length + text + data)


@pytest.mark.parametrize("version", [1, 2])
def test_read_npz_understands_the_header_of(version: int, tmp_path: Path) -> None:
    header = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}"
    save_header(tmp_path / "m.npz", header, np.arange(6, dtype="<f4").tobytes(), version)
    np.testing.assert_array_equal(read_npz(tmp_path / "m.npz")["a"], [[0, 2, 4], [1, 3, 5]])


@pytest.mark.parametrize(
    ("descr", "shape", "message"),
    [
        ("<f4", "(1000000000000,)", r"shape \(1000000000000,\) needs 4,000,000,000,"),
        ("<f4", "(4294967296, 4294967296)", "needs 73,786,976,294,838,206,"),  # over 64 bits
        ("<f4", "(-2, -3)", r"shape \(-2, -3\)"),
        ("<f4", "(2, 2)", "but has"),
        ("<f4", "(2, 4)", "but has"),
        ("<f4", "(0, 1000000000000000000000)", "but has"),
        ("<q9", "(2, 3)", "descr is not a valid dtype descriptor"),
        ("<f4", "[2, 3]", "shape is not valid"),
        ("<f4", "(2.0, 3)", "shape is not valid"),
        ("<f4", "(2, __import__('os').abort())", "malformed node"),
        ("<f4", "(2, 3" + " " * 10_000 + ")", "Header info length"),
        # Python 3.11; Python 3.12 and later
        ("<f4", "(" * 300, "(EOF in multi-line statement|too many nested parentheses)"),
    ],
)
def test_headers_that_lie(descr: str, shape: str, message: str, tmp_path: Path) -> None:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}"
    save_header(tmp_path / "m.npz", header, bytes(24))
    with pytest.raises(ValueError, match=rf"truncated or damaged .*{message}"):
        read_npz(tmp_path / "m.npz")


def test_header_of_an_unknown_version(tmp_path: Path) -> None:
    save_header(tmp_path / "m.npz", "{}", b"", version=3)
    with pytest.raises(ValueError, match=r"plain arrays: a\.npy is of version=\(3, 0\)"):
        read_npz(tmp_path / "m.npz")


def test_a_bomb_is_refused_at_once(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "m.npz", a=np.zeros(21_000_000, "float32"))
    start = time.thread_time()
    tracemalloc.start()
    with pytest.raises(ValueError, match="too large: it declares 84,000,1"):
        read_npz(tmp_path / "m.npz")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
    assert time.thread_time() - start < 1


def test_zeros_are_no_bomb(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "m.npz", a=np.zeros((3, 1_000_000), "float32"))
    assert read_npz(tmp_path / "m.npz")["a"].shape == (3, 1_000_000)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(method: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.npz", "w", method) as archive:
        archive.writestr("a.npy", b"x")
    with pytest.raises(ValueError, match=r"not made of plain arrays: it contains a\.npy"):
        read_npz(tmp_path / "m.npz")


def test_a_name_that_climbs_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", **{"../../a": np.zeros(3)})
    with pytest.raises(
        ValueError, match=r"suspicious: the name '\.\./\.\./a\.npy' points outside the file"
    ):
        read_npz(tmp_path / "m.npz")


def test_read_npz_needs_no_more_than_the_tensors(tmp_path: Path) -> None:
    tensors = {f"t{index}": np.zeros((100_003 + index,), "float32") for index in range(17)}
    write_npz(tmp_path / "m.npz", tensors)
    size = sum(tensor.nbytes for tensor in tensors.values())
    tracemalloc.start()
    found = read_npz(tmp_path / "m.npz")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert_equal(found, tensors)
    assert size < peak < 1.2 * size  # measured 1.05; a third of one tensor is a buffer of NumPy
