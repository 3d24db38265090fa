"""Configuration file for request batching in TensorFlow Serving."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from keras_vit import arguments, files

FILE = "batching.config"
#: Largest batch size of the server, also for clients and warm-up requests.
MAX_BATCH_SIZE = 16
_LARGE_MODEL = 50_000_000  # parameters; S/16 has 22e6, B/16 86e6
# In microseconds, for large models and others. With 2000, batches contain more requests,
# which lowers the 99th percentile of B/16 by a third, but costs S/16 up to 8% with one client.
_LARGE_TIMEOUT, _TIMEOUT = 2000, 100
_QUEUED = 32  # images of a signature; the memory of a server: docs/serving.md


def write_config(
    directory: str | os.PathLike[str], parameters: int, cores: int | None = None
) -> Path:
    """Writes `batching.config` for a model's number of parameters, unless the file exists."""
    cores = arguments.positive_int("cores", os.cpu_count() if cores is None else cores)
    path = Path(directory) / FILE
    if not path.exists():
        # Derivation of the values: docs/serving.md.
        timeout = _LARGE_TIMEOUT if parameters >= _LARGE_MODEL else _TIMEOUT
        text = f"""\
            # Read by tensorflow_model_server --batching_parameters_file, once, when it starts.
            # Written by `keras-vit export` for {cores} cores and a model of
            # {parameters:,} parameters; an existing file is kept. Allowed_batch_sizes must stay
            # unset: if it is set, a request without images makes the server hang or abort.
            max_batch_size {{ value: {MAX_BATCH_SIZE} }}
            batch_timeout_micros {{ value: {timeout} }}
            # {_QUEUED} images can wait; further requests fail with UNAVAILABLE, and clients retry.
            max_enqueued_batches {{ value: {_QUEUED // MAX_BATCH_SIZE} }}
            num_batch_threads {{ value: {cores} }}
        """
        files.write_text(path, textwrap.dedent(text))
    return path
