"""What an evaluation found where an image may show several labels or none."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from keras_vit import files
from keras_vit.evaluation.label_scores import LabelScores
from keras_vit.evaluation.report import LONGEST_TABLE, left_out, shorten

_COLUMNS = ("precision", "recall", "f1-score", "avg prec", "support", "threshold")


@dataclasses.dataclass(frozen=True)
class MultiLabelReport:
    """Average precision, F1 and per-label scores of a model that says yes or no to each label.

    The mean average precision judges how the model orders the images and needs no thresholds; all
    else depends on them, and is optimistic on the images that they were chosen on.

    Args:
        num_examples: Number of images evaluated.
        mean_average_precision: Mean over the labels that occur, in [0, 1]; None if none does.
        micro_f1: F1 of all decisions together, in [0, 1].
        macro_f1: Mean F1 of the labels of `per_label`, in [0, 1].
        subset_accuracy: Share of the images where every decision is right, in [0, 1].
        per_label: One row per label that occurs or got a yes, in the order of the model's labels.

    Example:
        >>> report = MultiLabelReport(
        ...     num_examples=8,
        ...     mean_average_precision=0.85,
        ...     micro_f1=0.75,
        ...     macro_f1=0.7,
        ...     subset_accuracy=0.5,
        ...     per_label=(LabelScores("daisy", 0.6, 0.75, 2 / 3, 0.85, 4, 0.5),),
        ... )
        >>> report.text().splitlines()[-2]
        'mean average precision 0.8500'
    """

    num_examples: int
    mean_average_precision: float | None
    micro_f1: float
    macro_f1: float
    subset_accuracy: float
    per_label: tuple[LabelScores, ...]

    def text(self) -> str:
        """Returns a table of the labels and the numbers of all of them together."""
        names = [shorten(row.name) for row in self.per_label[:LONGEST_TABLE]]
        width = max((len(name) for name in names), default=0)

        def line(name: str, *cells: str) -> str:
            return f"{name:>{width}}" + "".join(f"{cell:>10}" for cell in cells)

        mean = self.mean_average_precision
        return "\n".join(
            [
                line("", *_COLUMNS),
                "",
                *(
                    line(
                        name,
                        *(_number(row[column]) for column in range(1, 5)),
                        str(row.support),
                        _number(row.threshold),
                    )
                    for name, row in zip(names, self.per_label, strict=False)
                ),
                *left_out(self.per_label, "labels"),
                "",
                f"mean average precision {_number(mean)}",
                f"F1 {self.micro_f1:.4f} micro, {self.macro_f1:.4f} macro; all labels right on "
                f"{self.subset_accuracy:.4f} of {self.num_examples} images",
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the report as a dictionary of lists, numbers and strings."""
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**content, "per_label": [row._asdict() for row in self.per_label]}

    def write_json(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_json()` to the file `path`."""
        files.write_json(path, self.to_json())


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4f}"
