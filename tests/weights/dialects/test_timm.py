from __future__ import annotations

import numpy as np
import pytest

from keras_vit.weights.dialects.timm import TIMM
from keras_vit.weights.positions import POSITIONS
from tests.weights.dialects.model_variants import joined, written


def test_names_of_a_plain_model() -> None:
    parts = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
    layers = [*(f"blocks.{i}.{part}" for i in (0, 1) for part in parts), "norm", "head"]
    assert written(TIMM, "plain").keys() == {
        *("cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"),
        *(f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")),
    }


@pytest.mark.parametrize(
    ("variant", "names"),
    [
        ("distilled", {"dist_token", "head_dist.weight", "head_dist.bias"}),
        ("registers", {"reg_token"}),
        ("layer scale", {f"blocks.{i}.ls{j}.gamma" for i in (0, 1) for j in (1, 2)}),
    ],
)
def test_names_of_what_a_variant_adds(variant: str, names: set[str]) -> None:
    assert written(TIMM, variant).keys() - written(TIMM, "plain").keys() == names


def test_layouts_worked_by_hand() -> None:
    ours, theirs = joined("plain"), written(TIMM, "plain")
    kernel = ours["patch_encoder/projection/kernel"].reshape(3, 2, 3, 24)  # (P, Q, C, D)
    assert theirs["patch_embed.proj.weight"].shape == (24, 3, 3, 2)
    assert theirs["patch_embed.proj.weight"][23, 1, 2, 0] == kernel[2, 0, 1, 23]
    qkv, weight = ours["block_01/attention/qkv/kernel"], theirs["blocks.1.attn.qkv.weight"]
    np.testing.assert_array_equal(weight[24:48], qkv[:, 24:48].T)  # the keys
    np.testing.assert_array_equal(theirs["pos_embed"][0], ours[POSITIONS])
    np.testing.assert_array_equal(theirs["head.weight"], ours["head/kernel"].T)


def test_numerics_of_the_library() -> None:
    inferred = TIMM.read(written(TIMM, "plain"), "x").inferred
    assert (inferred["gelu"], inferred["epsilon"]) == ("exact", 1e-6)
    assert inferred["position_interpolation"] == "bicubic_antialiased"
    assert "num_heads" not in inferred
    assert TIMM.read(written(TIMM, "clip"), "x").inferred["epsilon"] == 1e-5  # CLIP's


def test_norm_after_the_pooling_takes_the_place_of_the_other() -> None:
    file = written(TIMM, "norm after pooling")
    assert {"fc_norm.weight", "fc_norm.bias"} <= file.keys()
    assert not {"norm.weight", "norm.bias"} & file.keys()
    inferred = TIMM.read(file, "x").inferred
    assert (inferred["norm_after_pooling"], inferred["pooling"]) == (True, "gap")
    assert "norm_after_pooling" not in TIMM.read(written(TIMM, "no class token"), "x").inferred

    both = file | {f"norm.{kind}": np.zeros(24) for kind in ("weight", "bias")}
    with pytest.raises(ValueError, match=r"Unknown: norm\.bias, norm\.weight\."):
        TIMM.read(both, "x")
    neither = {name: tensor for name, tensor in file.items() if "fc_norm" not in name}
    with pytest.raises(ValueError, match=r"Missing: norm\.bias, norm\.weight\. Unknown: no"):
        TIMM.read(neither, "x")


def test_attention_pooling() -> None:
    """Kernels are (outputs, inputs), keys before values."""
    ours, theirs = joined("attention pooling"), written(TIMM, "attention pooling")
    assert theirs["attn_pool.kv.weight"].shape == (48, 24)
    np.testing.assert_array_equal(theirs["attn_pool.kv.weight"], ours["pooling/key_value/kernel"].T)
    np.testing.assert_array_equal(theirs["attn_pool.latent"], ours["pooling/probe"])


def test_a_table_may_lack_rows_for_the_tokens_before_the_patches() -> None:
    """29 = 5 x 5 + 4 positions; 25 = 5 x 5."""
    for variant, rows, prefix in (("registers", 29, True), ("bare registers", 25, False)):
        file = written(TIMM, variant)
        assert file["pos_embed"].shape == (1, rows, 24)
        inferred = TIMM.read(file, "x").inferred
        assert (inferred["position_grid"], inferred["prefix_position"]) == ((5, 5), prefix)
        assert (inferred["class_token"], inferred["register_tokens"]) == (True, 3)


def test_stages_and_units_are_counted_from_0() -> None:
    ours, theirs = joined("hybrid"), written(TIMM, "hybrid")
    unit = "patch_embed.backbone.stages.1.blocks.1"
    kernel = ours["stem/block2_unit2/conv2/kernel"]
    np.testing.assert_array_equal(theirs[f"{unit}.conv2.weight"], kernel.transpose(3, 2, 0, 1))
    assert f"{unit}.downsample.conv.weight" not in theirs  # the first unit alone changes the shape
    assert f"{unit[:-1]}0.downsample.conv.weight" in theirs
    inferred = TIMM.read(theirs, "x").inferred
    assert (inferred["stem_blocks"], inferred["stem_width"], inferred["channels"]) == (
        (1, 2),
        32,
        3,
    )
