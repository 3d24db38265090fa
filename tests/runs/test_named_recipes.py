from __future__ import annotations

import dataclasses

import pytest

from keras_vit import tasks
from keras_vit.runs.named_recipes import FINETUNE, FROM_WEIGHTS
from keras_vit.training import RECIPES, RunConfig, augreg, recipe


@pytest.mark.parametrize("task", ["classification", "segmentation", "detection", "regression"])
def test_recipe_of_a_task_starts_from_weights(task: str) -> None:
    assert tasks.get(task).recipe in FROM_WEIGHTS


def test_default_recipe_is_finetune() -> None:
    assert recipe("finetune") == FINETUNE == RunConfig("photos", "ViTTi16").recipe


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_says_what_it_is_for_and_where_it_comes_from(name: str) -> None:
    published = RECIPES[name]
    assert published.what[-1] in ".?"
    assert len(published.what) <= 100
    assert "http" in published.source or "/" in published.source or "keras_vit" in published.source
    assert recipe(name) is published.recipe


def numbers(name: str) -> dict[str, object]:
    found = dataclasses.asdict(recipe(name))
    return found | found.pop("augmentation")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Table 4 of the paper.
        (
            "paper_finetune",
            {
                **{"optimizer": "sgd", "beta_1": 0.9, "decay": "cosine", "clip_norm": 1.0},
                **{"image_size": (384, 384), "batch_size": 512, "weight_decay": 0.0},
            },
        ),
        # Table 3, ImageNet.
        (
            "paper_pretrain",
            {
                **{"optimizer": "adamw", "epochs": 300, "learning_rate": 3e-3, "batch_size": 4096},
                **{"weight_decay": 0.3, "dropout_rate": 0.1, "warmup_steps": 10_000},
            },
        ),
        (
            "bigvision_s16_90ep",
            {
                **{"epochs": 90, "batch_size": 1024, "learning_rate": 1e-3, "mixup": 0.2},
                **{"rand_augment_ops": 2, "rand_augment_magnitude": 10, "clip_norm": 1.0},
            },
        ),
        # Table 9 of the DeiT paper.
        (
            "deit",
            {
                **{"epochs": 300, "batch_size": 1024, "learning_rate": 1e-3, "weight_decay": 0.05},
                **{"label_smoothing": 0.1, "stochastic_depth_rate": 0.1, "repeats": 3},
                **{"mixup": 0.8, "cutmix": 1.0, "erasing": 0.25, "rand_augment_magnitude": 9},
                **{"dropout_rate": 0.0, "clip_norm": 0.0, "final_fraction": 0.01},
            },
        ),
        (
            "deit3",
            {
                **{"epochs": 800, "batch_size": 2048, "learning_rate": 4e-3, "weight_decay": 0.05},
                **{"loss": "sigmoid", "three_augment": True, "color_jitter": 0.3, "mixup": 0.8},
                **{"cutmix": 1.0, "label_smoothing": 0.0, "erasing": 0.0, "repeats": 3},
                **{"clip_norm": 1.0, "stochastic_depth_rate": 0.05, "final_fraction": 0.0025},
            },
        ),
        # Table 9 of the MAE paper, ViT-B.
        (
            "mae_finetune",
            {
                **{"epochs": 100, "batch_size": 1024, "learning_rate": 2e-3, "layer_decay": 0.65},
                **{"beta_2": 0.999, "warmup_fraction": 0.05, "stochastic_depth_rate": 0.1},
                **{"mixup": 0.8, "cutmix": 1.0, "label_smoothing": 0.1, "final_fraction": 0.0005},
            },
        ),
        (
            "flowers_report",
            {
                **{"epochs": 200, "batch_size": 256, "learning_rate": 0.001},
                **{"final_fraction": 0.01, "optimizer": "sgd", "beta_1": 0.9},
                **{"weight_decay": 5e-5, "weight_decay_on": "all", "weight_decay_coupled": True},
            },
        ),
    ],
)
def test_published_numbers(name: str, expected: dict[str, object]) -> None:
    found = numbers(name)
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("aug", "expected"),
    [
        ("none", (0.0, 0, 0.0)),
        ("light0", (0.0, 2, 0.0)),  # the paper's light1
        ("light1", (0.2, 2, 10.0)),
        ("medium2", (0.5, 2, 15.0)),
        ("strong2", (0.8, 2, 20.0)),
    ],
)
def test_augreg_settings(aug: str, expected: tuple[float, int, float]) -> None:
    found = augreg(aug, 0.03, 0.1, 0.1)
    changes = found.augmentation
    assert (
        changes.mixup, changes.rand_augment_ops, changes.rand_augment_magnitude
    ) == expected  # fmt: skip
    assert (found.weight_decay, found.dropout_rate, found.stochastic_depth_rate) == (0.03, 0.1, 0.1)


def test_augreg_by_the_names_of_its_checkpoints() -> None:
    assert recipe("augreg") == augreg()
    assert recipe("augreg-aug_light1-wd_0.03-do_0.1-sd_0.0") == augreg("light1", 0.03, 0.1, 0.0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dait", "`recipe` must be one of .* Did you mean 'deit'"),
        ("augreg-aug_heavy", "`aug` must be one of 'none'"),
        ("augreg-lr_0.1", "must be 'augreg', alone or with settings as in"),
        ("augreg-wd_much", "must be 'augreg', alone or with settings as in"),
    ],
)
def test_unknown_recipe_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(name)
