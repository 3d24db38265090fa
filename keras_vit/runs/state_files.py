"""Checkpoint files with the complete training state, for exact resumption."""

from __future__ import annotations

import dataclasses
import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit import files

# Errors of reading a damaged `.npz` file, or one with another content.
DAMAGED = (KeyError, TypeError, ValueError, EOFError, OSError, zipfile.BadZipFile)


@dataclasses.dataclass(frozen=True)
class Progress:
    """Training progress of a run.

    Args:
        epoch: Number of complete epochs.
        step: Number of complete steps of the next epoch.
        steps: Steps per epoch.
        history: Metrics of every complete epoch.
    """

    epoch: int = 0
    step: int = 0
    steps: int = 0
    history: tuple[dict[str, float], ...] = ()


class StateFiles:
    """Folder with the most recent training states of a run, each written atomically."""

    def __init__(self, folder: str | Path, keep: int = 2) -> None:
        self.folder = Path(folder)
        self.keep = keep

    def paths(self) -> list[Path]:
        """Returns the paths of all complete state files, newest first."""
        return sorted(self.folder.glob(f"step_{'[0-9]' * 9}.npz"), reverse=True)

    def save(self, steps: int, progress: Progress, variables: Mapping[str, np.ndarray]) -> None:
        """Writes a state file, then removes all but the newest `keep` files."""
        text = json.dumps(dataclasses.asdict(progress))
        content: dict[str, Any] = {"progress": np.array(text), **variables}
        with files.atomic_path(self.folder / f"step_{steps:09d}.npz") as temporary:
            np.savez(temporary, **content)
        for path in self.paths()[self.keep :]:
            path.unlink()

    def load(self) -> tuple[Progress, dict[str, np.ndarray]]:
        """Reads the newest undamaged state file, and removes leftovers of interrupted writes."""
        for leftover in self.folder.glob(".step_*"):
            shutil.rmtree(leftover, ignore_errors=True)
        damaged: list[str] = []
        for path in self.paths():
            try:
                # Opened here: np.load leaves a damaged file open.
                with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                    variables = {name: file[name] for name in file.files}
                content: dict[str, Any] = json.loads(str(variables.pop("progress")))
                content["history"] = tuple(content["history"])
                content.pop("best", None)  # in states of earlier versions
                progress = Progress(**content)
                if damaged:
                    print(f"Skipped damaged {'; '.join(damaged)}; resuming from {path.name}.")
                return progress, variables
            except DAMAGED as error:
                damaged.append(f"{path.name}: {error}")
        raise ValueError(
            f"{self.folder} must contain a complete saved state of this run. Start a new run. "
            "Received: " + ("; ".join(damaged) or "no state")
        )
