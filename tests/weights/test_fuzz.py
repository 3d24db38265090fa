"""Thousands of damaged files: each is read, or refused with a ValueError, at once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from keras_vit.weights.containers.formats import format_of
from keras_vit.weights.containers.h5 import read_h5, read_legacy_h5
from keras_vit.weights.containers.npz import read_npz, write_npz
from keras_vit.weights.containers.safetensors import read_safetensors, write_safetensors
from keras_vit.weights.containers.torch import read_torch

MUTATIONS = int(os.environ.get("KERAS_VIT_FUZZ", "500"))
READERS = {
    "npz": read_npz,
    "safetensors": read_safetensors,
    "legacy_h5": read_legacy_h5,
    "h5": read_h5,
    "torch": read_torch,
}
READER_OF_KIND = {
    "npz": read_npz,
    "compressed npz": read_npz,
    "safetensors": read_safetensors,
    "index": read_safetensors,
    "h5": read_legacy_h5,
}


def save(kind: str, path: Path) -> None:
    rng = np.random.default_rng(3)
    tensors = {
        "embedding/kernel": rng.normal(size=(3, 2, 5)).astype("float32"),
        "cls": np.zeros((1, 1, 7), "float16"),
        "step": np.array(11),
    }
    if kind == "npz":
        write_npz(path, tensors)
    elif kind == "compressed npz":
        np.savez_compressed(path, **tensors)
    elif kind == "safetensors":
        write_safetensors(path, tensors, {"format": "np"})
    elif kind == "h5":
        with h5py.File(path, "w") as file:
            for name, tensor in tensors.items():
                file[name] = tensor
    else:
        write_safetensors(path.with_name("shard"), tensors)
        path.write_text(json.dumps({"weight_map": dict.fromkeys(tensors, "shard")}, indent=2))


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """Damages one place, as often near an end, where the structure is, as anywhere."""
    reach = int(rng.choice([min(300, len(data)), len(data)]))
    start = int(rng.integers(reach + 1))
    if rng.random() < 0.5:
        start = len(data) - start
    head, chunk, tail = np.split(np.frombuffer(data, "uint8"), [start, start + rng.integers(1, 40)])
    noise = rng.integers(256, size=len(chunk), dtype="uint8")
    extreme = np.full(4, rng.choice([0, 0x7F, 0x80, 0xFF]), "uint8")
    flipped = chunk ^ (rng.random(len(chunk)) < 0.1).astype("uint8") << rng.integers(8)
    parts = (
        (head, flipped, tail),
        (head, noise[:1], chunk[1:], tail),
        (head, extreme, chunk[4:], tail),
        (head,),
        (head, tail),
        (head, noise, chunk, tail),
        (head, chunk, chunk, tail),
        (tail, chunk, head),
    )
    return np.concatenate(parts[rng.integers(len(parts))]).tobytes()


def failure(read: Callable[[Path], object], path: Path) -> str:
    """What a reader says of a file; anything but a ValueError ends the test."""
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return ""


def fuzz(kind: str, mutations: int, path: Path) -> None:
    save(kind, path)
    data = path.read_bytes()
    rng = np.random.default_rng(1729)
    read, slowest = 0, 0.0
    for _ in range(mutations):
        damaged = data
        for _ in range(rng.integers(1, 4)):
            damaged = mutate(damaged, rng)
        path.write_bytes(damaged)
        start = time.process_time()
        found = failure(READER_OF_KIND[kind], path)
        failure(lambda path: READERS.get(format_of(path), read_npz)(path), path)
        slowest = max(slowest, time.process_time() - start)
        assert found.startswith("The weight file ") or not found
        read += not found
    assert 0 < read < mutations / 2  # neither harmless nor hopeless
    assert slowest < 1


KINDS = pytest.mark.parametrize("kind", READER_OF_KIND)


@pytest.mark.slow
@KINDS
def test_damaged_files_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    fuzz(kind, MUTATIONS, tmp_path / "m.npz")


@pytest.mark.slow
@KINDS
def test_ten_thousand_damaged_files(kind: str, tmp_path: Path) -> None:
    fuzz(kind, 10_000, tmp_path / "m.npz")
