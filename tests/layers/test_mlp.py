from __future__ import annotations

import numpy as np
import pytest

from keras_vit.layers import MLP
from tests import reference
from tests.helpers import assert_close, check_layer, normal, numpy, randomise, weights_of

TOKENS = normal(2, 5, 7)


@pytest.mark.parametrize("gelu", ["tanh", "exact"])
def test_mlp_contract(gelu: str) -> None:
    layer = MLP(11, gelu=gelu, dropout_rate=0.1)
    check_layer(layer, TOKENS, output_shape=(2, 5, 7), parameters=7 * 11 + 11 + 11 * 7 + 7)


@pytest.mark.parametrize("gelu", ["tanh", "exact"])
def test_mlp_equals_the_equations(gelu: str) -> None:
    layer = MLP(11, gelu=gelu)
    layer.build(TOKENS.shape)
    randomise(layer)
    expected = reference.mlp(TOKENS, weights_of(layer), gelu)
    assert_close(layer(TOKENS), expected, 2e-6)  # measured: 4e-7
    other = reference.mlp(TOKENS, weights_of(layer), {"tanh": "exact", "exact": "tanh"}[gelu])
    assert np.abs(other - expected).max() > 1e-4  # so that the variants cannot be confused


def test_mlp_drops_after_both_layers() -> None:
    layer = MLP(400, dropout_rate=0.5)
    layer.build((2, 50, 400))
    ones = np.zeros((400, 400)), np.full(400, 100.0)  # gelu(100) = 100
    layer.set_weights([*ones, np.eye(400) / 100, np.zeros(400)])
    tokens = np.zeros((2, 50, 400), "float32")
    assert_close(layer(tokens), np.ones_like(tokens), 1e-5)
    outputs = numpy(layer(tokens, training=True))
    # Each value passes two draws: 3/4 are dropped, the rest is doubled twice.
    assert set(np.unique(outputs.round(4))) == {0.0, 4.0}
    assert abs((outputs > 0).mean() - 0.25) < 0.015  # its standard deviation is 0.002


def test_mlp_checks_its_arguments() -> None:
    with pytest.raises(ValueError, match="`gelu` must be one of 'tanh', 'exact', 'quick'"):
        MLP(11, gelu="erf")
    with pytest.raises(ValueError, match="`mlp_dim` must be a positive integer"):
        MLP(0)
    with pytest.raises(ValueError, match="`dropout_rate` must be"):
        MLP(11, dropout_rate=-0.1)
