"""Saving a run after every epoch, so that nothing is lost."""

from __future__ import annotations

import shutil
import zipfile
from typing import Any

import keras
import numpy as np

from keras_vit import files, models
from keras_vit.training.run import Run


class SaveRun(keras.callbacks.Callback):
    """Writes the last and the best model, and the state to resume from, after each epoch.

    Models are saved as they will be used: in float32, without dropout, with a softmax. Every
    file is written beside and renamed.

    Args:
        run: Where to.

    Example:
        >>> SaveRun(Run("runs/flowers")).run.best.name
        'best.keras'
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.best = -np.inf
        self.epochs_done = 0
        self._copy: keras.Model | None = None

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.epochs_done = epoch + 1
        self.save_last()
        accuracy = (logs or {}).get("val_accuracy", -np.inf)
        if accuracy > self.best:
            self.best = accuracy
            with files.atomic_path(self.run.best) as temporary:
                shutil.copyfile(self.run.last, temporary)
        self._save_state()

    def save_last(self) -> None:
        """Saves the model as it is now as the last one."""
        if self._copy is None:
            self._copy = finished(self.model)
        self._copy.set_weights(self.model.get_weights())
        with files.atomic_path(self.run.last) as temporary:
            self._copy.save(temporary)

    def restore(self) -> None:
        """Sets model and optimizer to the state after the last complete epoch.

        Raises:
            ValueError: If the run has no state to resume from, or it is damaged or another model's.
        """
        if not self.run.state.is_file():
            raise ValueError(
                "`--resume` needs a run with at least one complete epoch. Received: "
                f"out={str(self.run.path)!r}, which has no resume.npz. Start it again without "
                "--resume, in a new folder."
            )
        variables = self._variables()
        try:
            with np.load(self.run.state, allow_pickle=False) as file:
                state = {name: file[name] for name in (*variables, "epochs_done", "best")}
            if any(state[name].shape != tuple(v.shape) for name, v in variables.items()):
                raise ValueError("it holds variables of other shapes")
        except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{self.run.state} must be the state of this run, and complete. Start a new run, "
                f"with --weights {self.run.last} to go on from its weights. Received: {error}"
            ) from error
        self.epochs_done, self.best = int(state["epochs_done"]), float(state["best"])
        for name, variable in variables.items():
            variable.assign(state[name])

    def _save_state(self) -> None:
        state = {name: np.asarray(variable) for name, variable in self._variables().items()}
        progress = {"epochs_done": np.array(self.epochs_done), "best": np.array(self.best)}
        with files.atomic_path(self.run.state) as temporary:
            np.savez(temporary, allow_pickle=False, **state | progress)

    def _variables(self) -> dict[str, Any]:
        """Returns weights, dropout seeds and optimizer state by name."""
        metrics = {id(variable) for variable in self.model.metrics_variables}
        model = [v for v in self.model.variables if id(v) not in metrics]
        return {
            **{f"model/{index}": variable for index, variable in enumerate(model)},
            **{
                f"optimizer/{index}": variable
                for index, variable in enumerate(self.model.optimizer.variables)
            },
        }


def finished(model: keras.Model) -> keras.Model:
    """Returns the model that is saved, evaluated and exported.

    Args:
        model: The model in training.

    Returns:
        A copy in float32 with a softmax and without dropout.

    Example:
        >>> model = models.build(models.size("Micro/4").replace(classifier_activation=None))
        >>> models.config_of(finished(model)).classifier_activation
        'softmax'
    """
    return models.rebuild(
        model,
        dtype="float32",
        classifier_activation="softmax",
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        stochastic_depth_rate=0.0,
    )
