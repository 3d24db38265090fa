from __future__ import annotations

import numpy as np
import pytest

from keras_vit.tasks.detection.figures import boxes_on, precision_recall
from keras_vit.tasks.detection.report import DetectionReport
from keras_vit.visualization.drawing import palette
from tests.tasks.detection.test_report import drawn


def test_a_box_is_drawn_where_it_says() -> None:
    image = np.zeros((320, 480, 3), "uint8")
    rows = np.array([[50, 100, 250, 400, 0, 0]], "f")
    found = boxes_on(image, rows, np.array([1]), ["", " "])
    rows, columns = np.nonzero((found == palette(2)[1]).all(axis=-1))
    assert (rows.min(), columns.min(), rows.max(), columns.max()) == (50, 100, 249, 399)
    for sides in ((960, 480, 1), (32, 16, 1)):
        none = boxes_on(
            np.zeros(sides, "uint8"), rows=np.zeros((0, 6)), labels=np.zeros(0), names=[]
        )
        assert none.shape == (480, 240, 3)


def test_figure_shows_every_class() -> None:
    pytest.importorskip("pycocotools", reason="needs the extra coco")
    lines = precision_recall(DetectionReport.of(["a", "b", "c"], drawn())).axes[0].lines
    assert [line.get_label()[:2] for line in lines] == ["a ", "b ", "c "]
