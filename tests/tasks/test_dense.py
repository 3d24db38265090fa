from __future__ import annotations

import numpy as np
import pytest

from keras_vit import data
from keras_vit.runs.config import RunConfig
from keras_vit.tasks.dense import evenly_spaced, sheet, upright_pixels, with_image_size

pytestmark = pytest.mark.tensorflow


def test_default_size_is_that_of_the_images_up_to_a_largest() -> None:
    config = RunConfig("photos", "ViTTi16")
    for sides, size in (((480, 640), (304, 400)), ((90, 200), (96, 192)), ((3, 5), (16, 16))):
        found = with_image_size(config, lambda sides=sides: [sides] * 3, 400, (16, 16))
        assert found.recipe.image_size == size
        assert found.recipe.resize == "squash"
    given = RunConfig("photos", "ViTTi16", recipe=config.recipe.replace(image_size=(32, 64)))
    found = with_image_size(given, lambda: pytest.fail("the images are not read"), 400, (16, 16))
    assert found.recipe.image_size == (32, 64)


def test_some_images_are_evenly_spaced() -> None:
    examples = data.load("digits").subset(range(20))
    assert evenly_spaced(examples, 3).names == tuple(examples.names[i] for i in (0, 9, 19))
    assert len(evenly_spaced(examples.subset(range(2)))) == 2
    first = upright_pixels(evenly_spaced(examples, 1))[0]
    assert (first.shape, first.dtype) == ((8, 8, 3), np.uint8)


def test_a_sheet_shows_every_image() -> None:
    figure = sheet([np.zeros((4, 6, 3), "uint8")] * 5, list("abcde"))
    assert [axes.get_title() for axes in figure.axes[:5]] == list("abcde")
