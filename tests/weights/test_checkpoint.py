from __future__ import annotations

from keras_vit.weights.checkpoint import variables_of
from tests.helpers import tiny_model


def test_variables_of_have_their_documented_paths() -> None:
    paths = list(variables_of(tiny_model(num_layers=1, representation_size=17, dropout_rate=0.1)))
    layers = ("norm_1", "attention/qkv", "attention/out", "norm_2", "mlp/expand", "mlp/reduce")
    pairs = [("gamma", "beta") if "norm" in layer else ("kernel", "bias") for layer in layers]
    assert paths == [
        *(f"patch_encoder/{name}" for name in ("class_token", "prefix_position", "position")),
        *(f"patch_encoder/projection/{name}" for name in ("kernel", "bias")),
        *(f"block_00/{a}/{b}" for a, pair in zip(layers, pairs, strict=True) for b in pair),
        *("encoder_norm/gamma", "encoder_norm/beta"),
        *("pre_logits/kernel", "pre_logits/bias", "head/kernel", "head/bias"),
    ]
