from __future__ import annotations

from types import ModuleType

import keras
import numpy as np
import pytest

from keras_vit.models import FeatureExtractor, build
from keras_vit.visualization import (
    filter_components,
    filter_plot,
    position_similarity,
    position_similarity_plot,
    token_color_sheet,
    token_colors,
)
from tests.helpers import normal, numpy, tiny_config, tiny_model
from tests.visualization.pictures import drawn
from tests.visualization.reference import expected_of

IMAGES = normal(4, 15, 14, 3)


@pytest.mark.parametrize(("case", "prefix"), [("official/token", 1), ("official/ViT-Ti_16_224", 1)])
def test_position_similarity_is_that_of_the_reference(
    case: str, prefix: int, recipe: ModuleType
) -> None:
    from pathlib import Path

    folder = Path(recipe.__file__).parent
    weights = recipe.weights(recipe.load(folder / f"{case}.json"))
    name = next(n for n in weights if n.endswith("pos_embedding"))
    table = weights[name][0, prefix:]  # (N, D)
    side = round(len(table) ** 0.5)
    model = build(
        tiny_config(hidden_size=table.shape[1], image_size=(3 * side, 2 * side), num_heads=4)
        if table.shape[1] % 4 == 0
        else tiny_config(hidden_size=table.shape[1], image_size=(3 * side, 2 * side), num_heads=3)
    )
    variables = model.get_layer("patch_encoder").position_variables
    variables["position"].assign(table.reshape(side, side, -1))
    found = position_similarity(model)
    # Measured: 4e-7.
    expected = expected_of(case.replace("/", "_"), recipe, "position_similarity")
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_position_similarity_of_rows_and_columns() -> None:
    found = position_similarity(tiny_model(position_embedding="sincos_2d"))
    assert found.shape == (5, 7, 5, 7)
    np.testing.assert_allclose(np.einsum("ijij->ij", found), 1)
    assert found[2, 3, 2, 4] > found[2, 3, 4, 6]


def test_position_similarity_of_none() -> None:
    with pytest.raises(ValueError, match="`position_embedding` must be 'learned', 'learned_2d'"):
        position_similarity(tiny_model(position_embedding="none"))


def test_filter_components_span_the_filters() -> None:
    model = tiny_model()
    components, shares = filter_components(model, number=99)
    assert components.shape == (18, 3, 2, 3)  # no more than values in a patch
    kernel = numpy(model.get_layer("patch_encoder").projection.kernel).T  # (D, PQC)
    flat = components.reshape(18, 18)
    np.testing.assert_allclose(flat @ flat.T, np.eye(18), atol=1e-5)
    variances = ((kernel - kernel.mean(axis=0)) @ flat.T).var(axis=0)
    np.testing.assert_allclose(variances / variances.sum(), shares, rtol=1e-4)
    assert np.all(np.diff(shares) <= 1e-7)


def test_filter_components_of_a_hybrid() -> None:
    hybrid = tiny_model(stem_blocks=(), stem_width=32, patch_size=(2, 1), image_size=(16, 12))
    with pytest.raises(
        ValueError, match=r"`model` must embed patches of pixels; .*the hybrid 'tiny'"
    ):
        filter_components(hybrid)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"register_tokens": 3}, {"norm_after_pooling": True}])
def test_token_colors_are_the_first_components(changes: dict[str, object]) -> None:
    if changes.get("norm_after_pooling"):
        changes = {**changes, "pooling": "gap"}
    extractor = FeatureExtractor(tiny_model(**changes))
    colors = token_colors(extractor, IMAGES, block=0)
    assert colors.shape == (4, 5, 7, 3)
    assert colors.min() == 0
    assert colors.max() == 1
    # Each is a linear function of the tokens.
    tokens = numpy(extractor.norm(extractor.activations(IMAGES).tokens[1]))[:, -35:].reshape(-1, 24)
    design = np.column_stack([tokens, np.ones(len(tokens))])
    target = colors.reshape(-1, 3)
    solution = np.linalg.lstsq(design, target, rcond=None)[0]
    np.testing.assert_allclose(design @ solution, target, atol=1e-3)


@pytest.mark.parametrize("block", [2, -3])
def test_token_colors_of_a_block_that_is_not_there(block: int) -> None:
    with pytest.raises(ValueError, match=rf"`block` must be in \[-2, 2\). Received: block={block}"):
        token_colors(tiny_model(), IMAGES, block=block)


@pytest.mark.parametrize("function", [position_similarity, filter_components])
def test_embeddings_of_a_stranger(function: object) -> None:
    stranger = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="stranger")
    with pytest.raises(
        ValueError, match=r"Vision Transformer.*'stranger' with 0 PatchEncoder layers"
    ):
        function(stranger)


RNG = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("grid", "shape", "shown"),
    [((3, 5), (11, 29), range(5)), ((14, 14), (104, 104), range(0, 14, 2))],
)
def test_position_similarity_puts_a_picture_where_its_patch_is(
    grid: tuple[int, int], shape: tuple[int, int], shown: range
) -> None:
    similarity = RNG.uniform(-1, 1, (*grid, *grid))
    axes = drawn(position_similarity_plot(similarity)).axes[0]
    mosaic = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert mosaic.shape == shape
    h, w = grid
    second = list(shown)[1]
    corner = mosaic[:h, w + 1 : 2 * w + 1]
    np.testing.assert_allclose(corner, similarity[0, second])
    assert np.isnan(mosaic[h]).all()
    assert [int(t.get_text()) for t in axes.get_xticklabels()] == [k + 1 for k in shown]
    assert axes.images[0].get_clim() == (-1, 1)


def test_filters_are_drawn_around_gray() -> None:
    components = np.zeros((9, 4, 5, 3))
    components[0, 1, 2, 0], components[0, 3, 4, 2] = 2.0, -1.0
    figure = drawn(filter_plot(components))
    assert len(figure.axes) == 14  # two rows of seven
    pixels = figure.axes[0].images[0].get_array()
    assert pixels[1, 2].tolist() == [255, 128, 128]
    assert pixels[3, 4].tolist() == [128, 128, 64]


@pytest.mark.parametrize("shape", [(0, 4, 4, 3), (5, 4, 4, 64), (4, 4, 3)])
def test_filters_that_are_no_pictures(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="`components` must be images of shape"):
        filter_plot(np.zeros(shape))


def test_token_colors_stand_below_their_images() -> None:
    colors = RNG.random((2, 2, 3, 3))
    figure = drawn(token_color_sheet(np.zeros((2, 8, 12, 3)), colors))
    shown = figure.axes[3].images[0].get_array()
    np.testing.assert_allclose(shown, np.round(colors[1] * 255))
    with pytest.raises(ValueError, match="Received: 1 for 2 images"):
        token_color_sheet(np.zeros((2, 8, 12, 3)), colors[:1])
