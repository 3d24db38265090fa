"""Public model constructors: ViTTi16 to ViTG14, hybrids, and foundation backbones.

Letters: B batch; H, W, C image height, width, channels; T tokens; D hidden size.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit import arguments, models
from keras_vit import weights as weight_files
from keras_vit.models.config import POOLINGS
from keras_vit.models.published import PUBLISHED
from keras_vit.models.vit import default_preprocessing
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import registry
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.model_fields import fields_of_source, image_fields
from keras_vit.weights.positions import has_prefix_rows, has_table

__all__ = [
    "CLIPB16",
    "CLIPB32",
    "CLIPL14",
    "EUPEB16",
    "EUPES16",
    "EVA02B14",
    "EVA02L14",
    "EVA02S14",
    "BEiTB16",
    "BEiTL16",
    "BEiTv2B16",
    "BEiTv2L16",
    "DINOv2B14",
    "DINOv2G14",
    "DINOv2L14",
    "DINOv2S14",
    "DINOv3B16",
    "DINOv3H16Plus",
    "DINOv3L16",
    "DINOv3S16",
    "DINOv3S16Plus",
    "EUPETi16",
    "EVA02Ti14",
    "SigLIP2B16",
    "SigLIP2L16",
    "SigLIP2SO400M14",
    "SigLIP2SO400M16",
    "SigLIPB16",
    "SigLIPL16",
    "SigLIPSO400M14",
    "TIPSv2B14",
    "TIPSv2G14",
    "TIPSv2L14",
    "TIPSv2SO400M14",
    "ViTB8",
    "ViTB16",
    "ViTB32",
    "ViTG14",
    "ViTH14",
    "ViTL16",
    "ViTL32",
    "ViTMicro4",
    "ViTR26S32",
    "ViTR50B16",
    "ViTR50L32",
    "ViTRTi16",
    "ViTS8",
    "ViTS16",
    "ViTS32",
    "ViTTi16",
    "ViTg14",
]

# Names of the poolings in Keras.
_POOLING_ALIASES = {"avg": "gap"}

# Hint for a name that is similar to no constructor's.
_EXAMPLES = " Did you mean 'ViTTi16', 'ViTS16', 'ViTB16' or 'ViTL16'?"


class Constructor:
    """Model constructor for one published Vision Transformer size, as in `keras.applications`.

    Args:
        name: Name of the constructor, such as `"ViTB16"`.
        config: Configuration of the model with its default arguments; by default the published.
    """

    def __init__(self, name: str, config: models.ViTConfig | None = None) -> None:
        self.__name__ = self.__qualname__ = name
        self.config = config or PUBLISHED[name]
        text = inspect.cleandoc(type(self).__call__.__doc__ or "")
        self.__doc__ = text.replace("a Vision Transformer", f"the Vision Transformer {name}", 1)

    def __repr__(self) -> str:
        return f"<keras_vit.{self.__name__}>"

    def __call__(
        self,
        include_top: bool = True,
        weights: str | os.PathLike[str] | Checkpoint | None = "imagenet",
        input_tensor: Any = None,
        input_shape: tuple[int | None, int | None, int] | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: str | None = "softmax",
        name: str | None = None,
        *,
        class_names: Sequence[str] | None = None,
        reset_head: bool = False,
        class_token: bool | None = None,
        registers: int | None = None,
        representation_size: int | None = None,
        position_embedding: str | None = None,
        position_interpolation: str | None = None,
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        stochastic_depth_rate: float = 0.0,
        overrides: Mapping[str, Any] | None = None,
        dtype: Any = None,
        **others: Any,
    ) -> keras.Model:
        """Builds a Vision Transformer as a functional Keras model.

        The model requires pixels scaled to [-1, 1] (`keras_vit.preprocess_input`), or as the
        preprocessing of its weights specifies (`keras_vit.models.preprocessing_of`). The first
        eight arguments are those of `keras.applications`.

        Args:
            include_top: Whether the model ends in its classifier.
            weights: Initial weights: a name (`keras_vit.list_weights`), a file, an https or hf://
                URL, or a `Checkpoint`. `"imagenet"` is the usual choice for the 1000 classes of
                ImageNet-1k. None for random initialization.
            input_tensor: Keras tensor (batch, height, width, channels) to use as the input.
            input_shape: (height, width, channels) of the images in pixels, each side a multiple of
                the patch; a side of None accepts any such size. By default the size of the weights
                or of the published model. Position embeddings are resized.
            pooling: Tokens that the classifier or the output uses: `"token"` (class token),
                `"avg"` or `"gap"` (mean of the patch tokens), `"max"`, `"token_gap"` (class token
                and mean, joined), `"map"` (attention pooling) or `"none"`. By default that of the
                weights, or the class token; without a classifier `"none"`, and the output is all
                tokens (batch, tokens, width).
            classes: Number of classes. For a number other than that of the weights, pass
                `reset_head=True`.
            classifier_activation: Activation of the classifier: `"softmax"` for exclusive classes,
                `"sigmoid"` for several labels per image, None for logits.
            name: Name of the model; by default that of the constructor in lowercase.
            class_names: Names of the classes, in the order of the outputs, stored in the model;
                without a classifier, those of the classifier that is added later.
            reset_head: Whether the classifier starts from zeros instead of the stored weights.
            class_token: Whether there is a class token; by default as in the weights.
            registers: Number of register tokens, which is 0 or 4 for DINOv2; by default as in the
                weights, or as published.
            representation_size: Width of the tanh layer before the classifier; 0 for none.
            position_embedding: `"learned"`, `"learned_2d"`, `"sincos_2d"`, `"none"`, `"rotary"` (as
                in DINOv3), `"learned_rotary"` (EVA-02) or `"relative"` (BEiT); by default as in
                the weights.
            position_interpolation: Method for resizing position embeddings to other image sizes:
                `"bilinear_aligned"`, `"bilinear"`, `"bicubic"`, `"bicubic_aligned"` or
                `"bicubic_antialiased"`; by default that of the weights.
            dropout_rate: Dropout rate of tokens and MLPs in training, in [0, 1).
            attention_dropout_rate: Dropout rate of attention weights in training, in [0, 1).
            stochastic_depth_rate: Rate at which the last block is skipped in training, in [0, 1);
                the rates grow linearly from 0 in the first block.
            overrides: Other fields of `keras_vit.ViTConfig` by name, such as
                `{"patch_size": 14}`; the default image size remains if it is a multiple of the
                patch.
            dtype: Keras dtype or dtype policy, such as `"mixed_bfloat16"`; by default the global
                policy.
            **others: None; for other arguments the error names the one to use.

        Returns:
            A `keras.Model` from images (batch, height, width, channels) to probabilities (batch,
            classes); without a classifier, to features (batch, width) or tokens (batch, tokens,
            width).

        Raises:
            ValueError: If an argument is out of range or contradicts another, or the weights are
                unknown, do not fit the model or have another number of classes.
            OSError: If the weights cannot be downloaded or read.

        Examples:
            >>> model = keras_vit.ViTTi16(weights=None, input_shape=(32, 48, 3), classes=5)
            >>> model(np.zeros((2, 32, 48, 3))).shape
            TensorShape([2, 5])

        Reference: https://arxiv.org/abs/2010.11929
        """
        for field, value in others.items():
            nearest = arguments.nearest(field, inspect.signature(self).parameters)
            hint = f" Pass `overrides={{{field!r}: {value!r}}}`."
            raise TypeError(
                f"{self.__name__} has no argument `{field}`."
                f"{hint if hasattr(self.config, field) else nearest} Received: {field}={value!r}"
            )
        overrides = overrides or {}
        field_names = [field.name for field in dataclasses.fields(models.ViTConfig)]
        for field in overrides:
            arguments.one_of("overrides", field, field_names)
        arguments.one_of("pooling", pooling, (*POOLINGS, *_POOLING_ALIASES, None))
        if weights is None or isinstance(weights, Checkpoint):
            checkpoint = weights
        else:
            keeps_head, text = include_top and not reset_head, os.fspath(weights)
            is_published = registry.matches(self.__name__, text) and not os.path.exists(text)
            if keeps_head and is_published:  # before any download
                row = registry.find_weights(self.__name__, text)
                _require_classes(row.classes, text, classes)
            checkpoint = weight_files.read_checkpoint(weights, self.__name__)
            # With another number than the default, the classifier is new, with a warning.
            if keeps_head and classes == self.config.classes:
                _require_classes(checkpoint.inferred.get("classes"), text, classes)
        inferred = checkpoint.inferred if checkpoint else {}
        default_pooling = None if include_top else "none"
        chosen = {
            "class_token": class_token,
            "register_tokens": registers,
            "representation_size": representation_size if include_top else 0,
            "position_embedding": position_embedding,
            "position_interpolation": position_interpolation,
            "pooling": _POOLING_ALIASES.get(pooling or "", pooling or default_pooling),
        }
        with_class_token = (None, "token", "token_gap", "none", self.config.pooling)
        if not checkpoint and chosen["pooling"] not in with_class_token:
            chosen["class_token"] = bool(class_token)
        fields = {
            **fields_of_source(self.config, inferred, chosen, include_top),
            "classes": arguments.positive_int("classes", classes) if include_top else 0,
            "classifier_activation": classifier_activation,
            "dropout_rate": dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
            "stochastic_depth_rate": stochastic_depth_rate,
            **overrides,
        }
        if "position_grid" in overrides:
            grid = arguments.size_pair("position_grid", fields["position_grid"])
            inferred = inferred | {"position_grid": grid}
        sizes = self.config
        if "patch_size" in fields:  # need not divide the default size of 224 pixels
            changes = {"image_size": (None, None), "position_embedding": "none"}
            sizes = sizes.replace(patch_size=fields["patch_size"], **changes)
        size_fields = image_fields(self.config, sizes, inferred, input_tensor, input_shape)
        config = self.config.replace(**{**size_fields, **fields})
        if config.position_embedding == "none" and "position_grid" in overrides:
            raise ValueError(
                "`overrides` must not contain `position_grid` for a model without position "
                f"embeddings. Received: position_grid={config.position_grid}"
            )
        if checkpoint and has_table(config) and "prefix_position" not in overrides:
            prefix_position = has_prefix_rows(checkpoint, config.grid)
            config = config.replace(prefix_position=prefix_position)
        preprocessing = _preprocessing(checkpoint, config, keep_labels=not reset_head)
        if class_names is not None:
            if include_top and len(class_names) != classes:
                raise ValueError(
                    f"`class_names` must have one name for each of the {classes} classes. "
                    f"Received: class_names={tuple(class_names)!r}"
                )
            preprocessing = dataclasses.replace(preprocessing, class_names=tuple(class_names))
        model = models.build(
            config,
            preprocessing=preprocessing,
            input_tensor=input_tensor,
            name=name or self.__name__.lower(),
            dtype=dtype,
        )
        if checkpoint:
            config_fields = {"position_interpolation": config.position_interpolation}
            checkpoint = checkpoint.replace(inferred=inferred | config_fields)
            report = weight_files.load_weights(
                model,
                checkpoint,
                reset_head=reset_head,
                resize_patches="patch_size" in fields,
                report=True,
            )
            differing = {k: v for k, v in report.differing.items() if k not in overrides}
            report = dataclasses.replace(report, differing=differing)
            for note in report.notes() if include_top else (*report.read, *report.resized):
                warnings.warn(note, UserWarning, stacklevel=2)
        return model


def _require_classes(expected: int | None, weights: str, classes: int) -> None:
    if expected and classes != expected:
        raise ValueError(
            f"`classes` must be {expected} with the classifier of weights={weights!r}. "
            "For another number of classes, pass `reset_head=True`, which initializes the "
            f"classifier with zeros, or `include_top=False`. Received: classes={classes}"
        )


def _preprocessing(
    checkpoint: Checkpoint | None, config: models.ViTConfig, *, keep_labels: bool
) -> Preprocessing:
    """Returns the preprocessing of the weights, adapted to the model's image size."""
    base = default_preprocessing(config)
    preprocessing = (checkpoint and checkpoint.preprocessing) or base
    labels = preprocessing.class_names
    if preprocessing.num_channels != base.num_channels:
        # Gray images are scaled as their copies in three channels.
        scaling = {n: np.mean(getattr(preprocessing, n)).item() for n in ("mean", "std")}
        preprocessing = dataclasses.replace(preprocessing, channels=base.channels, **scaling)
    has_labels = keep_labels and labels is not None and len(labels) == config.classes
    # Thresholds require multi-label outputs, not a softmax.
    multi_label = has_labels and config.classifier_activation != "softmax"
    return dataclasses.replace(
        preprocessing,
        size=base.size,
        class_names=labels if has_labels else None,
        thresholds=preprocessing.thresholds if multi_label else None,
    )


def constructor(name: str) -> Constructor:
    """Returns the model constructor with this name."""
    require_name(name)
    return CONSTRUCTORS[name]


def require_name(name: str, others: Sequence[str] = ()) -> None:
    """Raises `ValueError` unless a name is that of a constructor or one of `others`."""
    names = (*CONSTRUCTORS, *others)
    # "vit" alone is as similar to ViTS8 as to others.
    is_vague = name.lower() == "vit" or not arguments.nearest(name, names)
    hint = _EXAMPLES if is_vague and name.lower().startswith("vit") else ""
    arguments.one_of("model", name, names, hint)


CONSTRUCTORS = {name: Constructor(name) for name in PUBLISHED}

ViTMicro4 = CONSTRUCTORS["ViTMicro4"]
ViTTi16 = CONSTRUCTORS["ViTTi16"]
ViTS32 = CONSTRUCTORS["ViTS32"]
ViTS16 = CONSTRUCTORS["ViTS16"]
ViTS8 = CONSTRUCTORS["ViTS8"]
ViTB32 = CONSTRUCTORS["ViTB32"]
ViTB16 = CONSTRUCTORS["ViTB16"]
ViTB8 = CONSTRUCTORS["ViTB8"]
ViTL32 = CONSTRUCTORS["ViTL32"]
ViTL16 = CONSTRUCTORS["ViTL16"]
ViTH14 = CONSTRUCTORS["ViTH14"]
ViTg14 = CONSTRUCTORS["ViTg14"]
ViTG14 = CONSTRUCTORS["ViTG14"]
ViTRTi16 = CONSTRUCTORS["ViTRTi16"]
ViTR26S32 = CONSTRUCTORS["ViTR26S32"]
ViTR50B16 = CONSTRUCTORS["ViTR50B16"]
ViTR50L32 = CONSTRUCTORS["ViTR50L32"]
DINOv2S14 = CONSTRUCTORS["DINOv2S14"]
DINOv2B14 = CONSTRUCTORS["DINOv2B14"]
DINOv2L14 = CONSTRUCTORS["DINOv2L14"]
DINOv2G14 = CONSTRUCTORS["DINOv2G14"]
DINOv3S16 = CONSTRUCTORS["DINOv3S16"]
DINOv3S16Plus = CONSTRUCTORS["DINOv3S16Plus"]
DINOv3B16 = CONSTRUCTORS["DINOv3B16"]
DINOv3L16 = CONSTRUCTORS["DINOv3L16"]
DINOv3H16Plus = CONSTRUCTORS["DINOv3H16Plus"]
EUPETi16 = CONSTRUCTORS["EUPETi16"]
EUPES16 = CONSTRUCTORS["EUPES16"]
EUPEB16 = CONSTRUCTORS["EUPEB16"]
TIPSv2B14 = CONSTRUCTORS["TIPSv2B14"]
TIPSv2L14 = CONSTRUCTORS["TIPSv2L14"]
TIPSv2SO400M14 = CONSTRUCTORS["TIPSv2SO400M14"]
TIPSv2G14 = CONSTRUCTORS["TIPSv2G14"]
SigLIPB16 = CONSTRUCTORS["SigLIPB16"]
SigLIPL16 = CONSTRUCTORS["SigLIPL16"]
SigLIPSO400M14 = CONSTRUCTORS["SigLIPSO400M14"]
SigLIP2B16 = CONSTRUCTORS["SigLIP2B16"]
SigLIP2L16 = CONSTRUCTORS["SigLIP2L16"]
SigLIP2SO400M14 = CONSTRUCTORS["SigLIP2SO400M14"]
SigLIP2SO400M16 = CONSTRUCTORS["SigLIP2SO400M16"]
CLIPB32 = CONSTRUCTORS["CLIPB32"]
CLIPB16 = CONSTRUCTORS["CLIPB16"]
CLIPL14 = CONSTRUCTORS["CLIPL14"]
EVA02Ti14 = CONSTRUCTORS["EVA02Ti14"]
EVA02S14 = CONSTRUCTORS["EVA02S14"]
EVA02B14 = CONSTRUCTORS["EVA02B14"]
EVA02L14 = CONSTRUCTORS["EVA02L14"]
BEiTB16 = CONSTRUCTORS["BEiTB16"]
BEiTL16 = CONSTRUCTORS["BEiTL16"]
BEiTv2B16 = CONSTRUCTORS["BEiTv2B16"]
BEiTv2L16 = CONSTRUCTORS["BEiTv2L16"]
