from __future__ import annotations

import numpy as np

from keras_vit.data.masks import IGNORED
from keras_vit.tasks.segmentation import figures
from keras_vit.tasks.segmentation.report import SegmentationReport

NAMES = ("sky", "road", "car")
MASK = np.arange(63).reshape(7, 9).astype(np.uint8) % 3


def test_overlay_leaves_pixels_without_a_class() -> None:
    image = np.full((7, 9, 3), 100, np.uint8)
    found = figures.overlay(image, np.where(MASK == 1, IGNORED, MASK), 3)
    assert (found[MASK == 1] == 100).all()
    assert len(np.unique(found[MASK != 1], axis=0)) == 2
    assert figures.overlay(np.zeros((1000, 900, 1)), np.zeros((1000, 900), int), 3).shape[0] < 481


def test_figures_are_drawn() -> None:
    images = [np.zeros((7, 9, 3), np.uint8)] * 2
    sheet = figures.overlays(images, [MASK] * 2, NAMES, ["a", "b"])
    assert [axes.get_title() for axes in sheet.axes] == ["a", "b"]
    assert [text.get_text() for text in sheet.legends[0].get_texts()] == list(NAMES)
    report = SegmentationReport.of(NAMES, [(MASK, MASK)])
    assert len(figures.class_scores(report).axes) == 1


def test_each_class_has_a_bar_even_if_names_begin_alike() -> None:
    names = tuple(f"a name that is longer than a label of an axis {end}" for end in "abc")
    report = SegmentationReport.of(names, [(MASK, MASK)])
    assert len(figures.class_scores(report).axes[0].get_yticklabels()) == 3


def test_classes_have_different_colors() -> None:
    for classes in (2, 11, 25, 150):
        assert len(np.unique(figures.palette(classes), axis=0)) == classes
