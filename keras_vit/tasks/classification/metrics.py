"""Classification metrics: accuracy, per-class scores and the confusion matrix."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn import metrics

from keras_vit.evaluation.statistics import wilson


class ClassScores(NamedTuple):
    """Scores of one class: one row of the evaluation table.

    Args:
        name: Name of the class.
        precision: Fraction of the predictions of this class that are correct, in [0, 1].
        recall: Fraction of the examples of this class that are predicted correctly, in [0, 1].
        f1: Harmonic mean of precision and recall, in [0, 1].
        support: Number of examples of this class.

    Examples:
        >>> ClassScores("daisy", precision=0.5, recall=1.0, f1=2 / 3, support=7).support
        7
    """

    name: str
    precision: float
    recall: float
    f1: float
    support: int


_COLUMNS = ("precision", "recall", "f1-score", "support")
# With more classes the confusion matrix is sparse: 5,000 classes took 225 MB of JSON.
DENSE_CLASSES = 1000
LONGEST_TABLE = 50  # rows on a terminal
_LONGEST_NAME = 40  # characters; ImageNet has class names of more than a hundred


@dataclasses.dataclass(frozen=True, eq=False)
class Report:
    """Accuracy, per-class scores and confusion matrix of a classifier.

    Args:
        accuracy: Fraction of the examples whose most probable class is the true class, in [0, 1].
        interval: 95% Wilson interval (low, high) of the accuracy, in [0, 1].
        top5: Fraction of the examples with the true class among the five most probable classes,
            in [0, 1]; None with five classes or fewer.
        per_class: One row per class that occurs as a true or a predicted class, in the order
            of the class indices.
        confusion: Counts of shape (R, R) for the R rows of `per_class`: rows are true classes,
            columns are predicted classes; a SciPy sparse array above 1,000 classes.

    Examples:
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
        """Number of evaluated examples."""
        return int(self.confusion.sum())

    @property
    def confused(self) -> np.ndarray:
        """Non-zero cells (M, 3) of the confusion matrix: true class, predicted class, count."""
        cells = sparse.coo_array(self.confusion)
        return np.stack([cells.row, cells.col, cells.data], axis=1)

    @property
    def macro_f1(self) -> float:
        """Unweighted mean of the F1 scores of all classes in the table, in [0, 1]."""
        return float(np.mean([row.f1 for row in self.per_class]))

    def text(self) -> str:
        """Formats the table in the layout of scikit-learn's `classification_report`."""
        scores = np.array([row[1:4] for row in self.per_class])  # (R, 3)
        support = [row.support for row in self.per_class]
        total = self.num_examples
        averages = [
            ("accuracy", "", "", self.accuracy, total),
            ("macro avg", *scores.mean(axis=0), total),
            ("weighted avg", *np.average(scores, axis=0, weights=support), total),
        ]
        lines = [
            *score_table(_COLUMNS, self.per_class, "classes", averages),
            "",
            f"accuracy {self.accuracy:.4f} ({int(self.confusion.trace())} of {total}, "
            f"95% interval {self.interval[0]:.4f} to {self.interval[1]:.4f})",
        ]
        if self.top5 is not None:
            lines.append(f"top-5 accuracy {self.top5:.4f}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Returns the report as a dictionary that can be stored as JSON.

        Above 1,000 classes `confusion_sparse` replaces `confusion`: true class, predicted class
        and count of each non-zero cell of a matrix of `classes` rows.
        """
        content = {
            "num_examples": self.num_examples,
            "accuracy": self.accuracy,
            "interval_95": list(self.interval),
            "top5_accuracy": self.top5,
            "per_class": [row._asdict() for row in self.per_class],
        }
        if isinstance(self.confusion, np.ndarray):
            return {**content, "confusion": self.confusion.tolist()}
        cells = self.confused.tolist()
        return {**content, "classes": len(self.per_class), "confusion_sparse": cells}


def score_table(
    columns: Sequence[str], rows: Sequence[Any], unit: str, averages: Sequence[Any] = ()
) -> list[str]:
    """Returns the lines of a table: a row per class with the name first, and averages."""
    shown_rows = [(shorten(name), *cells) for name, *cells in rows[:LONGEST_TABLE]]
    width = max(len(name) for name, *_ in (("",), *shown_rows, *averages))

    def line(row: Sequence[Any]) -> str:
        return f"{row[0]:>{width}}" + "".join(f"{decimal(cell):>10}" for cell in row[1:])

    lines = [line(("", *columns)), "", *map(line, shown_rows), *left_out(rows, unit), ""]
    return [*lines, *map(line, averages)]


def score_cells(rows: Sequence[Any]) -> list[list[str]]:
    """Returns the cells of a table on a page: a row per class with the name first."""
    return [[shorten(name), *(decimal(cell, 3) for cell in cells)] for name, *cells in rows]


def decimal(value: Any, digits: int = 4) -> str:
    """Returns a float with a number of digits, `"-"` for None, and any other value as it is."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def left_out(rows: Sequence[Any], unit: str) -> list[str]:
    """Returns a note on how many rows a printed table omits, as a list of at most one line."""
    number = len(rows) - LONGEST_TABLE
    return [f"... and {number} more {unit} in evaluation.json"] if number > 0 else []


def shorten(name: str) -> str:
    """Truncates a name to 40 characters."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."


_BLOCK = 1024  # rows ranked at a time


def evaluate_predictions(
    labels: ArrayLike, probabilities: ArrayLike, class_names: Sequence[str]
) -> Report:
    """Evaluates predicted probabilities or logits against the true classes.

    A class without predictions has precision 0, a class without examples has recall 0. Classes
    that neither occur nor are predicted are omitted from the table and the confusion matrix.

    Args:
        labels: True class indices of shape (N,), integers in [0, number of classes).
        probabilities: Scores of shape (N, classes); the largest score of a row is the prediction.
        class_names: The names of the classes.

    Returns:
        A `Report`.

    Raises:
        ValueError: If the shapes disagree, a label is out of range, a score is not finite or
            `labels` is empty.

    Examples:
        >>> report = evaluate_predictions([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], "ab")
        >>> round(report.accuracy, 3), report.confusion.tolist()
        (0.667, [[1, 0], [1, 1]])
    """
    true, scores = np.asarray(labels), np.asarray(probabilities)
    _check(true, scores, class_names)
    predicted = scores.argmax(axis=1)
    present = np.union1d(true, predicted)  # (R,), the classes that scikit-learn reports
    correct = int((predicted == true).sum())
    top5 = None
    if len(class_names) > 5:
        blocks = (np.array_split(a, -(-len(true) // _BLOCK)) for a in (scores, true[:, None]))
        in_top5 = [_ranks(block, classes) < 5 for block, classes in zip(*blocks, strict=True)]
        top5 = float(np.concatenate(in_top5).mean())
    cells = (np.searchsorted(present, true), np.searchsorted(present, predicted))
    shape = (len(present), len(present))
    confusion = sparse.coo_array((np.ones(len(true), int), cells), shape).tocsr()
    names = [class_names[index] for index in present]
    columns = metrics.precision_recall_fscore_support(true, predicted, zero_division=0)
    return Report(
        accuracy=correct / len(true),
        interval=wilson(correct, len(true)),
        top5=top5,
        per_class=tuple(map(ClassScores, names, *(column.tolist() for column in columns))),
        confusion=confusion if len(present) > DENSE_CLASSES else confusion.toarray(),
    )


def _ranks(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Returns the ranks of `classes` (N, 1) in the rows of `scores` (N, K); ties as in `argmax`."""
    true_scores = np.take_along_axis(scores, classes, axis=1)
    earlier = np.arange(scores.shape[1]) < classes
    return np.where(earlier, scores >= true_scores, scores > true_scores).sum(axis=1)


def _check(labels: np.ndarray, scores: np.ndarray, class_names: Sequence[str]) -> None:
    if labels.ndim != 1 or not len(labels) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            "`labels` must be a non-empty list of integer class indices. "
            f"Received: labels of shape {labels.shape} and dtype {labels.dtype}"
        )
    expected = (len(labels), len(class_names))
    if scores.shape != expected:
        raise ValueError(
            "`probabilities` must have one row per label and one column per class name, "
            f"shape {expected}. Received: probabilities of shape {scores.shape}"
        )
    if labels.min() < 0 or labels.max() >= len(class_names):
        raise ValueError(
            f"`labels` must be indices of `class_names`, in [0, {len(class_names)}). Received: "
            f"labels from {labels.min()} to {labels.max()}"
        )
    require_finite(scores)


def require_finite(scores: np.ndarray) -> None:
    """Raises `ValueError` if any of the `probabilities` (N, K) is not finite."""
    extremes = scores.min(axis=1), scores.max(axis=1)  # no array of (N, K)
    invalid = np.flatnonzero(~np.isfinite(extremes).all(axis=0))
    if len(invalid):
        raise ValueError(
            f"`probabilities` must be finite; {len(invalid)} of {len(scores)} rows are not, which "
            "usually means that training diverged. Try a lower learning rate. Received: "
            f"probabilities[{invalid[0]}]={scores[invalid[0]]}"
        )
