from __future__ import annotations

import numpy as np

from keras_vit.tasks.segmentation.page import SegmentationDetails
from keras_vit.tasks.segmentation.report import SegmentationReport


def test_page_shows_scores_confusions_and_images() -> None:
    true = np.arange(64).reshape(8, 8).astype(np.uint8) % 2
    found = np.zeros_like(true)
    report = SegmentationReport.of(("sky", "road"), [(true, found)])
    image = np.zeros((8, 8, 3), np.uint8)
    details = SegmentationDetails(report, [([image, image], "a.png")])
    sections = {section.name: "".join(section.parts) for section in details.sections()}
    assert list(sections) == ["summary", "classes", "confusion", "worst"]
    assert "25.0%" in sections["summary"]  # half and nothing
    assert "<td>road</td><td>sky</td><td>32</td><td>100.0%</td>" in sections["confusion"]
    assert sections["worst"].count("<img") == 2
    assert details.to_json()["scores"]["mean_iou"] == 0.25
