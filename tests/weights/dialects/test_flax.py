from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from keras_vit.models import build
from keras_vit.weights.checkpoint import variables_of
from keras_vit.weights.dialects.flax import FLAX
from keras_vit.weights.positions import join_positions
from tests.weights.files import SQUARE, in_new_names, official_tensors

Tensors = dict[str, np.ndarray]
QUERY = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1/query"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"representation_size": 17},
        {"class_token": False, "pooling": "gap"},
        {"classes": 0},
        {"num_layers": 12, "channels": 4},  # block 10 comes after block 9
    ],
    ids=str,
)
def test_read_names_every_variable_of_the_model(changes: dict[str, Any]) -> None:
    config = SQUARE.replace(**changes)
    tensors = official_tensors(config)
    checkpoint = FLAX.read(dict(tensors), "x.npz")
    model = build(config)
    variables = {name: np.asarray(variable) for name, variable in variables_of(model).items()}
    shapes = {name: tensor.shape for name, tensor in join_positions(variables, config).items()}
    assert {name: tensor.shape for name, tensor in checkpoint.tensors.items()} == shapes
    # Every number of the file is used exactly once.
    assert sorted(np.concatenate([t.ravel() for t in checkpoint.tensors.values()])) == sorted(
        np.concatenate([t.ravel() for t in tensors.values()])
    )


def test_read_tells_the_architecture() -> None:
    inferred = FLAX.read(official_tensors(), "x.npz").inferred
    names = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "channels", "classes")
    assert {name: inferred[name] for name in names} == {
        name: getattr(SQUARE, name) for name in names
    }
    assert inferred["patch_size"] == (3, 2)
    assert (inferred["gelu"], inferred["epsilon"]) == ("tanh", 1e-6)
    assert (inferred["pooling"], inferred["position_grid"]) == ("token", (5, 5))


def test_read_understands_both_naming_generations() -> None:
    old = FLAX.read(official_tensors(), "x.npz")
    new_names = in_new_names(official_tensors())
    assert new_names.keys() != official_tensors().keys()
    new = FLAX.read(new_names, "x.npz")
    assert old.inferred == new.inferred
    assert old.tensors.keys() == new.tensors.keys()
    for name, tensor in old.tensors.items():
        np.testing.assert_array_equal(new.tensors[name], tensor)


def without(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.pop(name)  # type: ignore[return-value]


def reshaped(name: str, *shape: int) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: np.zeros(shape, "float32")})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("embedding/bias"), r"Missing: embedding/bias\. Unknown: nothing"),
        (without(f"{QUERY}/kernel"), rf"Missing: {QUERY}/kernel\."),
        (without("head/bias"), r"Missing: head/bias\."),
        (reshaped("opt_state", 3), r"Missing: nothing\. Unknown: opt_state\."),
        (reshaped("conv_root/kernel", 7, 7, 3, 8), r"Missing: gn_root/bias, gn_root/scale\."),
        (reshaped("pre_logits/kernel", 24, 5), r"Missing: pre_logits/bias\."),
        (
            reshaped("embedding/kernel", 18, 24),
            r"match the other tensors: embedding/kernel \(18, 24\)\.",
        ),
        (
            reshaped(f"{QUERY}/kernel", 24, 24),
            rf"match the other tensors: {QUERY}/kernel \(24, 24\)\.",
        ),
        (reshaped(f"{QUERY}/kernel", 24, 6, 4), rf"{QUERY}/kernel \(24, 6, 4\)\."),
        (reshaped(f"{QUERY}/bias", 24), rf"match the other tensors: {QUERY}/bias \(24,\)\."),
        (reshaped("cls", 1, 1, 25), r"match the other tensors: cls \(1, 1, 25\)\."),
        (reshaped("Transformer/posembed_input/pos_embedding", 26, 24), r"_embedding \(26, 24\)"),
        (
            # The same layer in both naming generations.
            reshaped("Transformer/encoderblock_0/LayerNorm_1/scale", 24),
            r"Unknown: Transformer/encoderblock_0/LayerNorm_1/scale\.",
        ),
    ],
)
def test_read_names_what_is_wrong(damage: Callable[[Tensors], None], message: str) -> None:
    tensors = official_tensors()
    damage(tensors)
    with pytest.raises(ValueError, match="x.npz is not a complete official .*" + message):
        FLAX.read(tensors, "x.npz")


def test_read_misses_all_of_a_block_in_an_empty_file() -> None:
    with pytest.raises(
        ValueError, match=r"Missing: Transformer/encoder_norm/bias, .*encoderblock_0"
    ):
        FLAX.read({}, "x.npz")


def test_flax_is_recognized() -> None:
    assert FLAX.matches(official_tensors())
    assert not FLAX.matches({"blocks.0.norm1.weight", "embedding/kernel"})


@pytest.mark.parametrize("stacked", [False, True])
def test_the_image_tower_of_siglip(stacked: bool) -> None:
    """The blocks of SigLIP 2 are stacked in one tensor; those of SigLIP are not."""
    config = SQUARE.replace(classes=0, class_token=False, pooling="map")
    model = build(config)
    variables = {name: np.asarray(variable) for name, variable in variables_of(model).items()}
    tensors = {f"params/img/{k}": v for k, v in FLAX.write(variables, config).items()}
    expected = FLAX.read(tensors, "x.npz").tensors
    if stacked:
        first = [name for name in tensors if "/encoderblock_0/" in name]
        blocks = {n: [tensors.pop(n.replace("_0/", f"_{i}/", 1)) for i in (0, 1)] for n in first}
        tensors |= {
            n.replace("encoderblock_0", "encoderblock"): np.stack(v) for n, v in blocks.items()
        }
    text = {"params/txt/head/bias": np.zeros(5), "params/t": np.zeros(1), "params/b": np.zeros(1)}
    found = FLAX.read(tensors | text, "x.npz")
    assert found.ignored == tuple(text)
    assert found.inferred["pooling"] == "map"
    assert found.tensors.keys() == expected.keys()
    assert all(np.array_equal(found.tensors[name], expected[name]) for name in expected)
