"""Every family of backbones, as a tiny model, through all commands."""

from __future__ import annotations

import json
from pathlib import Path

import keras
import pytest

from keras_vit import zoo
from keras_vit.models.published import PUBLISHED
from keras_vit.runs.config import read_config
from keras_vit.runs.run_folder import RunFolder
from keras_vit.training import train
from tests.cli.commands import Call
from tests.training.conftest import StopAt

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
FAMILIES = (
    *("DINOv2S14", "DINOv2G14", "DINOv3S16", "DINOv3S16Plus", "TIPSv2B14", "SigLIP2B16"),
    *("CLIPB32", "EVA02Ti14", "EVA02B14", "BEiTB16", "BEiTv2B16"),
)


@pytest.fixture
def tiny(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a constructor of the family at a width of 24."""
    sizes = {"hidden_size": 24, "num_layers": 2, "num_heads": 2, "mlp_dim": 20}
    config = PUBLISHED[request.param].replace(**sizes, patch_size=4, image_size=(16, 16))
    monkeypatch.setitem(zoo.CONSTRUCTORS, "ViTTiny", zoo.Constructor("ViTTiny", config))
    return "ViTTiny"


@pytest.mark.parametrize("tiny", FAMILIES, indirect=True)
def test_family_passes_every_command(tiny: str, photos: Path, call: Call, tmp_path: Path) -> None:
    def passes(*arguments: object) -> str:
        code, output, message = call(*arguments)
        assert code == 0, message
        return output

    whole, parted = tmp_path / "whole", tmp_path / "parted"
    passes(
        *("train", "--data", photos, "--model", tiny, "--weights", "none", "--out", whole),
        *(
            "--image-size",
            "12x20",
            "--epochs",
            2,
            "--batch-size",
            8,
            "--precision",
            "float32",
            "--learning-rate",
            0.03,
        ),
        *("--set", "layer_decay=0.7", "--set", "remat=true", "--no-tensorboard"),
    )
    with pytest.raises(KeyboardInterrupt):
        train(
            read_config(RunFolder(whole).config),
            parted,
            callbacks=(StopAt(1, 1),),
            tensorboard=False,
        )
    passes("train", "--resume", "--out", parted)
    ends = [keras.saving.load_model(RunFolder(one).last).get_weights() for one in (whole, parted)]
    assert all((one == other).all() for one, other in zip(*ends, strict=True))
    passes("evaluate", whole)
    _, _, message = call("doctor", whole)  # which may find problems
    assert "10/10" in message
    passes(
        "explain",
        whole / "last.keras",
        *sorted(photos.glob("*/*"))[:2],
        "--out",
        tmp_path / "maps.png",
    )
    passes("compare", "--models", f"{whole}, {parted}", "--data", photos, "--out", tmp_path / "c")
    formats = ("--tflite", "float32", "--onnx", "--openvino")
    passes("export", whole, "--to", tmp_path / "served", *formats)
    (manifest,) = (tmp_path / "served" / "vit").rglob("manifest.json")
    results = json.loads(manifest.read_text())["verification"]["artefacts"]
    found = {row["name"]: row["largest_difference"] for row in results}
    print(tiny, found)
    assert found.pop("saved_model") <= 1e-5
    assert len(found) == 3
    assert max(found.values()) <= 1e-4
