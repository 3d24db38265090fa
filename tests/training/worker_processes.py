"""Processes that train one run together, and the comparison of two runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from keras_vit.training import Run

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def processes(
    commands: list[list[str]],
    out: Path,
    addresses: Sequence[str] = (),
    within: Sequence[list[str]] = (),
) -> list[subprocess.Popen[bytes]]:
    """Starts Python modules that find each other by TF_CONFIG if they are several.

    `within` are the words before each command, such as `ip netns exec NAME`.
    """
    workers = len(commands)
    addresses = addresses or [f"127.0.0.1:{free_port()}" for _ in range(workers)]
    started = []
    for index, command in enumerate(commands):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow"}
        environment.pop("TF_CONFIG", None)
        if workers > 1:
            task = {"type": "worker", "index": index}
            cluster = {"worker": list(addresses)}
            environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        log = (out.parent / f"{out.name}_{index}.log").open("ab")
        started.append(
            subprocess.Popen(
                [*(within[index] if within else ()), sys.executable, "-m", *command],
                env=environment,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        )
    return started


def finish(started: list[subprocess.Popen[bytes]], seconds: int = 240) -> list[int]:
    try:
        return [process.wait(timeout=seconds) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def log_of(out: Path) -> str:
    logs = sorted(out.parent.glob(f"{out.name}_*.log"))
    return "\n".join(path.read_text(errors="replace")[-3000:] for path in logs)


def assert_alike(run: Run, single: Run) -> None:
    ours, theirs = (
        np.genfromtxt(r.history, delimiter=",", names=True, dtype=float) for r in (run, single)
    )
    assert ours.dtype.names == theirs.dtype.names
    for name in ours.dtype.names:
        # The largest difference seen: 6e-7.
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, err_msg=name)
    weights = [keras.saving.load_model(r.last).get_weights() for r in (run, single)]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, atol=5e-5)  # 4e-6 was seen
