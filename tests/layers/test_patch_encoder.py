from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.layers import PatchEncoder
from keras_vit.layers.position_resizing import RESIZE_METHODS, resize_table
from tests import reference
from tests.helpers import assert_close, check_layer, normal, numpy, randomise, weights_of

PATCHES = normal(2, 5, 7, 11)  # B, h, w, F
D = 12
PROJECTION = 11 * D + D
POSITIONS = {
    "learned": 5 * 7 * D,
    "learned_2d": (5 + 7) * D // 2,
    "sincos_2d": 0,
    "none": 0,
}


def encoder(**kwargs: Any) -> PatchEncoder:
    layer = PatchEncoder(D, **kwargs)
    layer.build(PATCHES.shape)
    return randomise(layer)


def parameters(kind: str, class_token: bool) -> int:
    token = D * class_token
    token_position = token if kind.startswith("learned") else 0
    return PROJECTION + POSITIONS[kind] + token + token_position


@pytest.mark.parametrize("class_token", [True, False])
@pytest.mark.parametrize("kind", POSITIONS)
def test_patch_encoder_contract(kind: str, class_token: bool) -> None:
    layer = PatchEncoder(D, class_token=class_token, position_embedding=kind, dropout_rate=0.1)
    check_layer(
        layer,
        PATCHES,
        output_shape=(2, 35 + class_token, D),
        parameters=parameters(kind, class_token),
        half_output=False,
    )


@pytest.mark.parametrize("class_token", [True, False])
@pytest.mark.parametrize("kind", POSITIONS)
def test_patch_encoder_equals_the_equations(kind: str, class_token: bool) -> None:
    layer = encoder(class_token=class_token, position_embedding=kind)
    weights = weights_of(layer)
    table = reference.position_table(kind, (5, 7), weights, D)
    encoder_weights = reference.below({f"x/{n}": w for n, w in weights.items()}, "x")
    expected = np.stack([reference.embed(grid, encoder_weights, table) for grid in PATCHES])
    assert_close(layer(PATCHES), expected, 5e-6)  # measured: 5e-7


PREFIXES = {
    "distilled": {"distillation_token": True},
    "registers": {"register_tokens": 3, "prefix_position": False},
    "registers with positions": {"register_tokens": 3},
    "registers alone": {"register_tokens": 3, "class_token": False},
    "no bias": {"patch_bias": False},
}


@pytest.mark.slow
@pytest.mark.parametrize("kwargs", PREFIXES.values(), ids=PREFIXES)
def test_patch_encoder_with_other_prefix_tokens(kwargs: dict[str, Any]) -> None:
    """The equations, with tokens in the order class, distillation, registers."""
    layer = PatchEncoder(D, **kwargs)
    prefix = layer.num_prefix_tokens
    positions = prefix * D if kwargs.get("prefix_position", True) else 0
    bias = D if kwargs.get("patch_bias", True) else 0
    check_layer(
        layer,
        PATCHES,
        output_shape=(2, 35 + prefix, D),
        parameters=11 * D + bias + 35 * D + prefix * D + positions,
        half_output=False,
    )
    weights = weights_of(layer)
    weights.setdefault("projection/bias", np.zeros(D))
    encoder_weights = reference.below({f"x/{n}": w for n, w in weights.items()}, "x")
    expected = [reference.embed(grid, encoder_weights, weights["position"]) for grid in PATCHES]
    assert_close(layer(PATCHES), np.stack(expected), 5e-6)  # measured: 5e-7


def test_patch_encoder_saves_by_name() -> None:
    layer = encoder(register_tokens=3)
    store: dict[str, np.ndarray] = {}
    layer.save_own_variables(store)
    assert list(store) == ["class_token", "register_tokens", "prefix_position", "position"]
    other = encoder(register_tokens=3)
    randomise(other, seed=11)
    other.load_own_variables(store)
    np.testing.assert_array_equal(numpy(other(PATCHES))[:, :4], numpy(layer(PATCHES))[:, :4])
    with pytest.raises(ValueError, match=r"must contain class_token, position, prefix_position\. "):
        encoder().load_own_variables(store)


@pytest.mark.parametrize("method", RESIZE_METHODS)
@pytest.mark.parametrize("kind", ["learned", "learned_2d", "sincos_2d"])
def test_patch_encoder_resizes_its_table_for_another_grid(kind: str, method: str) -> None:
    layer = PatchEncoder(
        D, position_embedding=kind, position_grid=(3, 4), position_interpolation=method
    )
    layer.build((None, None, None, 11))
    randomise(layer)
    assert layer(keras.Input((None, None, 11))).shape == (None, None, D)
    weights = weights_of(layer)
    table = reference.position_table(kind, (3, 4), weights, D)
    resized = numpy(resize_table(table, (5, 7), method)).reshape(35, D)
    projected = numpy(layer.projection(PATCHES)).reshape(2, 35, D)
    assert_close(numpy(layer(PATCHES))[:, 1:], projected + resized, 5e-6)  # measured: 5e-7


def test_patch_encoder_starts_as_the_official_code_does() -> None:
    """A class token of zeros, positions of deviation 0.02, a projection of 1 / sqrt(F)."""
    layer = PatchEncoder(256)
    layer.build((None, 20, 20, 100))
    weights = weights_of(layer)
    assert not weights["class_token"].any()
    assert not weights["projection/bias"].any()
    assert weights["position"].std() == pytest.approx(0.02, rel=0.05)
    assert weights["projection/kernel"].std() == pytest.approx(0.1, rel=0.05)


def test_patch_encoder_drops_values_of_tokens() -> None:
    layer = encoder(dropout_rate=0.5)
    plain, dropped = numpy(layer(PATCHES)), numpy(layer(PATCHES, training=True))
    kept = dropped != 0
    np.testing.assert_allclose(dropped[kept], 2 * plain[kept], rtol=1e-6)
    assert abs(kept.mean() - 0.5) < 0.09  # its standard deviation is 0.017
    assert 0 < kept[:, 0].mean() < 1  # the class token is no exception


def test_patch_encoder_needs_a_grid() -> None:
    with pytest.raises(ValueError, match="`position_grid` must be given if the image size"):
        PatchEncoder(D)(keras.Input((None, 7, 11)))


def test_patch_encoder_without_positions_needs_no_grid() -> None:
    layer = PatchEncoder(D, position_embedding="none")
    layer.build((None, None, None, 11))
    assert tuple(layer(PATCHES).shape) == (2, 36, D)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"position_embedding": "learnt"}, "Did you mean 'learned'"),
        ({"position_interpolation": "bilinear_align"}, "Did you mean 'bilinear_aligned'"),
        ({"register_tokens": -1}, "`register_tokens` must be a non-negative integer"),
        ({"position_grid": (2, 3, 4)}, r"`position_grid` must be .* a pair \(height, width\)"),
        ({"dropout_rate": 1}, r"`dropout_rate` must be a number in \[0, 1\)"),
        (
            {"hidden_size": 7, "position_embedding": "learned_2d"},
            "`hidden_size` must be a multiple",
        ),
        ({"hidden_size": 0}, "`hidden_size` must be a positive integer"),
    ],
)
def test_patch_encoder_checks_its_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PatchEncoder(**{"hidden_size": D, **kwargs})


def test_patch_encoder_assembles_embeddings_that_were_changed() -> None:
    layer = encoder(register_tokens=1)
    embeddings = layer.projection(PATCHES)
    assert_close(layer.assemble(embeddings), layer(PATCHES), 0)
    changed = numpy(embeddings) + np.eye(5, 7)[:, :, None]
    difference = numpy(layer.assemble(changed)) - numpy(layer(PATCHES))
    expected = np.broadcast_to(np.eye(5, 7).reshape(-1, 1), (2, 35, D))
    assert_close(difference[:, 2:], expected, 1e-5)
    assert not difference[:, :2].any()
