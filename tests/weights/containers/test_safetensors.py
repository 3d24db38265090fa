from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from keras_vit.weights.containers import safetensors
from keras_vit.weights.containers.formats import format_of
from keras_vit.weights.containers.safetensors import (
    LARGEST_INDEX,
    read_metadata,
    read_safetensors,
    write_safetensors,
)

INDEX = "model.safetensors.index.json"
TENSORS = {
    "cls_token": np.random.default_rng(3).normal(size=(1, 1, 5)).astype("float32"),
    "blocks.0.mlp.fc1.weight": np.arange(6, dtype="float16").reshape(2, 3).T,
    "step": np.array(11),
    "bytes": np.arange(7, dtype="uint8"),
    "empty": np.zeros((0, 13)),
}


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        np.testing.assert_array_equal(found[name], tensor)


def save_raw(path: Path, header: dict[str, Any] | bytes, data: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def test_write_safetensors_is_read_here_and_by_the_package(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", TENSORS, {"format": "pt", "a": "ü"})
    assert_equal(read_safetensors(tmp_path / "m.safetensors"), TENSORS)
    assert_equal(load_file(tmp_path / "m.safetensors"), TENSORS)
    with safe_open(tmp_path / "m.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt", "a": "ü"}


def test_read_safetensors_of_the_package(tmp_path: Path) -> None:
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in TENSORS.items()}
    save_file(tensors, tmp_path / "m.safetensors")
    assert_equal(read_safetensors(tmp_path / "m.safetensors"), tensors)


def test_write_safetensors_keeps_every_bit(tmp_path: Path) -> None:
    bits = np.array([0x00000001, 0x80000000, 0x7F800001, 0xFFC12345, 0x3F800001], "uint32")
    write_safetensors(tmp_path / "m.safetensors", {"a": bits.view("float32")})
    found = read_safetensors(tmp_path / "m.safetensors")["a"]
    np.testing.assert_array_equal(found.view("uint32"), bits)


def test_write_safetensors_gives_the_same_bytes(tmp_path: Path) -> None:
    metadata = {str(index): "x" for index in range(17)}
    write_safetensors(tmp_path / "a.safetensors", TENSORS, metadata)
    tensors = dict(reversed(read_safetensors(tmp_path / "a.safetensors").items()))
    write_safetensors(tmp_path / "b.safetensors", tensors, dict(reversed(metadata.items())))
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["a", "aa", "aaa"])  # the header is padded to eights
def test_write_safetensors_without_metadata_writes_as_the_package_does(
    name: str, tmp_path: Path
) -> None:
    tensors = {"b": np.zeros(3, "float32"), name: np.ones((2, 5), "float32"), "c": np.arange(7)}
    write_safetensors(tmp_path / "a.safetensors", tensors)
    save_file(tensors, tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_write_safetensors_refuses_before_it_writes(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(ValueError, match="Received: b with dtype object"):
        write_safetensors(path, {"a": np.ones(3), "b": np.array([None])})
    with pytest.raises(TypeError, match=r"must map strings to strings\. .*: metadata={'n': 3}"):
        write_safetensors(path, {"a": np.ones(3)}, {"n": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="must not contain the reserved name '__metadata__'"):
        write_safetensors(path, {"__metadata__": np.ones(3)})
    assert list(tmp_path.iterdir()) == []


def test_read_metadata(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_safetensors(path, TENSORS, {"format": "pt", "a": "ü"})
    assert read_metadata(path) == {"format": "pt", "a": "ü"}
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"m\.safetensors is truncated or damaged"):
        read_metadata(path)
    write_safetensors(path, TENSORS)
    assert read_metadata(path) == {}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(TENSORS, path.name)}))
    assert read_metadata(tmp_path / INDEX) == {}


def test_bfloat16_becomes_float32(tmp_path: Path) -> None:
    halves = np.array([0x3F80, 0xC049, 0x0001, 0x7F80], "uint16")
    path = save_raw(
        tmp_path / "m.safetensors", {"a": entry("BF16", [2, 2], 0, 8)}, halves.tobytes()
    )
    found = read_safetensors(path)["a"]
    assert (found.dtype, found.shape) == (np.float32, (2, 2))
    np.testing.assert_array_equal(found.view("uint32").ravel(), halves.astype("uint32") << 16)


@pytest.mark.parametrize(
    ("dtype", "size"), [("BOOL", 1), ("C64", 8), ("F8_E4M3", 1), ("F8_E5M2", 1)]
)
def test_other_dtypes_are_refused(dtype: str, size: int, tmp_path: Path) -> None:
    path = save_raw(
        tmp_path / "m.safetensors", {"a": entry(dtype, [3], 0, 3 * size)}, bytes(3 * size)
    )
    with pytest.raises(ValueError, match=rf"not numeric: it contains a \({dtype}\)"):
        read_safetensors(path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.99])
def test_truncated_safetensors(share: float, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", {"a": np.arange(500.0), "b": np.arange(700.0)})
    data = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match=r"file .*m\.safetensors is truncated or damaged \(.+\)"):
        read_safetensors(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"a": entry("F32", [2, 3], 0, 24)}, 23),
        ({"a": entry("F32", [2, 3], 0, 24)}, 25),
        ({"a": entry("F32", [2, 3], 4, 28)}, 28),
        ({"a": entry("F32", [3], 0, 12), "b": entry("F32", [3], 8, 20)}, 20),
        ({"a": entry("F32", [2**40], 0, 24)}, 24),
        ({"a": entry("F32", [2**32, 2**32], 0, 0)}, 0),
        ({"a": entry("F32", [0, 2**62], 0, 0)}, 0),
        ({"a": entry("F32", [-2, -3], 0, 24)}, 24),
        ({"a": entry("X9", [3], 0, 12)}, 12),
        ({"a": {"dtype": "F32"}}, 0),
        ({"a": 5}, 0),
        (b"[" * 5000, 0),
        (b'{"a":' * 5000, 0),
        (b"{}", 3),
    ],
    ids=str,
)
def test_headers_that_lie(header: dict[str, Any] | bytes, data: int, tmp_path: Path) -> None:
    path = save_raw(tmp_path / "m.safetensors", header, bytes(data))
    with pytest.raises(ValueError, match=r"m\.safetensors is truncated or damaged \(.+\)"):
        read_safetensors(path)


def test_a_header_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes((3_999_999).to_bytes(8, "little") + b"{" * 1000)
    with pytest.raises(ValueError, match="truncated or damaged"):
        read_safetensors(tmp_path / "m.safetensors")


@pytest.mark.parametrize("read", [read_safetensors, read_metadata])
def test_an_over_large_header_is_refused(read: Any, tmp_path: Path) -> None:
    header = json.dumps({"a": entry("F32", [3], 0, 12)}).encode().ljust(LARGEST_INDEX)
    read(save_raw(tmp_path / "m.safetensors", header, bytes(12)))
    save_raw(tmp_path / "m.safetensors", header + b" " * 8, bytes(12))
    with pytest.raises(
        ValueError, match=r"too large: a header may have at most 4,194,304 bytes\.$"
    ):
        read(tmp_path / "m.safetensors")


@pytest.mark.parametrize(("most", "opened"), [(64 * 2**20, 2), (2 * 5003 * 4, 3 + 1), (1, 5 + 1)])
def test_the_file_is_opened_anew_after_a_while(
    most: int, opened: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {f"t{index}": np.full((5003,), index, "float32") for index in range(5)}
    write_safetensors(tmp_path / "m.safetensors", tensors)
    times = []

    def counted(*arguments: Any, **options: Any) -> Any:
        times.append(arguments)
        return safe_open(*arguments, **options)

    monkeypatch.setattr(safetensors, "safe_open", counted)
    monkeypatch.setattr(safetensors, "_AT_ONCE", most)
    assert_equal(read_safetensors(tmp_path / "m.safetensors"), tensors)
    assert len(times) == opened


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    one = json.dumps({"a": entry("F32", [3], 0, 12)})[1:-1]
    two = json.dumps({"a": entry("I32", [3], 0, 12)})[1:-1]
    path = save_raw(tmp_path / "m.safetensors", f"{{{one},{two}}}".encode(), bytes(12))
    with pytest.raises(ValueError, match="a name occurs twice among a, a"):
        read_safetensors(path)


def save_shards(folder: Path, **changes: str) -> Path:
    write_safetensors(
        folder / "m-00001-of-00002.safetensors", {"a": np.arange(2), "b": np.arange(3)}
    )
    write_safetensors(folder / "m-00002-of-00002.safetensors", {"c": np.arange(5)})
    weight_map = {
        "a": "m-00001-of-00002.safetensors",
        "b": "m-00001-of-00002.safetensors",
        "c": "m-00002-of-00002.safetensors",
    }
    content = {"metadata": {"total_size": 80}, "weight_map": weight_map | changes}
    (folder / INDEX).write_text(json.dumps(content, indent=2))
    return folder / INDEX


def test_an_index_leads_to_its_shards(tmp_path: Path) -> None:
    index = save_shards(tmp_path)
    assert format_of(index) == "safetensors"
    assert_equal(read_safetensors(index), {"a": np.arange(2), "b": np.arange(3), "c": np.arange(5)})


@pytest.mark.parametrize(
    "shard",
    ["../m.safetensors", "/m.safetensors", "a/m.safetensors", "a\\m.safetensors", "..", ".", ""],
)
def test_shards_elsewhere_are_refused(shard: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    write_safetensors(tmp_path / "m.safetensors", {"c": np.arange(5)})
    index = save_shards(tmp_path / "here", c=shard)
    for reader in (format_of, read_safetensors):
        with pytest.raises(
            ValueError, match=r"suspicious: the shard '.*' is not a plain file name"
        ):
            reader(index)


def test_an_index_does_not_lead_to_an_index(tmp_path: Path) -> None:
    index = save_shards(tmp_path, c=INDEX)
    with pytest.raises(ValueError, match="truncated or damaged"):
        read_safetensors(index)


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    index = save_shards(tmp_path)
    (tmp_path / "m-00002-of-00002.safetensors").unlink()
    with pytest.raises(
        ValueError, match=r"incomplete: m-00002-of-00002\.safetensors must be in the s"
    ):
        read_safetensors(index)


def test_a_shard_with_other_tensors_is_named(tmp_path: Path) -> None:
    index = save_shards(tmp_path)
    write_safetensors(tmp_path / "m-00002-of-00002.safetensors", {"d": np.arange(5)})
    with pytest.raises(ValueError, match=r"inconsistent with m-00002-of-.*: different c, d"):
        read_safetensors(index)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "it has no `weight_map`"),
        ('{"weight_map": {}}', "it has no `weight_map`"),
        ('{"weight_map": ["m.safetensors"]}', "it has no `weight_map`"),
        ('{"weight_map": {"a": 5}}', "the shard 5 is not a plain file name"),
        ('{"weight_map": {"a": "x", "a": "y"}}', "a name occurs twice among a, a"),
        ('{"weight_map": {"a": "x"', "truncated or damaged"),
        ('{"a":' * 100_000, "truncated or damaged"),
    ],
    ids=lambda text: text[:30],
)
def test_damaged_indexes(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(content)
    for reader in (format_of, read_safetensors):
        with pytest.raises(ValueError, match=message):
            reader(tmp_path / INDEX)


def test_an_over_large_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text('{"weight_map')
    os.truncate(tmp_path / INDEX, LARGEST_INDEX + 1)
    with pytest.raises(ValueError, match="too large: an index may have at most 4,194,304 bytes"):
        read_safetensors(tmp_path / INDEX)


def test_read_metadata_reads_texts_alone(tmp_path: Path) -> None:
    texts = {"format": "pt", "labels": '["ü", "b"]'}
    write_safetensors(tmp_path / "m.safetensors", TENSORS, texts)
    assert read_metadata(tmp_path / "m.safetensors") == texts
    write_safetensors(tmp_path / "m.safetensors", TENSORS)
    assert read_metadata(tmp_path / "m.safetensors") == {}
    assert read_metadata(save_shards(tmp_path)) == {}
    damaged = save_raw(tmp_path / "m.safetensors", b'{"a": 5}', b"")
    with pytest.raises(ValueError, match=r"m\.safetensors is truncated or damaged \(.+\)"):
        read_metadata(damaged)


def test_read_safetensors_needs_no_more_than_the_tensors(tmp_path: Path) -> None:
    tensors = {f"t{index}": np.zeros((100_003 + index,), "float32") for index in range(17)}
    write_safetensors(tmp_path / "m.safetensors", tensors)
    size = sum(tensor.nbytes for tensor in tensors.values())
    tracemalloc.start()
    found = read_safetensors(tmp_path / "m.safetensors")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert_equal(found, tensors)
    assert size < peak < 1.1 * size


def test_published_weights(test_data: Path) -> None:
    path = test_data / "weights" / "vit_tiny_patch16_224.augreg_in21k_ft_in1k.safetensors"
    tensors = read_safetensors(path)
    assert sum(tensor.size for tensor in tensors.values()) == 5_717_416  # as published
