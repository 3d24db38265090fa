from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from safetensors import safe_open

from keras_vit.models import ViTConfig, build, config_of, preprocessing_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import checkpoint, infer_config, load_weights, read_checkpoint, save_weights
from tests.helpers import normal, numpy, randomise, tiny_config, tiny_model, weights_of

LABELS = tuple(f"kind {letter}" for letter in "abcdefghijk")
PREPROCESSING = Preprocessing(
    size=(15, 14),
    crop_fraction=0.7,
    std=(0.1, 0.2, 0.3),
    interpolation="bilinear",
    class_names=LABELS,
)
SQUARE = {"image_size": (15, 15), "patch_size": 3}  # the transformers library has no others
EXACT = {"gelu": "exact", "epsilon": 1e-6}  # what timm and torchvision compute with
GAP = {"class_token": False, "pooling": "gap"}
TEACHER = {"distillation_token": True, "distillation_head": True}
STEM = {"stem_blocks": (1,), "stem_width": 32, "image_size": (12, 8), "hidden_size": 20}
STEM |= {"num_layers": 1}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("npz", {}),
    ("npz", {"representation_size": 17}),
    ("npz", GAP | {"classes": 0, "image_size": (6, 10)}),
    ("npz", STEM),
    ("npz", {"pooling": "token_gap", "classes": 3}),
    ("timm", EXACT),
    ("timm", EXACT | GAP | {"norm_after_pooling": True, "layer_scale": 0.1}),
    ("timm", EXACT | TEACHER | {"image_size": (6, 16)}),  # 2 x 8 patches, as many as 4 x 4
    ("timm", EXACT | {"register_tokens": 3, "prefix_position": False, "qkv_bias": False}),
    ("timm", EXACT | {"pre_norm": True, "patch_bias": False, "epsilon": 1e-5}),
    ("timm", EXACT | {"pooling": "map", "class_token": False, "channels": 1}),
    ("timm", EXACT | {"position_embedding": "sincos_2d", "classes": 0, "pooling": "none"}),
    ("timm", EXACT | {"image_size": (None, None), "position_grid": (5, 7)}),
    ("timm", EXACT | STEM),
    ("huggingface", SQUARE),
    ("huggingface", SQUARE | TEACHER | {"epsilon": 1e-12, "gelu": "exact"}),
    ("huggingface", SQUARE | {"distillation_token": True}),
    ("huggingface", SQUARE | {"classes": 0, "representation_size": 17, "qkv_bias": False}),
    ("huggingface", SQUARE | {"position_embedding": "sincos_2d"}),
    ("torchvision", EXACT),
    ("torchvision", EXACT | {"representation_size": 17, "dropout_rate": 0.1}),
    ("torchvision", EXACT | {"classes": 0}),
]


def model_for(changes: dict[str, Any], **kwargs: Any) -> keras.Model:
    return randomise(build(tiny_config(**changes), preprocessing=PREPROCESSING, **kwargs))


def target(folder: Path, format: str) -> Path:
    names = {"npz": "m.npz", "huggingface": "m", "keras": "m.weights.h5"}
    return folder / names.get(format, "m.safetensors")


def read_again(path: Path, config: ViTConfig) -> tuple[checkpoint.Checkpoint, keras.Model]:
    """The checkpoint in a file and the model that it makes; an .npz file tells less."""
    found = read_checkpoint(path)
    known: dict[str, Any] = {}
    if path.suffix in (".npz", ".h5"):
        known = {name: getattr(config, name) for name in ("image_size", "patch_size", "num_heads")}
    model = build(infer_config.config_of(found, **known), preprocessing=found.preprocessing)
    assert load_weights(model, found, report=True).notes() == []
    return found, model


def assert_same_weights(model: keras.Model, expected: keras.Model) -> None:
    found, wanted = weights_of(model), weights_of(expected)
    assert found.keys() == wanted.keys()
    for name, weight in found.items():
        np.testing.assert_array_equal(weight, wanted[name], err_msg=name)


@pytest.mark.filterwarnings("error::UserWarning")  # nothing is lost in any of these
@pytest.mark.parametrize(("format", "changes"), CASES, ids=str)
def test_round_trip(format: str, changes: dict[str, Any], tmp_path: Path) -> None:
    model = model_for(changes)
    path = target(tmp_path, format)
    save_weights(model, path, format)
    found, again = read_again(path, config_of(model))
    assert_same_weights(again, model)
    assert found.dialect == format
    if format != "npz":
        # With logits, which is no property of weights.
        kept = config_of(model).replace(classifier_activation=None)
        assert infer_config.config_of(found).replace(position_grid=kept.position_grid) == kept
        assert found.preprocessing == PREPROCESSING


@pytest.mark.parametrize("name", ["m.weights.h5", "m.keras"])
def test_keras_round_trip(name: str, tmp_path: Path) -> None:
    model = model_for({"position_embedding": "learned_2d", "register_tokens": 3})
    save_weights(model, tmp_path / name)
    assert_same_weights(read_again(tmp_path / name, config_of(model))[1], model)
    if name == "m.keras":
        again = keras.saving.load_model(tmp_path / name)
        assert preprocessing_of(again) == PREPROCESSING
        images = normal(2, 15, 14, 3)
        np.testing.assert_array_equal(numpy(again(images)), numpy(model(images)))


@pytest.mark.parametrize("format", ["npz", "timm", "huggingface", "keras"])
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16"])
def test_mixed_precision_is_saved_in_float32(dtype: str, format: str, tmp_path: Path) -> None:
    model = model_for(SQUARE | {"gelu": "exact" if format == "timm" else "tanh"}, dtype=dtype)
    save_weights(model, target(tmp_path, format), format)
    _, again = read_again(target(tmp_path, format), config_of(model))
    for name, weight in weights_of(model).items():
        found = weights_of(again)[name]
        assert found.dtype == "float32"
        np.testing.assert_array_equal(found, weight.astype("float32"), err_msg=name)


@pytest.mark.parametrize("format", ["npz", "timm", "torchvision"])
def test_the_same_model_gives_the_same_bytes(format: str, tmp_path: Path) -> None:
    model = model_for({"gelu": "tanh" if format == "npz" else "exact"})
    for folder in ("a", "b"):
        save_weights(model, target(tmp_path / folder, format), format)
    a, b = (target(tmp_path / folder, format).read_bytes() for folder in ("a", "b"))
    assert a == b


def test_the_name_says_the_format(tmp_path: Path) -> None:
    model = model_for(SQUARE)
    for name, dialect in (("m.npz", "npz"), ("m.weights.h5", "keras"), ("m", "huggingface")):
        save_weights(model, tmp_path / name)
        assert read_checkpoint(tmp_path / name).dialect == dialect


def test_a_hugging_face_folder(tmp_path: Path) -> None:
    save_weights(model_for(SQUARE | TEACHER), tmp_path / "m")
    names = ["config.json", "model.safetensors", "preprocessor_config.json"]
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == names
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["architectures"] == ["DeiTForImageClassificationWithTeacher"]
    assert config["id2label"]["10"] == "kind k"
    with safe_open(tmp_path / "m" / "model.safetensors", "numpy") as file:
        assert file.metadata()["format"] == "pt"
        keys = set(file.keys())
    others = {key for key in keys if not key.startswith("deit.")}
    assert others == {
        *(f"{kind}_classifier.{part}" for kind in ("cls", "distillation") for part in NAMES)
    }
    layer = "deit.encoder.layer.1.attention.attention.key.weight"
    assert {"deit.embeddings.distillation_token", layer, "deit.layernorm.bias"} <= keys


NAMES = ("weight", "bias")


@pytest.mark.parametrize(
    ("changes", "prefix", "classifier"),
    [
        ({}, "vit.", True),
        ({"distillation_token": True}, "deit.", True),
        ({"classes": 0}, "", False),
    ],
)
def test_names_on_the_hub(
    changes: dict[str, Any], prefix: str, classifier: bool, tmp_path: Path
) -> None:
    save_weights(model_for(SQUARE | changes), tmp_path / "m")
    with safe_open(tmp_path / "m" / "model.safetensors", "numpy") as file:
        keys = set(file.keys())
    assert f"{prefix}embeddings.cls_token" in keys
    assert {key for key in keys if "classifier" in key} == {
        f"classifier.{part}" for part in NAMES if classifier
    }


@pytest.mark.parametrize(
    ("format", "changes", "message"),
    [
        (
            "timm",
            {},
            r"'timm' does not record that the model uses gelu='tanh'; other libraries "
            r"will use gelu='exact'\. Create timm's model with act_layer=\"gelu_tanh\"\.$",
        ),
        (
            "timm",
            {"epsilon": 1e-12, "gelu": "exact"},
            r"uses epsilon=1e-12; .* use epsilon=1e-06\. .* "
            r"norm_layer=functools.partial\(torch.nn.LayerNorm, eps=1e-12\)\.$",
        ),
        ("timm", EXACT | {"pre_norm": True}, "epsilon=1e-06; other libraries .* epsilon=1e-05"),
        (
            "timm",
            EXACT | {"pooling": "gap"},
            r"pooling='gap'; .* pooling='token'\. .* global_pool=\"avg\", fc_norm=False\.$",
        ),
        (
            "timm",
            EXACT | {"pooling": "max", "norm_after_pooling": True},
            r"pooling='max'; .* pooling='token'\. .* global_pool=\"max\"\.$",
        ),
        (
            "timm",
            EXACT | {"representation_size": 17},
            "it ignores `pre_logits`, and its outputs differ",
        ),
        ("torchvision", {}, r"'torchvision' .* gelu='tanh'; .* use gelu='exact'\.$"),
        ("torchvision", EXACT | {"pooling": "gap"}, r"pooling='gap'; .* use pooling='token'\.$"),
        ("npz", EXACT | {"epsilon": 1e-5}, r"gelu='exact', epsilon=1e-05; .*='tanh', epsilon=1e-0"),
        ("npz", {"image_size": (6, 16)}, r"position_grid=\(2, 8\); .* position_grid=\(4, 4\)\.$"),
        (
            "npz",
            {"position_embedding": "none"},
            r"position_embedding='none'; .* use position_embedding='sincos_2d'\.$",
        ),
        (
            "npz",
            {"pooling": "gap"},
            r"pooling='gap'; other libraries will use pooling='token'\.$",
        ),
    ],
)
def test_what_a_file_cannot_tell_is_warned_of(
    format: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = model_for(changes)
    with pytest.warns(UserWarning, match=message) as record:
        save_weights(model, target(tmp_path, format), format)
    files = [warning.filename for warning in record if warning.category is UserWarning]
    assert files == [__file__]
    if format != "npz":  # our own readers are told
        assert read_checkpoint(target(tmp_path, format)).inferred["gelu"] == config_of(model).gelu


def test_what_image_processors_cannot_be_told_is_warned_of(tmp_path: Path) -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, channels="bgr", antialias=False)
    model = build(tiny_config(**SQUARE), preprocessing=preprocessing)
    with pytest.warns(UserWarning, match="cannot represent channels='bgr', antialias=False"):
        save_weights(model, tmp_path / "m")
    assert read_checkpoint(tmp_path / "m").preprocessing == preprocessing


@pytest.mark.parametrize("format", ["npz", "timm", "huggingface", "torchvision"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding": "learned_2d"}, "Without a name: patch_encoder/column, patch_e"),
        # A model of transformers with layer scale is a DINOv2, which has no such classifier.
        ({"layer_scale": 0.1}, "Without a name: (block_00/scale_1/gamma, block|head/bias, head/k)"),
        ({"register_tokens": 3}, "Without a name: patch_encoder/register_tokens. Without"),
    ],
)
def test_a_tensor_without_a_place_is_refused(
    format: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    if format == "timm" and "position_embedding" not in changes:
        return  # timm has a place for them: test_round_trip
    with pytest.raises(ValueError, match=f"The format '{format}' must have .*{message}"):
        save_weights(model_for(SQUARE | changes), target(tmp_path, format), format)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("format", "changes", "message"),
    [
        ("npz", {"qkv_bias": False}, r"without a tensor: block_00/attention/qkv/bias\. Write this"),
        ("npz", {"patch_bias": False}, "without a tensor: patch_encoder/projection/bias"),
        ("torchvision", GAP, "without a tensor: patch_encoder/class_token"),
        ("torchvision", {"position_embedding": "none"}, "without a tensor: patch_encoder/position"),
        ("huggingface", {"patch_bias": False}, "without a tensor: patch_encoder/projection/bias"),
        (
            "huggingface",
            {"image_size": (15, 12)},
            r"must have square images and .* Received: image_size=\(15, 12\)\. Write",
        ),
        ("huggingface", {"patch_size": (3, 5)}, r"Received: patch_size=\(3, 5\)\."),
        ("huggingface", {"image_size": (None, None)}, r"Received: image_size=\(None, None\)\."),
        ("huggingface", {"pooling": "gap"}, "Received: pooling=gap"),
        ("huggingface", {"representation_size": 17}, "Received: representation_size=17"),
        ("huggingface", {"position_grid": (4, 4)}, r"Received: position_grid=\(4, 4\)"),
    ],
)
def test_a_model_that_the_library_lacks_is_refused(
    format: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"(?i){message}"):
        save_weights(model_for(SQUARE | changes), target(tmp_path, format), format)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("m.safetensors", None, "`format` must be one of 'npz', 'timm', .* Received: format=None"),
        ("m.pth", None, "`format` must be one of .*path='.*m.pth'"),
        ("m.npz", "flax", "`format` must be one of 'npz', 'timm', "),
        ("m.npz", "timm", r"`path` must end in .safetensors for format='timm'\. Received: path='"),
        ("m", "npz", "`path` must end in .npz for format='npz'"),
        ("m.h5", "keras", "`path` must end in .weights.h5 or .keras for format='keras'"),
        (
            "m.npz",
            "huggingface",
            "`path` must end in a folder name without a suffix for format='hug",
        ),
        ("folder.npz", "npz", "`path` must not be an existing folder. Remove it,"),
        ("folder", "huggingface", "`path` must not be an existing folder. Remove it,"),
        ("file", "huggingface", "`path` must not be an existing folder. Remove it,"),
    ],
)
def test_a_bad_target_is_refused(
    name: str, format: str | None, message: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "file").write_text("mine")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=message):
        save_weights(tiny_model(), tmp_path / name, format)
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_may_have_a_dot_if_the_format_is_given(tmp_path: Path) -> None:
    save_weights(model_for(SQUARE), tmp_path / "vit-1.5", "huggingface")
    assert (tmp_path / "vit-1.5" / "config.json").is_file()


def test_a_part_of_a_model_is_refused(tmp_path: Path) -> None:
    model = tiny_model()
    part = keras.Model(model.inputs, model.get_layer("pooling").output, name="part")
    with pytest.raises(
        ValueError, match=r"The model 'part' must match its .* classes=0 instead of 11"
    ):
        save_weights(part, tmp_path / "m.npz")


def test_a_larger_model_is_refused(tmp_path: Path) -> None:
    model = tiny_model()
    outputs = keras.layers.Dense(5, name="mine")(model.output)
    with pytest.raises(ValueError, match="Without a name: mine/bias, mine/kernel"):
        save_weights(keras.Model(model.inputs, outputs), tmp_path / "m.npz")


def test_a_stranger_is_refused(tmp_path: Path) -> None:
    stranger = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="`model` must be a model of keras_vit"):
        save_weights(stranger, tmp_path / "m.npz")


@pytest.mark.parametrize("name", ["m.npz", "m.weights.h5", "m.keras", "m.safetensors"])
def test_an_interruption_leaves_the_earlier_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    model = model_for(EXACT if name == "m.safetensors" else {})
    format = "timm" if name == "m.safetensors" else None
    save_weights(model, tmp_path / name, format)
    before = (tmp_path / name).read_bytes()
    randomise(model)
    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_weights(model, tmp_path / name, format)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == before


def test_labels_of_another_number_are_not_written(tmp_path: Path) -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, class_names=LABELS[:5])
    model = build(tiny_config(**SQUARE), preprocessing=preprocessing)
    save_weights(model, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["id2label"] == {str(index): f"LABEL_{index}" for index in range(11)}


def test_another_pooling_than_that_of_transformers_is_noted(tmp_path: Path) -> None:
    fields = SQUARE | {"classes": 0, "pooling": "gap"}
    lost = r"uses pooling='gap'; transformers will use pooling='token'\."
    with pytest.warns(UserWarning, match=lost):
        save_weights(model_for(fields), tmp_path / "m", "huggingface")
