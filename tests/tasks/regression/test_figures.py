from __future__ import annotations

import numpy as np

from keras_vit.tasks.regression.figures import scatter_plot
from keras_vit.tasks.regression.report import RegressionReport


def test_scatter_plot_has_a_panel_for_each_of_six_targets() -> None:
    values = np.random.default_rng(0).normal(size=(20, 8))
    figure = scatter_plot(RegressionReport(values, values + 0.1, list("abcdefgh")))
    assert len(figure.axes) == 6
    assert figure.axes[0].get_title().startswith("a: R2 0.9")
