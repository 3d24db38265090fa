"""Default preprocessing for the weights of each library, if a file does not specify it."""

from __future__ import annotations

from typing import Any

from keras_vit.constants import CLIP_MEAN, CLIP_STD, IMAGENET_MEAN, IMAGENET_STD
from keras_vit.preprocessing import Preprocessing, imagenet_labels
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.positions import POSITIONS

# Libraries whose weights were trained with several kinds of preprocessing.
_WITH_SEVERAL = (
    *("timm", "timm_eva", "huggingface", "tf_transformers"),
    *("dinov2", "dinov3_vit", "clip", "beit", "open_clip"),
)


def assume(checkpoint: Checkpoint) -> Checkpoint:
    """Adds the default preprocessing to a checkpoint, with a note if other defaults exist."""
    assumed, notes = preprocessing(checkpoint), dict(checkpoint.notes)
    if checkpoint.dialect in _WITH_SEVERAL:
        notes["preprocessing"] = (
            f"{checkpoint.source} does not contain its preprocessing: mean={assumed.mean}, "
            f"std={assumed.std}, crop_fraction={assumed.crop_fraction} are assumed; to change "
            "them, store the publisher's config.json or preprocessor_config.json beside the file"
        )
    return checkpoint.replace(preprocessing=assumed, notes=notes)


def preprocessing(checkpoint: Checkpoint) -> Preprocessing:
    """Returns the most common preprocessing for the library and tensors of a checkpoint.

    Official and most timm weights were trained on pixels in [-1, 1]; torchvision weights, and those
    with tensors of DeiT, DeiT III, DINOv2 or MAE, on pixels normalized by ImageNet's mean and
    standard deviation; those with a norm before the blocks (CLIP) by CLIP's. Classifiers with 1000
    classes get the ImageNet class names. A configuration file or the registry overrides these
    values.
    """
    inferred = checkpoint.inferred
    labels = imagenet_labels()
    is_grayscale = inferred.get("channels") == 1
    fields: dict[str, Any] = {
        "crop_fraction": 0.9,  # as in timm's evaluation at 224 pixels
        "interpolation": "bicubic",
        "channels": "grayscale" if is_grayscale else "rgb",
        "class_names": labels if inferred.get("classes") == len(labels) else None,
    }
    if is_torchvision := checkpoint.dialect == "torchvision":
        fields |= {"crop_fraction": 0.875, "interpolation": "bilinear"}  # 256 and 224 pixels
    # DeiT III and DINOv2, which has no classifier; other models with layer scale average patches.
    positions = inferred.get("position_embedding")
    scaled = inferred.get("layer_scale") and inferred.get("class_token") and positions != "relative"
    # EVA-02 was trained with CLIP's preprocessing, the first BEiT with that of the official models.
    is_clip = inferred.get("pre_norm") or positions == "learned_rotary"
    is_distilled = inferred.get("distillation_token")
    if is_clip or (scaled and not inferred.get("classes")):
        fields["crop_fraction"] = 1.0
    if is_clip and not is_grayscale:
        fields |= {"mean": CLIP_MEAN, "std": CLIP_STD}
    elif not is_grayscale and (is_torchvision or is_distilled or scaled or _is_mae(checkpoint)):
        fields |= {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
    return Preprocessing(**fields)


def _is_mae(checkpoint: Checkpoint) -> bool:
    """Returns whether a file contains MAE's decoder, or its fixed position of the class token."""
    table = checkpoint.tensors.get(POSITIONS)
    is_fixed = table is not None and checkpoint.inferred.get("class_token") and not table[0].any()
    has_decoder = any("decoder_embed" in name for name in checkpoint.ignored)
    return checkpoint.dialect in _WITH_SEVERAL and bool(is_fixed or has_decoder)
