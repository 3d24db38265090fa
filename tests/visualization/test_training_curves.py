from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_vit.visualization import training_curves
from keras_vit.visualization.training_curves import _training_figure
from tests.visualization.pictures import drawn

HISTORY = """epoch,accuracy,loss,learning_rate,val_accuracy,val_loss
0,0.5,1.25,0.001,NA,NA
1,0.75,0.5,0.002,0.625,0.75
"""


def test_training_curves_have_a_panel_for_each_metric(tmp_path: Path) -> None:
    history = tmp_path / "history.csv"
    history.write_text(HISTORY)
    figure = drawn(_training_figure(history))
    assert [axes.get_title() for axes in figure.axes] == ["accuracy", "loss", "learning rate"]
    training, validation = figure.axes[0].lines
    assert training.get_xdata().tolist() == [1, 2]
    assert training.get_ydata().tolist() == [0.5, 0.75]
    np.testing.assert_array_equal(validation.get_ydata(), [np.nan, 0.625])
    assert len(figure.axes[2].lines) == 1
    with Image.open(training_curves(history, tmp_path / "curves.png")) as image:
        assert image.width > 2 * image.height


@pytest.mark.parametrize("text", ["", "epoch,loss\n", "step,loss\n0,1\n", "epoch\n0\n"])
def test_training_curves_need_a_history(text: str, tmp_path: Path) -> None:
    history = tmp_path / "history.csv"
    history.write_text(text)
    with pytest.raises(ValueError, match="`history_csv` must have a column 'epoch', a column per"):
        training_curves(history, tmp_path / "curves.png")
