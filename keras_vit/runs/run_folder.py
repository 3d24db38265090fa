"""Files of a run folder, and what they contain."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import yaml

from keras_vit import arguments, data, output_folder
from keras_vit.data import Examples
from keras_vit.data.splits import short_digest, training_digests
from keras_vit.runs.config import (
    CommonConfig,
    RunConfig,
    read_config_of,
    versions,
    write_config,
)
from keras_vit.weights.whole_models import load_model


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
        """Keeps other processes from training into the folder, which must be new unless resumed.

        Args:
            command: `"train"` or `"pretrain"`.
            resume: Whether the run was started before.
            writes: Whether this process writes; of several workers, only the chief does.
        """
        if not writes:
            yield
            return
        names = () if resume else None
        with output_folder.writing(self.path, command, names):
            if not resume:  # another process may have made a run of it in the meantime
                output_folder.require_new_run(self.path)
            yield

    def require_complete(self) -> None:
        """Raises `ValueError` unless the run has come to its end."""
        if not self.evaluation.is_file():
            raise ValueError(
                f"`run` must be complete. Received: run={str(self.path)!r}, which has no "
                f"{self.evaluation.name}; go on with it with\n"
                f"  {arguments.command('train', '--resume', '--out', self.path)}"
            )

    def write_config(self, config: CommonConfig, resolved: dict[str, Any]) -> None:
        """Writes the configuration, what it came to on this machine, and the versions.

        Args:
            config: What was asked for.
            resolved: What the defaults turned out to be.
        """
        write_config(self.config, config, resolved=resolved, versions=versions())

    def read_config(self, kind: type[Any] = RunConfig, command: str = "train") -> Any:
        """Reads the configuration back.

        Args:
            kind: Its class.
            command: The command that writes such runs.

        Returns:
            What was asked for.

        Raises:
            ValueError: If the folder holds no run of this kind.
        """
        self._require_config(command)
        try:
            return read_config_of(kind, self.config)
        except ValueError as error:
            raise ValueError(
                f"`run` must be a folder that `keras-vit {command} --out` has written. "
                f"Received: run={str(self.path)!r}: {error}"
            ) from error

    def model(self, *, compile: bool = False) -> keras.Model:
        """Returns `last.keras`.

        Args:
            compile: Whether the model is compiled with its optimizer.

        Returns:
            The model after the last complete epoch.

        Raises:
            ValueError: If the folder holds no run, or no epoch of it is complete.
        """
        self._require_config()
        if not self.last.is_file():
            raise ValueError(
                "`run` must have finished an epoch. "
                f"Received: run={str(self.path)!r}, which has no {self.last.name} yet"
            )
        return load_model(self.last, compile=compile)

    def _require_config(self, command: str = "train") -> None:
        if not self.config.is_file():
            raise ValueError(
                f"`run` must be a folder that `keras-vit {command} --out` has written. "
                f"Received: run={str(self.path)!r}, which has no {self.config.name}"
            )

    @functools.cached_property
    def all_examples(self) -> Examples:
        """The images of all splits, and those that are in none."""
        return data.load(self.read_config().data)

    def indices(self, part: str = "validation") -> np.ndarray:
        """Returns which of `all_examples` are in `"train"`, `"validation"` or `"test"`."""
        return data.read_split(self.split, self.all_examples, (part,))[0]

    def examples(self, part: str = "validation") -> Examples:
        """Returns the images of one split of the run: `"train"`, `"validation"` or `"test"`."""
        return self.all_examples.subset(self.indices(part))

    def training_digests(self) -> frozenset[str]:
        """Returns the first 32 digits of the digest of each image that the run was trained on."""
        found = training_digests(self.split)
        if found:
            return found
        # Of an earlier version.
        digests = data.audit(self.examples("train")).digests.values()
        return frozenset(map(short_digest, digests))

    def resolved(self) -> dict[str, Any]:
        """Returns what the defaults came to when the run was started.

        Returns:
            Precision, devices, flip, numbers of images and classes, and the preprocessing.
        """
        return dict(self.as_written()["resolved"])

    def as_written(self) -> dict[str, Any]:
        """Returns all of `config.yaml`: what was asked for, what it came to, and the versions."""
        return dict(yaml.safe_load(self.config.read_text(encoding="utf-8")))
