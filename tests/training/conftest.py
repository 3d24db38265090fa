"""A model so small that a training run takes seconds, and a way to look into the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import pytest

from keras_vit import models, training, zoo
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.metrics import Report
from tests.helpers import randomise
from tests.training.photos import write_photos

Train = Callable[..., Report]


@pytest.fixture(scope="module")
def nano() -> Iterator[str]:
    """The name of a constructor, of two narrow blocks, that exists while a test module runs."""
    config = models.size("Micro/2").replace(
        hidden_size=15, num_layers=2, num_heads=3, mlp_dim=19, image_size=(8, 8)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(zoo.CONSTRUCTORS, "ViTNano", zoo.Constructor("ViTNano", config))
        yield "ViTNano"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """33 images in three classes, of which training holds out seven."""
    return write_photos(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def train() -> Train:
    """`training.train` without TensorBoard; `also=` are further callbacks."""

    def run(
        config: training.RunConfig,
        out: Path,
        also: tuple[keras.callbacks.Callback, ...] = (),
        **options: Any,
    ) -> Report:
        return training.train(config, out, callbacks=also, **{"tensorboard": False} | options)

    return run


def save_teacher(path: Path, class_names: tuple[str, ...]) -> Path:
    """Writes a classifier of 8 x 8 images with weights that are not trivial."""
    config = models.size("Micro/4").replace(
        **{"hidden_size": 12, "num_layers": 1, "num_heads": 2, "mlp_dim": 17},
        **{"image_size": (8, 8), "classes": len(class_names)},
    )
    preprocessing = Preprocessing(size=(8, 8), mean=0.3, std=0.4, class_names=class_names)
    randomise(models.build(config, preprocessing=preprocessing)).save(path)
    return path


class StopAt(keras.callbacks.Callback):
    """Ctrl-C after one batch of an epoch."""

    def __init__(self, epoch: int, batch: int) -> None:
        super().__init__()
        self.place = (epoch, batch)
        self.epoch = -1

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        if (self.epoch, batch) == self.place:
            raise KeyboardInterrupt
