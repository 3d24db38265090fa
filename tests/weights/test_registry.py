from __future__ import annotations

import dataclasses
import re
from collections import Counter
from urllib.parse import urlsplit

import numpy as np
import pytest

from keras_vit import constants
from keras_vit.models.published import PUBLISHED
from keras_vit.preprocessing import imagenet_labels
from keras_vit.weights.registry import (
    SCALINGS,
    PublishedWeights,
    find_weights,
    list_weights,
    matches,
    preprocessing_for,
)

ROWS = list_weights()
each_model = pytest.mark.parametrize("model", list(dict.fromkeys(row.model for row in ROWS)))

# The width and patch in the name of a constructor, in the files of AugReg, and in timm's names.
AUGREG = {
    **{"ViTTi16": "Ti_16", "ViTS32": "S_32", "ViTS16": "S_16", "ViTB32": "B_32", "ViTB16": "B_16"},
    **{"ViTB8": "B_8", "ViTL16": "L_16", "ViTRTi16": "R_Ti_16", "ViTR26S32": "R26_S_32"},
    **{"ViTR50L32": "R50_L_32"},
}
TIMM = {
    **{"ViTTi16": "tiny_patch16", "ViTS32": "small_patch32", "ViTS16": "small_patch16"},
    **{"ViTS8": "small_patch8", "ViTB32": "base_patch32", "ViTB16": "base_patch16"},
    **{"ViTB8": "base_patch8", "ViTL32": "large_patch32", "ViTL16": "large_patch16"},
    **{"ViTH14": "huge_patch14", "ViTRTi16": "tiny_r_s16_p8", "ViTR26S32": "small_r26_s32"},
    **{"ViTR50B16": "base_r50_s16", "ViTR50L32": "large_r50_s32"},
}
SUFFIXES = {"npz": (".npz",), "safetensors": (".safetensors",), "pth": (".pth", ".bin")}
# What each library computes with, and the formats that it publishes.
DIALECTS = {
    "npz": ("tanh", 1e-6, {"npz"}),
    "timm": ("exact", 1e-6, {"safetensors", "pth"}),
    "torchvision": ("exact", 1e-6, {"pth"}),
    "huggingface": ("exact", 1e-12, {"safetensors", "pth"}),
    "timm_eva": ("exact", 1e-6, {"safetensors"}),
    "open_clip": ("exact", 1e-5, {"safetensors"}),
}
# The projections of CLIP have no labels.
LABELS = {1000: "imagenet1k", 21843: "imagenet21k", 0: None, 512: None, 768: None}


def size_in_name(row: PublishedWeights) -> int:
    match = re.search(r"_(\d{3})$", row.name)
    return int(match[1]) if match else PUBLISHED[row.model].default_image_size[0]


@each_model
def test_row_values_are_allowed(model: str) -> None:
    for row in list_weights(model):
        assert row.model in PUBLISHED
        assert re.fullmatch(r"[a-z0-9_]+", row.name)
        assert (row.terms is None) == (row.license in ("Apache-2.0", "MIT"))
        assert row.scaling in SCALINGS
        assert row.resize in ("crop", "squash")
        assert row.interpolation in ("bilinear", "bicubic")
        assert 0.8 < row.crop_fraction <= 1
        assert row.source
        assert row.labels == LABELS[row.classes]
        gelu, epsilon, formats = DIALECTS[row.dialect]
        if row.model in TIMM:
            assert (row.gelu, row.epsilon) == (gelu, epsilon)
        assert row.format in formats
        assert not row.note or row.note.endswith(".")


@each_model
def test_row_size_fits_name_and_patch(model: str) -> None:
    for row in list_weights(model):
        assert row.image_size == size_in_name(row)
        assert row.image_size % PUBLISHED[model].stride[0] == 0


@each_model
def test_row_files_are_addressed_well(model: str) -> None:
    for row in list_weights(model):
        for url in row.urls:
            parts = urlsplit(url)
            assert parts.scheme == "https"
            assert parts.hostname
            assert not parts.query
            assert url.endswith(SUFFIXES[row.format])
        assert "/" not in row.file_name
        assert len(row.file_name) < 200
        assert row.file_name.endswith(row.urls[0].rpartition("/")[2])


@each_model
def test_row_hashes_are_hexadecimal(model: str) -> None:
    for row in list_weights(model):
        assert row.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", row.sha256)
        if row.sha256_prefix is not None:
            assert re.fullmatch(r"[0-9a-f]{8}", row.sha256_prefix)
            assert row.urls[0].endswith(f"-{row.sha256_prefix}.pth")


def test_every_hash_in_a_file_name_is_known() -> None:
    named = [row for row in ROWS if re.search(r"-[0-9a-f]{8}\.pth$", row.urls[0])]
    assert len(named) == 27
    assert all(row.sha256_prefix for row in named)


def test_sizes_agree_where_both_are_known() -> None:
    exact = [row for row in ROWS if row.bytes is not None]
    assert exact
    for row in exact:
        assert row.mebibytes is not None
        assert row.bytes is not None
        assert abs(row.bytes / 2**20 - row.mebibytes) <= 1


@each_model
def test_row_accuracy_has_a_source(model: str) -> None:
    for row in list_weights(model):
        assert (row.top1 is None) == (row.top1_source == "")
        if row.top1 is not None:
            assert 70 < row.top1 < 91
            assert row.classes == 1000


def test_names_and_aliases_are_unique_within_a_model() -> None:
    called = Counter(
        (row.model, name) for row in ROWS for name in {row.name, "", *row.aliases} if name
    )
    assert [call for call, count in called.items() if count > 1] == []
    assert all(len(set(row.aliases)) == len(row.aliases) for row in ROWS)


def test_files_are_listed_once_and_do_not_collide_in_a_folder() -> None:
    for files in ([url for row in ROWS for url in row.urls], [row.file_name for row in ROWS]):
        assert [file for file, count in Counter(files).items() if count > 1] == []


AUGREG_NAME = re.compile(r"augreg(_[a-z0-9]+)??_(in21k|in1k)(_ft_in1k)?(_384)?")
AUGREG_FILE = re.compile(
    r"(\w+?)-(i21k|i1k)-300ep-lr_0.001-aug_(\w+)-wd_[\d.]+-do_[\d.]+-sd_[\d.]+"
    r"(--imagenet2012-steps_20k-lr_[\d.]+-res_(\d+))?\.npz"
)


@pytest.mark.parametrize("model", AUGREG)
def test_augreg_names_agree_with_their_files(model: str) -> None:
    rows = [
        r for r in list_weights(model) if "/augreg/" in r.urls[0] or r.name.startswith("augreg")
    ]
    assert len(rows) >= 3
    for row in rows:
        check_augreg_name(row)


def check_augreg_name(row: PublishedWeights) -> None:
    name = AUGREG_NAME.fullmatch(row.name)
    folder, _, file_name = row.urls[0].rpartition("/")
    file = AUGREG_FILE.fullmatch(file_name)
    assert name
    assert file
    assert folder == "https://storage.googleapis.com/vit_models/augreg"
    assert file[1] == AUGREG[row.model]
    assert name[2] == {"i21k": "in21k", "i1k": "in1k"}[file[2]]
    if name[1] == "_medium2":
        assert file[3] == "medium2"
    fine_tuned = bool(file[4])
    assert fine_tuned == (bool(name[3]) or name[2] == "in1k")
    assert row.classes == (1000 if fine_tuned else 21843)
    if fine_tuned:
        assert row.image_size == int(file[5])
        assert row.crop_fraction == (0.9 if row.image_size == 224 else 1.0)
    assert row.interpolation == "bicubic"


@pytest.mark.parametrize("model", TIMM)
def test_repacked_names_agree_with_their_files(model: str) -> None:
    rows = [row for row in list_weights(model) if row.name.startswith("timm_")]
    assert rows
    for row in rows:
        check_repacked_name(row)


def check_repacked_name(row: PublishedWeights) -> None:
    match = re.fullmatch(
        r"https://huggingface\.co/timm/(?P<name>(?P<kind>vit|deit|deit3)_(?P<size>\w+?)"
        r"(?P<distilled>_distilled)?(?P<patch>_patch\d+)?_(?P<pixels>\d+)\.(?P<tag>\w+))"
        r"/resolve/(main|[0-9a-f]{40})/model\.safetensors",
        row.urls[0],
    )
    assert match
    assert f"{match['size']}{match['patch'] or ''}" == TIMM[row.model]
    assert int(match["pixels"]) == row.image_size
    tag = match["tag"].replace("in22k", "in21k")
    if match["kind"] != "vit":
        tag = f"{match['kind']}{match['distilled'] or ''}_{tag.removeprefix('fb_')}"
    pixels = "" if row.image_size == 224 else f"_{row.image_size}"
    assert row.name == f"timm_{tag}{pixels}"
    assert {f"timm/{match['name']}", f"hf://timm/{match['name']}"} <= set(row.aliases)
    assert (row.sha256 is None) == (match[8] == "main")


def test_models_have_what_keras_users_ask_for() -> None:
    chosen = {
        alias: {row.model: row for row in ROWS if alias in row.aliases}
        for alias in ("imagenet", "imagenet21k", "imagenet21k+imagenet2012")
    }
    without = {"ViTS8"}
    assert TIMM.keys() - chosen["imagenet"].keys() == without
    assert TIMM.keys() - chosen["imagenet21k"].keys() == without
    assert TIMM.keys() - chosen["imagenet21k+imagenet2012"].keys() == without | {"ViTH14"}
    for row in chosen["imagenet"].values():
        assert row.classes == 1000
        assert row.format in ("npz", "safetensors")  # read without PyTorch
        assert row.terms is None
    for model in AUGREG:
        assert chosen["imagenet"][model].name == "augreg_in21k_ft_in1k"
    for model in ("ViTB16", "ViTB32", "ViTL16", "ViTL32"):  # those of vit-keras
        assert chosen["imagenet21k"][model].name == "orig_in21k"
        assert chosen["imagenet21k+imagenet2012"][model].name == "orig_in21k_ft_in1k_384"
        assert any("vit-keras" in url for url in chosen["imagenet21k"][model].urls)


def test_rows_are_read_as_their_types() -> None:
    row = find_weights("ViTB16", "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k")
    revision = "063c6c38a5d8510b2e57df480445e94b231dad2c"
    repository = "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k"
    assert dataclasses.asdict(row) == {
        "model": "ViTB16",
        "name": "timm_augreg2_in21k_ft_in1k",
        "aliases": (repository.removeprefix("timm/"), repository, f"hf://{repository}"),
        "urls": (f"https://huggingface.co/{repository}/resolve/{revision}/model.safetensors",),
        "format": "safetensors",
        "dialect": "timm",
        "mebibytes": 330,
        "bytes": 346284714,
        "sha256": "32aa17d6e17b43500f531d5f6dc9bc93e56ed8841b8a75682e1bb295d722405b",
        "sha256_prefix": None,
        "license": "Apache-2.0",
        "source": row.source,
        "top1": 85.108,
        "top1_source": row.top1_source,
        "image_size": 224,
        "classes": 1000,
        "labels": "imagenet1k",
        "scaling": "half",
        "resize": "crop",
        "crop_fraction": 0.9,
        "interpolation": "bicubic",
        "gelu": "exact",
        "epsilon": 1e-6,
        "note": "",
    }


def test_list_weights_of_one_model() -> None:
    assert [row.model for row in list_weights("ViTS8")] == ["ViTS8", "ViTS8"]
    assert list_weights("ViTg14") == []
    assert sum(len(list_weights(model)) for model in PUBLISHED) == len(ROWS)


@pytest.mark.parametrize(
    ("model", "written", "name"),
    [
        ("ViTB16", "orig_in21k", "orig_in21k"),
        ("ViTB16", "imagenet21k", "orig_in21k"),
        ("ViTTi16", "howto-i21k-Ti/16", "augreg_in21k"),
        ("ViTB16", "google/vit-base-patch16-224", "hf_in21k_ft_in1k"),
        ("ViTTi16", "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0", "augreg_in21k"),
        ("ViTTi16", "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0.npz", "augreg_in21k"),
        ("ViTB32", "imagenet21k/ViT-B_32", "orig_in21k"),
        ("ViTB32", "gs://vit_models/sam/ViT-B_32.npz", "sam_in1k"),
        ("ViTB32", "ViT-B_32_imagenet21k.npz", "orig_in21k"),
        ("ViTS16", "deit_small_patch16_224-cd65a155.pth", "deit_in1k"),
        ("ViTL32", "https://download.pytorch.org/models/vit_l_32-c7638314.pth", "torchvision_in1k"),
    ],
)
def test_find_weights_by_name_alias_and_file(model: str, written: str, name: str) -> None:
    assert find_weights(model, written).name == name
    assert matches(model, written)


def test_find_weights_by_a_file_name_that_occurs_twice() -> None:
    with pytest.raises(
        ValueError,
        match=r"must identify one file, but several files match: use one of 'orig_in21k', "
        r"'orig_in21k_ft_in1k_384', 'sam_in1k'\. Received: weights='ViT-B_32'",
    ):
        find_weights("ViTB32", "ViT-B_32")
    assert matches("ViTB32", "ViT-B_32")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_file_name_of_every_repository_needs_a_folder_before_it(name: str) -> None:
    rows = [row for row in ROWS if row.urls[0].endswith(f"/{name}")]
    assert len({row.model for row in rows}) > 1
    for row in rows:
        assert not matches(row.model, name)
        assert find_weights(row.model, "/".join(row.urls[0].rsplit("/", 4)[1:])) is row


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("imagnet", " Did you mean 'imagenet'?"),
        ("timm_dinno", " Did you mean 'timm_dino'?"),
        ("xyz", ""),
        ("", ""),
        ("npz", ""),
    ],
)
def test_find_weights_of_an_unknown_name(written: str, hint: str) -> None:
    with pytest.raises(ValueError, match="`weights` must be a file or one of") as error:
        find_weights("ViTB8", written)
    names = ", ".join(repr(row.name) for row in list_weights("ViTB8"))
    assert str(error.value) == (
        f"`weights` must be a file or one of the published weights of ViTB8.{hint} Options: "
        f"{names}. Received: weights={written!r}"
    )
    assert not matches("ViTB8", written)


def test_find_weights_of_a_model_without_any() -> None:
    with pytest.raises(
        ValueError,
        match=r"`weights` must be None or a file; there are no published weights for ViTg14\. "
        "Received: weights='imagenet'",
    ):
        find_weights("ViTg14", "imagenet")


@each_model
def test_preprocessing_for_every_row(model: str) -> None:
    for row in list_weights(model):
        preprocessing = preprocessing_for(row)
        assert preprocessing.size == (row.image_size, row.image_size)
        assert preprocessing.num_channels == 3


def test_preprocessing_for_both_scalings() -> None:
    half = preprocessing_for(find_weights("ViTB16", "hf_in21k_ft_in1k_384"))
    assert (half.mean, half.std) == ((0.5,) * 3, (0.5,) * 3)
    assert (half.resize, half.interpolation, half.size) == ("squash", "bilinear", (384, 384))
    assert half.class_names == imagenet_labels()
    imagenet = preprocessing_for(find_weights("ViTL16", "torchvision_in1k"))
    assert (imagenet.mean, imagenet.std) == (constants.IMAGENET_MEAN, constants.IMAGENET_STD)
    # torchvision resizes the shorter side to 242 pixels.
    assert np.floor(224 / imagenet.crop_fraction) == 242
    for name in ("orig_in21k", "mae"):
        assert preprocessing_for(find_weights("ViTB16", name)).class_names is None
