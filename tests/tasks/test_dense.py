from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from keras_vit import data
from keras_vit.runs.config import RunConfig
from keras_vit.runs.recipe import Recipe
from keras_vit.tasks.dense import DenseTask, evenly_spaced, sheet, upright_pixels, with_image_size
from keras_vit.tasks.detection.task import Detection
from keras_vit.tasks.segmentation.task import Segmentation
from keras_vit.training.param_groups import set_trainable

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


@pytest.mark.parametrize("kind", [Segmentation, Detection])
def test_layers_that_start_from_random_weights_are_not_frozen(kind: type[DenseTask]) -> None:
    recipe = Recipe(trainable=("block_00/*",), image_size=(32, 64))
    task = kind(RunConfig("photos", "ViTMicro4", weights=None, recipe=recipe))
    examples = SimpleNamespace(class_names=("a", "b"))
    network = task.build_network(examples, "float32", resume=False)  # type: ignore[arg-type]
    set_trainable(network, task.config.recipe.trainable)
    frozen = {v.path.partition("/")[0] for v in network.weights if not v.trainable}
    assert frozen
    assert [name for name in frozen if not name.startswith(("block_", "patch"))] == []
    assert kind(RunConfig("photos", "ViTMicro4")).config.recipe.trainable == ("*",)
