from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import Preprocessing, layers, models
from tests.helpers import normal, numpy, tiny_config


def of_means(side: int, step: int) -> keras.Model:
    """A model whose outputs are the means of `step` x `step` pixels."""
    images = keras.Input((side, side, 3))
    known = layers.ModelMetadata(Preprocessing(size=side, class_names=("a", "b", "c")))(images)
    return keras.Model(images, keras.layers.AveragePooling2D(step)(known))


@pytest.mark.parametrize("overlap", [0, 5, 8])
@pytest.mark.parametrize("size", [(16, 16), (16, 40), (28, 20), (60, 36)])
def test_every_output_is_that_of_its_pixels(size: tuple[int, int], overlap: int) -> None:
    images = normal(2, *size, 3)
    model = models.tiled(of_means(16, 4), size, overlap)
    expected = images.reshape(2, size[0] // 4, 4, size[1] // 4, 4, 3).mean((2, 4))
    np.testing.assert_allclose(numpy(model(images)), expected, atol=1e-6)
    assert models.preprocessing_of(model).size == size
    assert models.preprocessing_of(model).class_names == ("a", "b", "c")


def test_the_tile_that_shows_more_around_a_pixel_decides() -> None:
    images = keras.Input((16, 16, 3))
    known = layers.ModelMetadata(Preprocessing(size=16))(images)
    # The output is the distance from the border of the tile, in tiles of zeros.
    padded = keras.layers.ZeroPadding2D(8)(keras.layers.Rescaling(0.0, 1.0)(known))
    distance = keras.layers.AveragePooling2D((17, 17), 1)(padded)
    model = models.tiled(keras.Model(images, distance), (16, 40), overlap=8)
    found = numpy(model(np.zeros((1, 16, 40, 3), "float32")))[0, 8, :, 0]
    assert (np.diff(found[:8]) > 0).all()
    np.testing.assert_allclose(found, found[::-1], atol=1e-6)
    assert found[8:32].min() >= found[4]


@pytest.mark.slow
def test_a_tiled_segmenter_reloads(tmp_path: Path) -> None:
    config = tiny_config(image_size=(16, 24), patch_size=8, classes=0, pooling="none")
    model = models.Segmenter(models.build(config), classes=3, width=8)
    whole = models.tiled(model, (36, 40), overlap=6)
    assert whole.count_params() == model.count_params()
    whole.save(tmp_path / "m.keras")
    images = normal(2, 36, 40, 3)
    copy = keras.models.load_model(tmp_path / "m.keras")
    assert (copy.predict(images, verbose=0) == whole.predict(images, verbose=0)).all()


@pytest.mark.parametrize(
    ("size", "overlap"),
    [((12, 16), 4), ((18, 16), 4), ((16, 20), 13), ((16, 20), 16), ((16, 20), -1)],
)
def test_sizes_out_of_range_are_refused(size: tuple[int, int], overlap: int) -> None:
    with pytest.raises(ValueError, match="`image_size` must be at least the model's size"):
        models.tiled(of_means(16, 4), size, overlap)
