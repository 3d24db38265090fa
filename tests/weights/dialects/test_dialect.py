from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from keras_vit.weights.dialects import DIALECTS, Dialect, Row
from keras_vit.weights.dialects.flax import FLAX
from keras_vit.weights.dialects.huggingface import HUGGING_FACE
from keras_vit.weights.dialects.timm import TIMM
from keras_vit.weights.dialects.torchvision import TORCHVISION
from keras_vit.weights.positions import PATCH_POSITIONS, POSITIONS
from tests.weights.dialects.model_variants import (
    VARIANTS,
    Tensors,
    assert_same,
    config_of,
    joined,
    written,
)
from tests.weights.files import in_new_names

COMMON = {"plain", "four channels", "no head", "representation", "fixed positions"}
HOLDS = {
    "npz": COMMON
    | {"no class token", "no positions", "bare class token", "attention pooling"}
    | {"hybrid", "root"},
    "timm": VARIANTS.keys() - {"two tables"},
    "huggingface": COMMON | {"distilled", "one head for two", "no qkv bias"},
    "torchvision": COMMON,
}
WRITTEN = [DIALECTS[name] for name in HOLDS]
HELD = [(name, variant) for name in HOLDS for variant in VARIANTS if variant in HOLDS[name]]
REFUSED = [(name, variant) for name in HOLDS for variant in VARIANTS if variant not in HOLDS[name]]
# Every file tells these; norm after pooling, widths of stems and positions only those with them.
TOLD = {
    *("hidden_size", "num_layers", "mlp_dim", "patch_size", "channels", "classes", "pooling"),
    *("class_token", "distillation_token", "distillation_head", "register_tokens"),
    *("representation_size", "position_embedding", "pre_norm", "patch_bias", "qkv_bias"),
    *("layer_scale", "stem_blocks", "gelu", "epsilon", "position_interpolation"),
}


def label(value: Any) -> str | None:
    return value.name if isinstance(value, Dialect) else None


each_dialect = pytest.mark.parametrize("dialect", WRITTEN, ids=label)


def failure(dialect: Dialect, tensors: Tensors) -> tuple[str, str, str]:
    """What a dialect calls missing, not understood and of another shape."""
    with pytest.raises(ValueError, match=rf"x\.bin is not a complete {dialect.title} Vision") as e:
        dialect.read(tensors, "x.bin")
    pattern = r".* Missing: (.*)\. Unknown: (.*)\. With a shape .* tensors: (.*)\."
    found = re.fullmatch(pattern, str(e.value))
    assert found
    return found[1], found[2], found[3]


@pytest.mark.parametrize(("name", "variant"), HELD)
def test_what_is_written_is_read_to_the_bit(name: str, variant: str) -> None:
    dialect, config = DIALECTS[name], config_of(variant)
    file = written(dialect, variant)
    assert [d.name for d in DIALECTS.values() if d.matches(file)] == [name]
    assert all(tensor.flags.c_contiguous for tensor in file.values())

    checkpoint = dialect.read(file, "x.bin")
    expected = joined(variant)
    if name == "npz" and variant == "bare class token":
        expected[PATCH_POSITIONS] = expected.pop(POSITIONS)
    assert_same(checkpoint.tensors, expected)
    used = [theirs for names in checkpoint.names.values() for theirs in names]
    assert sorted(used) == sorted(file)  # every tensor of the file once
    assert (checkpoint.dialect, checkpoint.ignored) == (name, ())

    inferred = dict(checkpoint.inferred)
    assert inferred.keys() >= TOLD | ({"num_heads"} if name == "npz" else set())
    told: dict[str, Any] = {key: getattr(config, key) for key in inferred if key != "position_grid"}
    told |= {key: dialect.implied_fields(inferred).get(key, told[key]) for key in told}
    if variant == "fixed positions":
        told["position_embedding"] = "learned"  # they are written out
    if variant == "no positions":  # which no official model has: they are big_vision's fixed ones
        told["position_embedding"] = "sincos_2d" if name == "npz" else "none"
    else:
        assert inferred.pop("position_grid") == config.grid
    assert inferred == told


@pytest.mark.parametrize(("name", "variant"), REFUSED)
def test_what_has_no_place_is_refused(name: str, variant: str) -> None:
    message = (
        f"The format '{name}' must have a name for every tensor .* a tensor for every name. "
        r"Without a name: .*\. Without a tensor: .*\. Write this model in the 'keras' format\."
    )
    with pytest.raises(ValueError, match=message):
        written(DIALECTS[name], variant)


@pytest.mark.parametrize(
    ("name", "variant", "homeless", "lacking"),
    [
        ("torchvision", "no class token", "nothing", "patch_encoder/class_token"),
        ("torchvision", "bare class token", PATCH_POSITIONS, POSITIONS),
        ("huggingface", "clip", "pre_norm/beta, pre_norm/gamma", "patch_encoder/projection/bias"),
        ("npz", "no qkv bias", "nothing", "block_00/attention/qkv/bias"),
        ("npz", "norm after pooling", "encoder_norm/beta, encoder_norm/gamma", ""),
        ("timm", "two tables", "patch_encoder/column, patch_encoder/row", "nothing"),
    ],
)
def test_what_has_no_place_is_named(name: str, variant: str, homeless: str, lacking: str) -> None:
    message = f"Without a name: {homeless}\\. Without a tensor: {lacking}"
    with pytest.raises(ValueError, match=message):
        written(DIALECTS[name], variant)


@each_dialect
def test_a_tensor_of_another_shape_is_outvoted_and_named(dialect: Dialect) -> None:
    file = written(dialect, "plain")
    blocks = [name for name in file if re.search(r"\d", name)]
    assert len(blocks) >= 24
    for name in blocks:
        for axis in range(file[name].ndim):
            wider = np.concatenate([file[name], file[name].take([0], axis)], axis)
            missing, unknown, other = failure(dialect, file | {name: wider})
            assert (missing, unknown, other) == ("nothing", "nothing", f"{name} {wider.shape}")
        assert failure(dialect, file | {name: file[name][None]})[2].startswith(f"{name} (1, ")


def test_heads_that_do_not_make_up_the_width_are_named() -> None:
    file = written(FLAX, "plain")
    for name, tensor in file.items():
        if "MultiHead" in name:  # 4 heads of 7 for 24 channels
            shape = tuple(7 if side == 6 else side for side in tensor.shape)
            file[name] = np.zeros(shape, "float32")
    assert failure(FLAX, file) == ("nothing", "nothing", "4 heads of 7 for 24 channels")


@pytest.mark.parametrize(
    ("dialect", "variant", "optional"),
    [
        (FLAX, "representation", {"cls", "Transformer/posembed_input/pos_embedding"}),
        (FLAX, "hybrid", {"cls", "Transformer/posembed_input/pos_embedding"}),
        (FLAX, "attention pooling", {"Transformer/posembed_input/pos_embedding"}),
        (TIMM, "distilled", {"cls_token", "dist_token", "pos_embed", "patch_embed.proj.bias"}),
        (TIMM, "layer scale", {"cls_token", "pos_embed", "patch_embed.proj.bias"}),
        (
            *(TIMM, "hybrid"),  # of a single block
            {"cls_token", "pos_embed", "patch_embed.proj.bias", "blocks.0.attn.qkv.bias"},
        ),
        (TIMM, "norm after pooling", {"pos_embed", "patch_embed.proj.bias"}),
        (HUGGING_FACE, "distilled", {"embeddings.distillation_token"}),
        (TORCHVISION, "representation", set()),
    ],
    ids=label,
)
def test_a_missing_tensor_is_named(dialect: Dialect, variant: str, optional: set[str]) -> None:
    """Also where it is half of what a model may do without, or that of one block."""
    file = written(dialect, variant)
    for name in file.keys() - optional:
        rest = {other: tensor for other, tensor in file.items() if other != name}
        assert failure(dialect, rest) == (name, "nothing", "nothing")
    for name in optional:
        dialect.read({other: tensor for other, tensor in file.items() if other != name}, "x.bin")


@each_dialect
def test_an_unknown_tensor_is_named(dialect: Dialect) -> None:
    file = written(dialect, "plain") | {"rope.freqs": np.zeros(5), "step2": np.zeros(())}
    assert failure(dialect, file) == ("nothing", "rope.freqs, step2", "nothing")
    unknown = failure(dialect, file | {f"x{i:02d}": np.zeros(5) for i in range(23)})[1]
    assert unknown.endswith(", x16, x17 and 5 more")  # 20 of them


@each_dialect
@pytest.mark.parametrize("number", [2, 10**15])
def test_a_gap_in_the_numbers_of_blocks_is_named(dialect: Dialect, number: int) -> None:
    plain = written(dialect, "plain")
    second = re.compile(r"(block_|blocks\.|layer_|layer\.)1(?=[./])")
    file = {second.sub(rf"\g<1>{number}", name): tensor for name, tensor in plain.items()}
    missing = sorted(plain.keys() - file.keys())
    assert len(missing) >= 12
    assert failure(dialect, file) == (", ".join(missing), "nothing", "nothing")


@pytest.mark.parametrize(
    ("dialect", "old", "new"),
    [
        (FLAX, "block2/unit2", "block2/unit3"),
        (FLAX, "block1/unit1", "block0/unit1"),
        (TIMM, "stages.0", "stages.2"),
        (TIMM, "blocks.1.", "blocks.3."),
    ],
    ids=label,
)
def test_a_gap_in_the_numbers_of_a_stem_is_named(dialect: Dialect, old: str, new: str) -> None:
    hybrid = written(dialect, "hybrid")
    file = {name.replace(old, new): tensor for name, tensor in hybrid.items()}
    # Whether the missing unit changes the shape cannot be known.
    missing = [n for n in hybrid.keys() - file.keys() if not re.search("_proj|downsample", n)]
    assert len(missing) == 9
    assert failure(dialect, file) == (", ".join(sorted(missing)), "nothing", "nothing")


def test_units_without_their_root_are_no_stem() -> None:
    file = {name: t for name, t in written(FLAX, "hybrid").items() if "root" not in name}
    missing = "conv_root/kernel, gn_root/bias, gn_root/scale"
    assert failure(FLAX, file) == (missing, "nothing", "nothing")


@each_dialect
def test_a_file_of_nothing_misses_a_whole_block(dialect: Dialect) -> None:
    missing, *rest = failure(dialect, {})
    assert rest == ["nothing", "nothing"]
    names = [name for name in written(dialect, "plain") if re.search(r"[._]0[./]", name)]
    assert set(missing.split(", ")) & set(names)


LAYER_5 = {
    "encoder.layer.": "layers.",
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}
WORDS = {".mlp.0.": ".mlp.linear_1.", ".mlp.3.": ".mlp.linear_2."}
GENERATIONS = {
    "linen's params": (FLAX, "plain", lambda file: prefixed("params/", file)),
    "an optimizer's target": (FLAX, "plain", lambda file: prefixed("opt/target/", file)),
    "counted by class": (FLAX, "attention pooling", lambda f: in_blocks(in_new_names, f)),
    "big_vision": (FLAX, "plain", lambda f: replaced({"Transformer/posembed_input/": ""}, f)),
    "older big_vision": (FLAX, "plain", lambda file: replaced({"/posembed_input": ""}, file)),
    "old group norms": (FLAX, "hybrid", lambda file: with_four_axes(file)),
    "ViT's": (HUGGING_FACE, "no qkv bias", lambda file: prefixed("vit.", file, "classifier")),
    "DeiT's": (HUGGING_FACE, "one head for two", lambda f: prefixed("deit.", f, "classifier")),
    "release 5": (HUGGING_FACE, "plain", lambda file: replaced(LAYER_5, file)),
    "ViT's, release 5": (
        *(HUGGING_FACE, "plain"),
        lambda file: prefixed("vit.", replaced(LAYER_5, file), "classifier"),
    ),
    "with teacher": (HUGGING_FACE, "distilled", lambda f: replaced({"^classi": "cls_classi"}, f)),
    "a stem without stages": (
        TIMM,
        "root",
        lambda file: replaced({"backbone.stem.": "backbone."}, file),
    ),
    "in words": (TORCHVISION, "plain", lambda file: replaced(WORDS, file)),
}


def prefixed(prefix: str, file: Tensors, but: str = "nothing") -> Tensors:
    return {name if but in name else prefix + name: tensor for name, tensor in file.items()}


def replaced(new: dict[str, str], file: Tensors) -> Tensors:
    renamed = {}
    for name, tensor in file.items():
        for theirs, other in new.items():
            name = re.sub(theirs if "^" in theirs else re.escape(theirs), other, name)
        renamed[name] = tensor
    return renamed


def in_blocks(rename: Any, file: Tensors) -> Tensors:
    """The attention pooling counts its own modules already."""
    pooling = {name: tensor for name, tensor in file.items() if name.startswith("MAPHead_0/")}
    return rename({n: t for n, t in file.items() if n not in pooling}) | pooling


def with_four_axes(file: Tensors) -> Tensors:
    return {n: t.reshape(1, 1, 1, -1) if "/gn" in f"/{n}" else t for n, t in file.items()}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_of_names_reads_alike(generation: str) -> None:
    dialect, variant, rename = GENERATIONS[generation]
    file = written(dialect, variant)
    other = rename(dict(file))
    if generation != "old group norms":
        assert other.keys() != file.keys()
    assert dialect.matches(other)
    plain, renamed = dialect.read(file, "a"), dialect.read(other, "b")
    assert_same(renamed.tensors, plain.tensors)
    assert renamed.inferred == plain.inferred
    # The names are those of the file.
    used = [theirs for names in renamed.names.values() for theirs in names]
    assert sorted(used) == sorted(other)


def test_big_vision_adds_the_class_token_behind_the_positions() -> None:
    """25 positions are 5 x 5 patches; 26 are those of older files, with the class token."""
    file = written(FLAX, "bare class token")
    assert file["pos_embedding"].shape == (1, 25, 24)
    inferred = FLAX.read(file, "x.npz").inferred
    assert (inferred["position_grid"], inferred["prefix_position"]) == ((5, 5), False)
    file["pos_embedding"] = np.zeros((1, 26, 24), "float32")
    inferred = FLAX.read(file, "x.npz").inferred
    assert (inferred["position_grid"], inferred["prefix_position"]) == ((5, 5), True)


@pytest.mark.parametrize(
    ("dialect", "names"),
    [
        (FLAX, ("opt/0/mu/embedding/kernel", "chrono/steps_timing", "step")),
        (TIMM, ("decoder_blocks.0.norm1.weight", "decoder_pos_embed", "mask_token")),
        (HUGGING_FACE, ("decoder.mask_token", "decoder.decoder_layers.0.mlp.fc1.weight")),
    ],
    ids=label,
)
def test_left_tensors_are_told(dialect: Dialect, names: tuple[str, ...]) -> None:
    plain = written(dialect, "plain")
    prefix = "params/" if dialect is FLAX else ""
    file = prefixed(prefix, plain) | {name: np.zeros((3, 5)) for name in names}
    checkpoint = dialect.read(file, "x.bin")
    assert checkpoint.ignored == names
    assert_same(checkpoint.tensors, dialect.read(plain, "x.bin").tensors)


@pytest.mark.parametrize(
    ("dialect", "name", "double"),
    [
        (FLAX, "embedding/bias", "params/embedding/bias"),
        (HUGGING_FACE, "layernorm.bias", "vit.layernorm.bias"),
        (
            *(TORCHVISION, "encoder.layers.encoder_layer_1.mlp.0.bias"),
            "encoder.layers.encoder_layer_1.mlp.linear_1.bias",
        ),
    ],
    ids=label,
)
def test_the_same_tensor_by_two_names_is_not_passed_over(
    dialect: Dialect, name: str, double: str
) -> None:
    file = written(dialect, "plain")
    file[double] = file[name] + 1
    missing, unknown, other = failure(dialect, file)
    assert (missing, other) == ("nothing", "nothing")
    assert unknown in (name, double)


def test_write_keeps_the_order_of_the_table() -> None:
    names = list(written(TORCHVISION, "plain"))
    assert names[:3] == ["class_token", "encoder.pos_embedding", "conv_proj.weight"]
    assert names[-2:] == ["heads.head.weight", "heads.head.bias"]


def test_a_row_of_several_names_stands_side_by_side() -> None:
    row = Row("block_{block}/x/kernel", ("q.{block}", "k.{block}"), "ED -> DE")
    toy = Dialect("toy", "toy", (row,), required_names=("q.0",))
    q, k = np.arange(6.0).reshape(2, 3)[:, :2], np.full((2, 2), 7.0)
    tensors = toy.read({"q.0": q, "k.0": k}, "toy.npz").tensors
    expected = np.array([[0, 3, 7, 7], [1, 4, 7, 7]])
    np.testing.assert_array_equal(tensors["block_00/x/kernel"], expected)
    assert row.names == ("q.{block}", "k.{block}")
    assert Row("head/bias", "b", "Y").names == ("b",)
