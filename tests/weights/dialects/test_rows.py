from __future__ import annotations

from keras_vit.weights.dialects.dialect import Row
from keras_vit.weights.dialects.rows import NORM, NUMBERED, TORCH, dense, linear, norm


def test_dense_layer_of_keras() -> None:
    assert dense("head", "top", "FY", "head") == (
        Row("head/kernel", ("top/kernel",), "FY", "head"),
        Row("head/bias", ("top/bias",), "Y", "head"),
    )


def test_dense_layers_side_by_side() -> None:
    axes = ("DKd -> D(Kd)", "Kd -> (Kd)")
    assert dense("qkv", ("q", "k"), axes, bias_part="qkv bias", variables=NUMBERED) == (
        Row("qkv/kernel", ("q/0", "k/0"), axes[0]),
        Row("qkv/bias", ("q/1", "k/1"), axes[1], "qkv bias"),
    )


def test_dense_layer_of_pytorch_is_transposed() -> None:
    assert linear("mlp", "fc", "MD", "a part") == (
        Row("mlp/kernel", ("fc.weight",), "MD -> DM", "a part"),
        Row("mlp/bias", ("fc.bias",), "M", "a part"),
    )


def test_norms() -> None:
    assert norm("norm", "ln", NORM) == (
        Row("norm/gamma", "ln/gamma", "D"),
        Row("norm/beta", "ln/beta", "D"),
    )
    assert norm("gn", "bn", TORCH, "stem", "o") == (
        Row("gn/gamma", "bn.weight", "o", "stem"),
        Row("gn/beta", "bn.bias", "o", "stem"),
    )
