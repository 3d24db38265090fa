from __future__ import annotations

import numpy as np

from keras_vit.weights.dialects.torchvision import TORCHVISION
from keras_vit.weights.positions import POSITIONS
from tests.weights.dialects.model_variants import joined, written

LAYER = "encoder.layers.encoder_layer_1"


def test_names_of_a_model_with_a_representation() -> None:
    parts = ("ln_1", "self_attention.out_proj", "ln_2", "mlp.0", "mlp.3")
    layers = [f"encoder.layers.encoder_layer_{i}.{part}" for i in (0, 1) for part in parts]
    layers += ["conv_proj", "encoder.ln", "heads.pre_logits", "heads.head"]
    attention = [f"encoder.layers.encoder_layer_{i}.self_attention.in_proj" for i in (0, 1)]
    kinds = ("weight", "bias")
    assert written(TORCHVISION, "representation").keys() == {
        *("class_token", "encoder.pos_embedding"),
        *(f"{layer}.{kind}" for layer in layers for kind in kinds),
        *(f"{name}_{kind}" for name in attention for kind in kinds),
    }


def test_layouts_worked_by_hand() -> None:
    ours, theirs = joined("representation"), written(TORCHVISION, "representation")
    kernel = ours["patch_encoder/projection/kernel"].reshape(3, 2, 3, 24)  # (P, Q, C, D)
    assert theirs["conv_proj.weight"][23, 1, 2, 0] == kernel[2, 0, 1, 23]
    for name, variable in (
        (f"{LAYER}.self_attention.in_proj_weight", "block_01/attention/qkv/kernel"),
        (f"{LAYER}.mlp.0.weight", "block_01/mlp/expand/kernel"),
        (f"{LAYER}.mlp.3.weight", "block_01/mlp/reduce/kernel"),
        ("heads.pre_logits.weight", "pre_logits/kernel"),
        ("heads.head.weight", "head/kernel"),
    ):
        np.testing.assert_array_equal(theirs[name], ours[variable].T, err_msg=name)
    np.testing.assert_array_equal(theirs["encoder.pos_embedding"][0], ours[POSITIONS])


def test_numerics_of_the_library() -> None:
    inferred = TORCHVISION.read(written(TORCHVISION, "plain"), "x").inferred
    assert (inferred["gelu"], inferred["epsilon"]) == ("exact", 1e-6)
    assert inferred["position_interpolation"] == "bicubic_aligned"
    assert (inferred["class_token"], inferred["pooling"]) == (True, "token")


def test_names_of_2021_stand_in_the_origin() -> None:
    file = {
        name.replace("mlp.0", "mlp.linear_1").replace("mlp.3", "mlp.linear_2"): tensor
        for name, tensor in written(TORCHVISION, "plain").items()
    }
    names = TORCHVISION.read(file, "x").names
    assert names["block_01/mlp/expand/kernel"] == (f"{LAYER}.mlp.linear_1.weight",)
    assert names["block_01/mlp/reduce/bias"] == (f"{LAYER}.mlp.linear_2.bias",)
