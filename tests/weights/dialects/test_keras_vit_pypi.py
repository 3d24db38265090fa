from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest

from keras_vit.weights import read_checkpoint
from keras_vit.weights.infer_config import config_of
from tests.weights.foreign_files import (
    Layers,
    Pieces,
    assert_same_weights,
    source_model,
    write_keras_2,
)


def layers_of(model: keras.Model, first: int = 0) -> dict[str, Layers]:
    """keras_vit/layers.py and vit.py of https://pypi.org/project/keras-vit/1.0.1/.

    Layers without a name get one from Keras, which counts on; `first` models came before.
    """
    pieces = Pieces(model)
    blocks = pieces.config.num_layers

    def counted(name: str, number: int) -> str:
        return f"{name}_{number}" if number else name

    conv = counted("conv2d", first)
    layers: dict[str, Layers] = {
        "patch_embedding": {
            f"patch_embedding/{conv}": pieces.dense("patch_encoder/projection")
            | {"kernel": pieces.patch_kernel}
        },
        "add_cls_token": {
            "add_cls_token": {"class_token_weight": pieces["patch_encoder/class_token"]}
        },
        "position_embedding": {"position_embedding": {"position_embedding": pieces.positions}},
        "layer_norm": {"layer_norm": pieces.norm("encoder_norm")},
    }
    for index in range(blocks):
        ours, theirs = f"block_{index:02d}", f"transformer_block_{index}"
        number = 2 * (index + first * blocks)
        attention = f"{theirs}/multi_head_attention_layer"
        norms = [counted("layer_normalization", number + i) for i in range(2)]
        dense = [counted("dense", number + i) for i in range(2)]
        layers[theirs] = {
            **{f"{attention}/{name}": arrays for name, arrays in pieces.qkv(ours).items()},
            f"{attention}/combine_out": pieces.dense(f"{ours}/attention/out"),
            f"{theirs}/mlp_block_layer/{dense[0]}": pieces.dense(f"{ours}/mlp/expand"),
            f"{theirs}/mlp_block_layer/{dense[1]}": pieces.dense(f"{ours}/mlp/reduce"),
            f"{theirs}/{norms[0]}": pieces.norm(f"{ours}/norm_1"),
            f"{theirs}/{norms[1]}": pieces.norm(f"{ours}/norm_2"),
        }
    for ours, theirs in (("pre_logits", "pre_logits"), ("head", "mlp_head")):
        if f"{ours}/kernel" in pieces:
            layers[theirs] = {theirs: pieces.dense(ours)}
    return layers


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"representation_size": 24}, {"classes": 0}, {"num_layers": 11}],
    ids=str,
)
@pytest.mark.parametrize("first", [0, 1])
def test_weights_of_the_first_or_second_model_of_a_session(
    first: int, changes: dict[str, Any], tmp_path: Path
) -> None:
    model = source_model(**changes)
    path = write_keras_2(tmp_path / "m.h5", layers_of(model, first), scope=":0")
    assert_same_weights(path, model)


def test_numerics(tmp_path: Path) -> None:
    path = write_keras_2(tmp_path / "m.h5", layers_of(source_model()))
    config = config_of(read_checkpoint(path), num_heads=4, image_size=(15, 14))
    assert (config.gelu, config.epsilon, config.prefix_position) == ("exact", 1e-6, True)
    with pytest.raises(ValueError, match=r"does not contain num_heads, image_size: pass "):
        config_of(read_checkpoint(path))


def test_message_names_what_is_missing(tmp_path: Path) -> None:
    layers = layers_of(source_model())
    del layers["transformer_block_1"]["transformer_block_1/layer_normalization_3"]
    path = write_keras_2(tmp_path / "m.h5", layers)
    with pytest.raises(
        ValueError,
        match=r"complete PyPI's keras-vit .* Missing: transformer_block_1/layer_normalization_1/b",
    ):
        read_checkpoint(path)
