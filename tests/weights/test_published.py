"""Published weights by name, from a mirror on the loopback that holds the real ViT-Ti/16."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

import keras_vit
from keras_vit import constants
from keras_vit.models import build
from keras_vit.weights import hub, read_checkpoint, registry, save_weights
from tests.bad_server import Loopback, Page
from tests.helpers import randomise, weights_of
from tests.weights.files import SQUARE

NAME = "augreg_in21k_ft_in1k"
ADDRESS = registry.find_weights("ViTTi16", NAME).urls[0]
PATH = ADDRESS.removeprefix("https://storage.googleapis.com")


@pytest.fixture
def mirror(test_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loopback:
    """A mirror with the published file, and an empty cache."""
    stored = test_data / "weights" / "Ti_16-augreg-i21k-imagenet2012-res_224.npz"
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    with Loopback() as server:
        monkeypatch.setenv("KERAS_VIT_MIRROR", server.url())
        server.pages[PATH] = Page(stored.read_bytes())
        yield server


@pytest.mark.slow
def test_named_weights_download_once_and_load(mirror: Loopback, tmp_path: Path) -> None:
    model = keras_vit.ViTTi16(weights=NAME)
    (cached,) = (tmp_path / "keras" / "models" / "keras_vit").glob("*.npz")
    assert cached.read_bytes() == mirror.pages[PATH].content
    with np.load(cached) as file:
        np.testing.assert_array_equal(weights_of(model)["head/kernel"], file["head/kernel"])
    assert keras_vit.models.preprocessing_of(model).class_names[207] == "golden_retriever"
    again = keras_vit.ViTTi16(weights="imagenet")  # the same file by its usual name
    for name, weight in weights_of(again).items():
        np.testing.assert_array_equal(weight, weights_of(model)[name])
    assert len(mirror.asked) == 1

    with pytest.raises(ValueError, match=r"`classes` must be 1000 .* pass `reset_head=True`"):
        keras_vit.ViTTi16(weights=NAME, classes=5)
    with pytest.warns(UserWarning, match=r"head/kernel, head/bias\) is new: it is not loaded"):
        small = keras_vit.ViTTi16(weights=NAME, classes=5, reset_head=True)
    assert small.output_shape == (None, 5)
    assert not weights_of(small)["head/kernel"].any()
    assert not weights_of(small)["head/bias"].any()


@pytest.mark.tensorflow
@pytest.mark.slow
def test_named_weights_classify_photographs(mirror: Loopback, test_data: Path) -> None:
    from keras_vit import data
    from keras_vit.tasks.evaluate import evaluate

    model = keras_vit.ViTTi16(weights=NAME)
    report = evaluate(model, data.load(test_data / "data" / "imagenet_sample"), verbose=0)
    assert report.num_examples == 200
    assert report.accuracy >= 0.85  # measured: 0.885


def test_file_of_another_model_is_not_kept(mirror: Loopback, tmp_path: Path) -> None:
    """A valid file, but not the one that the name stands for, is refused before it is cached."""
    from tests.weights.files import official_tensors, save

    wrong = save(tmp_path, official_tensors())
    mirror.pages[PATH] = Page(wrong.read_bytes())
    with pytest.raises(ValueError, match="has 11 classes instead of 1000"):
        keras_vit.ViTTi16(weights=NAME)
    assert list((tmp_path / "keras").rglob("*.npz")) == []


def test_file_that_needs_torch_is_not_downloaded_without(
    mirror: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"deit_tiny_patch16_224-a1311bcf.pth.*Convert the file"):
        keras_vit.ViTTi16(weights="deit_in1k")
    assert mirror.asked == []


def test_file_on_a_branch_of_the_hub_needs_the_hash_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = registry.find_weights("ViTTi16", "timm_augreg_in21k_ft_in1k_384")
    path = row.urls[0].removeprefix("https://huggingface.co")
    model = randomise(build(SQUARE.replace(classes=1000, gelu="exact")))
    save_weights(model, tmp_path / "published.safetensors", format="timm")
    content = (tmp_path / "published.safetensors").read_bytes()
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")  # where nobody listens
    with Loopback() as server:
        monkeypatch.setenv("KERAS_VIT_MIRROR", server.url())
        server.pages[path] = Page(content)
        with pytest.raises(ValueError, match="the server does not return the SHA-256 of the file;"):
            read_checkpoint(row.name, row.model)
        stated = {"X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"'}
        server.pages[path] = Page(content, headers=stated)
        assert read_checkpoint(row.name, row.model).inferred["classes"] == 1000
    (pin,) = (tmp_path / "keras").rglob("*.safetensors.json")
    assert '"size, SHA-256 stated for the file, content"' in pin.read_text()
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert read_checkpoint(row.name, row.model).inferred["classes"] == 1000


@pytest.mark.parametrize(
    ("model", "name", "license"),
    [
        ("DINOv3S16", "lvd1689m", "dinov3-license: https://github.com/facebookresearch/dinov3/"),
        ("EUPETi16", "eupe_lvd1689m", "fair-noncommercial-research-license: https://huggingface"),
        ("DINOv2S14", "lvd142m", None),
        ("CLIPB32", "openai", None),
    ],
)
def test_license_is_named_before_a_download(
    model: str,
    name: str,
    license: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(ConnectionError, match="KERAS_VIT_OFFLINE forbids connections"):
        read_checkpoint(name, model)
    message = capsys.readouterr().err
    expected = f"The license of {model}(weights={name!r}) is {license}" if license else ""
    assert message.startswith(expected)
    assert message.count("\n") == bool(license)


@pytest.mark.slow
def test_backbone_is_loaded_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With random weights in timm's format, from a mirror."""
    theirs = randomise(keras_vit.EUPETi16(False, None, pooling="token"))
    save_weights(theirs, tmp_path / "theirs.safetensors", format="timm")
    content = (tmp_path / "theirs.safetensors").read_bytes()
    path = registry.find_weights("EUPETi16", "eupe_lvd1689m").urls[0].removeprefix(hub.HUB)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")  # where nobody listens
    stated = {"X-Linked-Etag": hashlib.sha256(content).hexdigest()}
    with Loopback() as server:
        monkeypatch.setenv("KERAS_VIT_MIRROR", server.url())
        server.pages[path] = Page(content, headers=stated)
        model = keras_vit.EUPETi16(False, "eupe_lvd1689m", pooling="token")
        assert "fair-noncommercial-research-license" in capsys.readouterr().err
        again = keras_vit.EUPETi16(False, "timm/vit_tiny_patch16_dinov3_qkvb.eupe_lvd1689m")
        with pytest.warns(UserWarning, match=r"head/kernel, head/bias\) is new: it is not loaded"):
            classifier = keras_vit.EUPETi16(weights="eupe_lvd1689m", classes=5, reset_head=True)
    assert classifier.output_shape == (None, 5)
    assert capsys.readouterr().err == ""  # the second time the file is there
    for name, weight in weights_of(model).items():
        np.testing.assert_array_equal(weight, weights_of(theirs)[name])
    assert again.output_shape == (None, 1 + 4 + 16 * 16, 192)
    assert keras_vit.models.config_of(model).position_embedding == "rotary"
    assert keras_vit.models.preprocessing_of(model).mean == constants.IMAGENET_MEAN


def test_every_row_is_verified_or_on_a_branch_of_the_hub() -> None:
    """A file of the hub has a commit and a hash, or is verified by the hash of its branch."""
    rows = [row for row in registry.list_weights() if row.urls[0].startswith(f"{hub.HUB}/")]
    branch = [row for row in rows if row.sha256 is None]
    assert [row for row in branch if "/resolve/main/" not in row.urls[0]] == []
    assert (len(rows), len(branch)) == (186, 182)
