from __future__ import annotations

import numpy as np
import pytest

from keras_vit.tasks.classification.calibration import calibrate
from keras_vit.tasks.classification.figures import comparison_curves, reliability_diagram
from tests.visualization.pictures import drawn


def test_reliability_diagram_shows_the_bins_that_are_filled() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 500)
    probabilities = rng.dirichlet(np.ones(3), 500)
    calibration = calibrate(labels, probabilities)
    figure = drawn(reliability_diagram(calibration))
    above, _, below, _ = figure.axes
    filled = calibration.before.counts > 0
    points = above.lines[1]
    np.testing.assert_allclose(points.get_xdata(), calibration.before.confidence[filled])
    np.testing.assert_allclose(points.get_ydata(), calibration.before.accuracy[filled])
    heights = [bar.get_height() for bar in below.patches]
    assert heights == calibration.before.counts.tolist()
    titles = [axes.get_title() for axes in figure.axes[:2]]
    assert titles[0].endswith(f"error {calibration.before.error:.3f}")
    assert titles[1].startswith("with temperatures fitted on the other half")


def test_reliability_diagram_of_one_sure_answer_after_the_other() -> None:
    calibration = calibrate([0, 0, 0], [[1.0, 0.0]] * 3)
    assert len(drawn(reliability_diagram(calibration)).axes[0].lines[1].get_xdata()) == 1


def test_comparison_curves_over_epochs_and_minutes() -> None:
    histories = {"a_rather_long_name_of_a_network": [(2.0, 0.5), (4.5, 0.75)], "ViT": [(1.0, 0.9)]}
    by_epoch, by_time = drawn(comparison_curves(histories)).axes
    assert by_epoch.lines[0].get_xdata().tolist() == [1, 2]
    assert by_time.lines[0].get_xdata().tolist() == [2.0, 4.5]
    assert by_time.lines[1].get_ydata().tolist() == [0.9]
    names = [text.get_text() for text in by_epoch.get_legend().get_texts()]
    assert names == ["a_rather_long_name_of_a_net…", "ViT"]


def test_comparison_curves_need_an_epoch() -> None:
    with pytest.raises(ValueError, match=r"`histories` must contain at least one epoch\."):
        comparison_curves({"ViT": []})
