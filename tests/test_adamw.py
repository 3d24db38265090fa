from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

import keras_vit
from tests.helpers import assert_close, normal

SHAPES = ((3, 5), (5,), (2, 3, 4))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"learning_rate": 0.03, "weight_decay": 0.4, "beta_1": 0.8, "beta_2": 0.95},
        {"clipnorm": 0.5, "use_ema": True, "epsilon": 1e-3},
        {"amsgrad": True},
        {"gradient_accumulation_steps": 2},
    ],
    ids=str,
)
def test_it_updates_as_keras_does(options: dict) -> None:
    weights = [normal(*shape, seed=i) for i, shape in enumerate(SHAPES)]
    found = []
    for optimizer in (keras_vit.AdamW(**options), keras.optimizers.AdamW(**options)):
        variables = [keras.Variable(weight) for weight in weights]
        for step in range(4):
            optimizer.apply([normal(*s, seed=9 + step) for s in SHAPES], variables)
        found.append([keras.ops.convert_to_numpy(variable) for variable in variables])
    for ours, keras_own, before in zip(*found, weights, strict=True):
        assert not np.allclose(ours, before)
        assert_close(ours, keras_own, 1e-6)  # measured: 1.2e-7


def test_a_gradient_may_be_in_half_precision() -> None:
    variables = [keras.Variable(normal(3)) for _ in range(2)]
    gradient = keras.ops.cast(normal(3, seed=1), "bfloat16")
    for kind, variable in zip((keras_vit.AdamW, keras.optimizers.AdamW), variables, strict=True):
        kind().apply([gradient], [variable])
    assert_close(variables[0], variables[1], 1e-6)  # measured: 6e-8


def test_what_is_excluded_does_not_decay() -> None:
    optimizer = keras_vit.AdamW(weight_decay=0.4)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    variables = [keras.Variable(np.full(3, 2.0, "float32"), name=n) for n in ("kernel", "bias")]
    optimizer.apply([np.zeros(3, "float32")] * 2, variables)
    assert [round(float(v[0]), 6) for v in variables] == [1.9992, 2.0]


def test_a_compiled_model_is_saved_with_it(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras_vit.AdamW(0.02, weight_decay=0.1), "mse")
    model.fit(normal(5, 3), normal(5, 2), verbose=0)
    model.save(tmp_path / "model.keras")
    optimizer = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert type(optimizer) is keras_vit.AdamW
    assert optimizer.weight_decay == 0.1
    assert int(optimizer.iterations) == 1
