from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from keras_vit.evaluation import LabelScores, MultiLabelReport

REPORT = MultiLabelReport(
    num_examples=53,
    mean_average_precision=0.75,
    micro_f1=0.61234,
    macro_f1=0.5,
    subset_accuracy=0.25,
    per_label=(
        LabelScores("daisy", 0.5, 1.0, 2 / 3, 0.75, support=7, threshold=0.125),
        LabelScores("a name of " + "very " * 9 + "many", 0.0, 0.0, 0.0, None, 0, 0.5),
    ),
)


def test_text_has_a_line_for_each_label() -> None:
    lines = REPORT.text().splitlines()
    assert lines[0].split() == [
        *("precision", "recall", "f1-score", "avg", "prec", "support", "threshold")
    ]
    assert lines[2].split() == ["daisy", "0.5000", "1.0000", "0.6667", "0.7500", "7", "0.1250"]
    assert lines[3].split()[-6:] == ["0.0000", "0.0000", "0.0000", "-", "0", "0.5000"]
    assert "very ve...    0.0000" in lines[3]
    assert lines[-2:] == [
        "mean average precision 0.7500",
        "F1 0.6123 micro, 0.5000 macro; all labels right on 0.2500 of 53 images",
    ]
    assert len({len(line) for line in (lines[0], lines[2], lines[3])}) == 1


def test_text_is_cut_after_fifty_labels() -> None:
    many = dataclasses.replace(REPORT, per_label=REPORT.per_label[:1] * 53)
    lines = many.text().splitlines()
    assert many.text().count("daisy") == 50
    assert lines[52] == "... and 3 more labels, all in evaluation.json"


def test_text_without_any_label_that_occurs() -> None:
    empty = dataclasses.replace(REPORT, mean_average_precision=None, per_label=())
    assert "mean average precision -" in empty.text()


def test_write_json_keeps_everything(tmp_path: Path) -> None:
    REPORT.write_json(tmp_path / "evaluation.json")
    read = json.loads((tmp_path / "evaluation.json").read_text())
    assert read == REPORT.to_json()
    assert (read["num_examples"], read["mean_average_precision"]) == (53, 0.75)
    assert (read["micro_f1"], read["macro_f1"], read["subset_accuracy"]) == (0.61234, 0.5, 0.25)
    assert read["per_label"][0]["threshold"] == 0.125
    assert read["per_label"][1]["average_precision"] is None
