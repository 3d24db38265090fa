from __future__ import annotations

from keras_vit.weights.dialects.dialect import Row
from keras_vit.weights.dialects.rows import (
    ALL_NUMBERED,
    ALL_TORCH,
    KERAS,
    NORM,
    TORCH,
    group,
    norm,
    stem,
)


def test_dense_layer_of_keras() -> None:
    assert tuple(group("top", ("", "", "top"))) == (
        Row("head/kernel", ("top/kernel",), "FY", "head"),
        Row("head/bias", ("top/bias",), "Y", "head"),
    )


def test_dense_layers_side_by_side() -> None:
    axes, optional = ("DKd -> D(Kd)", "Kd -> (Kd)"), ("qkv bias",)
    names = ("", ("q", "k"))
    rows = group("block", names, ALL_NUMBERED, optional=optional, heads_apart=True)
    assert tuple(rows) == (
        Row("block_{block}/attention/qkv/kernel", ("q/0", "k/0"), axes[0]),
        Row("block_{block}/attention/qkv/bias", ("q/1", "k/1"), axes[1], "qkv bias"),
    )


def test_dense_layer_of_pytorch_is_transposed() -> None:
    assert tuple(group("top", ("", "fc"), ALL_TORCH)) == (
        Row("pre_logits/kernel", ("fc.weight",), "RD -> DR", "representation"),
        Row("pre_logits/bias", ("fc.bias",), "R", "representation"),
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


def test_block_of_pytorch() -> None:
    names = ("ln_1", ("q", "k", "v"), "out", "ln_2", "fc_1", "fc_2")
    optional = ("qkv bias",)
    rows = tuple(group("block", names, ALL_TORCH, scope="b/{block}.", optional=optional))
    assert rows[:2] == norm("block_{block}/norm_1", "b.{block}.ln_1", TORCH)
    theirs = ("b.{block}.q", "b.{block}.k", "b.{block}.v")
    kernels, biases = (tuple(name + end for name in theirs) for end in TORCH)
    assert rows[2:4] == (
        Row("block_{block}/attention/qkv/kernel", kernels, "ED -> DE"),
        Row("block_{block}/attention/qkv/bias", biases, "E", "qkv bias"),
    )
    expand = Row("block_{block}/mlp/expand/kernel", ("b.{block}.fc_1.weight",), "WD -> DW")
    assert rows[8] == expand
    assert len(rows) == 12


def test_pooling_with_an_axis_for_heads() -> None:
    names = ("probe", "q", ("k", "v"), "out", "ln", "fc_1", "fc_2")
    part = "attention pooling"
    rows = {row.ours: row for row in group("pooling", names, KERAS, heads_apart=True)}
    assert rows["pooling/probe"] == Row("pooling/probe", "probe", "11D", part)
    for ours, theirs in (("query", ("q",)), ("key_value", ("k", "v"))):
        kernels = tuple(f"{name}/kernel" for name in theirs)
        kernel = Row(f"pooling/{ours}/kernel", kernels, "DKd -> D(Kd)", part)
        assert rows[kernel.ours] == kernel
    assert rows["pooling/out/kernel"].axes == "KdD -> (Kd)D"
    assert rows["pooling/out/bias"].axes == "D"
    assert rows["pooling/mlp/reduce/kernel"].axes == "MD"


def test_layers_are_those_that_have_a_name() -> None:
    rows = tuple(group("top", ("ln", "", "top")))
    assert rows[:2] == norm("encoder_norm", "ln", NORM)
    assert rows[2:] == (
        Row("head/kernel", ("top/kernel",), "FY", "head"),
        Row("head/bias", ("top/bias",), "Y", "head"),
    )


def test_embedding_of_which_files_may_lack_a_part() -> None:
    rows = tuple(group("embedding", ("cls", "table", "conv"), ALL_TORCH, optional=("patch bias",)))
    assert rows == (
        Row("patch_encoder/class_token", "cls", "11D"),
        Row("patch_encoder/positions", "table", "1TD -> TD"),
        Row("patch_encoder/projection/kernel", ("conv.weight",), "DCPQ -> (PQC)D"),
        Row("patch_encoder/projection/bias", ("conv.bias",), "D", "patch bias"),
    )


def test_stem() -> None:
    names = (("root", "root_gn"), "u.", ("conv", "gn"), ("proj", "proj_gn"))
    rows = tuple(stem(*names, "oiab -> abio", ALL_TORCH))
    ours = "stem/block{stage1}_unit{unit1}"
    assert rows[0] == Row("stem/conv_root/kernel", "root.weight", "oiab -> abio", "stem")
    assert rows[1:3] == norm("stem/gn_root", "root_gn", TORCH, "stem", "o")
    assert rows[6] == Row(f"{ours}/conv2/kernel", "u.conv2.weight", "oiab -> abio", "stem")
    assert rows[7:9] == norm(f"{ours}/gn2", "u.gn2", TORCH, "stem", "o")
    assert rows[12].part == "shortcut"
    assert rows[13:] == norm(f"{ours}/gn_proj", "u.proj_gn", TORCH, "shortcut", "o")
