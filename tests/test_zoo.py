from __future__ import annotations

import inspect
import itertools
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import zoo
from keras_vit.models import build, config_of, count_parameters, preprocessing_of
from keras_vit.preprocessing import Preprocessing, imagenet_labels
from keras_vit.zoo import CONSTRUCTORS, ViTMicro4, constructor
from tests.helpers import normal, numpy, weights_of
from tests.test_zoo_backbones import BACKBONES
from tests.weights.files import official_tensors, save

MICRO = ViTMicro4.config.replace(image_size=(20, 20))  # a grid of 5 x 5

# With 1000 classes at 224 pixels. B, L and H: "num_params" of the weights in
# https://github.com/pytorch/vision (torchvision/models/vision_transformer.py); Ti/16 and S/16:
# timm's vit_tiny_patch16_224 and vit_small_patch16_224. S/32, B/8, g/14 and G/14 follow from the
# papers' tables by the closed form below, which the others confirm; so does S/8. Micro/4 is our
# own, at 32 px. The hybrids follow from `count_parameters`, which HYBRIDS confirms.
PARAMETERS = {
    "ViTMicro4": 407_368,
    "ViTTi16": 5_717_416,
    "ViTS32": 22_878_952,
    "ViTS16": 22_050_664,
    "ViTS8": 22_055_272,
    "ViTB32": 88_224_232,
    "ViTB16": 86_567_656,
    "ViTB8": 86_576_872,
    "ViTL32": 306_535_400,
    "ViTL16": 304_326_632,
    "ViTH14": 632_045_800,
    "ViTg14": 1_012_611_432,
    "ViTG14": 1_844_440_680,
    "ViTRTi16": 6_337_704,
    "ViTR26S32": 36_431_912,
    "ViTR50B16": 98_659_112,
    "ViTR50L32": 328_994_856,
}
# Millions, as timm rounds them in results-imagenet.csv, by image size.
HYBRIDS = {
    ("ViTRTi16", 224): 6.34,
    ("ViTRTi16", 384): 6.36,
    ("ViTR26S32", 224): 36.43,
    ("ViTR26S32", 384): 36.47,
    ("ViTR50B16", 384): 98.95,
    ("ViTR50L32", 224): 328.99,
    ("ViTR50L32", 384): 329.09,
}


def closed_form(d: int, m: int, layers: int, patch: int, side: int) -> int:
    patches = (side // patch) ** 2
    embedding = 3 * patch**2 * d + d + d + (patches + 1) * d
    block = 4 * (d * d + d) + (d * m + m) + (m * d + d) + 2 * 2 * d
    return embedding + layers * block + 2 * d + 1000 * d + 1000


def test_no_constructor_is_missing() -> None:
    assert CONSTRUCTORS.keys() == PARAMETERS.keys() | BACKBONES.keys()
    public = {
        name for name in keras_vit.__all__ if isinstance(getattr(keras_vit, name), zoo.Constructor)
    }
    assert public == CONSTRUCTORS.keys()
    for name, constructor_ in CONSTRUCTORS.items():
        assert getattr(keras_vit, name) is getattr(zoo, name) is constructor_
        assert constructor_.__name__ == name
        assert repr(constructor_) == f"<keras_vit.{name}>"


@pytest.mark.parametrize("name", PARAMETERS)
def test_constructor_has_the_published_number_of_parameters(name: str) -> None:
    with keras.StatelessScope(initialize_variables=False):  # nothing is allocated
        model = CONSTRUCTORS[name](weights=None)
        count = model.count_params()
    assert count == PARAMETERS[name]
    c = config_of(model)
    if c.stem_blocks is None:
        sizes = (c.hidden_size, c.mlp_dim, c.num_layers, c.patch[0], c.image_size[0] or 0)
        assert count == closed_form(*sizes)
    side = 32 if name == "ViTMicro4" else 224
    assert model.input_shape == (None, side, side, 3)


@pytest.mark.parametrize(("name", "side"), HYBRIDS)
def test_hybrid_has_the_published_number_of_parameters(name: str, side: int) -> None:
    config = CONSTRUCTORS[name].config.replace(image_size=(side, side))
    assert round(count_parameters(config) / 1e6, 2) == HYBRIDS[name, side]


def test_constructors_are_attributes_of_the_module() -> None:
    with pytest.raises(AttributeError, match=r"'keras_vit\.zoo' has no attribute 'ViTB61'"):
        _ = zoo.ViTB61


def test_signature_is_frozen() -> None:
    """Names, order and defaults are a promise; adding a keyword is not."""
    parameters = inspect.signature(keras_vit.ViTB16).parameters
    by_position = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [(p.name, p.default) for p in by_position] == [
        ("include_top", True),
        ("weights", "imagenet"),
        ("input_tensor", None),
        ("input_shape", None),
        ("pooling", None),
        ("classes", 1000),
        ("classifier_activation", "softmax"),
        ("name", None),
    ]
    assert {p.name: p.default for p in parameters.values() if p.kind is p.KEYWORD_ONLY} == {
        "class_names": None,
        "reset_head": False,
        "class_token": None,
        "registers": None,
        "representation_size": None,
        "position_embedding": None,
        "position_interpolation": None,
        "dropout_rate": 0.0,
        "attention_dropout_rate": 0.0,
        "stochastic_depth_rate": 0.0,
        **dict.fromkeys(("overrides", "dtype")),
    }


def test_signature_begins_as_that_of_keras_applications() -> None:
    theirs = inspect.signature(keras.applications.ResNet50).parameters
    ours = inspect.signature(keras_vit.ViTB16).parameters
    assert [*theirs] == [*ours][: len(theirs)]
    for name in theirs.keys() - {"name"}:
        assert ours[name].default == theirs[name].default


def test_unknown_name_suggests_the_nearest() -> None:
    assert constructor("ViTB16") is keras_vit.ViTB16
    with pytest.raises(ValueError, match=r"`model` must be one of .* Did you mean 'ViTTi16'"):
        constructor("vit_ti16")
    with pytest.raises(ValueError, match="Received: model='ResNet50'"):
        constructor("ResNet50")


def test_unknown_weights_list_the_valid_names() -> None:
    message = r"one of .* Did you mean 'imagenet.*'augreg_in21k_ft_in1k'"
    with pytest.raises(ValueError, match=message):
        keras_vit.ViTTi16(weights="imagenet1k")
    with pytest.raises(ValueError, match="no published weights for ViTMicro4"):
        ViTMicro4()


def test_named_weights_keep_the_rule_of_keras_for_classes() -> None:
    message = r"`classes` must be 1000 with .* pass `reset_head=True`.* Received: classes=5"
    with pytest.raises(ValueError, match=message):
        keras_vit.ViTTi16(weights="imagenet", classes=5)
    with pytest.raises(ValueError, match="`classes` must be 21843 with the classifier of weights"):
        keras_vit.ViTTi16(weights="augreg_in21k")


@pytest.mark.parametrize(
    ("arguments", "output_shape"),
    [
        ({}, (None, 1000)),
        ({"classes": 7}, (None, 7)),
        ({"include_top": False}, (None, 26, 96)),
        ({"include_top": False, "pooling": "token"}, (None, 96)),
        ({"include_top": False, "pooling": "avg"}, (None, 96)),
        ({"include_top": False, "pooling": "gap", "class_token": True}, (None, 96)),
        ({"include_top": False, "pooling": "max"}, (None, 96)),
        ({"include_top": False, "class_token": False, "pooling": "none"}, (None, 25, 96)),
        ({"pooling": "map", "classes": 7}, (None, 7)),
        ({"input_shape": (12, 28, 1)}, (None, 1000)),
        ({"input_shape": (None, None, 4), "include_top": False}, (None, None, 96)),
    ],
    ids=str,
)
def test_constructor_output_shape(
    arguments: dict[str, Any], output_shape: tuple[int | None, ...]
) -> None:
    arguments = {"input_shape": (20, 20, 3), **arguments}
    model = ViTMicro4(weights=None, **arguments)
    assert model.output_shape == output_shape
    assert model.input_shape == (None, *arguments["input_shape"])


def test_constructor_without_weights_follows_the_pooling() -> None:
    """`gap`, `max` and `map` do without a class token unless one is asked for."""
    assert config_of(ViTMicro4(weights=None)).class_token
    for pooling in ("avg", "gap", "max", "map"):
        config = config_of(ViTMicro4(weights=None, pooling=pooling))
        assert (config.class_token, config.pooling) == (False, {"avg": "gap"}.get(pooling, pooling))
    assert config_of(ViTMicro4(weights=None, pooling="gap", class_token=True)).class_token


def test_constructor_hands_its_options_on() -> None:
    options = {
        "representation_size": 17,
        "position_embedding": "sincos_2d",
        "position_interpolation": "bicubic_antialiased",
        "dropout_rate": 0.1,
        "attention_dropout_rate": 0.2,
        "stochastic_depth_rate": 0.3,
        "classifier_activation": None,
    }
    model = ViTMicro4(weights=None, name="mine", dtype="mixed_bfloat16", **options)
    config = config_of(model)
    assert {name: getattr(config, name) for name in options} == options
    assert model.name == "mine"
    assert model.get_layer("block_00").compute_dtype == "bfloat16"


def test_constructor_for_any_size_stores_its_own_grid() -> None:
    config = config_of(ViTMicro4(weights=None, input_shape=(None, None, 3)))
    assert (config.image_size, config.grid) == ((None, None), (8, 8))


def test_constructor_builds_upon_an_input_tensor() -> None:
    images = keras.Input((20, 28, 3), name="mine")
    model = ViTMicro4(weights=None, input_tensor=images, classes=7)
    assert model.input is images
    assert config_of(model).image_size == (20, 28)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": 0}, "`classes` must be a positive integer"),
        ({"input_shape": (20, 20)}, r"`input_shape` must be \(height, width, channels\)"),
        (
            {"input_shape": 224},
            r"`input_shape` must be .* such as \(224, 224, 3\).* Received: .*=224",
        ),
        ({"input_shape": (21, 20, 3)}, r"nearest sizes are \(20, 20\) and \(24, 20\)"),
        (
            {"input_shape": (3, 32, 32)},
            r"the channels last, .* Received: input_shape=\(3, 32, 32\)",
        ),
        ({"input_shape": (1, None, None)}, "the channels last"),
        ({"pooling": "mean"}, "`pooling` must be one of 'token', 'gap', .* 'avg', None. Received"),
        ({"pooling": "token", "class_token": False}, "needs a class token"),
        ({"position_embedding": "rope"}, "`position_embedding` must be one of"),
        ({"dropout_rate": 1.0}, "`dropout_rate` must be a number"),
    ],
    ids=str,
)
def test_constructor_checks_its_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ViTMicro4(weights=None, **arguments)


# Weights.


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """A file with 1000 classes and a representation layer, at 20 pixels."""
    return save(tmp_path, official_tensors(MICRO.replace(representation_size=17)))


def test_official_file_is_taken_over_as_it_is(official: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ViTMicro4(weights=official)
    config = config_of(model)
    assert config == MICRO.replace(representation_size=17)
    assert (config.gelu, config.epsilon) == ("tanh", 1e-6)
    assert model.input_shape == (None, 20, 20, 3)
    preprocessing = preprocessing_of(model)
    assert preprocessing.size == (20, 20)
    assert preprocessing.class_names == imagenet_labels()
    assert set(preprocessing.mean + preprocessing.std) == {0.5}
    head = official_tensors(MICRO.replace(representation_size=17))["head/kernel"]
    np.testing.assert_array_equal(weights_of(model)["head/kernel"], head)


def test_another_number_of_classes_gets_a_new_head_and_a_warning(official: Path) -> None:
    with pytest.warns(
        UserWarning, match=r"head/kernel, head/bias\) is new: it is not loaded from .*\.npz"
    ):
        model = ViTMicro4(weights=official, classes=7)
    assert not weights_of(model)["head/kernel"].any()
    assert weights_of(model)["pre_logits/kernel"].shape == (96, 17)
    assert preprocessing_of(model).class_names is None


def test_reset_head_keeps_no_labels(official: Path) -> None:
    with pytest.warns(UserWarning, match=r"head/kernel, head/bias\) is new: it is not loaded"):
        model = ViTMicro4(weights=str(official), reset_head=True)
    assert not weights_of(model)["head/kernel"].any()
    assert preprocessing_of(model).class_names is None


def test_without_the_top_the_head_goes_silently(official: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ViTMicro4(weights=official, include_top=False)
    assert not any(name.startswith(("head", "pre_logits")) for name in weights_of(model))
    assert model.output_shape == (None, 26, 96)


def test_representation_layer_can_be_left_out(official: Path) -> None:
    with pytest.warns(UserWarning, match="start from initial|are not loaded") as caught:
        model = ViTMicro4(weights=official, representation_size=0)
    messages = " ".join(str(warning.message) for warning in caught)
    assert "head/kernel, head/bias) is new: it is not loaded" in messages
    assert "pre_logits/kernel, pre_logits/bias of" in messages
    assert config_of(model).representation_size is None


@pytest.mark.parametrize("include_top", [True, False])
def test_another_image_size_resizes_the_positions_with_a_warning(
    include_top: bool, official: Path
) -> None:
    message = r"Position embeddings resized from \(5, 5\) to \(3, 7\) patches"
    with pytest.warns(UserWarning, match=message) as caught:
        model = ViTMicro4(weights=official, input_shape=(12, 28, 3), include_top=include_top)
    assert len(caught) == 1
    assert preprocessing_of(model).size == (12, 28)


def test_any_image_size_keeps_the_positions_of_the_file(official: Path) -> None:
    dynamic = ViTMicro4(weights=official, input_shape=(None, None, 3))
    assert config_of(dynamic).grid == (5, 5)
    images = normal(2, 12, 28, 3)
    with pytest.warns(UserWarning, match="Position embeddings resized"):
        static = ViTMicro4(weights=official, input_shape=(12, 28, 3))
    np.testing.assert_allclose(numpy(dynamic(images)), numpy(static(images)), atol=1e-6)


def test_file_of_another_architecture_names_both_sides(official: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"has hidden_size=96, num_layers=4, .*; the model .* has hidden_size=192, num_layer",
    ):
        keras_vit.ViTTi16(weights=official)


@pytest.mark.parametrize("weights", ["nowhere.npz", Path("nowhere.npz")])
def test_missing_file(weights: str | Path) -> None:
    with pytest.raises(ValueError, match=r"weights='nowhere.npz', which does not exist"):
        ViTMicro4(weights=weights)


@pytest.mark.parametrize("size", [(20, 28), (None, None)])
def test_keras_file_brings_architecture_labels_and_preprocessing(
    size: tuple[int | None, int | None], tmp_path: Path
) -> None:
    preprocessing = Preprocessing(
        size=(20, 28), resize="squash", std=0.25, class_names=tuple("abcdefg")
    )
    config = MICRO.replace(
        image_size=size,
        position_grid=(5, 7),
        classes=7,
        pooling="gap",
        gelu="exact",
        epsilon=1e-5,
        position_embedding="learned_2d",
    )
    source = build(config, preprocessing=preprocessing)
    source.set_weights([normal(*w.shape) for w in source.get_weights()])
    source.save(tmp_path / "m.keras")
    model = ViTMicro4(weights=tmp_path / "m.keras", classes=7)
    found = config_of(model)
    assert (found.image_size, found.grid) == (size, (5, 7))
    assert (found.gelu, found.epsilon, found.pooling) == ("exact", 1e-5, "gap")
    assert preprocessing_of(model) == preprocessing
    images = normal(2, 20, 28, 3)
    np.testing.assert_array_equal(numpy(model(images)), numpy(source(images)))


@pytest.mark.slow
def test_thresholds_go_with_the_labels_and_without_a_softmax(tmp_path: Path) -> None:
    preprocessing = Preprocessing(
        size=(20, 28), class_names=tuple("abc"), thresholds=(0.2, 0.3, 0.4)
    )
    config = MICRO.replace(image_size=(20, 28), classes=3, classifier_activation="sigmoid")
    build(config, preprocessing=preprocessing).save(tmp_path / "m.keras")
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of heads that start anew
        for activation, reset in itertools.product(("sigmoid", None, "softmax"), (False, True)):
            model = ViTMicro4(
                weights=tmp_path / "m.keras",
                classes=3,
                classifier_activation=activation,
                reset_head=reset,
            )
            found[activation, reset] = preprocessing_of(model).thresholds
    kept = {key for key, thresholds in found.items() if thresholds}
    assert kept == {("sigmoid", False), (None, False)}
    assert found["sigmoid", False] == (0.2, 0.3, 0.4)
