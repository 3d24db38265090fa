"""Named training recipes, some from this package and some from publications.

Published learning rates are valid for the published batch sizes. For another batch size, scale the
learning rate (linearly, according to https://arxiv.org/abs/1706.02677).
"""

from __future__ import annotations

from typing import NamedTuple

from keras_vit import arguments
from keras_vit.data import Augmentation
from keras_vit.runs.recipe import Recipe


class NamedRecipe(NamedTuple):
    """Training recipe with its purpose and source.

    Args:
        recipe: The recipe.
        what: Purpose, in one line.
        source: Source of the hyperparameters.
        notes: Differences from the source, with reasons.
    """

    recipe: Recipe
    what: str
    source: str
    notes: str = ""


# The default: pretrained weights, a few thousand photographs; derivation in docs/recipes.md.
FINETUNE = Recipe(epochs=3, learning_rate=3e-4, layer_decay=0.75, label_smoothing=0.1)
# Changes where three epochs have fewer than `FEW_STEPS` steps (docs/recipes.md).
FEW_IMAGES = {"layer_decay": 0.5}

# Values for SGD, as in the paper's fine-tuning (Table 4: 0.01, no weight decay).
SGD = {"optimizer": "sgd", "learning_rate": 0.01, "weight_decay": 0.0, "layer_decay": 1.0}

# Without pretrained weights: small images, many epochs. `make demo` runs it on scikit-learn's
# digits: accuracy 0.98, 3 minutes on two CPU cores.
FROM_SCRATCH = Recipe(
    epochs=80,
    batch_size=32,
    learning_rate=2e-3,
    weight_decay=0.1,
    label_smoothing=0.1,
    augmentation=Augmentation(crop_area=(0.8, 1.0)),
)

# Crops as in vit_jax/input_pipeline.py and big_vision: area_min 5%.
PAPER = Recipe(
    warmup_fraction=0.0, warmup_steps=10_000, augmentation=Augmentation(crop_area=(0.05, 1.0))
)
_IMAGENET_CROP = (0.08, 1.0)  # torchvision's RandomResizedCrop, hence timm, DeiT and MAE

_PAPER_PRETRAIN = PAPER.replace(
    epochs=300,
    batch_size=4096,
    learning_rate=3e-3,
    weight_decay=0.3,
    dropout_rate=0.1,
)

_DEIT = Recipe().replace(
    epochs=300,
    batch_size=1024,
    learning_rate=1e-3,
    warmup_fraction=5 / 300,
    final_fraction=0.01,
    weight_decay=0.05,
    clip_norm=0.0,
    label_smoothing=0.1,
    stochastic_depth_rate=0.1,
    crop_area=_IMAGENET_CROP,
    rand_augment_ops=2,
    rand_augment_magnitude=9,
    rand_augment_std=0.5,
    rand_augment_increasing=True,
    erasing=0.25,
    mixup=0.8,
    cutmix=1.0,
    repeats=3,
)

_TIMM_OPS = (
    "RandAugment is the version of the RandAugment paper; the original code uses timm's version, "
    "which has other operations and skips each operation with probability 0.5."
)

RECIPES = {
    "finetune": NamedRecipe(
        FINETUNE,
        "Fine-tuning on a few thousand photographs in minutes (the default).",
        "keras_vit; chosen on part of the training images (docs/recipes.md)",
    ),
    "from_scratch": NamedRecipe(
        FROM_SCRATCH,
        "Training from random weights on small images (the default with --weights none).",
        "keras_vit; chosen on scikit-learn's digits",
    ),
    "regression": NamedRecipe(
        FINETUNE.replace(epochs=10, learning_rate=1e-3, crop_area=(1.0, 1.0), resize="pad"),
        "Fine-tuning for regression (the default of --task regression), without crops.",
        "keras_vit; chosen on two numbers computed from scikit-learn's digits (docs/data.md)",
    ),
    "segmentation": NamedRecipe(
        FINETUNE.replace(
            epochs=18,
            batch_size=4,
            learning_rate=7e-4,
            loss="softmax_dice",
            label_smoothing=0.0,
            crop_area=(0.25, 1.0),
        ),
        "Fine-tuning for segmentation (the default of --task segmentation).",
        "keras_vit; chosen on part of the training images (docs/segmentation.md)",
    ),
    "detection": NamedRecipe(
        FINETUNE.replace(
            epochs=40, batch_size=2, learning_rate=1e-3, label_smoothing=0.0, crop_area=(0.25, 1.0)
        ),
        "Fine-tuning for detection (the default of --task detection).",
        "keras_vit; batch size chosen on part of the training images (docs/detection.md)",
    ),
    "linear_probe": NamedRecipe(
        Recipe(
            epochs=10,
            batch_size=64,
            learning_rate=3e-3,
            weight_decay=0.0,
            trainable=("head/*",),
        ),
        "Linear probe by gradient descent: only the classifier is trained, on frozen features.",
        "keras_vit",
    ),
    "probe": NamedRecipe(
        Recipe(epochs=0, trainable=("head/*",), pooling="token_gap", ridge_head=True),
        "Linear probe in closed form, on the class token and the mean of the patches.",
        "keras_vit; features as in section 7.1 of https://arxiv.org/abs/2304.07193",
    ),
    "probe_then_finetune": NamedRecipe(
        FINETUNE.replace(pooling="token_gap", ridge_head=True),
        "Fine-tuning that starts from the classifier of the linear probe.",
        "keras_vit; linear probing first as in https://arxiv.org/abs/2202.10054",
    ),
    "lora": NamedRecipe(
        FINETUNE.replace(
            learning_rate=2e-3,
            layer_decay=1.0,
            weight_decay=0.0,
            trainable=("head/*",),
            lora_rank=16,
        ),
        "Fine-tuning of low-rank updates (LoRA) and of the classifier.",
        "keras_vit; rank as in https://arxiv.org/abs/2106.09685",
    ),
    "paper_finetune": NamedRecipe(
        PAPER.replace(
            epochs=8,
            batch_size=512,
            image_size=(384, 384),
            optimizer="sgd",
            learning_rate=0.03,
            warmup_steps=500,
            weight_decay=0.0,
        ),
        "Fine-tuning as in the ViT paper: SGD, cosine decay, gradient clipping, 384 pixels.",
        "Table 4 and appendix B.1.1 of https://arxiv.org/abs/2010.11929; warm-up and learning "
        "rate from google-research/vision_transformer, vit_jax/configs/common.py",
        "The paper trains for 20,000 steps on ImageNet and selects the learning rate in 0.003 to "
        "0.06.",
    ),
    "paper_pretrain": NamedRecipe(
        _PAPER_PRETRAIN,
        "ImageNet-1k pre-training as in the ViT paper.",
        "Table 3 of https://arxiv.org/abs/2010.11929",
        "The paper says Adam; a weight decay of this size is that of AdamW.",
    ),
    "bigvision_s16_90ep": NamedRecipe(
        PAPER.replace(
            epochs=90,
            batch_size=1024,
            learning_rate=1e-3,
            weight_decay=0.1,
            rand_augment_ops=2,
            rand_augment_magnitude=10,
            mixup=0.2,
        ),
        "ViT-S/16 on ImageNet-1k: 76.5% accuracy after 90 epochs.",
        "https://arxiv.org/abs/2205.01580 and big_vision/configs/vit_s16_i1k.py",
        "weight_decay is big_vision's 0.0001 divided by the learning rate, as Keras multiplies "
        "them.",
    ),
    "deit": NamedRecipe(
        _DEIT,
        "Data-efficient ImageNet-1k training, 300 epochs; distillation=hard with a teacher.",
        "Table 9 of https://arxiv.org/abs/2012.12877 and main.py of facebookresearch/deit",
        f"The learning rate decreases at every step, not after every epoch. {_TIMM_OPS}",
    ),
    "deit3": NamedRecipe(
        Recipe().replace(
            epochs=800,
            batch_size=2048,
            learning_rate=4e-3,
            warmup_fraction=5 / 800,
            final_fraction=1e-5 / 4e-3,
            weight_decay=0.05,
            loss="sigmoid",
            stochastic_depth_rate=0.05,
            crop_area=_IMAGENET_CROP,
            three_augment=True,
            color_jitter=0.3,
            mixup=0.8,
            cutmix=1.0,
            repeats=3,
        ),
        "ViT-S on ImageNet-1k in 800 epochs: 3-Augment and a sigmoid loss.",
        "Table 1 of https://arxiv.org/abs/2204.07118; README_revenge.md of facebookresearch/deit",
        "AdamW replaces LAMB, whose learning rate is too high for AdamW: start with 1e-3. "
        "Differences from the source: the stochastic depth rate increases from 0, and labels of "
        "mixed images are weighted by their proportion.",
    ),
    "mae_finetune": NamedRecipe(
        _DEIT.replace(
            epochs=100,
            learning_rate=2e-3,
            warmup_fraction=0.05,
            final_fraction=1e-6 / 2e-3,
            layer_decay=0.65,
            repeats=1,
        ),
        "Fine-tuning of ViT-B after masked-autoencoder pre-training: layer-wise decay.",
        "Table 9 of https://arxiv.org/abs/2111.06377; FINETUNE.md and main_finetune.py of "
        "facebookresearch/mae",
        _TIMM_OPS,
    ),
    "flowers_report": NamedRecipe(
        Recipe(
            epochs=200,
            batch_size=256,
            optimizer="sgd",
            learning_rate=0.001,
            warmup_fraction=0.0,
            final_fraction=0.01,
            weight_decay=5e-5,
            weight_decay_on="all",
            weight_decay_coupled=True,
            clip_norm=0.0,
            augmentation=Augmentation(crop_area=_IMAGENET_CROP),
        ),
        "200 epochs of SGD, lr=0.001, lrf=0.01: the published result on the flowers.",
        "pytorch_classification/vision_transformer/train.py of "
        "WZMIAOMIAO/deep-learning-for-image-processing; epochs and batch size from docs/flowers.md",
        "The learning rate decreases at every step, not after every epoch. By default, the "
        "original script trains only the classifier, as --set 'trainable=[head/*]' does here.",
    ),
}

_FROM_RANDOM_WEIGHTS = {"from_scratch", "paper_pretrain", "bigvision_s16_90ep", "deit", "deit3"}
# Recipes that begin with pretrained weights.
FROM_WEIGHTS = tuple(name for name in RECIPES if name not in _FROM_RANDOM_WEIGHTS)

# Augmentation of "How to train your ViT?" by the names in its checkpoints, aug_*: MixUp alpha,
# RandAugment (operations, magnitude). Undocumented, but light0 and light1 of the checkpoints must
# be light1 and light2 of the paper and the code: both have seven settings of increasing strength,
# and the settings recommended for Ti/16 and S/32, light1 and light2, are those of the best
# checkpoints of these sizes, light0 and light1.
AUGREG_AUGMENTATIONS = {
    "none": (0.0, 0, 0.0),
    "light0": (0.0, 2, 0.0),
    "light1": (0.2, 2, 10.0),
    "medium1": (0.2, 2, 15.0),
    "medium2": (0.5, 2, 15.0),
    "strong1": (0.5, 2, 20.0),
    "strong2": (0.8, 2, 20.0),
}


def augreg(
    aug: str = "medium1",
    weight_decay: float = 0.1,
    dropout_rate: float = 0.0,
    stochastic_depth_rate: float = 0.0,
) -> Recipe:
    """Returns a pre-training recipe from the paper "How to train your ViT?" (AugReg).

    Args:
        aug: `"none"`, `"light0"`, `"light1"`, `"medium1"`, `"medium2"`, `"strong1"` or
            `"strong2"`, as in the names of the AugReg checkpoints; their `light0` and `light1` are
            the paper's `light1` and `light2`.
        weight_decay: 0.1 or 0.03.
        dropout_rate: 0.0 or 0.1.
        stochastic_depth_rate: 0.0 or 0.1.

    Returns:
        The recipe for ImageNet-1k, 300 epochs.

    Raises:
        ValueError: If `aug` is none of these names.

    Examples:
        >>> augreg("light1").augmentation.mixup
        0.2

    Reference: section 3.1 and figure 4 of https://arxiv.org/abs/2106.10270;
    big_vision/configs/vit_i1k.py
    """
    arguments.one_of("aug", aug, tuple(AUGREG_AUGMENTATIONS))
    mixup, layers, magnitude = AUGREG_AUGMENTATIONS[aug]
    return _PAPER_PRETRAIN.replace(
        learning_rate=1e-3,
        weight_decay=weight_decay,
        dropout_rate=dropout_rate,
        stochastic_depth_rate=stochastic_depth_rate,
        rand_augment_ops=layers,
        rand_augment_magnitude=magnitude,
        mixup=mixup,
    )


def recipe(name: str) -> Recipe:
    """Returns a training recipe by name.

    Args:
        name: A key of `RECIPES`, or `"augreg"`, optionally with settings as in the names of its
            checkpoints: `"augreg-aug_light1-wd_0.1-do_0.0-sd_0.0"`.

    Returns:
        The recipe.

    Raises:
        ValueError: If there is no recipe of this name; the message lists all names.

    Examples:
        >>> recipe("paper_finetune").image_size
        (384, 384)
    """
    family, *parts = name.split("-")
    if family != "augreg":
        arguments.one_of("recipe", name, (*RECIPES, "augreg"))
        return RECIPES[name].recipe
    fields = {
        "aug": "aug",
        "wd": "weight_decay",
        "do": "dropout_rate",
        "sd": "stochastic_depth_rate",
    }
    settings: dict[str, str | float] = {}
    for part in parts:
        key, _, value = part.partition("_")
        try:
            settings[fields[key]] = value if key == "aug" else float(value)
        except (KeyError, ValueError):
            raise ValueError(
                "`recipe` must be 'augreg', alone or with settings as in "
                f"'augreg-aug_light1-wd_0.1-do_0.0-sd_0.0'. Received: {name!r}"
            ) from None
    return augreg(**settings)  # type: ignore[arg-type]
