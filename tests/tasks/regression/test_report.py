from __future__ import annotations

import numpy as np

from keras_vit.tasks.regression.report import RegressionReport, scatter_plot


def test_errors_are_in_the_units_of_each_target() -> None:
    targets = np.array([[0.0, 10.0], [1.0, 20.0], [2.0, 60.0]])
    values = targets + np.array([[0, 3], [0, -4], [0, 5]])
    report = RegressionReport(targets, values, ["age", "weight"])
    exact, other = report.errors
    assert (exact.mae, exact.rmse, exact.r2) == (0, 0, 1)
    assert other.mae == 4
    np.testing.assert_allclose(other.rmse, np.sqrt(50 / 3))
    np.testing.assert_allclose(other.r2, 1 - 50 / 1400)
    np.testing.assert_allclose(report.to_json()["r2"], 1 - 25 / 1400)
    assert "weight" in report.text().splitlines()[-1]


def test_scatter_plot_has_a_panel_for_each_of_six_targets() -> None:
    values = np.random.default_rng(0).normal(size=(20, 8))
    figure = scatter_plot(RegressionReport(values, values + 0.1, list("abcdefgh")))
    assert len(figure.axes) == 6
    assert figure.axes[0].get_title().startswith("a: R2 0.9")
