from __future__ import annotations

from typing import Any

import keras
import pytest

from keras_vit import models, zoo
from tests.helpers import tiny_config


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"class_token": False, "pooling": "gap"},
        {"class_token": False, "pooling": "map"},
        {"pooling": "none", "classes": 0},
        {"representation_size": 13},
        {"position_embedding": "learned_2d"},
        {"position_embedding": "sincos_2d"},
        {"position_embedding": "none"},
        {"qkv_bias": False},
        {"channels": 5},
        {"distillation_token": True, "distillation_head": True},
        {"register_tokens": 3, "prefix_position": False, "patch_bias": False},
        {"pre_norm": True, "layer_scale": 0.1},
        {"pooling": "gap", "norm_after_pooling": True},
        {"pooling": "token_gap", "representation_size": 7},
        {"representation_size": 13, "classes": 0},
        {"stem_blocks": (), "stem_width": 32, "image_size": (24, 32)},
        {"stem_blocks": (1, 2, 1), "stem_width": 32, "patch_size": 1, "image_size": (32, 35)},
        {"image_size": (None, None), "position_grid": (3, 8)},
    ],
)
def test_count_parameters_equals_the_built_model(changes: dict[str, Any]) -> None:
    config = tiny_config(**changes)
    with keras.StatelessScope(initialize_variables=False):  # counts without allocating
        built = models.build(config).count_params()
    assert models.count_parameters(config) == built


@pytest.mark.parametrize("name", list(zoo.CONSTRUCTORS))
def test_count_parameters_of_every_constructor(name: str) -> None:
    config = zoo.constructor(name).config
    with keras.StatelessScope(initialize_variables=False):
        # Every block has as many: two tell the number of each, and of the rest.
        few = [models.build(config.replace(num_layers=n)).count_params() for n in (1, 2)]
    built = few[0] + (config.num_layers - 1) * (few[1] - few[0])
    assert models.count_parameters(config) == built


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"class_token": False, "pooling": "map"},
        {"representation_size": 13},
        {"distillation_token": True, "distillation_head": True, "register_tokens": 3},
        {"image_size": (16, 14), "position_grid": (5, 7), "remainder": "drop"},
        {"stem_blocks": (), "stem_width": 32, "image_size": (24, 32)},
        {"stem_blocks": (1, 2, 1), "stem_width": 32, "patch_size": 1, "image_size": (33, 35)},
    ],
)
def test_count_flops_is_what_tensorflow_counts_in_the_graph(changes: dict[str, Any]) -> None:
    config = tiny_config(**changes)
    assert models.count_flops(config) == products_of(models.build(config))


def test_count_training_flops_of_a_case_worked_by_hand() -> None:
    """Every product has two on the way back, but for that with the pixels, which has one."""
    config = tiny_config()  # 5 x 7 patches of 3 x 2 pixels, to 24; 24 to 11 classes
    forward = models.count_flops(config)
    assert models.count_training_flops(config) == 3 * forward - 2 * 35 * 18 * 24
    head = models.count_training_flops(config, head_only=True)
    assert head == forward + 2 * 24 * 11
    hybrid = tiny_config(stem_blocks=(), stem_width=32, image_size=(24, 32))
    root = 12 * 16 * 7 * 7 * 3 * 32
    found = models.count_training_flops(hybrid)
    assert found == 3 * models.count_flops(hybrid) - 2 * root


def test_remat_adds_the_blocks_once_more() -> None:
    config = tiny_config()
    one, two = (models.count_flops(config.replace(num_layers=n)) for n in (1, 2))
    more = [models.count_training_flops(config, remat=remat) for remat in (False, True)]
    assert more[1] - more[0] == 2 * (two - one)


def products_of(model: keras.Model) -> int:
    """Operations of the products of matrices and the convolutions for one image."""
    import tensorflow as tf

    function = tf.function(lambda images: model(images, training=False))
    graph = function.get_concrete_function(tf.ones((1, *model.input_shape[1:]))).graph
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    profile = tf.compat.v1.profiler.profile(graph, options={**options, "output": "none"}, cmd="op")
    total = 0
    while profile.children:  # every kind of operator has the next one below it
        (profile,) = profile.children
        if profile.name in ("MatMul", "BatchMatMulV2", "Conv2D"):
            total += profile.float_ops
    return total


def test_count_flops_of_any_size_is_that_of_the_position_grid() -> None:
    config = tiny_config(image_size=(None, None), position_grid=(5, 7))
    assert models.count_flops(config) == models.count_flops(tiny_config())
