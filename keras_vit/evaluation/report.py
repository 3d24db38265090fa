"""What an evaluation found: a table to print, JSON to keep."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from keras_vit import files
from keras_vit.evaluation.class_scores import ClassScores

_COLUMNS = ("precision", "recall", "f1-score", "support")
# Above, the confusion matrix is sparse: of 5,000 classes it took 225 MB of JSON.
DENSE_CLASSES = 1000
LONGEST_TABLE = 50  # rows on a terminal
_LONGEST_NAME = 40  # characters; ImageNet has class names of more than a hundred


@dataclasses.dataclass(frozen=True, eq=False)
class Report:
    """Accuracy, per-class scores and confusion matrix of a classifier.

    Args:
        accuracy: Share of the examples whose most probable class is the true one, in [0, 1].
        interval: 95% Wilson interval (low, high) of the accuracy, in [0, 1].
        top5: Share of the examples with the true class among the five most probable ones, in
            [0, 1]; None where there are five classes or fewer.
        per_class: One row per class that occurs as a true or a predicted class, in the order
            of the class indices.
        confusion: Counts of shape (R, R) for the R rows of `per_class`: row true class,
            column predicted class; above 1,000 classes a sparse array of SciPy.

    Example:
        >>> report = Report(
        ...     accuracy=0.75,
        ...     interval=(0.3, 0.95),
        ...     top5=None,
        ...     per_class=(
        ...         ClassScores("daisy", 1.0, 0.5, 2 / 3, 2),
        ...         ClassScores("rose", 2 / 3, 1.0, 0.8, 2),
        ...     ),
        ...     confusion=np.array([[1, 1], [0, 2]]),
        ... )
        >>> report.text().splitlines()[-1]
        'accuracy 0.7500 (3 of 4, 95% interval 0.3000 to 0.9500)'
    """

    accuracy: float
    interval: tuple[float, float]
    top5: float | None
    per_class: tuple[ClassScores, ...]
    confusion: np.ndarray | sparse.csr_array

    @property
    def num_examples(self) -> int:
        """Number of examples evaluated."""
        return int(self.confusion.sum())

    @property
    def confused(self) -> np.ndarray:
        """Cells of the confusion matrix that are not 0, (M, 3): true, predicted class and count."""
        cells = sparse.coo_array(self.confusion)
        return np.stack([cells.row, cells.col, cells.data], axis=1)

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the classes in the table, in [0, 1]."""
        return float(np.mean([row.f1 for row in self.per_class]))

    def text(self) -> str:
        """Returns the table in the layout of scikit-learn's `classification_report`."""
        scores = np.array([row[1:4] for row in self.per_class])  # (R, 3)
        support = np.array([row.support for row in self.per_class])
        names = [shorten(row.name) for row in self.per_class[:LONGEST_TABLE]]
        width = max(len(name) for name in (*names, "weighted avg"))

        def line(name: str, *cells: str) -> str:
            return f"{name:>{width}}" + "".join(f"{cell:>10}" for cell in cells)

        def score_line(name: str, values: np.ndarray, count: int) -> str:
            return line(name, *(f"{value:.4f}" for value in values), str(count))

        total = self.num_examples
        lines = [
            line("", *_COLUMNS),
            "",
            *map(score_line, names, scores, support),
            *left_out(self.per_class, "classes"),
            "",
            line("accuracy", "", "", f"{self.accuracy:.4f}", str(total)),
            score_line("macro avg", scores.mean(axis=0), total),
            score_line("weighted avg", np.average(scores, axis=0, weights=support), total),
            "",
            f"accuracy {self.accuracy:.4f} ({int(self.confusion.trace())} of {total}, "
            f"95% interval {self.interval[0]:.4f} to {self.interval[1]:.4f})",
        ]
        if self.top5 is not None:
            lines.append(f"top-5 accuracy {self.top5:.4f}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Returns the report as a dictionary of lists, numbers and strings.

        Above 1,000 classes `confusion_sparse` is in the place of `confusion`: true class,
        predicted class and count of each cell that is not 0, of a matrix of `classes` rows.
        """
        confusion: dict[str, Any] = {"classes": len(self.per_class)}
        if sparse.issparse(self.confusion):
            confusion["confusion_sparse"] = self.confused.tolist()
        else:
            confusion = {"confusion": self.confusion.tolist()}
        return {
            "num_examples": self.num_examples,
            "accuracy": self.accuracy,
            "interval_95": list(self.interval),
            "top5_accuracy": self.top5,
            "per_class": [row._asdict() for row in self.per_class],
            **confusion,
        }

    def write_json(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_json()` to the file `path`."""
        files.write_json(path, self.to_json())


def left_out(rows: Sequence[Any], what: str) -> list[str]:
    """Returns the line that says how many rows a printed table lacks, if it does.

    Args:
        rows: All of them.
        what: What they are of.

    Returns:
        A list of one line or none.

    Example:
        >>> left_out(range(53), "classes"), left_out(range(50), "classes")
        (['... and 3 more classes, all in evaluation.json'], [])
    """
    number = len(rows) - LONGEST_TABLE
    return [f"... and {number} more {what}, all in evaluation.json"] if number > 0 else []


def shorten(name: str) -> str:
    """Returns a name that is short enough for a table.

    Args:
        name: The name of a class.

    Returns:
        The name, of 40 characters at most.

    Example:
        >>> len(shorten("very " * 9 + "long"))
        40
    """
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."
