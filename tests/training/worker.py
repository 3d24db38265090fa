"""One process of a run: `python -m tests.training.worker CONFIG.yaml OUT [kill=STEP]`."""

from __future__ import annotations

import os
import signal
import sys

from keras_vit import models, training, zoo
from keras_vit.training.save_schedule import SaveSchedule

NANO = models.size("Micro/2").replace(
    hidden_size=15, num_layers=2, num_heads=3, mlp_dim=19, image_size=(8, 8)
)


def main() -> None:
    config, out, *options = sys.argv[1:]
    zoo.CONSTRUCTORS["ViTNano"] = zoo.Constructor("ViTNano", NANO)
    if options:
        _kill_at(int(options[0].removeprefix("kill=")))
    resume = os.path.exists(os.path.join(out, "config.yaml"))
    training.train(training.read_config(config), out, resume=resume, tensorboard=False)


def _kill_at(step: int) -> None:
    original, seen = SaveSchedule.on_train_batch_end, [0]

    def counted(self: SaveSchedule, batch: int, logs: dict[str, float] | None = None) -> None:
        seen[0] += 1
        if seen[0] == step:
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, batch, logs)

    SaveSchedule.on_train_batch_end = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
