"""One of several processes that make the same updates: `python -m tests.training.worker_updates
OUT.npz`."""

from __future__ import annotations

import os
import sys

import numpy as np

from keras_vit.training.distribution import devices
from tests.training.replicas import outcomes


def main() -> None:
    where = devices("multiworker" if "TF_CONFIG" in os.environ else "cpu")
    found = {}
    for name, outcome in outcomes(where):
        found[f"{name}/losses"] = outcome.losses
        found |= {f"{name}/weights/{path}": value for path, value in outcome.weights.items()}
        found |= {f"{name}/history/{key}": value for key, value in outcome.history.items()}
    np.savez(f"{sys.argv[1]}.{where.worker}.npz", **found)


if __name__ == "__main__":
    main()
