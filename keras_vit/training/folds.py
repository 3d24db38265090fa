"""Cross-validation: a run for each fold, and the mean and spread of their results."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit import arguments, files, output_folder
from keras_vit.runs.config import RunConfig
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.task import numbers
from keras_vit.training.loop import fit_run


@dataclasses.dataclass(frozen=True)
class FoldsReport:
    """Results of the runs of a cross-validation.

    Args:
        scores: Values in the order of the folds, by name of the score.

    Examples:
        >>> print(FoldsReport({"accuracy": (0.5, 0.7)}).text())
        2 folds     mean  standard deviation  fold 1  fold 2
        accuracy  0.6000              0.1414  0.5000  0.7000
    """

    scores: dict[str, tuple[float, ...]]

    def text(self) -> str:
        """Formats the scores as a table for printing."""
        count = len(next(iter(self.scores.values())))
        header = (f"{count} folds", "mean", "standard deviation")
        rows = [(*header, *(f"fold {index + 1}" for index in range(count)))]
        for name, values in self.scores.items():
            statistics = (np.mean(values), np.std(values, ddof=1), *values)
            rows.append((name, *(f"{value:.4f}" for value in statistics)))
        return "\n".join(arguments.text_table(rows, "<" + ">" * (count + 2)))

    def to_json(self) -> dict[str, Any]:
        """Returns the scores as a dictionary that can be stored as JSON."""
        return {
            "mean": {name: float(np.mean(values)) for name, values in self.scores.items()},
            "standard_deviation": {
                name: float(np.std(values, ddof=1)) for name, values in self.scores.items()
            },
            "folds": {name: list(values) for name, values in self.scores.items()},
        }


def train_folds(
    config: RunConfig, out: str | os.PathLike[str], *, resume: bool = False, **options: Any
) -> FoldsReport | None:
    """Trains a run for each fold and writes `folds.json` with the mean and spread of the scores.

    Args:
        config: Configuration with the number of `folds`; with `resume`, and for all other folds,
            that of the first fold's run is used.
        out: Folder to write, with the run folders `fold_1`, `fold_2` and so on.
        resume: Whether to continue an interrupted cross-validation.
        **options: Further arguments of `train`.

    Returns:
        The results. None on workers other than the chief.

    Raises:
        ValueError: If the data, the configuration or a folder is invalid.
        KeyboardInterrupt: After saving, on SIGINT (Ctrl-C).

    Examples:
        >>> config = RunConfig("photos", "ViTTi16", weights="imagenet", folds=5)
        >>> report = train_folds(config, "runs/folds")  # doctest: +SKIP
        Fold 1 of 5
        ...
        >>> len(report.scores["accuracy"])  # doctest: +SKIP
        5
    """
    out = Path(out)
    if resume:
        config = RunFolder(out / "fold_1").read_config()
    else:
        output_folder.require_new_run(out)
    runs = [RunFolder(out / f"fold_{index + 1}") for index in range(config.folds)]
    for index, run in enumerate(runs):
        complete = resume and run.curves.is_file()  # the last file of a run
        print(f"Fold {index + 1} of {config.folds}{' is complete' * complete}")
        if complete:
            continue
        if index:  # the first fold's number of epochs and batch size, also if resumed
            config = runs[0].read_config()
            options |= {"least_steps": 0, "smaller_batches": True}
        fold_config = dataclasses.replace(config, fold=index)
        try:
            fit_run(fold_config, run.path, resume=resume and run.config.is_file(), **options)
        except KeyboardInterrupt:
            resume_command = arguments.command("train", "--resume", "--out", out)
            hint = f"Interrupted. Resume with:\n  {resume_command}" * runs[0].config.is_file()
            raise KeyboardInterrupt(hint) from None
    if not all(run.evaluation.is_file() for run in runs):  # written by another worker
        return None
    folds = [numbers(json.loads(run.evaluation.read_text(encoding="utf-8"))) for run in runs]
    names = [n for n in folds[0] if n != "num_examples" and all(n in scores for scores in folds)]
    report = FoldsReport({name: tuple(scores[name] for scores in folds) for name in names})
    files.write_json(out / "folds.json", report.to_json())
    print(f"\n{report.text()}")
    return report
