from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from keras_vit.weights import convert, load_weights, read_checkpoint, registry, resolve
from keras_vit.weights.containers.safetensors import write_safetensors
from keras_vit.weights.dialects import DIALECTS
from keras_vit.weights.resolve import dialect_of, read_path
from tests.helpers import tiny_model
from tests.weights.dialects.model_variants import assert_same, written
from tests.weights.files import SQUARE, official_tensors, save


def test_content_decides_and_not_the_suffix(tmp_path: Path) -> None:
    path = save(tmp_path, official_tensors())
    other = path.rename(tmp_path / "weights.bin")
    assert read_path(other).dialect == "npz"
    tiny_model().save(tmp_path / "model.keras")
    kept = (tmp_path / "model.keras").rename(tmp_path / "model")
    assert read_checkpoint(kept).inferred["num_layers"] == 2


def test_existing_file_goes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, official_tensors())
    (tmp_path / "official.npz").rename(tmp_path / "imagenet")
    monkeypatch.chdir(tmp_path)
    assert read_checkpoint("imagenet", "ViTTi16").inferred["hidden_size"] == 24


def test_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(ValueError, match=r"Did you mean 'imagenet'\? .*'augreg_in21k_ft_in1k', "):
        read_checkpoint("imagnet", "ViTTi16")


def test_a_name_alone_needs_its_constructor() -> None:
    with pytest.raises(ValueError, match=r"as in ViTB16\(weights='imagenet'\) or `--model ViTB16`"):
        read_checkpoint("imagenet")


@pytest.mark.parametrize(
    "source", ["nowhere.npz", "no/where", "imagenot", "http://example.org/model.npz"]
)
def test_what_does_not_exist(source: str) -> None:
    message = rf"'hf://org/repository', .* Received: weights='{source}', which does not exist"
    with pytest.raises(ValueError, match=message):
        read_checkpoint(source)


@pytest.mark.parametrize("start", ["https://", "http://", "HTTPS://", "http:/", "ftp://", "hf://"])
@pytest.mark.parametrize("model", [None, "ViTTi16"])
def test_url_with_a_password(start: str, model: str | None) -> None:
    with pytest.raises(ValueError, match="`weights` must be a URL without a user name") as caught:
        read_checkpoint(f"{start}ann:secret@example.org/model.npz", model)
    assert "secret" not in str(caught.value)


def test_url_with_an_at_sign_in_its_path_has_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(ConnectionError, match="KERAS_VIT_OFFLINE forbids connections"):
        read_checkpoint("https://example.org/package@1/model.npz")


@pytest.mark.parametrize(
    "source", ["hf://../x", "hf://./x", "hf://owner/..", "hf://owner/../..", "timm/.."]
)
def test_repository_is_no_path(source: str) -> None:
    with pytest.raises(ValueError, match="which does not exist"):
        read_checkpoint(source)


def test_every_dialect_is_told_by_its_names() -> None:
    for dialect in DIALECTS.values():
        names = (*dialect.required_names, *dialect.any_of_names[:1])
        assert dialect_of(dict.fromkeys(names, np.zeros(0)), "x") is dialect
    with pytest.raises(
        ValueError,
        match=r"x must be a Vision Transformer with tensor names as in official, .* nothing",
    ):
        dialect_of({}, "x")


@pytest.mark.parametrize(
    "prefix",
    [
        *("module.", "_orig_mod.", "backbone.", "teacher.backbone.", "model.", "encoder."),
        *("_orig_mod.module.", "model.encoder.", "model.backbone."),
    ],
)
@pytest.mark.parametrize("name", ["timm", "huggingface", "torchvision"])
def test_prefix_of_all_names_is_ignored(name: str, prefix: str, tmp_path: Path) -> None:
    bare = written(DIALECTS[name], "plain")
    write_safetensors(tmp_path / "bare.safetensors", bare)
    path = tmp_path / "m.safetensors"
    write_safetensors(path, {f"{prefix}{theirs}": tensor for theirs, tensor in bare.items()})
    found, expected = read_checkpoint(path), read_checkpoint(tmp_path / "bare.safetensors")
    assert_same(found.tensors, expected.tensors)
    assert (found.inferred, found.dialect) == (expected.inferred, name)
    assert "prefix" not in expected.notes
    ignored = f"The prefix {prefix!r} of all tensor names in {path} is ignored"
    assert found.notes["prefix"] == ignored
    names = {theirs for both in found.names.values() for theirs in both}
    assert names == {f"{prefix}{theirs}" for theirs in bare}  # as in the file

    model = tiny_model(image_size=SQUARE.image_size)
    assert f"{ignored}." in load_weights(model, path, report=True).notes()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        convert(path, tmp_path / "m.npz", num_heads=4)
    assert ignored in [str(warning.message) for warning in warned]


def test_prefix_of_a_format_is_no_wrapper() -> None:
    """transformers writes `vit.` before all names of a model without a classifier."""
    file = {f"vit.{name}": t for name, t in written(DIALECTS["huggingface"], "no head").items()}
    file = {name.replace("vit.vit.", "vit."): tensor for name, tensor in file.items()}
    dialect = dialect_of(file, "x")
    assert dialect is DIALECTS["huggingface"]
    assert dialect.read(file, "x").notes == {}
    wrapped = {f"model.{name}": tensor for name, tensor in file.items()}
    assert dialect_of(wrapped, "x").prefix == "model."


def test_prefix_of_some_names_is_unknown() -> None:
    file = written(DIALECTS["timm"], "plain")
    some = {n if n.startswith("head") else f"module.{n}": tensor for n, tensor in file.items()}
    with pytest.raises(ValueError, match="x must be a Vision Transformer with tensor names as in"):
        dialect_of(some, "x")


def test_registry_and_dialects_use_the_same_words() -> None:
    assert {row.dialect for row in registry.list_weights()} <= DIALECTS.keys()


def test_limit_of_a_download_is_twice_the_weights() -> None:
    for row in registry.list_weights():
        limit = resolve._limit(row.model, row.classes)
        assert (row.bytes or (row.mebibytes or 1) << 20) <= limit <= resolve._limit(None)
    assert resolve._limit("ViTTi16", 1000) == pytest.approx(2 * 4 * 5.7e6, rel=0.01)
