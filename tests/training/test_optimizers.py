from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import models, weights
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.training import Recipe
from keras_vit.training.optimizers import (
    build_optimizer,
    build_schedule,
    clip_gradients,
    state_per_weight,
)
from keras_vit.training.training_model import TrainingModel
from tests.helpers import in_training, numpy


@pytest.fixture
def model() -> keras.Model:
    config = models.size("Micro/2").replace(
        hidden_size=15, num_layers=1, num_heads=3, mlp_dim=19, image_size=(4, 6), classes=7
    )
    return models.build(config)


def test_schedule_is_the_recipe_s() -> None:
    recipe = Recipe(
        learning_rate=0.8, warmup_fraction=0.25, decay="rsqrt", final_fraction=0.1, timescale=9
    )
    assert build_schedule(recipe, steps=12).get_config() == {
        "peak": 0.8,
        "total_steps": 12,
        "warmup_steps": 3,
        "decay": "rsqrt",
        "final_fraction": 0.1,
        "timescale": 9.0,
    }
    assert build_schedule(recipe.replace(warmup_steps=7), steps=12).warmup_steps == 7


def test_warm_up_longer_than_the_run_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    build_schedule(Recipe(warmup_steps=11), steps=12)
    assert capsys.readouterr().out == ""
    build_schedule(Recipe(warmup_steps=13), steps=12)
    assert "the run of 12 steps ends within the 13 warm-up steps" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_weight_decay_shrinks_kernels_only(model: keras.Model, name: str) -> None:
    recipe = Recipe(optimizer=name, learning_rate=0.5, weight_decay=0.2, warmup_fraction=0)
    optimizer = build_optimizer(recipe, model, steps=10)
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, 3.0))
    zeros = [np.zeros(variable.shape, "float32") for variable in model.trainable_variables]
    optimizer.apply(zeros, model.trainable_variables)
    found = {v.path: float(np.mean(v)) for v in model.trainable_variables}
    decayed = {path for path, value in found.items() if value != 3}
    assert decayed == {path for path in found if path.endswith("/kernel")}
    assert decayed >= {"head/kernel", "patch_encoder/projection/kernel"}
    # Decoupled: 3 - 0.5 * 0.2 * 3
    assert [found[path] for path in decayed] == pytest.approx([2.7] * len(decayed))


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_no_weight_decay_leaves_everything(model: keras.Model, name: str) -> None:
    recipe = Recipe(optimizer=name, learning_rate=0.5, weight_decay=0, warmup_fraction=0)
    optimizer = build_optimizer(recipe, model, steps=10)
    before = model.get_weights()
    zeros = [np.zeros(variable.shape, "float32") for variable in model.trainable_variables]
    optimizer.apply(zeros, model.trainable_variables)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_optimizer_does_not_clip(model: keras.Model) -> None:
    # It would do so before the replicas' gradients are summed.
    optimizer = build_optimizer(Recipe(clip_norm=1), model, steps=10)
    assert (optimizer.clipnorm, optimizer.global_clipnorm, optimizer.clipvalue) == (None,) * 3


def moved(model: keras.Model, **recipe: Any) -> dict[str, float]:
    """Where weights of 3 go in one step of SGD with gradients of 1 and no momentum."""
    numbers = {"optimizer": "sgd", "beta_1": 0.0, "warmup_fraction": 0, "weight_decay": 0}
    optimizer = build_optimizer(Recipe(**numbers | recipe), model, steps=10)
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, 3.0))
    ones = [np.ones(variable.shape, "float32") for variable in model.trainable_variables]
    optimizer.apply(ones, model.trainable_variables)
    return {v.path: float(np.mean(numpy(v))) for v in model.trainable_variables}


def test_layer_decay_slows_the_first_layers(model: keras.Model) -> None:
    found = moved(model, learning_rate=1.0, layer_decay=0.5)
    by_layer = {path.partition("/")[0]: value for path, value in found.items()}
    assert by_layer == {"patch_encoder": 2.75, "block_00": 2.5, "encoder_norm": 2.5, "head": 2.0}


def test_layer_decay_slows_the_weight_decay_too(model: keras.Model) -> None:
    found = moved(model, learning_rate=1.0, layer_decay=0.5, weight_decay=0.1)
    assert found["head/kernel"] == pytest.approx(3 * 0.9 - 1)
    assert found["patch_encoder/projection/kernel"] == pytest.approx(3 * (1 - 0.025) - 0.25)
    assert found["head/bias"] == 2


def test_coupled_decay_is_added_to_the_gradient(model: keras.Model) -> None:
    found = moved(
        model,
        learning_rate=0.5,
        weight_decay=0.1,
        weight_decay_coupled=True,
        weight_decay_on="all",
    )
    assert list(found.values()) == pytest.approx([3 - 0.5 * (1 + 0.1 * 3)] * len(found))


def test_coupled_decay_goes_through_the_momentum(model: keras.Model) -> None:
    # With momentum 0.9 and zero gradients: m = 0.1 * 3, then 0.9 m + 0.1 w.
    recipe = Recipe(
        **{"optimizer": "sgd", "learning_rate": 1.0, "warmup_fraction": 0, "decay": "constant"},
        weight_decay=0.1,
        weight_decay_coupled=True,
        weight_decay_on="all",
    )
    optimizer = build_optimizer(recipe, model, steps=10)
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, 3.0))
    zeros = [np.zeros(variable.shape, "float32") for variable in model.trainable_variables]
    for _ in range(2):
        optimizer.apply(zeros, model.trainable_variables)
    first = 3 - 0.3
    expected = first - (0.9 * 0.3 + 0.1 * first)
    assert float(np.mean(numpy(model.trainable_variables[0]))) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("adamw", keras.optimizers.Adam),
        ("sgd", keras.optimizers.SGD),
        ("lion", keras.optimizers.Lion),
        ("adafactor", keras.optimizers.Adafactor),
    ],
)
def test_optimizers_are_keras_s(model: keras.Model, name: str, kind: type) -> None:
    optimizer = build_optimizer(Recipe(optimizer=name, beta_1=0.8), model, steps=10)
    assert isinstance(optimizer, kind)
    assert optimizer.built
    if name == "sgd":
        assert optimizer.momentum == 0.8
    elif name != "adafactor":
        assert optimizer.beta_1 == 0.8


def test_adamw_equals_keras_s(model: keras.Model) -> None:
    recipe = Recipe(learning_rate=0.03, weight_decay=0.2, weight_decay_on="all", decay="constant")
    ours = build_optimizer(recipe.replace(warmup_fraction=0), model, steps=10)
    start = model.get_weights()
    rng = np.random.default_rng(5)
    gradients = [
        [rng.normal(size=v.shape).astype("float32") for v in model.trainable_variables]
        for _ in range(3)
    ]
    found = {}
    theirs = keras.optimizers.AdamW(0.03, weight_decay=0.2)
    for key, optimizer in (("ours", ours), ("theirs", theirs)):
        model.set_weights(start)
        for step in gradients:
            optimizer.apply(step, model.trainable_variables)
        found[key] = model.get_weights()
    for one, other in zip(found["ours"], found["theirs"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's graph")
def test_adamw_updates_alike_in_a_graph(model: keras.Model) -> None:
    import tensorflow as tf

    variables, start = model.trainable_variables, model.get_weights()
    gradients = [tf.constant(np.full(v.shape, 0.3, "float32")) for v in variables]
    found = []
    for traced in (False, True):
        model.set_weights(start)
        optimizer = build_optimizer(Recipe(warmup_fraction=0), model, steps=10)

        def update(optimizer: Any = optimizer) -> None:
            optimizer.apply(gradients, variables)

        (tf.function(update, autograph=False) if traced else update)()
        found.append(model.get_weights())
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)  # measured: 0


def test_average_is_kept_on_request(model: keras.Model) -> None:
    assert build_optimizer(Recipe(ema_momentum=0.7), model, steps=10).ema_momentum == 0.7
    assert not build_optimizer(Recipe(), model, steps=10).use_ema


def test_float16_scales_the_loss(model: keras.Model) -> None:
    optimizer = build_optimizer(Recipe(), model, steps=10, precision="mixed_float16")
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    assert isinstance(optimizer.inner_optimizer, keras.optimizers.Adam)


@pytest.mark.parametrize(
    "name", ["token", pytest.param("gap_representation", marks=pytest.mark.slow)]
)
def test_updates_equal_the_official_ones(
    test_data: Path, tmp_path: Path, recipe: ModuleType, name: str
) -> None:
    """Loss, gradients and six clipped, accumulated updates of `vit_jax/train.py`.

    With its momentum in float32; Keras keeps no momentum in bfloat16.
    """
    folder = test_data / "reference" / "train"
    case = recipe.load(str(folder / f"official_update_{name}.json"))
    expected = recipe.outputs(case)
    images = recipe.image(case)
    labels = np.eye(case["num_classes"], dtype="float32")[expected["labels"]]
    file = tmp_path / "start.npz"
    np.savez(file, **recipe.weights(case))
    schedule = case["schedule"]
    base = schedule["base"]
    numbers = Recipe(
        optimizer="sgd",
        learning_rate=base,
        decay=schedule["decay_type"],
        warmup_fraction=0,
        warmup_steps=schedule["warmup_steps"],
        final_fraction=1e-5 / base if schedule["decay_type"] == "linear" else 0.0,
        weight_decay=0,
    )

    def training_model(numbers: Recipe, **settings: Any) -> TrainingModel:
        model = official_model(case, file)
        made = in_training(ClassificationObjective, model, **settings)
        steps = schedule["total_steps"]
        made.compile(optimizer=build_optimizer(numbers, model, steps))
        return made

    def written(model: keras.Model, values: list[np.ndarray], prefix: str) -> dict[str, Any]:
        model.set_weights(values)
        weights.save_weights(model, tmp_path / "found.npz", "npz")
        with np.load(tmp_path / "found.npz") as content:
            return {f"{prefix}:{key}": content[key] for key in content.files}

    # A step of plain descent at rate 1 moves the weights by the gradient.
    one = training_model(
        numbers.replace(learning_rate=1.0, beta_1=0, warmup_steps=0, decay="constant")
    )
    before = one.network.get_weights()
    logs = one.train_on_batch(images, labels, return_dict=True)
    assert logs["loss"] == pytest.approx(float(expected["loss"]), abs=1e-6)
    norm = float(expected["grad_global_norm"])
    assert logs["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    moves = [old - new for old, new in zip(before, one.network.get_weights(), strict=True)]
    compare(written(one.network, moves, "grad"), expected, "grad", tolerance=2e-6)

    six = training_model(
        numbers,
        clip_norm=case["grad_norm_clip"],
        accumulation_steps=case["accum_steps"] or 1,
    )
    losses = []
    for _ in range(case["steps"]):
        six.reset_metrics()
        losses.append(six.train_on_batch(images, labels, return_dict=True)["loss"])
    np.testing.assert_allclose(losses, expected["losses_float32"], atol=2e-6)
    ends = written(six.network, six.network.get_weights(), "param_float32")
    compare(ends, expected, "param_float32", tolerance=2e-6)


def official_model(case: dict[str, Any], file: Path) -> keras.Model:
    """The model of an official configuration, with logits, and the weights of a file."""
    config = models.ViTConfig(
        hidden_size=case["config"]["hidden_size"],
        num_layers=case["config"]["transformer"]["num_layers"],
        num_heads=case["config"]["transformer"]["num_heads"],
        mlp_dim=case["config"]["transformer"]["mlp_dim"],
        patch_size=tuple(case["config"]["patches"]["size"]),
        image_size=tuple(case["image"]),
        classes=case["num_classes"],
        class_token=case["config"]["classifier"] == "token",
        pooling=case["config"]["classifier"],
        representation_size=case["config"]["representation_size"],
        classifier_activation=None,
    )
    model = models.build(config)
    weights.load_weights(model, file)
    return model


def compare(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], prefix: str, tolerance: float
) -> None:
    names = {name for name in expected if name.startswith(f"{prefix}:")}
    assert names == found.keys()
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], atol=tolerance, err_msg=name)


@pytest.mark.parametrize(
    ("name", "beta_1"), [("adamw", 0.9), ("sgd", 0.9), ("sgd", 0.0), ("lion", 0.9)]
)
def test_state_per_weight_is_what_the_optimizer_builds(
    model: keras.Model, name: str, beta_1: float
) -> None:
    recipe = Recipe(optimizer=name, beta_1=beta_1)
    optimizer = build_optimizer(recipe, model, steps=100)
    values = sum(math.prod(v.shape) for v in optimizer.variables if len(v.shape))
    assert values == state_per_weight(recipe) * model.count_params()


def test_state_per_weight_of_adafactor_leaves_rows_and_columns_out(model: keras.Model) -> None:
    recipe = Recipe(optimizer="adafactor")
    built = build_optimizer(recipe, model, steps=100).variables
    shapes = [v.shape for v in built if v.name.endswith("velocity")]
    assert sum(math.prod(shape) for shape in shapes) == model.count_params()
    assert state_per_weight(recipe) == 1


@pytest.mark.parametrize(
    ("clip_norm", "expected"),
    [
        (2.5, ([1.5, 2.0], [0.0])),  # the norm is 5: halved
        (10.0, ([3.0, 4.0], [0.0])),
    ],
)
def test_clip_by_hand(clip_norm: float, expected: tuple[list[float], ...]) -> None:
    scale = 8.0
    gradients = [keras.ops.convert_to_tensor([3.0 * scale, 4.0 * scale]), keras.ops.zeros((1,))]
    clipped, norm = clip_gradients(gradients, clip_norm, scale)
    assert float(norm) == pytest.approx(5)
    for found, value in zip(clipped, expected, strict=True):
        np.testing.assert_allclose(numpy(found) / scale, value, rtol=1e-6)
