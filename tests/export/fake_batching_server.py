"""A stand-in for TensorFlow Serving that merges requests into batches."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.tf_serving.batching import MAX_BATCH_SIZE
from tests.tf_serving.fake_serving import FakeServing, RefusedError

WINDOW = 0.002  # seconds


class MergingDouble(FakeServing):
    """Computes what comes within two milliseconds together, and fails all if one does not fit."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.failures = 0  # requests that failed
        self.largest = 0  # requests in a batch
        self._queue: queue.Queue[tuple[str, dict[str, Any], Future]] = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def predict(self, signature: str, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        future: Future = Future()
        self._queue.put((signature, inputs, future))
        return future.result(20)

    def _run(self) -> None:
        while True:
            batch = [self._queue.get()]
            end = time.monotonic() + WINDOW
            while len(batch) < MAX_BATCH_SIZE and (left := end - time.monotonic()) > 0:
                try:
                    batch.append(self._queue.get(timeout=left))
                except queue.Empty:
                    break
            self.largest = max(self.largest, len(batch))
            signatures, inputs, futures = zip(*batch, strict=True)
            (signature,) = set(signatures)
            try:
                answers = self._compute(signature, [np.asarray(i["pixels"]) for i in inputs])
            except RefusedError as error:
                self.failures += len(batch)
                for future in futures:
                    future.set_exception(error)
                continue
            for future, answer in zip(futures, answers, strict=True):
                future.set_result(answer)

    def _compute(self, signature: str, parts: list[np.ndarray]) -> list[dict[str, np.ndarray]]:
        if any(part.dtype.kind == "f" for part in parts):
            raise RefusedError("INTERNAL", "dtypes differ")
        if len({part.shape[1:] for part in parts}) > 1:
            raise RefusedError("FAILED_PRECONDITION", "shapes differ")
        found = super().predict(signature, {"pixels": np.concatenate(parts)})
        ends = np.cumsum([len(part) for part in parts])[:-1]
        rows = {key: np.split(value, ends) for key, value in found.items()}
        return [{key: value[i] for key, value in rows.items()} for i in range(len(parts))]
