"""docs/coming_from.md: its blocks run, and what it says of our names is so.

Behind the names of published models are small ones here, and local files take the place of
downloads; training takes one epoch; all else runs as it is written.
"""

from __future__ import annotations

import inspect
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import PIL.Image
import pytest

import keras_vit
from keras_vit import data, models, training, zoo
from tests.cli.commands import call_main
from tests.helpers import assert_close, randomise
from tests.pages import marked_blocks, run_bash, run_python
from tests.weights.configs.test_keras_hub import CONVERTER, write_preset
from tests.weights.dialects.test_vit_keras import full_config, version_1
from tests.weights.foreign_files import write_keras_2

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:head/kernel, head/bias start anew"),
]

PAGE = Path(__file__).parents[1] / "docs" / "coming_from.md"
SECTIONS = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", PAGE.read_text("utf-8"), re.MULTILINE))
TIMM = "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k"
# What is a download on the page -> the file here.
LOCAL = {
    TIMM: "timm.safetensors",
    'weights="imagenet"': 'weights="imagenet.npz"',
    "--weights imagenet": "--weights imagenet.npz",
}
QUICKER = {
    "train": "--epochs 1 --precision float32 --no-tensorboard",
    "export": "--no-warm-up",
}
SIZES: dict[str, Any] = {
    "image_size": (32, 32),
    "hidden_size": 12,
    "num_layers": 2,
    "num_heads": 2,
    "mlp_dim": 13,
}
SMALL = models.size("B/16").replace(**SIZES)

Run = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files in the formats of the others, of models as small as the constructors here."""
    folder = tmp_path_factory.mktemp("published")
    model = randomise(models.build(SMALL))
    keras_vit.save_weights(model, folder / "imagenet.npz")
    with pytest.warns(UserWarning, match="gelu"):
        keras_vit.save_weights(model, folder / "timm.safetensors", format="timm")
    few = randomise(models.build(SMALL.replace(classes=5)))
    (folder / "vit_preset").mkdir()
    write_preset(folder / "vit_preset", few, converter={**CONVERTER, "image_size": [32, 32]})
    config = full_config()
    input_layer, block, _ = config["config"]["layers"]
    input_layer["config"]["batch_input_shape"] = [None, 32, 32, 3]
    block["config"]["num_heads"] = SMALL.num_heads
    write_keras_2(folder / "flowers.h5", version_1(few), config)
    return folder


@pytest.fixture
def page(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the blocks of a section in an empty folder; returns the names that they leave."""
    monkeypatch.chdir(tmp_path)
    for path in published.iterdir():
        Path(path.name).symlink_to(path)
    for name in ("ViTTi16", "ViTB16"):
        constructor = zoo.Constructor(name, SMALL)
        monkeypatch.setattr(keras_vit, name, constructor)
        monkeypatch.setitem(zoo.CONSTRUCTORS, name, constructor)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), "uint8")
    scope = {"keras_vit": keras_vit, "photos": pixels, "labels": np.array([0, 1, 2, 3])}

    def run(section: str) -> dict[str, Any]:
        blocks = marked_blocks(SECTIONS[section])
        assert blocks, section
        for language, block in blocks:
            for remote, local in LOCAL.items():
                block = block.replace(remote, local)
            if language == "python":
                run_python(block, PAGE, scope)
            else:
                run_bash(block, QUICKER)
        return scope

    return run


def write_images(*names: str) -> None:
    for index, name in enumerate(names):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.new("RGB", (40 + index, 30), (67 * index % 256, 80, 200)).save(name)


def write_classes() -> None:
    write_images(*(f"photos/{name}/{k}.png" for k in range(5) for name in ("daisy", "rose")))


def test_every_block_runs_but_the_one_that_is_not_run() -> None:
    text = PAGE.read_text("utf-8")
    found = [block for section in SECTIONS.values() for block in marked_blocks(section)]
    assert found == marked_blocks(text)
    assert len(re.findall(r"^```\w", text, re.MULTILINE)) == len(found) + 1
    assert len(re.findall(r"\(\*not run\*\):\n\n```bash", text)) == 1


@pytest.mark.slow
def test_mediapipe_model_maker(page: Run) -> None:
    write_classes()
    page("MediaPipe Model Maker")
    (path,) = Path("export/vit-files/1").glob("*.tflite")
    assert path.name == "dynamic_range.tflite"
    assert keras_vit.load_predictor(path).labels == ("daisy", "rose")
    assert training.recipe("finetune").replace(trainable=("head/*",)).trainable == ("head/*",)


def test_teachable_machine(page: Run) -> None:
    write_images("0.jpg", "1.jpg")
    Path("downloads").mkdir()
    for name in ("daisy", "rose"):
        with zipfile.ZipFile(f"downloads/{name}.zip", "w") as archive:
            archive.write("0.jpg")
            archive.write("1.jpg")
    page("Teachable Machine")
    assert data.load("photos").class_names == ("daisy", "rose")
    assert len(data.load("photos")) == 4


CSV = """\
TRAINING,gs://bucket/flowers/a.jpg,daisy
validation,gs://bucket/flowers/b.jpg,daisy
TEST,gs://bucket/flowers/c.jpg,rose
UNASSIGNED,gs://bucket/flowers/d.jpg,rose
gs://bucket/flowers/e.jpg,rose
gs://bucket/flowers/unlabeled.jpg
"""


def test_automl(page: Run) -> None:
    write_images(*(f"data/flowers/{name}.jpg" for name in "abcde"))
    Path("import.csv").write_text(CSV)
    labels = {"aiplatform.googleapis.com/ml_use": "test"}
    items: list[dict[str, Any]] = [
        {"imageGcsUri": f"gs://bucket/flowers/{name}.jpg", "dataItemResourceLabels": use}
        for name, use in (("a", labels), ("b", {}))
    ]
    lines = [json.dumps(i | {"classificationAnnotation": {"displayName": "daisy"}}) for i in items]
    Path("import.jsonl").write_text("\n".join(lines))
    scope = page("AutoML and Vertex AI")
    found = data.load("data")
    assert found.names == tuple(f"flowers/{name}.jpg" for name in "abcde")
    assert [found.class_names[label] for label in found.targets] == ["daisy"] * 2 + ["rose"] * 3
    assert found.splits == ("train", "validation", "test", "train", "train")
    assert scope["table"] == [
        ("flowers/a.jpg", "daisy", "test"),
        ("flowers/b.jpg", "daisy", "train"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gs://bucket/a.jpg,daisy\n", "images first..*line 1"),
        ("TRAIN,a.jpg,daisy\nUNASSIGNED,b.jpg,rose\n", "must have a header line"),
        ("TRAIN,a.jpg,daisy\nb.jpg,rose\n", "must have a header line"),
        ("TRAIN,gs://bucket/a.jpg,daisy\nTEST,gs://bucket/b.jpg,rose\n", "images"),
        ("a.jpg,daisy\nb.jpg\n", "`label` must not be empty.*line 2"),
    ],
)
def test_import_files_that_are_refused(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images("a.jpg", "b.jpg")
    Path("import.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        data.load("import.csv")


def test_splits_without_a_header_are_recognized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images("a.jpg", "b.jpg", "c.jpg")
    Path("import.csv").write_text("TRAIN,a.jpg,daisy\nVALIDATION,b.jpg,rose\nTest,c.jpg,rose\n")
    assert data.load("import.csv").splits == ("train", "validation", "test")


@pytest.mark.slow
def test_keras_applications(page: Run) -> None:
    model = page("keras.applications")["model"]
    assert [weight.path.split("/")[-2:] for weight in model.trainable_weights] == [
        ["head", "kernel"],
        ["head", "bias"],
    ]
    theirs = list(inspect.signature(keras.applications.VGG16).parameters)
    assert list(inspect.signature(keras_vit.ViTB16).parameters)[: len(theirs)] == theirs
    with pytest.raises(ValueError, match="reset_head=True"):
        keras_vit.ViTB16(weights="imagenet", classes=5)


@pytest.mark.slow
def test_keras_hub(page: Run) -> None:
    scope = page("KerasHub")
    assert scope["logits"].shape == (4, 5)
    assert scope["tokens"].shape == (4, 5, 12)
    preprocessing = models.preprocessing_of(scope["model"])
    assert preprocessing.mean == pytest.approx((0.485, 0.456, 0.406))


@pytest.mark.slow
def test_timm(page: Run) -> None:
    write_classes()
    scope = page("timm")
    assert [found.shape for found in scope["found"].values()] == [(4, 5, 12)] * 2
    (config,) = Path("runs/timm").glob("config.yaml")
    assert "ema_momentum: 0.9998" in config.read_text()
    model, scaled = scope["model"], scope["scaled"]
    tokens = keras_vit.features(model, scaled, layers=[-1], pool="all")[-1]
    pooled = keras_vit.ViTB16(weights="timm.safetensors", include_top=False, pooling="token")
    assert_close(tokens[:, 0], pooled(scaled), 1e-5)
    names = ("mixup", "cutmix", "label_smoothing", "erasing", "layer_decay", "clip_norm")
    training.recipe("finetune").replace(**dict.fromkeys(names, 0.5), accumulation_steps=2)


@pytest.mark.slow
def test_vit_keras(page: Run) -> None:
    scope = page("vit-keras")
    assert scope["maps"].shape == (4, 2, 2)
    assert scope["model"].output_shape == (None, 5)
    write_images("photo.jpg")
    scope["model"].save("run.keras")
    options = ("--method", "rollout", "--out", "map.png")
    assert call_main("explain", "run.keras", "photo.jpg", *options) == 0
    assert Path("map.png").is_file()
