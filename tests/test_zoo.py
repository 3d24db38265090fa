from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import models, zoo
from keras_vit.preprocessing import Preprocessing, imagenet_labels
from tests.helpers import randomise

# With 1000 classes at 224 pixels, except ViTMicro2, which is ours. Sources: B, L, H 14: the
# tables of https://arxiv.org/abs/2010.11929 and the published checkpoints; Ti, S and B/8: the
# sizes that timm's results list (in millions: 5.72, 22.88, 22.05, 88.22, 86.57, 86.58).
# g/14 and G/14: 1011 and 1843 million in Table 2 of https://arxiv.org/abs/2106.04560, whose
# models pool by attention; the numbers here are with a class token.
PARAMETERS = {
    "ViTMicro2": 422_344,
    "ViTTi16": 5_717_416,
    "ViTS32": 22_878_952,
    "ViTS16": 22_050_664,
    "ViTB32": 88_224_232,
    "ViTB16": 86_567_656,
    "ViTB8": 86_576_872,
    "ViTL32": 306_535_400,
    "ViTL16": 304_326_632,
    "ViTH14": 632_045_800,
    "ViTg14": 1_012_611_432,
    "ViTG14": 1_844_440_680,
}


def tiny(**options: object) -> keras.Model:
    return keras_vit.ViTMicro2(**{"weights": None, "input_shape": (6, 10, 3)} | options)


def test_no_constructor_lacks_a_parameter_count() -> None:
    assert set(PARAMETERS) == set(zoo.CONSTRUCTORS)
    assert {name for name in keras_vit.__all__ if name.startswith("ViT")} == {
        *PARAMETERS,
        "ViTConfig",
    }


@pytest.mark.parametrize("name", PARAMETERS)
def test_constructor_has_the_published_number_of_parameters(name: str) -> None:
    with keras.StatelessScope(initialize_variables=False):  # nothing is allocated
        model = getattr(keras_vit, name)(weights=None)
    assert model.count_params() == PARAMETERS[name]
    assert model.name == name.lower()


def test_constructor_signature_is_frozen() -> None:
    parameters = inspect.signature(keras_vit.ViTB16).parameters.values()
    positional = {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    assert list(positional.items()) == [
        ("include_top", True),
        ("weights", "imagenet"),
        ("input_tensor", None),
        ("input_shape", None),
        ("pooling", None),
        ("classes", 1000),
        ("classifier_activation", "softmax"),
        ("name", None),
    ]
    assert {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY} == {
        "reset_head": False,
        "class_token": None,
        "representation_size": None,
        "position_embedding": None,
        "position_interpolation": None,
        "dropout_rate": 0.0,
        "attention_dropout_rate": 0.0,
        "stochastic_depth_rate": 0.0,
        "dtype": None,
    }


def test_imagenet_weights_are_refused_with_what_to_pass() -> None:
    with pytest.raises(ValueError, match=r"named weights are not available.*weights='imagenet'"):
        keras_vit.ViTB16()


def test_constructor_suggests_the_nearest_name() -> None:
    assert zoo.constructor("ViTB16") is keras_vit.ViTB16
    with pytest.raises(ValueError, match=r"Did you mean 'ViTB16'\? Received: model='ViTB61'"):
        zoo.constructor("ViTB61")


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"classes": 7}, (None, 7)),
        ({"include_top": False}, (None, 16, 96)),
        ({"include_top": False, "pooling": "token"}, (None, 96)),
        ({"include_top": False, "pooling": "avg"}, (None, 96)),
        ({"include_top": False, "pooling": "max"}, (None, 96)),
        ({"include_top": False, "pooling": "map"}, (None, 96)),
        ({"include_top": False, "input_shape": (None, None, 3)}, (None, None, 96)),
    ],
)
def test_output_shape_follows_top_and_pooling(
    options: dict[str, object], shape: tuple[int | None, ...]
) -> None:
    assert tiny(**options).output_shape == shape


@pytest.mark.parametrize(("pooling", "token"), [(None, True), ("avg", False), ("map", False)])
def test_without_weights_only_token_pooling_has_a_class_token(
    pooling: str | None, token: bool
) -> None:
    assert models.config_of(tiny(pooling=pooling)).class_token is token


def test_wrong_input_shape_is_explained() -> None:
    with pytest.raises(ValueError, match=r"nearest sizes are \(6, 10\) and \(8, 10\)"):
        tiny(input_shape=(7, 10, 3))
    with pytest.raises(ValueError, match=r"`input_shape` must be \(height, width, channels\)"):
        tiny(input_shape=(8, 8))


def test_input_tensor_gives_size_and_input() -> None:
    images = keras.Input((4, 6, 5), name="spectra")
    model = tiny(input_shape=None, input_tensor=images, classes=3)
    assert model.inputs[0] is images
    assert models.config_of(model).image_size == (4, 6)


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_own_files_load_at_another_size_and_number_of_classes(suffix: str, tmp_path: Path) -> None:
    trained = randomise(tiny(classes=3, input_shape=(8, 8, 3)))
    path = tmp_path / f"trained{suffix}"
    trained.save(path) if suffix == ".keras" else trained.save_weights(path)
    again = tiny(weights=path, classes=3, input_shape=None)
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    np.testing.assert_array_equal(
        again.predict(images, verbose=0), trained.predict(images, verbose=0)
    )
    with pytest.warns(UserWarning, match="resized|anew") as notes:
        other = tiny(weights=path, classes=7, input_shape=(6, 10, 3))
    assert "(4, 4)" in str(notes[0].message)
    assert "head/kernel" in str(notes[1].message)
    assert not np.any(other.get_layer("head").get_weights()[0])


def test_labels_and_preprocessing_come_with_a_keras_file(tmp_path: Path) -> None:
    contract = Preprocessing(size=8, crop_fraction=0.7, labels=("a", "b", "c"))
    config = models.size("Micro/2").replace(image_size=(8, 8), classes=3)
    models.build(config, preprocessing=contract).save(tmp_path / "m.keras")
    same = models.preprocessing_of(tiny(weights=tmp_path / "m.keras", classes=3, input_shape=None))
    assert same == contract
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = tiny(weights=tmp_path / "m.keras", classes=5, input_shape=(10, 6, 3))
    carried = models.preprocessing_of(other)
    assert (carried.size, carried.crop_fraction, carried.labels) == ((10, 6), 0.7, None)


def test_official_file_brings_labels_size_and_numerics(test_data: Path) -> None:
    path = test_data / "weights" / "Ti_16-augreg-i21k-imagenet2012-res_224.npz"
    model = keras_vit.ViTTi16(weights=path)
    config, contract = models.config_of(model), models.preprocessing_of(model)
    assert (config.gelu, config.epsilon, config.image_size) == ("tanh", 1e-6, (224, 224))
    assert contract.labels == imagenet_labels()
    backbone = keras_vit.ViTTi16(include_top=False, weights=path, input_shape=(None, None, 3))
    assert models.preprocessing_of(backbone).labels is None
    with pytest.warns(UserWarning, match="head/kernel"):
        reset = keras_vit.ViTTi16(weights=path, reset_head=True)
    assert not np.any(reset.get_layer("head").get_weights()[0])
    with pytest.raises(ValueError, match=r"hidden_size=192.*hidden_size=384"):
        keras_vit.ViTS16(weights=path)
