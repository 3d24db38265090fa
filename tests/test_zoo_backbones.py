"""The constructors of foundation backbones."""

from __future__ import annotations

import keras
import pytest

import keras_vit
from keras_vit.models import config_of, count_parameters
from keras_vit.zoo import CONSTRUCTORS

# Without a classifier. `sum(p.numel() for p in model.parameters())` of timm 1.0.31's models with
# `num_classes=0`, such as vit_small_patch14_dinov2; SigLIP with its attention pooling.
BACKBONES = {
    "DINOv2S14": 22_056_192,
    "DINOv2B14": 86_579_712,
    "DINOv2L14": 304_367_616,
    "DINOv2G14": 1_136_479_232,
    "DINOv3S16": 21_586_944,
    "DINOv3S16Plus": 28_683_264,
    "DINOv3B16": 85_641_216,
    "DINOv3L16": 303_079_424,
    "DINOv3H16Plus": 840_509_440,
    "EUPETi16": 5_489_664,
    "EUPES16": 21_596_160,
    "EUPEB16": 85_659_648,
    "TIPSv2B14": 86_314_752,
    "TIPSv2L14": 304_014_336,
    "TIPSv2SO400M14": 413_391_600,
    "TIPSv2G14": 1_135_949_312,
    "SigLIPB16": 92_884_224,
    "SigLIPL16": 315_956_224,
    "SigLIPSO400M14": 427_680_704,
    "SigLIP2B16": 92_884_224,
    "SigLIP2L16": 315_956_224,
    "SigLIP2SO400M14": 427_680_704,
    "SigLIP2SO400M16": 427_888_064,
    "CLIPB32": 87_456_000,
    "CLIPB16": 85_799_424,
    "CLIPL14": 303_179_776,
    "EVA02Ti14": 5_502_144,
    "EVA02S14": 21_621_120,
    "EVA02B14": 85_758_720,
    "EVA02L14": 303_268_800,
    "BEiTB16": 85_761_984,
    "BEiTL16": 303_405_568,
    "BEiTv2B16": 85_761_984,
    "BEiTv2L16": 303_405_568,
}


@pytest.mark.parametrize("name", BACKBONES)
def test_backbone_has_as_many_parameters_as_that_of_timm(name: str) -> None:
    assert count_parameters(CONSTRUCTORS[name].config.replace(classes=0)) == BACKBONES[name]


@pytest.mark.parametrize("registers", [None, 0, 4])
def test_registers_of_dinov2(registers: int | None) -> None:
    with keras.StatelessScope(initialize_variables=False):
        model = keras_vit.DINOv2S14(False, None, input_shape=(28, 42, 3), registers=registers)
    assert config_of(model).register_tokens == (registers or 0)
    assert model.output_shape == (None, 1 + (registers or 0) + 2 * 3, 384)
    # With registers, neither they nor the class token have positions.
    full = config_of(model).replace(image_size=(518, 518))
    more = 0 if not registers else registers * 384 - 384
    assert count_parameters(full) == BACKBONES["DINOv2S14"] + more


@pytest.mark.parametrize(
    ("name", "shape", "pooling", "output"),
    [
        ("EVA02Ti14", (28, 42, 3), None, (None, 7, 192)),
        ("EVA02Ti14", (28, 42, 3), "avg", (None, 192)),
        ("EUPETi16", (32, 48, 3), "token", (None, 192)),
        ("BEiTB16", (32, 48, 3), None, (None, 7, 768)),
        ("SigLIPB16", (32, 48, 3), "map", (None, 768)),
        ("SigLIPB16", (32, 48, 3), None, (None, 6, 768)),
    ],
)
def test_backbone_without_classifier_is_built(
    name: str, shape: tuple[int, int, int], pooling: str | None, output: tuple[int | None, ...]
) -> None:
    with keras.StatelessScope(initialize_variables=False):
        model = CONSTRUCTORS[name](False, None, input_shape=shape, pooling=pooling)
    assert model.output_shape == output
    expected = CONSTRUCTORS[name].config.class_token
    assert config_of(model).class_token == expected


@pytest.mark.parametrize("name", ["EVA02Ti14", "EUPETi16", "BEiTB16", "SigLIPB16", "CLIPB32"])
def test_backbone_with_classifier_pools_as_published(name: str) -> None:
    published = CONSTRUCTORS[name].config
    size = tuple(2 * side for side in published.stride)
    with keras.StatelessScope(initialize_variables=False):
        model = CONSTRUCTORS[name](weights=None, input_shape=(*size, 3), classes=5)
    found = config_of(model)
    assert found == published.replace(image_size=size, classes=5)
    assert model.output_shape == (None, 5)


def test_patch_size_of_relative_positions_is_changed() -> None:
    with keras.StatelessScope(initialize_variables=False):
        model = keras_vit.BEiTB16(False, None, input_shape=(16, 24, 3), overrides={"patch_size": 8})
    assert model.output_shape == (None, 7, 768)
