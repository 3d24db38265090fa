"""Preprocessing as plain data, and the two functions in the style of keras.applications."""

from __future__ import annotations

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_vit import preprocessing
from keras_vit.constants import IMAGENET_MEAN, IMAGENET_STD
from keras_vit.preprocessing import Preprocessing, decode_predictions, preprocess_input

PREPROCESSING = Preprocessing(
    size=(13, 17),
    resize="squash",
    crop_fraction=0.7,
    interpolation="lanczos3",
    antialias=False,
    mean=IMAGENET_MEAN,
    std=IMAGENET_STD,
    channels="bgr",
    class_names=("daisy", "rose"),
)


def test_config_round_trip_through_json() -> None:
    config = json.loads(json.dumps(PREPROCESSING.get_config()))
    assert Preprocessing.from_config(config) == PREPROCESSING
    assert Preprocessing.from_config(Preprocessing().get_config()) == Preprocessing()


def test_one_number_serves_all_sides_and_channels() -> None:
    preprocessing = Preprocessing(size=19, mean=0.25, std=(0.5,))  # type: ignore[arg-type]
    assert preprocessing.size == (19, 19)
    assert preprocessing.mean == (0.25, 0.25, 0.25)
    assert preprocessing.std == (0.5, 0.5, 0.5)
    assert Preprocessing(channels="grayscale").mean == (0.5,)


def test_contract_is_hashable_and_frozen() -> None:
    assert hash(PREPROCESSING) == hash(dataclasses.replace(PREPROCESSING))
    with pytest.raises(dataclasses.FrozenInstanceError):
        PREPROCESSING.resize = "crop"  # type: ignore[misc]


def test_config_that_is_none() -> None:
    with pytest.raises(ValueError, match="`config` must be a dictionary"):
        Preprocessing.from_config(None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": (0, 17)}, "`size` must be a positive integer"),
        ({"resize": "sqash"}, "`resize` must be one of .* Did you mean 'squash'"),
        ({"interpolation": "cubic"}, "`interpolation` must be one of .*Received: .*'cubic'"),
        ({"channels": "rbg"}, "`channels` must be one of"),
        ({"crop_fraction": 0.0}, r"`crop_fraction` must be in \(0, 1\]. Received: .*0.0"),
        ({"crop_fraction": 1.1}, r"`crop_fraction` must be in \(0, 1\]. Received: .*1.1"),
        ({"size": 20_000}, "`size` must be at most 134,217,728 pixels before the crop"),
        ({"crop_fraction": 1e-300}, "`size` must be at most"),
        ({"mean": (10**400,)}, "`mean` must be one finite number"),
        ({"mean": (0.1, 0.2)}, "`mean` must be .* 3 channels of 'rgb'. Received: mean=.0.1, 0.2."),
        ({"mean": IMAGENET_MEAN, "channels": "grayscale"}, "1 channels of 'grayscale'"),
        ({"std": (float("nan"),)}, "`std` must be one finite number"),
        ({"std": (0.1, 0.0, 0.2)}, "`std` must be positive. Received: std=.0.1, 0.0, 0.2."),
        ({"std": 1e-300}, "`mean` and `std` must scale pixels to float32 numbers. .*std=.1e-300"),
        ({"std": 1e300}, "`mean` and `std` must scale pixels to float32 numbers"),
        ({"mean": 1e300}, "`mean` and `std` must scale pixels to float32 numbers"),
        ({"thresholds": (0.5, 1.0)}, r"numbers in \(0, 1\), .*Received: thresholds=.0.5, 1.0."),
        ({"thresholds": (0.0,)}, r"`thresholds` must be numbers in \(0, 1\)"),
        ({"thresholds": ()}, r"`thresholds` must be numbers .* Received: thresholds=\(\)"),
        ({"thresholds": (0.5,), "class_names": ("a", "b")}, "one number for each of the 2 labels"),
    ],
)
def test_contract_rejects(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Preprocessing(**arguments)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float64"])
def test_scale_follows_the_formula_and_leaves_its_input(dtype: str) -> None:
    pixels = np.arange(2 * 3 * 5 * 3).reshape(2, 3, 5, 3).astype(dtype)
    before = pixels.copy()
    scaled = PREPROCESSING.scale(pixels)
    expected = (before / 255 - IMAGENET_MEAN) / IMAGENET_STD
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, expected, atol=1e-6)  # measured 1.2e-7
    np.testing.assert_array_equal(pixels, before)
    assert not np.shares_memory(scaled, pixels)


def test_scale_works_on_the_backend_tensors() -> None:
    pixels = np.arange(3 * 7 * 3, dtype="float32").reshape(3, 7, 3)
    scaled = PREPROCESSING.scale(keras.ops.convert_to_tensor(pixels))
    assert keras.ops.is_tensor(scaled)
    # An XLA backend may fuse the product and the sum: measured 0 on TensorFlow, 2.4e-7 on JAX.
    difference = keras.ops.convert_to_numpy(scaled) - PREPROCESSING.scale(pixels)
    assert np.abs(difference).max() <= 5e-7


@pytest.mark.parametrize(
    "preprocessing", [PREPROCESSING, Preprocessing(mean=0.1, channels="grayscale")]
)
def test_unscale_is_the_inverse_of_scale(preprocessing: Preprocessing) -> None:
    pixels = (
        np.arange(256, dtype="uint8").reshape(1, 16, 16, 1).repeat(preprocessing.num_channels, -1)
    )
    restored = preprocessing.unscale(preprocessing.scale(pixels))
    assert restored.dtype == np.float32
    np.testing.assert_allclose(restored, pixels, atol=1e-4)  # measured 3.1e-5
    np.testing.assert_array_equal(np.round(restored), pixels)


def test_unscale_follows_the_formula_and_leaves_its_input() -> None:
    values = np.linspace(-3, 3, 2 * 5 * 3).reshape(2, 5, 3)
    before = values.copy()
    expected = (values * IMAGENET_STD + IMAGENET_MEAN) * 255
    np.testing.assert_allclose(
        PREPROCESSING.unscale(values), expected, atol=1e-4
    )  # measured 1.5e-5
    np.testing.assert_array_equal(values, before)
    assert PREPROCESSING.unscale(values).min() < 0  # nothing is cut off


def test_unscale_works_on_the_backend_tensors() -> None:
    values = np.linspace(-2, 2, 3 * 7 * 3, dtype="float32").reshape(3, 7, 3)
    restored = PREPROCESSING.unscale(keras.ops.convert_to_tensor(values))
    assert keras.ops.is_tensor(restored)
    # An XLA backend may fuse the product and the sum.
    difference = keras.ops.convert_to_numpy(restored) - PREPROCESSING.unscale(values)
    assert np.abs(difference).max() <= 5e-5


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("data_format", [None, "channels_first", "channels_last"])
def test_preprocess_input_never_overwrites_its_input(dtype: str, data_format: str | None) -> None:
    x = np.array([[0, 51], [102, 255]], dtype)
    before = x.copy()
    scaled = preprocess_input(x, data_format)
    np.testing.assert_allclose(scaled, [[-1, -0.6], [-0.2, 1]], atol=1e-7)
    np.testing.assert_array_equal(x, before)


def test_preprocess_input_takes_integer_tensors() -> None:
    x = keras.ops.convert_to_tensor(np.array([0, 255], "uint8"))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(preprocess_input(x)), [-1, 1])


def test_preprocess_input_runs_in_tf_data_on_any_backend() -> None:
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensors(np.array([0, 255], "uint8")).map(preprocess_input)
    np.testing.assert_array_equal(next(iter(dataset)), [-1, 1])


def test_preprocess_input_rejects_unknown_format() -> None:
    with pytest.raises(ValueError, match=r"`data_format` must be one of .*Did you mean"):
        preprocess_input(np.zeros(3), "channel_last")


def test_decode_predictions_names_the_best_first() -> None:
    scores = np.zeros((2, 1000), "float32")
    scores[0, [207, 0, 999]] = 0.5, 0.3, 0.2
    scores[1, 985] = 1
    best = decode_predictions(keras.ops.convert_to_tensor(scores), top=3)
    assert [row[:2] for row in best[0]] == [
        ("n02099601", "golden_retriever"),
        ("n01440764", "tench"),
        ("n15075141", "toilet_tissue"),
    ]
    assert [score for _, _, score in best[0]] == pytest.approx([0.5, 0.3, 0.2])
    assert best[1][0] == ("n11939491", "daisy", 1.0)
    assert len(decode_predictions(scores)[0]) == 5


@pytest.mark.parametrize("shape", [(1000,), (2, 1001), (1, 2, 1000)])
def test_decode_predictions_rejects_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"`preds` must have shape .*Received: preds of shape"):
        decode_predictions(np.zeros(shape))


@pytest.mark.parametrize("top", [0, 1001])
def test_decode_predictions_rejects_top(top: int) -> None:
    with pytest.raises(ValueError, match=f"`top` must be .* Received: top={top}"):
        decode_predictions(np.zeros((1, 1000)), top=top)


def test_imagenet_classes_are_complete() -> None:
    wnids, labels = preprocessing.imagenet_classes()
    assert labels == preprocessing.imagenet_labels()
    assert len(wnids) == len(labels) == 1000
    assert list(wnids) == sorted(set(wnids))  # the class index is the order of the WordNet ids
    assert sorted({label for label in labels if labels.count(label) > 1}) == ["crane", "maillot"]


def test_contract_says_nothing_of_thresholds_that_it_has_not() -> None:
    # Files of models whose classes exclude one another stay what they were.
    assert "thresholds" not in PREPROCESSING.get_config()


def test_thresholds_travel_with_the_contract() -> None:
    preprocessing = dataclasses.replace(PREPROCESSING, thresholds=np.array([0.25, 0.75]))
    config = json.loads(json.dumps(preprocessing.get_config()))
    assert config["thresholds"] == [0.25, 0.75]
    assert Preprocessing.from_config(config) == preprocessing
    assert hash(preprocessing) != hash(PREPROCESSING)


def test_present_compares_every_label_with_its_own_threshold_in_float32() -> None:
    preprocessing = Preprocessing(thresholds=(0.1, 0.6, 0.9))
    third = np.float32(0.1)  # above 0.1 in float64
    probabilities = np.array([[0.1, 0.59, 0.91], [np.nextafter(third, 0), 0.6, 0.89]])
    expected = [[True, False, True], [False, True, False]]
    assert preprocessing.present(probabilities).tolist() == expected
    tensor = keras.ops.convert_to_tensor(probabilities.astype("float32"))
    assert keras.ops.convert_to_numpy(preprocessing.present(tensor)).tolist() == expected
    with pytest.raises(
        ValueError, match=r"classes of this model are mutually exclusive. .*thresholds=None"
    ):
        PREPROCESSING.present(probabilities)


@pytest.mark.parametrize("name", ["exif_orientation", "dct_scaling"])
def test_contract_of_an_earlier_version_reads_files_as_before(name: str) -> None:
    config = PREPROCESSING.get_config()
    assert config.pop(name) is True
    earlier = Preprocessing.from_config(config)
    assert earlier == dataclasses.replace(PREPROCESSING, **{name: False})
    assert earlier.get_config() == config  # which earlier versions read
    assert getattr(Preprocessing(), name)
