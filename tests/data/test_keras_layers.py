from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import Augmentation, Examples, training_dataset
from keras_vit.data.keras_layers import apply_layers, read_layers, write_layers
from keras_vit.preprocessing import Preprocessing

PREPROCESSING = Preprocessing(size=(13, 17), mean=0.0, std=1.0)
Noise = Callable[..., Examples]


@pytest.fixture(scope="module")
def cv_layers() -> dict[str, keras.layers.Layer]:
    """Layers of KerasCV that Keras does not have: of shape, of color, of several images."""
    import keras_cv  # takes a second

    layers = {
        "GridMask": keras_cv.layers.GridMask(ratio_factor=(0.4, 0.5), seed=3),
        "FourierMix": keras_cv.layers.FourierMix(alpha=0.9, seed=3),
        "ChannelShuffle": keras_cv.layers.ChannelShuffle(groups=3, seed=3),
        "Mosaic": keras_cv.layers.Mosaic(seed=3),
    }
    for name in layers:
        assert not hasattr(keras.layers, name)
    return layers


def keras_layers() -> dict[str, keras.layers.Layer]:
    return {
        "RandomContrast": keras.layers.RandomContrast(0.9),
        "RandomErasing": keras.layers.RandomErasing(scale=0.3),
        "RandAugment": keras.layers.RandAugment(factor=0.8),
        "MixUp": keras.layers.MixUp(alpha=0.8),
        "CutMix": keras.layers.CutMix(),
    }


MIXING = {"FourierMix", "Mosaic", "MixUp", "CutMix"}


def batches(examples: Examples, layers: Any, **fields: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Whole images as they come out of the pipeline; only the layers change them."""
    augmentation = Augmentation(crop_area=(1, 1), flip=False, layers=layers, **fields)
    dataset = training_dataset(examples, PREPROCESSING, augmentation, batch_size=6, epochs=1)
    assert dataset.element_spec == (
        tf.TensorSpec((6, 13, 17, 3), tf.float32),
        tf.TensorSpec((6, 3), tf.float32),
    )
    return list(dataset.as_numpy_iterator())


def check(name: str, layer: keras.layers.Layer | dict, examples: Examples) -> None:
    """A layer changes the images, keeps their range, and mixes labels where it should."""
    plain = batches(examples, ())
    changed = batches(examples, (layer,))
    assert len(changed) == len(plain) == 3
    for (x, y), (before, labels) in zip(changed, plain, strict=True):
        assert np.isfinite(x).all()
        assert -1e-5 <= x.min() < x.max() <= 1 + 1e-5  # [0, 255] before scaling
        np.testing.assert_allclose(y.sum(axis=1), 1, atol=1e-5)
        if name not in MIXING:
            np.testing.assert_array_equal(y, labels)
        assert (np.abs(x - before).max(axis=(1, 2, 3)) > 0.1).any()
    mixed = np.concatenate([y for _, y in changed])
    assert (name in MIXING) == bool(((mixed > 0.01) & (mixed < 0.99)).any())


@pytest.mark.parametrize(
    "name",
    [
        "FourierMix",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("GridMask", "ChannelShuffle", "Mosaic")
        ),
    ],
)
def test_layers_that_only_keras_cv_has_run_in_the_pipeline(
    name: str, cv_layers: dict[str, keras.layers.Layer], noise: Noise
) -> None:
    check(name, cv_layers[name], noise(19))


@pytest.mark.slow
def test_grid_mask_and_fourier_mix_do_what_they_are_called_for(
    cv_layers: dict[str, keras.layers.Layer], noise: Noise
) -> None:
    examples = noise(19)
    plain = batches(examples, ())
    for (x, _), (before, _) in zip(batches(examples, [cv_layers["GridMask"]]), plain, strict=True):
        masked = (x == 0).all(axis=-1)
        assert 0.05 < masked.mean() < 0.5
        np.testing.assert_allclose(x[~masked], before[~masked], atol=1e-6)  # measured 0
    mixed = batches(examples, [cv_layers["FourierMix"]])
    for (x, y), (before, labels) in zip(mixed, plain, strict=True):
        for image, label, own in zip(x, y, labels, strict=True):
            share = [(np.abs(image - other) < 1e-6).all(axis=-1).mean() for other in before]
            assert max(share) > 0.3  # every pixel is one of the batch's
            assert label[own.argmax()] > 0 or max(share) < 0.999


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if number else ())
        for number, name in enumerate(keras_layers())
    ],
)
def test_layers_of_keras_run_in_the_pipeline(name: str, noise: Noise) -> None:
    check(name, keras_layers()[name], noise(19))


def test_several_layers_are_applied_in_order() -> None:
    x = tf.constant(np.random.default_rng(3).integers(0, 256, (2, 5, 7, 3), "uint8"))
    y = tf.eye(2, 11)
    dark, bright = (keras.layers.RandomBrightness((f, f)) for f in (-1.0, 1.0))
    assert float(tf.reduce_min(apply_layers(x, y, [dark, bright])[0])) == 255
    images, labels = apply_layers(x, y, [bright, dark])
    assert float(tf.reduce_max(images)) == 0
    np.testing.assert_array_equal(labels, y)


@pytest.mark.slow
def test_layers_come_before_scaling_erasing_and_mixing(noise: Noise) -> None:
    """The layer sees pixels, what follows sees its result."""
    black = keras.layers.RandomBrightness((-1.0, -1.0))
    ((x, y),) = batches(noise(6), [black], mixup=5.0)
    np.testing.assert_array_equal(x, 0)
    assert ((y > 0.05) & (y < 0.95)).any()
    ((x, _),) = batches(noise(6), [black], erasing=1.0)
    erased = x != 0
    assert 0.005 < erased.mean() < 0.5
    assert x[erased].std() == pytest.approx(1, abs=0.2)  # noise is not scaled


@pytest.mark.slow
def test_erasing_and_mixing_do_not_notice_a_layer_that_does_nothing(noise: Noise) -> None:
    idle = keras.layers.RandomBrightness((0.0, 0.0))
    fields = {"erasing": 0.5, "mixup": 0.4, "cutmix": 1.0}
    with_layer = batches(noise(19), [idle], **fields)
    for (x, y), (expected, labels) in zip(
        with_layer, batches(noise(19), (), **fields), strict=True
    ):
        np.testing.assert_allclose(x, expected, atol=1e-6)  # measured 0
        np.testing.assert_array_equal(y, labels)


def test_layers_made_in_half_precision_are_refused(noise: Noise) -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    layer = keras.layers.MixUp(0.5, name="mix")
    config = keras.saving.serialize_keras_object(layer)
    message = r"`layers` must compute in float32: .* Received: mix, which computes in bfloat16"
    for half in (layer, config):
        with pytest.raises(ValueError, match=message):
            batches(noise(6), [half])
    ((x, y),) = batches(noise(6), [keras.layers.MixUp(0.5, dtype="float32")])
    assert (x.dtype, y.dtype) == ("float32", "float32")


@pytest.mark.slow
def test_configurations_make_the_same_round_trip(
    cv_layers: dict[str, keras.layers.Layer], noise: Noise
) -> None:
    layers = {**cv_layers, **keras_layers()}
    text = json.dumps(write_layers(list(layers.values())))
    again = read_layers(json.loads(text))
    assert [type(layer) for layer in again] == [type(layer) for layer in layers.values()]
    assert json.dumps(write_layers(again)) == text
    assert write_layers(json.loads(text)) == json.loads(text)
    assert read_layers(again) == again
    check("GridMask", json.loads(text)[0], noise(19))


def test_read_layers_rejects() -> None:
    unknown = {"module": "nowhere", "class_name": "Blur", "config": {}, "registered_name": "Blur"}
    message = (
        r"`layers` must contain layers, or configurations returned by "
        r"`keras\.saving\.serialize_keras_object`\. For KerasCV layers, install the extra "
        r"`kerascv` and `import keras_cv` first\. Received:.*'Blur'"
    )
    with pytest.raises(ValueError, match=message):
        read_layers([unknown])
    for wrong in ("RandomFlip", {"class": "RandomFlip"}, tf.image.flip_left_right, 3):
        with pytest.raises(
            ValueError, match=r"`layers` must contain layers of Keras or KerasCV, or"
        ):
            read_layers([wrong])


def test_layer_that_changes_the_shape_is_refused(noise: Noise) -> None:
    message = (
        r"Every layer in `layers` must keep the shape of the images\. Received: center_crop, which "
        r"changes the shape from \(6, 13, 17, 3\) to \(6, 5, 7, 3\)"
    )
    with pytest.raises(ValueError, match=message):
        batches(noise(6), [keras.layers.CenterCrop(5, 7, name="center_crop")])
