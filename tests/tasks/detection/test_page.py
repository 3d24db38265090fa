from __future__ import annotations

import numpy as np
import pytest

from keras_vit.tasks.detection.page import DetectionDetails
from keras_vit.tasks.detection.report import DetectionReport
from tests.tasks.detection.test_report import drawn

pytest.importorskip("pycocotools", reason="needs the extra coco")


def test_page_shows_scores_sizes_and_images() -> None:
    report = DetectionReport.of(["a", "b", "c"], drawn())
    images = [np.zeros((40, 50, 3), "uint8")] * 2
    details = DetectionDetails(report, [(images, "x.png"), (images, "y.png")])
    sections = {section.name: "".join(section.parts) for section in details.sections()}
    assert list(sections) == ["summary", "classes", "sizes", "worst"]
    assert f"<b>{report.ap50:.3f}</b>AP50" in sections["summary"]
    missed, alarms = report.errors[report.worst[0]]
    assert f"x.png: {missed} missed, {alarms} false alarms" in sections["worst"]
    assert sections["worst"].count("<img") == 4
    assert details.to_json()["scores"]["ap50"] == report.ap50
