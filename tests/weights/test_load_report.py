from __future__ import annotations

from collections import Counter

import numpy as np

from keras_vit.models import build
from keras_vit.weights import LoadReport, TensorReport, load_weights
from keras_vit.weights.dialects.flax import FLAX
from keras_vit.weights.dialects.timm import TIMM
from tests.helpers import weights_of
from tests.weights.dialects.model_variants import config_of, written

TABLE = LoadReport(
    "m.safetensors",
    (
        TensorReport("used", "patch_encoder/class_token", (1, 1, 24), ("cls_token",), (1, 1, 24)),
        TensorReport("resized", "patch_encoder/position", (5, 7, 24), ("pos_embed",), (26, 24)),
        TensorReport("used", "block_00/x/bias", (48,), ("q.bias", "k.bias"), (48,)),
        TensorReport("reset", "head/kernel", (24, 11)),
        TensorReport("reset", "head/bias", (11,), ("head.bias",), (7,)),
        TensorReport("dropped", names=("pre_logits.fc.weight",), stored_shape=(24, 17)),
        TensorReport("left", names=("decoder_norm.bias",)),
    ),
    ("Position embeddings resized from (5, 5) to (5, 7) patches",),
)


def test_the_report_is_an_aligned_table() -> None:
    assert str(TABLE).splitlines() == [
        "m.safetensors",
        "         variable                   shape       tensors of the file   shape there",
        "used     patch_encoder/class_token  1 x 1 x 24  cls_token             1 x 1 x 24",
        "resized  patch_encoder/position     5 x 7 x 24  pos_embed             26 x 24",
        "used     block_00/x/bias            48          q.bias, k.bias        48",
        "reset    head/kernel                24 x 11",
        "reset    head/bias                  11          head.bias             7",
        "dropped                                         pre_logits.fc.weight  24 x 17",
        "left                                            decoder_norm.bias",
    ]


def test_of_names_variables_or_else_tensors_of_the_file() -> None:
    assert TABLE.of("used") == ("patch_encoder/class_token", "block_00/x/bias")
    assert TABLE.of("resized") == ("patch_encoder/position",)
    assert TABLE.of("dropped") == ("pre_logits.fc.weight",)
    assert TABLE.of("left") == ("decoder_norm.bias",)
    assert TABLE.of("nothing") == ()


def test_notes_tell_all_but_what_is_left_deliberately() -> None:
    assert TABLE.notes() == [
        "Position embeddings resized from (5, 5) to (5, 7) patches.",
        "The classifier (head/kernel, head/bias) is new: it is not loaded from m.safetensors.",
        "pre_logits.fc.weight of m.safetensors is not loaded.",
    ]
    one = LoadReport("a", TABLE.rows[3:4], ())
    assert one.notes() == ["The classifier (head/kernel) is new: it is not loaded from a."]
    assert LoadReport("a", TABLE.rows[:1] + TABLE.rows[-1:], ()).notes() == []


def test_every_variable_and_every_tensor_stands_in_one_row() -> None:
    file = written(TIMM, "representation")
    left = {"decoder_norm.bias": np.zeros(5), "mask_token": np.zeros((1, 1, 24))}
    config = config_of("representation").replace(
        representation_size=None, image_size=(15, 14), channels=4
    )
    model = build(config)
    report = load_weights(model, TIMM.read(file | left, "m.safetensors"), report=True)
    variables = [row.variable for row in report.rows if row.variable]
    assert variables == list(weights_of(model))
    names = Counter(name for row in report.rows for name in row.names)
    assert names == Counter([*file, *left, "pos_embed"])  # one table is split into two variables
    assert report.of("left") == tuple(left)
    assert report.of("resized") == ("patch_encoder/position", "patch_encoder/projection/kernel")
    assert report.of("reset") == ("head/kernel", "head/bias")
    assert report.of("dropped") == ("pre_logits.fc.weight", "pre_logits.fc.bias")
    rows = {row.variable: row for row in report.rows}
    for variable in ("patch_encoder/position", "patch_encoder/prefix_position"):
        row = rows[variable]
        assert (row.names, row.stored_shape) == (("pos_embed",), (26, 24))
    kernel = rows["patch_encoder/projection/kernel"]
    assert (kernel.shape, kernel.stored_shape) == ((24, 24), (18, 24))
    assert kernel.names == ("patch_embed.proj.weight",)
    assert rows["head/kernel"].names == ("head.weight",)


def test_a_table_of_the_patches_alone_stands_in_one_row() -> None:
    checkpoint = FLAX.read(written(FLAX, "bare class token"), "m.npz")
    report = load_weights(build(config_of("bare class token")), checkpoint, report=True)
    (row,) = (row for row in report.rows if row.names == ("pos_embedding",))
    assert (row.variable, row.stored_shape) == ("patch_encoder/position", (25, 24))
    assert len(report.of("used")) == len(report.rows)
