"""Audit of the images of a large dataset during its training."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable

import numpy as np

from keras_vit.arguments import listed
from keras_vit.data import Examples
from keras_vit.data.image_audit import inspection_results, sections
from keras_vit.escapes import say

_DIGEST_LENGTH = 32  # hexadecimal digits
_MAX_PRINTED = 20  # images
_REPORT_SECONDS = 60.0  # between two lines of progress


class BackgroundAudit:
    """Context manager that audits images in a thread, and prints a summary at the end.

    Unusable images are printed immediately. The results are cached, so that the next run
    or `keras-vit data check` continues from there.

    Args:
        examples: All images of the dataset.
        say: Function that prints a line.
    """

    def __init__(self, examples: Examples, say: Callable[[str], None] = say) -> None:
        self.examples, self.say = examples, say
        self.bad: list[str] = []
        self.checked = 0
        self._digests = np.zeros(len(examples), f"S{_DIGEST_LENGTH // 2}")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> BackgroundAudit:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self.say(self.text())

    def text(self) -> str:
        """Returns the number of checked images, the unusable ones, and duplicates."""
        total = len(self.examples)
        lines = [f"Checked {self.checked} of {total} images beside the training."]
        if self.bad:
            lines.append(listed(f"{len(self.bad)} images cannot be used:", self.bad))
        return "\n".join([*lines, *sections(("Duplicate images", self._duplicates()))])

    def _run(self) -> None:
        start_time = last_report = time.monotonic()
        for index, result in enumerate(inspection_results(self.examples, 1)):
            if self._stop.is_set():
                return
            if isinstance(result, str):
                self.bad.append(f"{self.examples.names[index]}: {result}")
                if len(self.bad) <= _MAX_PRINTED:
                    self.say(f"An image cannot be used: {self.bad[-1]}")
            else:
                self._digests[index] = bytes.fromhex(result.digest[:_DIGEST_LENGTH])
            self.checked = index + 1
            if time.monotonic() - last_report > _REPORT_SECONDS:
                last_report = time.monotonic()
                seconds = (last_report - start_time) * (len(self.examples) / self.checked - 1)
                eta = datetime.timedelta(seconds=round(seconds))
                self.say(f"Checked {self.checked} of {len(self.examples)} images, {eta} left.")

    def _duplicates(self) -> list[str]:
        """Returns the names of images with equal pixels, a line for each group."""
        digests, names = self._digests[: self.checked], self.examples.names
        _, group_indices, counts = np.unique(digests, return_inverse=True, return_counts=True)
        repeated = np.flatnonzero((counts[group_indices] > 1) & (digests != b""))  # b"": unusable
        order = repeated[np.argsort(group_indices[repeated], kind="stable")]
        groups = np.split(order, np.flatnonzero(np.diff(group_indices[order])) + 1)
        return [" = ".join(names[int(i)] for i in group) for group in groups if len(group)]
