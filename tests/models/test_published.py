from __future__ import annotations

import re

import pytest

from keras_vit.layers.position_embedding import POSITIONS
from keras_vit.models.counting import count_parameters
from keras_vit.models.published import PLANNED, PUBLISHED


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_name_ends_in_the_side_of_a_patch(name: str) -> None:
    config = PUBLISHED[name]
    side = int(re.search(r"[A-Za-z](\d+)(Plus)?$", name)[1])  # type: ignore[index]
    hybrid = {"ViTRTi16": 32, "ViTR50B16": 16}.get(name, side)  # 32: despite its name
    assert config.stride == (hybrid, hybrid)
    assert config.image_size[0] % hybrid == 0  # type: ignore[operator]


def test_published_heads_of_the_widest() -> None:
    config = PUBLISHED["DINOv3H16Plus"]
    assert (config.hidden_size, config.num_heads, config.mlp_dim) == (1280, 20, 5120)


@pytest.mark.parametrize(
    ("family", "positions", "prefix"),
    [
        ("DINOv2", "learned", 1),
        ("DINOv3", "rotary", 5),
        ("EUPE", "rotary", 5),
        ("TIPSv2", "learned", 2),
        ("SigLIP", "learned", 0),
        ("CLIP", "learned", 1),
        ("EVA02", "learned_rotary", 1),
        ("BEiT", "relative", 1),
    ],
)
def test_published_families_share_positions_and_prefix_tokens(
    family: str, positions: str, prefix: int
) -> None:
    found = [config for name, config in PUBLISHED.items() if name.startswith(family)]
    assert len(found) >= 3
    assert {config.position_embedding for config in found} == {positions}
    assert {config.num_prefix_tokens for config in found} == {prefix}
    assert positions in POSITIONS


def test_planned_model_has_no_constructor() -> None:
    (name,) = PLANNED
    assert name not in PUBLISHED
    # `sum(p.numel() for p in model.parameters())` of timm's vit_7b_patch16_dinov3
    assert count_parameters(PLANNED[name].replace(classes=0)) == 6_716_030_976
