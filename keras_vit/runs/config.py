"""Run configurations, and their storage as YAML files."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml

from keras_vit import arguments, files
from keras_vit.arguments import Count, InnerFraction, NonNegative, PositiveInt, among
from keras_vit.choices import PRETRAINING_TASKS, STRATEGIES
from keras_vit.constants import MAX_YAML
from keras_vit.data import Augmentation, write_layers
from keras_vit.data.image_audit import ON_BAD_IMAGE
from keras_vit.runs.named_recipes import FINETUNE
from keras_vit.runs.pretraining_recipes import PHOTOGRAPHS
from keras_vit.runs.recipe import Recipe

Config = TypeVar("Config", bound="CommonConfig")


@dataclasses.dataclass(frozen=True)
class CommonConfig:
    """Configuration fields shared by supervised and self-supervised training runs.

    Args:
        data: Images, see `keras_vit.data.load`.
        model: Name of a constructor, such as `"ViTB16"`.
        weights: Initial weights by name, path or URL, see `weights` of the constructors; or None.
        validation_fraction: Fraction of the examples that is held out, in (0, 1); with `group_by`
            that of a fold, up to 0.5.
        split_seed: Seed of the split, separate from the recipe's seed, so that runs with
            different seeds have the same split.
        group_by: Column of the table of images, such as the patient; images with the same value
            are either all held out or all trained on.
        on_bad_image: `"fail"` or `"skip"`.
        strategy: Devices, see `keras_vit.training.distribution.devices`.
        save_steps: Steps between two saved states within an epoch; 0 to use `save_minutes`.
        save_minutes: Minutes between two saved states, if `save_steps` is 0; 0 for none.
        keep: Number of states to keep.
        recipe: Hyperparameters of training.
    """

    data: str
    model: str
    weights: str | None = None
    validation_fraction: InnerFraction = 0.2
    split_seed: Count = 0
    group_by: str | None = None
    on_bad_image: Annotated[str, among(*ON_BAD_IMAGE)] = "fail"
    strategy: Annotated[str, among(*STRATEGIES)] = "auto"
    save_steps: Count = 0
    save_minutes: NonNegative = 5.0
    keep: PositiveInt = 2
    recipe: Recipe = FINETUNE

    def __post_init__(self) -> None:
        arguments.check_kinds(self)


@dataclasses.dataclass(frozen=True)
class RunConfig(CommonConfig):
    """Configuration of a supervised training run.

    Args:
        data: A folder, a CSV file, `tfds:NAME` or `digits`.
        model: Name of a constructor, such as `"ViTB16"`, or of a network of
            `keras.applications`, such as `"ResNet50"`.
        teacher: Path of a saved teacher model, if the recipe uses distillation.
        model_parallel: Number of devices over which the model is sharded, on JAX.
        task: Name of the task, see `keras_vit.tasks.get`.
        settings: Settings of the task, if the task has settings.
        folds: Number of folds for cross-validation; 0 to hold out `validation_fraction`.
        fold: Index of the fold that is held out, in [0, folds).
        **kwargs: The other fields of `CommonConfig`.

    Raises:
        ValueError: If a value is out of range.

    Examples:
        >>> RunConfig("digits", "ViTMicro4").recipe.optimizer
        'adamw'
    """

    teacher: str | None = None
    model_parallel: PositiveInt = 1
    task: str = "classification"
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    folds: Count = 0
    fold: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task in PRETRAINING_TASKS:
            raise ValueError(
                "`task` must be a task that trains on labeled images; use `keras-vit pretrain` "
                f"for {self.task}. Received: task={self.task!r}"
            )
        if (self.recipe.distillation != "none") != (self.teacher is not None):
            raise ValueError(
                "`teacher` must be given if, and only if, the recipe uses distillation. "
                f"Received: teacher={self.teacher!r}, distillation={self.recipe.distillation!r}"
            )


# Methods, with the name of the task and the paper's fraction of masked patches.
METHODS = {"mae": ("masked_autoencoder", 0.75), "masked-patches": ("masked_patches", 0.5)}

# Fields of a recipe that apply to labels.
_LABEL_FIELDS = ("loss", "label_smoothing", "class_weights", "distillation")


@dataclasses.dataclass(frozen=True)
class PretrainConfig(CommonConfig):
    """Configuration of a self-supervised pre-training run.

    Args:
        data: Images, with or without labels, see `keras_vit.data.sources.load.load_images`.
        model: Name of a constructor, such as `"ViTTi16"`.
        method: `"mae"`, masked auto-encoding, see `MaskedAutoencoderObjective`; or
            `"masked-patches"`, see `MaskedPatchesObjective`.
        mask_ratio: Fraction of masked patches, in (0, 1); by default 0.75 and 0.5.
        norm_pix: Whether a masked autoencoder's targets are normalized by the mean and standard
            deviation of each patch.
        decoder_width: Channels of the masked autoencoder's decoder, a multiple of 4 and of
            `decoder_heads`.
        decoder_depth: Number of blocks of the decoder.
        decoder_heads: Attention heads of each block of the decoder.
        **kwargs: The other fields of `CommonConfig`.

    Raises:
        ValueError: If a value is out of range.

    Examples:
        >>> PretrainConfig("photos/", "ViTTi16").masked
        0.75
    """

    recipe: Recipe = PHOTOGRAPHS
    method: Annotated[str, among(*METHODS)] = "mae"
    mask_ratio: Annotated[float | None, arguments.optional(arguments.inner_fraction)] = None
    norm_pix: bool = True
    decoder_width: PositiveInt = 128
    decoder_depth: PositiveInt = 4
    decoder_heads: PositiveInt = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _LABEL_FIELDS:
            if getattr(self.recipe, name) != getattr(Recipe, name):  # the default
                raise ValueError(
                    "`recipe` must not set label options, because pre-training does not use "
                    f"labels. Received: {name}={getattr(self.recipe, name)!r}"
                )

    @property
    def task(self) -> str:
        """Name of the pre-training task."""
        return METHODS[self.method][0]

    @property
    def masked(self) -> float:
        """Fraction of patches that are masked."""
        return METHODS[self.method][1] if self.mask_ratio is None else self.mask_ratio


class _Dumper(yaml.SafeDumper):
    """Writes tuples as lists, and no aliases, which `read_mapping` refuses."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_multi_representer(dict, _Dumper.represent_dict)  # also of other classes


def write_config(path: str | os.PathLike[str], config: CommonConfig, **more: Any) -> None:
    """Writes a configuration to a YAML file."""
    augmentation = config.recipe.augmentation
    content = dataclasses.asdict(config)
    content["recipe"]["augmentation"]["layers"] = write_layers(augmentation.layers)
    content |= more
    files.write_text(path, yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True))


def read_config(path: str | os.PathLike[str]) -> RunConfig:
    """Reads a configuration from a YAML file, which may be written by hand.

    Args:
        path: A YAML file with the fields of `RunConfig`; omitted fields have their defaults, those
            of the recipe the values of `recipe("finetune")`.

    Returns:
        The configuration.

    Raises:
        ValueError: If the file is not YAML, a field is unknown or missing, or a value is out of
            range.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "config.yaml"
        >>> _ = path.write_text("{data: photos, model: ViTB16, recipe: {epochs: 3}}")
        >>> read_config(path).recipe == FINETUNE.replace(epochs=3)
        True
    """
    return read_config_of(RunConfig, path)


# Recipe fields of earlier versions, whose configurations contain them with the default of 0.
_REMOVED = {"clip_variable_norm", "sam_radius"}


def read_config_of(kind: type[Config], path: str | os.PathLike[str]) -> Config:
    """Reads a configuration of the given class from a YAML file, as `read_config` does."""
    content = read_mapping(path)
    content = {k: v for k, v in content.items() if k not in ("resolved", "versions")}
    recipe = _mapping(path, content, "recipe")
    augmentation = _mapping(path, recipe, "augmentation")
    for name in _REMOVED & recipe.keys():
        if (value := recipe.pop(name)) != 0:
            raise ValueError(
                f"{path}: the recipe field `{name}` was removed and must be 0 or left out. "
                f"Received: {name}={value!r}"
            )
    for name, fields, dataclass_type in (
        ("the configuration", content, kind),
        ("its recipe", recipe, Recipe),
        ("its augmentation", augmentation, Augmentation),
    ):
        defaults = {field.name: field.default for field in dataclasses.fields(dataclass_type)}
        if unknown := [key for key in fields if key not in defaults]:
            hint = arguments.nearest(str(unknown[0]), defaults)
            raise ValueError(f"{path}: {unknown[0]!r} is not a field of {name}.{hint}")
        for key in fields:
            if isinstance(defaults[key], float):  # YAML reads `1e-4` as a string
                # The class reports invalid values.
                with contextlib.suppress(OverflowError, TypeError, ValueError):
                    fields[key] = float(fields[key])
    if missing := [name for name in ("data", "model") if name not in content]:
        raise ValueError(f"{path} must have `data` and `model`. Received: no `{missing[0]}`")
    try:
        augmented = dataclasses.replace(kind.recipe.augmentation, **augmentation)
        changed = dataclasses.replace(kind.recipe, **recipe, augmentation=augmented)
        return kind(**content, recipe=changed)
    except TypeError as error:
        raise ValueError(f"{path} contains a value of the wrong type. Received: {error}") from error


def read_mapping(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a YAML file that maps names to values."""
    with arguments.naming_place(f"{path} must be a readable YAML file"):
        if (size := os.path.getsize(path)) > MAX_YAML:
            raise ValueError(f"a file of {size:,} bytes, more than {MAX_YAML:,}")
        text = Path(path).read_text(encoding="utf-8")
        if "*" in text and any(isinstance(e, yaml.AliasEvent) for e in yaml.parse(text)):
            raise ValueError("an alias (*NAME), with which a small file can be a large one")
        content = yaml.safe_load(text)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must map fields to values. Received: {content!r}")
    return content


def _mapping(path: str | os.PathLike[str], content: dict[str, Any], name: str) -> dict[str, Any]:
    """Removes a mapping from the content of a file; returns a copy of it."""
    mapping = content.pop(name, None) or {}
    if not isinstance(mapping, dict):
        raise ValueError(f"{path} must map fields of `{name}` to values. Received: {mapping!r}")
    return dict(mapping)


def versions() -> dict[str, str | None]:
    """Returns the versions of Python, this package, Keras, its backends and NumPy."""
    packages = ("keras-vit-toolkit", "keras", "tensorflow", "jax", "numpy")
    package_versions = {
        name: next((d.version for d in importlib.metadata.distributions(name=name)), None)
        for name in packages
    }
    return {"python": platform.python_version(), **package_versions}
