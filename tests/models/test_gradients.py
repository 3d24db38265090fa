from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.models.gradients import gradients
from tests.helpers import normal, numpy


def test_gradients_of_a_case_worked_by_hand() -> None:
    x, y = (ops.convert_to_tensor(normal(3, 2, seed=seed)) for seed in (1, 2))

    def function(tensors: list[object]) -> tuple[object, dict[str, object]]:
        product = ops.matmul(ops.transpose(tensors[0]), tensors[1])
        return ops.sum(product), {"product": [product]}

    found, other = gradients(function, [x, y])
    np.testing.assert_allclose(numpy(found[0]), np.tile(numpy(y).sum(1)[:, None], 2), rtol=1e-6)
    np.testing.assert_allclose(numpy(found[1]), np.tile(numpy(x).sum(1)[:, None], 2), rtol=1e-6)
    assert numpy(other["product"][0]).shape == (2, 2)


def test_gradient_of_what_plays_no_part_is_zero() -> None:
    x, y = ops.ones((2,)), ops.ones((3,))
    found, _ = gradients(lambda tensors: (ops.sum(tensors[0]), None), [x, y])
    assert numpy(found[1]).tolist() == [0, 0, 0]


def test_gradients_on_another_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ValueError, match=r"Keras must run on TensorFlow or JAX.*'torch'"):
        gradients(lambda tensors: (tensors[0], None), [ops.ones(())])
