from __future__ import annotations

import pickle
import sys
import textwrap
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_vit.weights.containers.formats import format_of
from keras_vit.weights.containers.torch import read_torch
from tests.weights.containers.malicious_pickle import Explosive


class Tensor:
    """As much of a PyTorch tensor as the reader uses; PyTorch is no requirement of the tests."""

    def __init__(self, array: np.ndarray, dtype: str = "") -> None:
        self.array, self.dtype = array, dtype or array.dtype.name

    def detach(self) -> Tensor:
        return self

    def float(self) -> Tensor:
        return Tensor(self.array.astype("float32"))

    def numel(self) -> int:
        return self.array.size

    def element_size(self) -> int:
        return self.array.itemsize

    def numpy(self) -> np.ndarray:
        if self.dtype == "bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A `torch` whose `load` returns `content`, and notes how it was asked."""

    def load(path: Path, **options: Any) -> Any:
        assert options == {"map_location": "cpu", "weights_only": True}
        if isinstance(torch.content, Exception):
            raise torch.content
        return torch.content

    torch = types.SimpleNamespace(
        __version__="2.10.0+cpu", Tensor=Tensor, bfloat16="bfloat16", load=load, content={}
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "m.pth").write_bytes(pickle.dumps({}))
    return tmp_path / "m.pth"


WRAPS = pytest.mark.parametrize(
    "wrap",
    [
        lambda tensors: tensors,
        lambda tensors: {"model": tensors},
        lambda tensors: {"epoch": 3, "state_dict": tensors, "optimizer": {"lr": 0.1}},
        lambda tensors: {"student": {}, "teacher": tensors},
        lambda tensors: {"state_dict": {"model": tensors}},
    ],
)


@WRAPS
def test_read_torch_unwraps(wrap: Any, stand_in: types.SimpleNamespace, path: Path) -> None:
    stand_in.content = wrap({"a": Tensor(np.arange(6, dtype="float16")), "b": Tensor(np.ones(5))})
    found = read_torch(path)
    assert list(found) == ["a", "b"]
    np.testing.assert_array_equal(found["a"], np.arange(6))
    assert found["a"].dtype == np.float16


def test_bfloat16_becomes_float32(stand_in: types.SimpleNamespace, path: Path) -> None:
    stand_in.content = {"a": Tensor(np.array([1.5, -3.0], "bfloat16"))}
    found = read_torch(path)["a"]
    np.testing.assert_array_equal(found, [1.5, -3.0])
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "not a dictionary of tensors: list"),
        ({"a": Tensor(np.zeros(3)), "epoch": 3}, "not made of tensors: it contains epoch"),
        ({"a": Tensor(np.zeros(3, bool))}, r"not numeric: it contains a \(bool"),
        (
            {"a": Tensor(np.broadcast_to(np.float32(0), (10**6, 10**6)))},
            "too large: it declares 4,000,000,000,000 bytes",
        ),
        (
            pickle.UnpicklingError("Re-run with `weights_only=False`"),
            "damaged, or more than tensors: PyTorch cannot load it with `weights_only=True`.",
        ),
    ],
)
def test_other_contents_are_refused(
    content: Any, message: str, stand_in: types.SimpleNamespace, path: Path
) -> None:
    stand_in.content = content
    with pytest.raises(ValueError, match=message):
        read_torch(path)


@pytest.mark.parametrize("version", ["2.9.1+cu126", "1.13.0"])
def test_read_torch_needs_a_safe_torch(
    version: str, stand_in: types.SimpleNamespace, path: Path
) -> None:
    stand_in.__version__ = version
    message = (
        rf"PyTorch must be 2\.10 or later: .* Received: torch {version[:5]}.*weights_only=True"
    )
    with pytest.raises(ValueError, match=f"(?s){message}"):
        read_torch(path)


def test_read_torch_without_torch_tells_how_to_convert(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        ValueError, match="readable without PyTorch, which is not installed"
    ) as caught:
        read_torch(path)
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("Convert the file on any machine that has PyTorch 2.10 or later:")
    compile(textwrap.dedent("\n".join(lines)), "message", "exec")
    assert len(lines) == 5
    assert repr(str(path)) in lines[1]
    assert repr(str(path.with_suffix(".safetensors"))) in lines[4]


@WRAPS
def test_what_the_message_says_unwraps_as_well(
    wrap: Any, stand_in: types.SimpleNamespace, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {"a": Tensor(np.arange(6.0)), "b": Tensor(np.ones(5))}
    stand_in.content, stand_in.__version__ = wrap(tensors), "2.9.1"
    with pytest.raises(ValueError, match="Install a later version,") as caught:
        read_torch(path)
    saved: dict[str, Any] = {}
    package = types.ModuleType("safetensors")
    package.torch = types.ModuleType("safetensors.torch")  # type: ignore[attr-defined]
    package.torch.save_file = lambda tensors, target: saved.update({target: tensors})
    monkeypatch.setitem(sys.modules, "safetensors", package)
    monkeypatch.setitem(sys.modules, "safetensors.torch", package.torch)
    _, *lines = str(caught.value).splitlines()
    exec(textwrap.dedent("\n".join(lines)), {})
    assert saved == {str(path.with_suffix(".safetensors")): tensors}


def test_read_torch_needs_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"existing .*nowhere\.pth', which does not exist"):
        read_torch(tmp_path / "nowhere.pth")


def test_the_directory_of_a_zip_is_checked_first(
    stand_in: types.SimpleNamespace, tmp_path: Path
) -> None:
    stand_in.content = AssertionError("must not be asked")
    with zipfile.ZipFile(tmp_path / "m.pth", "w") as archive:
        archive.writestr("m/data.pkl", b"")
        archive.writestr("m/../../data/0", b"")
    with pytest.raises(
        ValueError, match=r"suspicious: the name 'm/\.\./\.\./data/0' points outside"
    ):
        read_torch(tmp_path / "m.pth")


def test_the_first_bytes_decide_between_zip_and_pickle(
    stand_in: types.SimpleNamespace, tmp_path: Path
) -> None:
    stand_in.content = {"a": Tensor(np.ones(5))}
    path = tmp_path / "m.pth"
    path.write_bytes(b"PK\x03\x04" + bytes(100))  # PyTorch takes it for a zip file
    with pytest.raises(
        ValueError, match=r"truncated or damaged \(.*\)\. Download or save the file again"
    ):
        read_torch(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../a", b"")
    path.write_bytes(pickle.dumps({}) + path.read_bytes())  # and this for a pickle
    assert zipfile.is_zipfile(path)
    assert list(read_torch(path)) == ["a"]


@pytest.mark.parametrize("container", ["pickle", "zip"])
@pytest.mark.parametrize("installed", [False, True])
def test_a_pickle_is_refused_and_not_executed(
    container: str, installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        pytest.importorskip("torch", reason="needs PyTorch, which no extra brings")
    else:
        monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.pth"
    payload = pickle.dumps(Explosive(), protocol=2)
    if container == "pickle":
        path.write_bytes(payload)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("m/version", "3\n")
            archive.writestr("m/data.pkl", payload)
            archive.writestr("m/byteorder", "little")
    assert format_of(path) == "torch"
    with pytest.raises(
        ValueError, match="PyTorch cannot load it" if installed else "not installed"
    ):
        read_torch(path)
    assert not (tmp_path / "exploded").exists()
    pickle.loads(payload).close()  # noqa: S301  (our own)
    assert (tmp_path / "exploded").exists()  # else the above would show nothing


def test_a_file_of_torch_itself(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch, which no extra brings")
    tensors = {
        "a": torch.arange(6.0).reshape(2, 3).T,
        "b": torch.nn.Parameter(torch.ones(5, dtype=torch.bfloat16)),
        "step": torch.tensor(11),
    }
    for modern in (True, False):
        path = tmp_path / f"{modern}.pth"
        torch.save({"model": tensors}, path, _use_new_zipfile_serialization=modern)
        assert format_of(path) == "torch"
        found = read_torch(path)
        np.testing.assert_array_equal(found["a"], [[0, 3], [1, 4], [2, 5]])
        assert (found["b"].dtype, found["b"].shape, found["step"].shape) == (np.float32, (5,), ())
