"""`keras-vit` with a file of losses: `python -m tests.training.host LOSSES train ...`."""

from __future__ import annotations

import sys
import time
from typing import Any

from keras_vit import cli

PAUSE = 0.1  # seconds after each step, so that a test can interrupt a run of a tiny model


def main() -> None:
    losses = sys.argv.pop(1)
    # Keras is imported by the command.
    from keras_vit.startup import start_keras

    start_keras()
    from keras_vit.training.save_schedule import SaveSchedule

    original = SaveSchedule.on_train_batch_end

    def recorded(self: Any, batch: int, logs: dict[str, float] | None = None) -> None:
        original(self, batch, logs)
        progress = self.state.progress
        with open(losses, "a", encoding="utf-8") as file:
            file.write(f"{progress.epoch} {progress.step} {float((logs or {})['loss'])!r}\n")
        time.sleep(PAUSE)

    SaveSchedule.on_train_batch_end = recorded  # type: ignore[method-assign]
    cli.main()


if __name__ == "__main__":
    main()
