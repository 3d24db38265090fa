from __future__ import annotations

import numpy as np
import pytest

from keras_vit.weights.dialects.keras_names import normalize

PATTERNS = {r"(stem|head)/(\w+)": r"\1/\2"}
KERNEL, BIAS = np.zeros((3, 5)), np.zeros(5)


def normalized(*names: str, **tensors: np.ndarray) -> dict[str, str]:
    """The names that a file's get, by the name in the file."""
    arrays = {**dict.fromkeys(names, np.zeros(7)), **tensors}
    found = normalize(arrays, PATTERNS, "stem/kernel", "head")
    assert all(tensor is arrays[name] for name, tensor in found.values())
    return {name: new for new, (name, _) in found.items()}


@pytest.mark.parametrize(
    "name",
    ["stem/kernel", "stem/stem/kernel:0", "model_weights/stem/stem/kernel", "vit/stem/kernel:0"],
)
def test_normalize_takes_scopes_off(name: str) -> None:
    assert normalized(name)[name] == "stem/kernel"


def test_normalize_keeps_what_it_does_not_know_in_a_flat_model() -> None:
    assert normalized("stem/stem/kernel:0", "norm/norm/gamma:0") == {
        "stem/stem/kernel:0": "stem/kernel",
        "norm/norm/gamma:0": "norm/norm/gamma",
    }


def test_normalize_sets_aside_what_lies_beside_a_nested_model() -> None:
    assert normalized("vit/stem/kernel:0", "norm/norm/gamma:0")["norm/norm/gamma:0"] == (
        "beside the model/norm/norm/gamma"
    )


def test_normalize_sets_the_optimizer_aside() -> None:
    name = "optimizer_weights/Adam/m/stem/kernel:0"
    assert normalized("stem/stem/kernel:0", name)[name] == name.removesuffix(":0")


def test_normalize_does_not_take_a_second_model_for_the_first() -> None:
    found = normalized("a/stem/kernel:0", "b/stem/kernel:0")
    assert found["b/stem/kernel:0"] == "beside the model/b/stem/kernel"


@pytest.mark.parametrize("scope", ["", "vit/"])
def test_normalize_takes_a_dense_layer_for_the_head(scope: str) -> None:
    own = {"dense/dense/bias:0": BIAS, "dense/dense/kernel:0": KERNEL}
    found = normalized(f"{scope}stem/kernel:0", **own)
    assert [found[name] for name in own] == ["head/bias", "head/kernel"]


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"a/kernel": KERNEL, "b/bias": BIAS}, "two layers"),
        ({"a/kernel": KERNEL, "a/bias": np.zeros(3)}, "shapes that do not fit"),
        ({"a/kernel": KERNEL}, "no bias"),
        ({"a/kernel": KERNEL, "a/bias": BIAS, "c/gamma": BIAS}, "another layer"),
        ({"a/kernel": KERNEL, "a/bias": BIAS, "head/kernel": KERNEL}, "there is a head"),
    ],
)
def test_normalize_takes_nothing_else_for_the_head(own: dict[str, np.ndarray], why: str) -> None:
    found = normalized("stem/stem/kernel:0", **own)
    assert all(found[name] == name for name in own), why
