"""Base class of self-supervised pre-training tasks."""

from __future__ import annotations

from typing import Any, ClassVar

import keras

from keras_vit import arguments, data, zoo
from keras_vit.data.sources.load import load_images
from keras_vit.data.splits import split_images
from keras_vit.runs.config import PretrainConfig
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.build import build_encoder, without_dropout
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.task import Task


class Pretraining(Task):
    """Pre-training of an encoder on images without labels."""

    command = "pretrain"
    unnamed = True
    load = staticmethod(load_images)
    split = staticmethod(split_images)
    check_model = staticmethod(zoo.require_name)
    config: PretrainConfig
    # Class of the objective, and the fields of the configuration that it has besides `mask_ratio`.
    objective_class: ClassVar[Any]
    objective_fields: ClassVar[tuple[str, ...]] = ()

    def build_network(self, examples: data.Examples, dtype: str, *, resume: bool) -> keras.Model:
        network = build_encoder(self.config, dtype)
        settings = {name: getattr(self.config, name) for name in self.objective_fields}
        # Early, to detect wrong settings.
        self._objective = self.objective_class(network, mask_ratio=self.config.masked, **settings)
        return network

    def objective(self, network: keras.Model, training: data.Examples) -> Objective:
        return self._objective

    def inference_model(self, network: keras.Model) -> keras.Model:
        return without_dropout(network, classifier_activation="softmax")

    def resolved(self, examples: data.Examples) -> dict[str, Any]:
        return {"mask_ratio": self.config.masked}

    def title(self, examples: data.Examples, count: int) -> str:
        return f"Pre-training {self.config.model} ({self.config.method}) on {count} images"

    def next_commands(self, run: RunFolder) -> list[str]:
        start = ("--model", self.config.model, "--weights", run.last)
        out = run.path.with_name(f"{run.path.name}_trained")
        return [arguments.command("train", "--data", "LABELED", *start, "--out", out)]
