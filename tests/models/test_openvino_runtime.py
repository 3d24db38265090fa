from __future__ import annotations

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_vit.models import OpenVINOModel
from tests.helpers import normal, tiny_model

IMAGES = normal(5, 15, 14, 3)


@pytest.fixture(scope="module")
def pair() -> tuple[keras.Model, OpenVINOModel]:
    pytest.importorskip("openvino", reason="needs the extra openvino")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("OpenVINO reads TensorFlow's graphs")
    model = tiny_model()
    return model, OpenVINOModel(model, threads=1)


def test_it_is_called_like_the_model(pair: tuple[keras.Model, OpenVINOModel]) -> None:
    model, found = pair
    assert (found.input_shape, found.output_shape) == (model.input_shape, model.output_shape)
    expected = model.predict(IMAGES, verbose=0)
    for images in (IMAGES, keras.ops.convert_to_tensor(IMAGES), IMAGES.astype("float64")):
        np.testing.assert_allclose(found(images), expected, atol=5e-6)  # measured: 3e-7
    for batch_size in (2, 32):
        np.testing.assert_allclose(
            found.predict(IMAGES, batch_size=batch_size), expected, atol=5e-6
        )


def test_batches_may_come_with_labels(pair: tuple[keras.Model, OpenVINOModel]) -> None:
    import tensorflow as tf

    model, found = pair
    expected = model.predict(IMAGES, verbose=0)
    images = tf.data.Dataset.from_tensor_slices((IMAGES, range(5))).batch(2)
    np.testing.assert_allclose(found.predict(images), expected, atol=5e-6)
    np.testing.assert_allclose(found.predict([IMAGES[:3], IMAGES[3:]]), expected, atol=5e-6)


def test_threads_may_ask_at_once(pair: tuple[keras.Model, OpenVINOModel]) -> None:
    _, found = pair
    expected = found(IMAGES)
    with ThreadPoolExecutor(4) as pool:
        for answer, image in zip(
            pool.map(found, [IMAGES[i % 5, None] for i in range(40)]), [*range(5)] * 8, strict=True
        ):
            np.testing.assert_allclose(answer[0], expected[image], atol=5e-6)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 11])
def test_pieces_and_single_images_keep_their_order(
    pair: tuple[keras.Model, OpenVINOModel], number: int
) -> None:
    model, _ = pair
    found = OpenVINOModel(model, threads=2)  # pieces of four from eight images on
    images = normal(number, 15, 14, 3)
    np.testing.assert_allclose(found(images), model.predict(images, verbose=0), atol=5e-6)


@pytest.mark.slow
def test_bfloat16_answers_within_its_rounding(pair: tuple[keras.Model, OpenVINOModel]) -> None:
    model, _ = pair
    found = OpenVINOModel(model, precision="bfloat16", threads=1)
    np.testing.assert_allclose(found(IMAGES), model.predict(IMAGES), atol=0.06)  # measured: 0.010


def test_no_image_and_no_runtime_are_told(
    pair: tuple[keras.Model, OpenVINOModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, found = pair
    with pytest.raises(ValueError, match=r"`images` must contain at least one image\."):
        found.predict(IMAGES[:0])
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer"):
        found.predict(IMAGES, batch_size=0)
    with pytest.raises(ValueError, match=r"shape \('B', 15, 14, 3\)\. Received: \(15, 14, 3\)"):
        found(IMAGES[0])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "openvino")
    with pytest.raises(ImportError, match=r'pip install -e "\.\[openvino\]"'):
        OpenVINOModel(model)


def test_a_model_has_one_input_and_one_output() -> None:
    pytest.importorskip("openvino", reason="needs the extra openvino")
    one, two = keras.Input((3,)), keras.Input((3,))
    model = keras.Model([one, two], keras.layers.Add()([one, two]))
    with pytest.raises(ValueError, match=r"one input and one output\. Received: 2 inputs and 1"):
        OpenVINOModel(model)
    images = keras.Input((None, None, 3))
    model = keras.Model(images, keras.layers.GlobalMaxPooling2D()(images))
    with pytest.raises(ValueError, match=r"of known.*Received: \(None, None, None, 3\)"):
        OpenVINOModel(model)
    with pytest.raises(ValueError, match="`precision` must be one of"):
        OpenVINOModel(tiny_model(), precision="int8")
    with pytest.raises(ValueError, match="`threads` must be a positive integer"):
        OpenVINOModel(tiny_model(), threads=0)


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="what other backends are told")
def test_other_backends_are_refused() -> None:
    pytest.importorskip("openvino", reason="needs the extra openvino")
    with pytest.raises(RuntimeError, match=r"TensorFlow graph: .*_BACKEND='(jax|torch)'"):
        OpenVINOModel(tiny_model())
