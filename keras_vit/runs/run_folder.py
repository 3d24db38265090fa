"""Run folders: paths and contents of the files that a training run writes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from keras_vit import arguments, output_folder
from keras_vit.runs.config import (
    CommonConfig,
    RunConfig,
    read_config_of,
    read_mapping,
    versions,
    write_config,
)
from keras_vit.runs.history import read_rows
from keras_vit.weights.whole_models import load_model


class RunFolder:
    """Access to the files in a run folder.

    Args:
        path: The run folder.

    Examples:
        >>> RunFolder("runs/flowers").last.name
        'last.keras'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.labels = self.path / "labels.txt"
        self.split = self.path / "split.csv"
        self.history = self.path / "history.csv"
        self.times = self.path / "times.csv"
        self.last = self.path / "last.keras"
        self.best = self.path / "best.keras"
        self.checkpoints = self.path / "checkpoints"
        self.evaluation = self.path / "evaluation.json"
        self.confusion_matrix = self.path / "confusion_matrix.png"
        self.label_scores = self.path / "label_scores.png"
        self.curves = self.path / "curves.png"
        self.mistakes = self.path / "mistakes.png"
        self.samples = self.path / "samples"
        self.tensorboard = self.path / "tensorboard"

    @contextlib.contextmanager
    def writing(self, command: str, *, resume: bool, writes: bool = True) -> Iterator[None]:
        """Locks the folder for writing; unless a run is resumed, the folder must be new.

        Args:
            command: `"train"` or `"pretrain"`.
            resume: Whether an existing run is resumed.
            writes: Whether this process writes; only the chief of several workers does.
        """
        if not writes:
            yield
            return
        with output_folder.writing(self.path, command, () if resume else None):
            if not resume:  # another process may have written a run meanwhile
                output_folder.require_new_run(self.path)
            yield

    def require_complete(self) -> None:
        """Raises `ValueError` if the run is not complete."""
        needed = [self.evaluation]  # which `evaluate` also writes for an interrupted run
        if len(read_rows(self.history)) < self.read_config().recipe.epochs:
            needed.append(self.curves)  # written last, also by runs that stopped early
        if missing := [path.name for path in needed if not path.is_file()]:
            raise ValueError(
                f"`run` must be complete. Received: run={str(self.path)!r}, which has no "
                f"{missing[0]}; resume the run with:\n  "
                f"{arguments.command('train', '--resume', '--out', self.path)}"
            )

    def write_config(self, config: CommonConfig, resolved: dict[str, Any]) -> None:
        """Writes `config.yaml`: the configuration, the resolved defaults and the package versions.

        Args:
            config: The configuration.
            resolved: The resolved values, such as the precision.
        """
        write_config(self.config, config, resolved=resolved, versions=versions())

    def read_config(self, kind: type[Any] = RunConfig, command: str = "train") -> Any:
        """Reads the configuration of the run.

        Args:
            kind: Class of the configuration.
            command: Command that writes runs of this kind.

        Returns:
            The configuration, without resolved values.

        Raises:
            ValueError: If the folder contains no run of this kind.
        """
        self._require_config(command)
        try:
            return read_config_of(kind, self.config)
        except ValueError as error:
            raise self._no_run(f": {error}", command) from error

    def model(self, *, compile: bool = False) -> keras.Model:
        """Loads the model of the last complete epoch, `last.keras`.

        Args:
            compile: Whether to compile the model with its optimizer.

        Returns:
            The model after the last complete epoch.

        Raises:
            ValueError: If the folder contains no run, or no complete epoch.
        """
        self._require_config()
        if not self.last.is_file():
            raise ValueError(
                "`run` must have completed at least one epoch. Received: "
                f"run={str(self.path)!r}, which has no {self.last.name} yet"
            )
        return load_model(self.last, compile=compile)

    def _require_config(self, command: str = "train") -> None:
        if not self.config.is_file():
            raise self._no_run(f", which has no {self.config.name}", command)

    def _no_run(self, reason: str, command: str = "train") -> ValueError:
        return ValueError(
            f"`run` must be a run folder written by `keras-vit {command} --out`. Received: "
            f"run={str(self.path)!r}{reason}"
        )

    def resolved(self) -> dict[str, Any]:
        """Returns the values that default settings were resolved to when the run started.

        Returns:
            Precision, devices, flip, number of images and classes, and the preprocessing.
        """
        values = self.as_written().get("resolved")
        if not isinstance(values, dict):
            raise self._no_run(f", whose {self.config.name} has no `resolved` values")
        return values

    def as_written(self) -> dict[str, Any]:
        """Returns the content of `config.yaml`: configuration, resolved defaults and versions."""
        return read_mapping(self.config)
