from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.layers.position_resizing import resize_table
from keras_vit.models import build
from keras_vit.weights import LoadReport, load_weights, read_checkpoint
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.dialects.flax import FLAX
from keras_vit.weights.positions import join_positions
from tests.helpers import normal, numpy, tiny_config, tiny_model, weights_of
from tests.weights.files import SQUARE, in_new_names, official_tensors, save

IMAGES = normal(2, 15, 14, 3)
HEAD = ("head/kernel", "head/bias")
PRE_LOGITS = ("pre_logits/kernel", "pre_logits/bias")


def load(model: keras.Model, source: Any, **kwargs: Any) -> LoadReport:
    return load_weights(model, source, report=True, **kwargs)


def square_model(**changes: Any) -> keras.Model:
    """A model whose weights are none of those in the files."""
    return build(SQUARE.replace(**changes))


def assert_unchanged(model: keras.Model, before: dict[str, np.ndarray]) -> None:
    for name, weight in weights_of(model).items():
        np.testing.assert_array_equal(weight, before[name], err_msg=name)


def copied(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.array(weight) for name, weight in weights.items()}


@pytest.mark.parametrize("rename", [dict, in_new_names], ids=["published", "new names"])
def test_official_file_of_either_generation(
    rename: Callable[..., dict[str, np.ndarray]], tmp_path: Path
) -> None:
    path = save(tmp_path, rename(official_tensors()))
    model = square_model()
    report = load(model, path)
    assert report.of("used") == tuple(weights_of(model))
    assert (len(report.rows), report.notes()) == (len(weights_of(model)), [])
    expected = FLAX.read(official_tensors(), "").tensors
    for name, weight in join_positions(weights_of(model), SQUARE).items():
        np.testing.assert_array_equal(weight, expected[name], err_msg=name)


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_keras_files_give_the_same_predictions(suffix: str, tmp_path: Path) -> None:
    model, other = tiny_model(representation_size=17), build(tiny_config(representation_size=17))
    path = tmp_path / f"m{suffix}"
    (model.save if suffix == ".keras" else model.save_weights)(path)
    assert load(other, path).notes() == []
    np.testing.assert_array_equal(numpy(other(IMAGES)), numpy(model(IMAGES)))


@pytest.mark.parametrize(
    ("suffix", "method"),
    [
        (".npz", "bilinear_aligned"),
        *[
            (suffix, method)
            for suffix in (".weights.h5", ".keras")
            for method in ("bilinear_aligned", "bicubic_antialiased")
        ],
    ],
)
def test_positions_are_resized_as_the_source_does(suffix: str, method: str, tmp_path: Path) -> None:
    path = tmp_path / f"m{suffix}"
    if suffix == ".npz":
        save(tmp_path, official_tensors(), path.name)
    else:
        source = tiny_model(image_size=(15, 10), position_interpolation=method)
        (source.save if suffix == ".keras" else source.save_weights)(path)
    tensors = read_checkpoint(path).tensors
    positions = tensors.get("patch_encoder/positions", np.zeros((0, 24)))[1:]
    old = tensors.get("patch_encoder/position", positions).reshape(5, 5, 24)
    model = build(tiny_config(image_size=(21, 6), position_interpolation="bicubic"))
    report = load(model, path)
    assert report.notes() == ["Position embeddings resized from (5, 5) to (7, 3) patches."]
    np.testing.assert_array_equal(
        weights_of(model)["patch_encoder/position"], numpy(resize_table(old, (7, 3), method))
    )


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_two_dimensional_positions_are_resized(suffix: str, tmp_path: Path) -> None:
    source = tiny_model(position_embedding="learned_2d")  # 5 x 7
    path = tmp_path / f"m{suffix}"
    (source.save if suffix == ".keras" else source.save_weights)(path)
    model = build(tiny_config(position_embedding="learned_2d", image_size=(21, 14)))
    report = load(model, path)
    assert report.notes() == ["Position embeddings resized from (5, 7) to (7, 7) patches."]
    old, new = weights_of(source), weights_of(model)
    np.testing.assert_array_equal(
        new["patch_encoder/row"], numpy(resize_table(old["patch_encoder/row"], (7, 1)))
    )
    np.testing.assert_array_equal(new["patch_encoder/column"], old["patch_encoder/column"])


def test_square_positions_are_no_wide_grid_of_the_same_number(tmp_path: Path) -> None:
    """4 x 4 = 2 x 8, as 24 x 24 (384 pixels) is 18 x 32 (288 x 512)."""
    path = save(tmp_path, official_tensors(SQUARE.replace(image_size=(12, 8))))
    model = build(tiny_config(image_size=(6, 16)))
    assert load(model, path).resized == (
        "Position embeddings resized from (4, 4) to (2, 8) patches",
    )


def test_positions_of_a_nonsquare_file_fit_only_their_own_grid(tmp_path: Path) -> None:
    config = tiny_config()  # 5 x 7
    path = save(tmp_path, official_tensors(config))
    model = build(config)
    assert load(model, path).resized == ()
    table = official_tensors(config)["Transformer/posembed_input/pos_embedding"]
    np.testing.assert_array_equal(
        weights_of(model)["patch_encoder/position"], table[0, 1:].reshape(5, 7, 24)
    )
    with pytest.raises(
        ValueError, match=r"has 35 positions, which match neither .* \(5, 5\) nor a sq"
    ):
        load(square_model(), path)


def test_positions_of_a_model_for_any_size_stay_as_they_are(tmp_path: Path) -> None:
    model = square_model(image_size=(None, None), position_grid=(5, 5))
    assert load(model, save(tmp_path, official_tensors())).resized == ()


def test_head_of_another_size_starts_from_zeros(tmp_path: Path) -> None:
    path = save(tmp_path, official_tensors())
    model = square_model(classes=7)
    model.get_layer("head").set_weights([np.ones((24, 7)), np.ones(7)])
    report = load(model, path)
    assert (report.of("reset"), report.of("dropped")) == (HEAD, ())
    assert report.notes() == [
        f"The classifier (head/kernel, head/bias) is new: it is not loaded from {path}."
    ]
    for name in HEAD:
        assert not weights_of(model)[name].any()
    assert set(report.of("used")) == weights_of(model).keys() - set(HEAD)


def test_reset_head_starts_from_zeros_though_the_files_would_fit(tmp_path: Path) -> None:
    model = square_model()
    report = load(model, save(tmp_path, official_tensors()), reset_head=True)
    assert report.of("reset") == HEAD
    assert not weights_of(model)["head/bias"].any()


def test_file_without_a_head_leaves_a_new_one(tmp_path: Path) -> None:
    path = save(tmp_path, official_tensors(SQUARE.replace(classes=0)))
    assert load(square_model(), path).of("reset") == HEAD


def test_model_without_a_head_leaves_the_files_out(tmp_path: Path) -> None:
    path = save(tmp_path, official_tensors(SQUARE.replace(representation_size=17)))
    report = load(square_model(classes=0), path)
    assert (report.of("reset"), report.of("dropped")) == ((), PRE_LOGITS + HEAD)
    names = "pre_logits/kernel, pre_logits/bias, head/kernel, head/bias"
    assert report.notes() == [f"{names} of {path} are not loaded."]


def test_a_model_that_computes_otherwise_is_noted(tmp_path: Path) -> None:
    """The official code has the tanh GELU and an epsilon of 1e-6."""
    path = save(tmp_path, official_tensors())
    model = square_model(gelu="exact", pooling="gap")
    report = load(model, path)
    assert report.differing.keys() == {"gelu", "pooling"}
    sentence = f"The model has gelu='exact', not 'tanh' as in {path}."
    assert sentence in report.notes()
    with pytest.warns(UserWarning, match=r"has pooling='gap', not 'token' as in"):
        load_weights(square_model(pooling="gap"), path)
    assert load(square_model(classes=0, pooling="none"), path).differing == {}


def test_other_activations_and_windows_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    square_model(classifier_activation="sigmoid", window_size=2, global_blocks=1).save(path)
    with pytest.warns(UserWarning, match="classifier_activation='softmax', not 'sigmoid'"):
        load_weights(square_model(window_size=2, global_blocks=1), path)
    report = load_weights(square_model(classifier_activation=None), path, report=True)
    assert report.differing.keys() == {
        "window_size",
        "global_blocks",
    }  # logits are no other classifier
    report = load_weights(square_model(classes=3), path, report=True, reset_head=True)
    assert report.differing.keys() == {"window_size", "global_blocks"}


def test_attention_pooling_is_left_out_of_a_model_without(tmp_path: Path) -> None:
    source = tiny_model(pooling="map", class_token=False)
    source.save(tmp_path / "m.keras")
    model = build(tiny_config(pooling="none", class_token=False, classes=0))
    report = load(model, tmp_path / "m.keras")
    assert "pooling/probe" in report.of("dropped")


def test_representation_is_kept_when_the_head_is_not(tmp_path: Path) -> None:
    tensors = official_tensors(SQUARE.replace(representation_size=17))
    model = square_model(representation_size=17, classes=7)
    report = load(model, save(tmp_path, tensors))
    assert (report.of("reset"), report.of("dropped")) == (HEAD, ())
    np.testing.assert_array_equal(
        weights_of(model)["pre_logits/kernel"], tensors["pre_logits/kernel"]
    )


def test_representation_is_dropped_together_with_its_head(tmp_path: Path) -> None:
    """Also where the head's shape would fit, as in the published files: R = D = 24."""
    path = save(tmp_path, official_tensors(SQUARE.replace(representation_size=24)))
    report = load(square_model(), path)
    assert (report.of("reset"), report.of("dropped")) == (HEAD, PRE_LOGITS)


@pytest.mark.parametrize("size", [None, 17])
def test_representation_of_another_size_starts_anew(size: int | None, tmp_path: Path) -> None:
    path = save(tmp_path, official_tensors(SQUARE.replace(representation_size=size)))
    model = square_model(representation_size=24)
    before = copied(weights_of(model))
    report = load(model, path)
    assert (report.of("reset"), report.of("dropped")) == (PRE_LOGITS + HEAD, ())
    np.testing.assert_array_equal(
        weights_of(model)["pre_logits/kernel"], before["pre_logits/kernel"]
    )


@pytest.mark.parametrize(
    ("changes", "theirs", "ours"),
    [
        ({"hidden_size": 16}, "hidden_size=24", "hidden_size=16"),
        ({"num_layers": 3}, "num_layers=2", "num_layers=3"),
        ({"num_heads": 3}, "num_heads=4", "num_heads=3"),
        ({"mlp_dim": 31}, "mlp_dim=29", "mlp_dim=31"),
        ({"num_layers": 3, "mlp_dim": 5}, "num_layers=2, mlp_dim=29", "num_layers=3, mlp_dim=5"),
        ({"stem_blocks": (1,), "patch_size": 1}, "stem_blocks=None", r"stem_blocks=\(1,\)"),
    ],
    ids=str,
)
def test_another_architecture_names_both_sides(
    changes: dict[str, Any], theirs: str, ours: str, tmp_path: Path
) -> None:
    model = square_model(**changes)
    before = copied(weights_of(model))
    message = rf"official.npz has {theirs}; the model 'vit' has {ours}\. Choose a model"
    with pytest.raises(ValueError, match=message):
        load(model, save(tmp_path, official_tensors()))
    assert_unchanged(model, before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"class_token": False, "pooling": "gap"},
            "Missing in the model: patch_encoder/class_token, patch_encoder/prefix_position",
        ),
        (
            {"position_embedding": "learned_2d"},
            "Missing in the file: patch_encoder/row, patch_encoder/column. Missing in the model: "
            "patch_encoder/position. ",
        ),
        ({"pooling": "map"}, "Missing in the file: pooling/probe, pooling/norm/gamma, "),
        ({"qkv_bias": False}, "Missing in the model: block_00/attention/qkv/bias, block_01/atten"),
    ],
    ids=str,
)
def test_tensors_that_do_not_match_are_named(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = square_model(**changes)
    before = copied(weights_of(model))
    with pytest.raises(ValueError, match=message):
        load(model, save(tmp_path, official_tensors()))
    assert_unchanged(model, before)


def test_shapes_that_do_not_match_are_named() -> None:
    checkpoint = FLAX.read(official_tensors(), "x.npz")
    bias = {"block_01/mlp/reduce/bias": np.zeros(23)}
    damaged = Checkpoint("x.npz", checkpoint.tensors | bias, checkpoint.inferred)
    model = square_model()
    before = copied(weights_of(model))
    with pytest.raises(
        ValueError, match=r"shape: block_01/mlp/reduce/bias \(23,\) instead of \(24,\)"
    ):
        load(model, damaged)
    assert_unchanged(model, before)


def test_h5_of_another_architecture(tmp_path: Path) -> None:
    tiny_model(num_layers=3).save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(ValueError, match="has num_layers=3; the model 'tiny' has num_layers=2"):
        load(tiny_model(), tmp_path / "m.weights.h5")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "which does not exist"),
        (b"", "is not an .npz, .weights.h5, .keras, .safetensors"),
        (b"just text", "is not an .npz, .weights.h5, .keras, .safetensors"),
        (b"PK\x03\x04 and then nothing", "truncated or damaged"),
        (b"\x89HDF\r\n\x1a\n and then nothing", "truncated or damaged"),
    ],
)
def test_unreadable_files_leave_the_model_alone(
    content: bytes | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.npz"
    if content is not None:
        path.write_bytes(content)
    model = square_model()
    before = copied(weights_of(model))
    with pytest.raises(ValueError, match=message):
        load(model, path)
    assert_unchanged(model, before)


def test_npz_of_another_kind_of_model(tmp_path: Path) -> None:
    path = save(tmp_path, {"blocks.0.norm1.weight": np.zeros(3), "cls_token": np.zeros(3)})
    message = "with tensor names as in official, .* Received: tensors named blocks.0.norm1"
    with pytest.raises(ValueError, match=message):
        read_checkpoint(path)


def test_load_weights_needs_a_model_of_this_package(tmp_path: Path) -> None:
    stranger = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="must be a model of keras_vit"):
        load(stranger, save(tmp_path, official_tensors()))
