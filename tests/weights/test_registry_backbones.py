"""Published weights of foundation backbones."""

from __future__ import annotations

import re

import pytest

from keras_vit import constants
from keras_vit.models.published import PUBLISHED
from keras_vit.weights.registry import find_weights, list_weights, preprocessing_for

# The foundation backbones, by the beginnings of timm's names, with the epsilon of each family.
BACKBONES = {
    "DINOv2": (r"vit_\w+_patch\d+_(reg4_)?dinov2", 1e-6),
    "DINOv3": (r"vit_\w+_patch\d+_dinov3", 1e-5),
    "EUPE": (r"vit_\w+_patch\d+_dinov3_qkvb", 1e-5),
    "TIPSv2": (r"vit_\w+_patch\d+_reg1_tipsv2", 1e-6),
    "SigLIP": (r"vit_\w+_patch\d+_siglip_\d+", 1e-6),
    "CLIP": (r"vit_\w+_patch\d+_clip_\d+", 1e-5),
    "EVA02": (r"eva02_\w+_patch\d+_\d+", 1e-6),
    "BEiT": (r"beit(v2)?_\w+_patch\d+_\d+", 1e-6),
}
WIDTHS = {
    **{"Ti": "tiny", "S": "small", "B": "base", "L": "large", "G": "giant", "SO400M": "so400m"},
    **{"SPlus": "small_plus", "HPlus": "huge_plus"},
}


@pytest.mark.parametrize("model", [name for name in PUBLISHED if not name.startswith("ViT")])
def test_backbone_names_agree_with_their_files(model: str) -> None:
    rows = list_weights(model)
    assert rows
    family, width, patch, plus = re.fullmatch(  # type: ignore[union-attr]
        rf"({'|'.join(BACKBONES)}|SigLIP2|BEiTv2)([A-Z]+[a-z]?|SO400M)(\d\d)(Plus)?", model
    ).groups()
    pattern, epsilon = next(value for name, value in BACKBONES.items() if family.startswith(name))
    for row in rows:
        file = "open_clip_model" if row.dialect == "open_clip" else "model"
        url = r"https://huggingface\.co/timm/(([a-z0-9_]+)\.(\w+))/resolve/main/"
        match = re.fullmatch(rf"{url}{file}\.safetensors", row.urls[0])
        assert match
        name, architecture, tag = match.groups()
        assert re.fullmatch(pattern, architecture)
        assert f"_{WIDTHS[width + (plus or '')]}_patch{patch}_" in architecture
        assert ("v2_" in row.name) == (family == "SigLIP2")
        assert ("beitv2" in architecture) == (family == "BEiTv2")
        default = PUBLISHED[model].default_image_size[0]
        pixels = "" if row.image_size == default else f"_{row.image_size}"
        assert row.epsilon == epsilon
        assert row.gelu == "exact" or family in ("SigLIP2", "CLIP")
        assert row.name == ("reg4_" if "_reg4_" in architecture else "") + tag + pixels
        assert {name, f"timm/{name}", f"hf://timm/{name}"} <= set(row.aliases)


@pytest.mark.parametrize(
    ("model", "name", "mean", "std"),
    [
        ("CLIPB32", "openai", constants.CLIP_MEAN, constants.CLIP_STD),
        ("CLIPL14", "laion2b", (0.5,) * 3, (0.5,) * 3),
        ("TIPSv2B14", "webli", (0.0,) * 3, (1.0,) * 3),
        ("DINOv3L16", "lvd1689m", constants.IMAGENET_MEAN, constants.IMAGENET_STD),
        ("DINOv3L16", "sat493m", (0.43, 0.411, 0.296), (0.213, 0.156, 0.143)),
    ],
)
def test_preprocessing_for_backbones(
    model: str, name: str, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    found = preprocessing_for(find_weights(model, name))
    assert (found.mean, found.std) == (mean, std)


def test_gelu_of_timm_is_that_of_its_configuration() -> None:
    assert find_weights("CLIPB16", "openai").gelu == "quick"
    assert find_weights("CLIPB16", "openai_ft_in1k").gelu == "exact"
    assert find_weights("SigLIP2B16", "v2_webli").gelu == "exact"
    assert find_weights("SigLIP2L16", "v2_webli_512").gelu == "tanh"
    assert find_weights("SigLIP2SO400M16", "v2_webli").gelu == "tanh"
