"""A hub on the loopback, as a mirror: repositories of transformers' and timm's kind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_vit.models import build
from keras_vit.weights import read_checkpoint
from keras_vit.weights.checkpoint import variables_of
from keras_vit.weights.containers.safetensors import read_safetensors, write_safetensors
from keras_vit.weights.dialects import DIALECTS
from keras_vit.weights.hub import fetch_repository
from keras_vit.weights.infer_config import config_of
from tests.bad_server import Loopback, Page
from tests.helpers import randomise, weights_of
from tests.weights.files import SQUARE

SHA = "0123456789" * 4
CONFIG = SQUARE.replace(gelu="tanh", epsilon=1e-12, patch_size=2, image_size=(10, 10))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setattr("keras_vit.weights.hub.HUB", "https://127.0.0.1:1")  # nobody listens there
    with Loopback() as server:
        monkeypatch.setenv("KERAS_VIT_MIRROR", server.url())
        yield server


def publish(
    server: Loopback, repository: str, files: dict[str, bytes], **listed: Any
) -> dict[str, Any]:
    """Returns the listing; `listed` are fields of it that are no usual ones."""
    listing: dict[str, Any] = {"sha": SHA} | listed
    siblings = []
    for name, content in files.items():
        entry = {"rfilename": name, "size": len(content)}
        if name.endswith((".safetensors", ".bin")):
            entry["lfs"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        siblings.append(entry)
        server.pages[f"/{repository}/resolve/{listing['sha']}/{name}"] = Page(content)
    listing = {"siblings": siblings} | listing
    server.pages[f"/api/models/{repository}"] = Page(json.dumps(listing).encode())
    return listing


def weights(dialect: str, folder: Path) -> tuple[dict[str, np.ndarray], bytes]:
    """Random weights of a tiny model, and the file that a library would publish of them."""
    model = randomise(build(CONFIG))
    tensors = {name: np.asarray(variable) for name, variable in variables_of(model).items()}
    path = folder / "published.safetensors"
    write_safetensors(path, DIALECTS[dialect].write(tensors, CONFIG))
    return weights_of(model), path.read_bytes()


def test_repository_of_transformers(hub: Loopback, tmp_path: Path) -> None:
    expected, content = weights("huggingface", tmp_path)
    labels = [f"flower {index}" for index in range(11)]
    config = {
        "model_type": "vit",
        "num_attention_heads": 4,
        "hidden_act": "gelu_new",
        "id2label": dict(enumerate(labels)),
    }
    image = {"size": {"height": 10, "width": 10}, "resample": 2, "image_mean": [0.1, 0.2, 0.3]}
    files = {
        "README.md": b"ignored",
        "config.json": json.dumps(config).encode(),
        "preprocessor_config.json": json.dumps(image).encode(),
        "model.safetensors": content,
    }
    publish(hub, "somebody/vit-flowers", files)
    checkpoint = read_checkpoint("hf://somebody/vit-flowers")
    assert config_of(checkpoint) == CONFIG.replace(
        classifier_activation=None, position_interpolation="bicubic", position_grid=None
    )
    np.testing.assert_array_equal(checkpoint.tensors["head/kernel"], expected["head/kernel"])
    assert checkpoint.preprocessing.class_names == tuple(labels)
    assert checkpoint.preprocessing.resize == "squash"
    assert checkpoint.preprocessing.mean == (0.1, 0.2, 0.3)
    assert f"/somebody/vit-flowers/resolve/{SHA}/README.md" not in {a.path for a in hub.asked}
    asked = len(hub.asked)
    read_checkpoint("hf://somebody/vit-flowers")
    assert len(hub.asked) == asked  # all from the cache


def test_repository_of_timm(hub: Loopback, tmp_path: Path) -> None:
    _, content = weights("timm", tmp_path)
    config = {"pretrained_cfg": {"crop_pct": 0.95, "interpolation": "bilinear"}, "model_args": {}}
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": content}
    publish(hub, "timm/vit_small.mine", files)
    checkpoint = read_checkpoint("timm/vit_small.mine")
    assert checkpoint.preprocessing.crop_fraction == 0.95
    assert checkpoint.dialect == "timm"


def test_listing_of_a_mirror_verifies_nothing(
    hub: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    publish(hub, "timm/vit", {"model.safetensors": weights("timm", tmp_path)[1]})
    read_checkpoint("timm/vit")
    assert "model.safetensors is unverified: " in capsys.readouterr().out
    monkeypatch.setenv("KERAS_VIT_REQUIRE_HASH", "1")
    with pytest.raises(ValueError, match=r"SHA-256 in a listing of unknown origin"):
        read_checkpoint("timm/vit")


def test_small_file_of_a_mirror_must_have_its_git_hash(hub: Loopback, tmp_path: Path) -> None:
    files = {"model.safetensors": weights("huggingface", tmp_path)[1], "config.json": b"{}"}
    listing = publish(hub, "me/vit", files)
    listing["siblings"][1]["blobId"] = "9e26dfeeb6e641a33dae4961196235bdb965b21b"  # of {}
    hub.pages["/api/models/me/vit"] = Page(json.dumps(listing).encode())
    hub.pages[f"/me/vit/resolve/{SHA}/config.json"] = Page(b"[]")
    with pytest.raises(ValueError, match=r"its git hash is [0-9a-f]{40} instead of 9e26dfee"):
        fetch_repository("me/vit")
    hub.pages[f"/me/vit/resolve/{SHA}/config.json"] = Page(b"{}")
    assert (fetch_repository("me/vit") / "config.json").read_bytes() == b"{}"


def test_hub_comes_before_the_registry(hub: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with `hf://` is of a repository, also if it is that of published weights."""
    name = "hf://timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k"
    with pytest.raises(ConnectionError, match=r"files\.json could not be downloaded"):
        read_checkpoint(name, "ViTTi16")
    assert hub.asked[0].path.startswith("/api/models/timm/vit_tiny")


def test_repository_without_weights(hub: Loopback) -> None:
    publish(hub, "somebody/empty", {"README.md": b"nothing"})
    with pytest.raises(
        ValueError, match=r"must contain model.safetensors, .* Received: README\.md"
    ):
        read_checkpoint("hf://somebody/empty")


def test_repository_with_a_wrong_byte(hub: Loopback, tmp_path: Path) -> None:
    _, content = weights("timm", tmp_path)
    publish(hub, "timm/damaged", {"model.safetensors": content})
    damaged = content[:-1] + bytes([content[-1] ^ 1])
    hub.pages[f"/timm/damaged/resolve/{SHA}/model.safetensors"] = Page(damaged)
    with pytest.raises(ValueError, match="its SHA-256 is"):
        read_checkpoint("timm/damaged")
    assert list((tmp_path / "keras").rglob("*.safetensors")) == []


def test_listing_without_a_revision_is_of_the_main_branch(hub: Loopback, tmp_path: Path) -> None:
    _, content = weights("timm", tmp_path)
    listing = publish(hub, "timm/old", {"model.safetensors": content}, sha="main")
    del listing["sha"]
    hub.pages["/api/models/timm/old"] = Page(json.dumps(listing).encode())
    assert read_checkpoint("timm/old").dialect == "timm"


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [b"<html>", b"\xff", b"[]", b"{}", b"[" * 100_000]
    + [json.dumps({"siblings": value}).encode() for value in (None, 3, ["a"], [{"size": 3}])]
    + [json.dumps({"siblings": [], "sha": value}).encode() for value in ("../x", "abc", 7)],
    ids=lambda content: repr(content[:40]),
)
def test_what_is_no_listing_is_not_kept(content: bytes, hub: Loopback, tmp_path: Path) -> None:
    hub.pages["/api/models/timm/x"] = Page(content)
    with pytest.raises(
        ValueError, match=r"must be a JSON object with the revision \(`sha`\) and the "
    ):
        read_checkpoint("timm/x")
    assert list((tmp_path / "keras").rglob("files.json*")) == []


def test_weights_without_a_hash_are_refused(hub: Loopback, tmp_path: Path) -> None:
    _, content = weights("timm", tmp_path)
    listing = publish(hub, "timm/bare", {"model.safetensors": content})
    del listing["siblings"][0]["lfs"]
    hub.pages["/api/models/timm/bare"] = Page(json.dumps(listing).encode())
    message = (
        r"must contain the `lfs.sha256` of its weights; .* Received: no hash for model.safetensors"
    )
    with pytest.raises(ValueError, match=message):
        read_checkpoint("timm/bare")
    publish(hub, "timm/bare", {"model.safetensors": content})  # mended: nothing is in the way
    assert read_checkpoint("timm/bare").dialect == "timm"


def test_shards_of_the_top_folder_alone(hub: Loopback, tmp_path: Path) -> None:
    weights("timm", tmp_path)
    tensors = read_safetensors(tmp_path / "published.safetensors")
    write_safetensors(tmp_path / "a", dict(list(tensors.items())[:7]))
    write_safetensors(tmp_path / "b", dict(list(tensors.items())[7:]))
    names = ("model-1-of-2.safetensors", "model-2-of-2.safetensors")
    index = {name: names[number >= 7] for number, name in enumerate(tensors)}
    files = {
        "model.safetensors.index.json": json.dumps({"weight_map": index}).encode(),
        names[0]: (tmp_path / "a").read_bytes(),
        names[1]: (tmp_path / "b").read_bytes(),
        "model-int8/model.safetensors": b"another model",
    }
    publish(hub, "timm/shards", files)
    assert read_checkpoint("timm/shards").inferred["classes"] == 11
