from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.layers import ModelMetadata
from keras_vit.preprocessing import Preprocessing
from keras_vit.visualization import Curves, center_map, faithfulness, random_map
from keras_vit.visualization.faithfulness import _pixel_ranks
from tests.helpers import normal, tiny_model


def brightness_model(place: tuple[int, int], size: tuple[int, int] = (40, 60)) -> keras.Model:
    """Says class 1 if a pixel is bright: it is known what its answer owes to where."""
    images = keras.Input((*size, 3))
    z = ModelMetadata(Preprocessing(size=size))(images)
    mask = np.zeros((size[0] * size[1] * 3, 2), "float32")
    mask[(place[0] * size[1] + place[1]) * 3, 1] = 20.0
    logits = keras.layers.Dense(2, use_bias=False)
    model = keras.Model(images, keras.layers.Softmax()(logits(keras.layers.Flatten()(z))))
    logits.set_weights([mask])
    return model


@pytest.mark.parametrize("place", [(25, 37), pytest.param((0, 59), marks=pytest.mark.slow)])
def test_curves_fall_and_rise_at_the_patch_that_counts(place: tuple[int, int]) -> None:
    model = brightness_model(place)
    images = np.full((1, 40, 60, 3), -1.0, "float32")
    images[0, place[0], place[1]] = 1.0
    right = np.zeros((1, 2, 3))
    right[0, place[0] // 20, place[1] // 20] = 1.0
    curves = faithfulness(model, images, right, [1], steps=6)
    assert curves.deletion[0, 0] > 0.99
    np.testing.assert_allclose(curves.deletion[0, 1:], 0.5, atol=1e-6)  # gray is zero: undecided
    assert curves.insertion[0, 0] < 0.5
    assert (curves.insertion[0, 1:] > 0.99).all()
    wrong = faithfulness(model, images, -right, [1], steps=6)
    assert (wrong.deletion[0, :-1] > 0.99).all()
    assert curves.deletion_area < wrong.deletion_area
    assert curves.insertion_area > wrong.insertion_area


@pytest.mark.slow
def test_curves_begin_and_end_where_they_must() -> None:
    model = tiny_model()
    images = normal(3, 15, 14, 3)
    answers = model.predict(images, verbose=0)
    curves = faithfulness(model, images, np.ones((3, 5, 7)), [1, 4, 7], steps=4)
    expected = answers[[0, 1, 2], [1, 4, 7]]
    np.testing.assert_allclose(curves.deletion[:, 0], expected, atol=1e-6)
    np.testing.assert_allclose(curves.insertion[:, -1], expected, atol=1e-6)
    gray = model.predict(np.zeros((1, 15, 14, 3)), verbose=0)[0, [1, 4, 7]]
    np.testing.assert_allclose(curves.deletion[:, -1], gray, atol=1e-6)


def test_areas_of_a_case_worked_by_hand() -> None:
    curves = Curves(np.array([[1.0, 0.5, 0.0]]), np.array([[0.0, 1.0, 1.0]]))
    assert curves.deletion_area.tolist() == [0.5]
    assert curves.insertion_area.tolist() == [0.75]


def test_ranks_of_patches_that_do_not_divide_the_image() -> None:
    ranks = _pixel_ranks(np.array([[9.0, 2.0, 2.0], [1.0, 5.0, 0.0]]), (7, 10))
    assert ranks.shape == (7, 10)
    assert (ranks[:4, :4] == 0).all()
    assert ranks[4:].all()
    assert [*ranks[0, [4, 7]], *ranks[4, [0, 4, 7]]] == [2, 3, 4, 1, 5]  # equal ones in order


def test_center_map_falls_off_on_all_sides() -> None:
    found = center_map((5, 7))
    assert np.unravel_index(found.argmax(), found.shape) == (2, 3)
    np.testing.assert_allclose(found, found[::-1, ::-1])
    assert found[2, 0] == pytest.approx(np.exp(-((3 / (7 / 4)) ** 2) / 2))


def test_random_maps_follow_their_seed() -> None:
    np.testing.assert_array_equal(random_map((5, 7), 3), random_map((5, 7), 3))
    assert not np.array_equal(random_map((5, 7), 3), random_map((5, 7), 4))


def test_faithfulness_needs_one_of_each() -> None:
    with pytest.raises(ValueError, match="Received: 2 images, 1 maps, 2 classes"):
        faithfulness(tiny_model(), normal(2, 15, 14, 3), np.ones((1, 5, 7)), [0, 1])
