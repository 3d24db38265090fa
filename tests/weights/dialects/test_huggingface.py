from __future__ import annotations

import numpy as np
import pytest

from keras_vit.weights.dialects.huggingface import HUGGING_FACE
from keras_vit.weights.positions import POSITIONS
from tests.weights.dialects.model_variants import joined, written


def test_names_of_a_plain_model() -> None:
    parts = ("layernorm_before", "layernorm_after", "attention.output.dense")
    parts += ("intermediate.dense", "output.dense")
    parts += tuple(f"attention.attention.{x}" for x in ("query", "key", "value"))
    layers = [f"encoder.layer.{index}.{part}" for index in (0, 1) for part in parts]
    layers += ["embeddings.patch_embeddings.projection", "layernorm", "classifier"]
    assert written(HUGGING_FACE, "plain").keys() == {
        *("embeddings.cls_token", "embeddings.position_embeddings"),
        *(f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")),
    }


@pytest.mark.parametrize(
    ("variant", "names"),
    [
        ("one head for two", ["embeddings.distillation_token"]),
        (
            "distilled",
            [
                *("distillation_classifier.bias", "distillation_classifier.weight"),
                "embeddings.distillation_token",
            ],
        ),
        ("representation", ["pooler.dense.bias", "pooler.dense.weight"]),
    ],
)
def test_names_of_what_a_variant_adds(variant: str, names: list[str]) -> None:
    plain = written(HUGGING_FACE, "plain")
    assert sorted(written(HUGGING_FACE, variant).keys() - plain.keys()) == names


def test_layouts_worked_by_hand() -> None:
    ours, theirs = joined("plain"), written(HUGGING_FACE, "plain")
    kernel = ours["patch_encoder/projection/kernel"].reshape(3, 2, 3, 24)  # (P, Q, C, D)
    weight = theirs["embeddings.patch_embeddings.projection.weight"]
    assert weight[23, 1, 2, 0] == kernel[2, 0, 1, 23]
    attention = "encoder.layer.1.attention.attention"
    for index, part in enumerate(("query", "key", "value")):
        channels = slice(24 * index, 24 * (index + 1))
        np.testing.assert_array_equal(
            theirs[f"{attention}.{part}.weight"],
            ours["block_01/attention/qkv/kernel"][:, channels].T,
        )
        np.testing.assert_array_equal(
            theirs[f"{attention}.{part}.bias"], ours["block_01/attention/qkv/bias"][channels]
        )
    np.testing.assert_array_equal(theirs["embeddings.position_embeddings"][0], ours[POSITIONS])


def test_numerics_of_the_library() -> None:
    inferred = HUGGING_FACE.read(written(HUGGING_FACE, "plain"), "x").inferred
    assert (inferred["gelu"], inferred["epsilon"]) == ("exact", 1e-12)
    assert inferred["position_interpolation"] == "bicubic"
    assert "num_heads" not in inferred  # config.json tells


def test_a_third_of_the_biases_is_no_model() -> None:
    file = written(HUGGING_FACE, "plain")
    names = [name for name in file if name.endswith(("query.bias", "key.bias", "value.bias"))]
    for name in names[1:]:
        del file[name]
    missing = ", ".join(sorted(names[1:]))
    with pytest.raises(ValueError, match=f"Hugging Face Vision .* Missing: {missing}. Unknown"):
        HUGGING_FACE.read(file, "x")
    del file[names[0]]
    assert not HUGGING_FACE.read(file, "x").inferred["qkv_bias"]


def test_the_message_has_the_names_of_the_file() -> None:
    file = {f"vit.{name}": tensor for name, tensor in written(HUGGING_FACE, "no head").items()}
    file["vit.layernorm.bias"] = np.zeros(25, "float32")
    file["vit.rope"] = np.zeros(3)
    message = r"Unknown: vit\.rope\. .*tensors: vit\.layernorm\.bias \(25,\)\."
    with pytest.raises(ValueError, match=message):
        HUGGING_FACE.read(file, "x")


def test_other_models_of_the_library_are_not_taken_for_this_one() -> None:
    assert HUGGING_FACE.matches(written(HUGGING_FACE, "plain"))
    names = ("embeddings.cls_token", "embeddings.patch_embeddings.weight")
    assert not HUGGING_FACE.matches(names)
