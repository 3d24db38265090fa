"""A run folder: everything that a training run leaves behind."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

from keras_vit import checks, files
from keras_vit.training.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What was asked for: data, model and recipe.

    Args:
        data: A folder, a CSV file, `tfds:NAME` or `digits`.
        model: Name of a constructor, such as `"ViTB16"`.
        weights: Pretrained weights, by name, path or address, see the constructors' `weights`; or
            None.
        image_size: Height and width in pixels; None for the size of the weights.
        validation_fraction: Share of the examples that is held out, in (0, 1).
        split_seed: Seed of the split; apart from the recipe's, so that runs with other seeds
            are comparable.
        on_bad_image: `"fail"` or `"skip"`.
        recipe: The numbers.

    Raises:
        ValueError: If `validation_fraction` or `on_bad_image` is out of range.

    Example:
        >>> RunConfig("digits", "ViTMicro4").recipe.optimizer
        'adamw'
    """

    data: str
    model: str
    weights: str | None = None
    image_size: tuple[int, int] | None = None
    validation_fraction: float = 0.2
    split_seed: int = 0
    on_bad_image: str = "fail"
    recipe: Recipe = dataclasses.field(default_factory=Recipe)

    def __post_init__(self) -> None:
        checks.one_of("on_bad_image", self.on_bad_image, ("fail", "skip"))
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                "`validation_fraction` must be in (0, 1). "
                f"Received: validation_fraction={self.validation_fraction}"
            )


class Run:
    """The files of a run, by name.

    Args:
        path: The run folder.

    Example:
        >>> Run("runs/flowers").last.name
        'last.keras'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.labels = self.path / "labels.txt"
        self.split = self.path / "split.csv"
        self.history = self.path / "history.csv"
        self.last = self.path / "last.keras"
        self.best = self.path / "best.keras"
        self.state = self.path / "resume.npz"
        self.evaluation = self.path / "evaluation.json"
        self.confusion_matrix = self.path / "confusion_matrix.png"
        self.curves = self.path / "curves.png"
        self.samples = self.path / "samples"
        self.tensorboard = self.path / "tensorboard"

    def write_config(self, config: RunConfig, resolved: dict[str, Any]) -> None:
        """Writes the configuration, what it came to on this machine, and the versions.

        Args:
            config: What was asked for.
            resolved: What the defaults turned out to be.
        """
        packages = ("keras-vit-toolkit", "keras", "tensorflow", "numpy")
        versions = {name: _version(name) for name in packages}
        files.write_json(
            self.config,
            {
                **dataclasses.asdict(config),
                "resolved": resolved,
                "versions": {"python": platform.python_version(), **versions},
            },
        )

    def read_config(self) -> RunConfig:
        """Reads the configuration back.

        Returns:
            What was asked for.

        Raises:
            ValueError: If the folder holds no run.
        """
        if not self.config.is_file():
            raise ValueError(
                f"`run` must be a folder that `keras-vit train --out` has written. "
                f"Received: run={str(self.path)!r}, which has no config.json"
            )
        content = self._read()
        fields = {field.name for field in dataclasses.fields(RunConfig)}
        values = {name: value for name, value in content.items() if name in fields}
        recipe = values.pop("recipe")
        recipe["crop_area"] = tuple(recipe["crop_area"])
        size = values.pop("image_size")
        return RunConfig(
            **values, image_size=tuple(size) if size else None, recipe=Recipe(**recipe)
        )

    def resolved(self) -> dict[str, Any]:
        """Returns what the defaults came to when the run was started.

        Returns:
            Precision, flip, numbers of images and classes, and the preprocessing.
        """
        return dict(self._read()["resolved"])

    def _read(self) -> dict[str, Any]:
        return dict(json.loads(self.config.read_text(encoding="utf-8")))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
