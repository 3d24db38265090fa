"""Configuration file for request batching in TensorFlow Serving."""

from __future__ import annotations

import os
from pathlib import Path

from keras_vit import arguments, files

FILE = "batching.config"
#: Largest batch size of the server, also for clients and warm-up requests.
MAX_BATCH_SIZE = 16
_TIMEOUT = 100  # microseconds
_WAITING = 32  # images of a signature; the memory of a server: docs/serving.md
# Derivation of the values: docs/serving.md.
_TEXT = """\
# Read by tensorflow_model_server --batching_parameters_file, once, when it starts. Written by
# `keras-vit export` for {cores} cores; an existing file is kept. Allowed_batch_sizes must stay
# unset: if it is set, a request without images makes the server hang or abort.
max_batch_size {{ value: {size} }}
batch_timeout_micros {{ value: {timeout} }}
# {waiting} images can wait; further requests fail with UNAVAILABLE, and clients retry.
max_enqueued_batches {{ value: {batches} }}
num_batch_threads {{ value: {threads} }}
"""


def write(directory: str | os.PathLike[str], cores: int | None = None) -> Path:
    """Writes `batching.config`, unless the file already exists."""
    cores = arguments.positive_int("cores", os.cpu_count() if cores is None else cores)
    path = Path(directory) / FILE
    if not path.exists():
        with files.atomic_path(path) as temporary:
            temporary.write_text(
                _TEXT.format(
                    cores=cores,
                    size=MAX_BATCH_SIZE,
                    timeout=_TIMEOUT,
                    waiting=_WAITING,
                    batches=_WAITING // MAX_BATCH_SIZE,
                    threads=cores,
                ),
                encoding="utf-8",
            )
    return path
