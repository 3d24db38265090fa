"""Prediction with Ray Data actors, in the order of the images."""

from __future__ import annotations

import functools
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.arguments import URL_SCHEMES, require_package
from keras_vit.export.arrow_table import arrow_table
from keras_vit.export.load import Embeddings, embed, load_predictor
from keras_vit.storage.paths import StoredFile

_BATCHES_PER_TASK = 4  # while one is computed, the next is read
_WATCH_SCRIPT = "import sys; sys.stdin.read() or print(sys.argv[1], file=sys.stderr)"
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # the default, 15, would give other processes precedence
}


class BatchPredictor:
    """Predicts batches of images in an actor of Ray Data, for `ray.data.Dataset.map_batches`.

    An actor loads the model once. On CPUs it computes with as many threads as its `num_cpus`.

    Args:
        source: As for `load_predictor`, or a function that returns a Keras model. All machines of
            a cluster must be able to read it.
        top: Number of classes in each prediction.
        embedding: Whether to compute features, as `embed` does, in place of predictions.
        batch_size: Batch size of the model.
        every_class: Whether rows contain the probability of every class.
        trust: As for `load_predictor`.

    Call arguments:
        batch: Columns `file` (paths or URLs) and, if the images were read already, `bytes`.

    Returns:
        A `pyarrow.Table` with the rows that `keras-vit predict --to` writes.

    Examples:
        >>> from keras_vit import models
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=3)
        >>> predictor = BatchPredictor(models.build(config))
        >>> predictor({"file": np.array(["nowhere.jpg"])})["message"].to_pylist()
        ['cannot be read: No such file or directory']

        With Ray: `dataset.map_batches(BatchPredictor, fn_constructor_args=("model.keras",),
        num_cpus=1, compute=ray.data.ActorPoolStrategy(size=2))`.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | keras.Model | Callable[[], keras.Model],
        *,
        top: int = 5,
        embedding: bool = False,
        batch_size: int = 32,
        every_class: bool = False,
        trust: bool = False,
    ) -> None:
        if threads := os.environ.get("OMP_NUM_THREADS"):  # Ray sets it to `num_cpus`
            for kind in ("INTRAOP", "INTEROP"):
                os.environ.setdefault(f"TF_NUM_{kind}_THREADS", threads)
        if callable(source) and not isinstance(source, keras.Model):
            source = source()
        self._batch_size = batch_size
        self._table: Any = Embeddings()
        self._predict: Callable[..., Iterator[Any]] = functools.partial(embed, source)
        if not embedding:
            predictor = load_predictor(source, trust=trust)
            self._predict = functools.partial(predictor.iterate, top=top)
            self._table = predictor.task.table(predictor.preprocessing, every_class=every_class)

    def predictions(self, images: Iterable[Any]) -> Iterator[Any]:
        """Yields the prediction, or the features and an error message, for each image."""
        return self._predict(images, self._batch_size)

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> Any:
        predictions = self.predictions(batch.get("bytes", batch["file"]))
        rows = [
            row
            for file, prediction in zip(batch["file"], predictions, strict=True)
            for row in self._table.rows(str(file), prediction)
        ]
        return arrow_table(rows, self._table.columns)


class _ListPredictor(BatchPredictor):
    """Returns predictions as objects, in one row per list of images."""

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> Any:
        predictions = np.empty(len(batch["images"]), object)
        for index, images in enumerate(batch["images"]):
            predictions[index] = list(self.predictions(images))
        return {"predictions": predictions}


def connect(address: str | None = None) -> None:
    """Connects to a Ray cluster at HOST:PORT; by default starts Ray on this machine.

    Raises:
        ImportError: If Ray is not installed.
        ValueError: If there is no cluster at the address.
    """
    require_package("ray", "ray", "`--engine ray` needs Ray")
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        if address:
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), 10).close()  # Ray would try for minutes
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "critical"}
        ray.init(address or "local", include_dashboard=False, ignore_reinit_error=True, **options)
    except (ValueError, OSError, RuntimeError) as error:
        raise ValueError(
            "`--address` must be HOST:PORT of a Ray cluster that contains this machine. Received: "
            f"{address or 'local'} ({error})"
        ) from error


def predict(
    images: Sequence[Any], *, source: Any, batch_size: int = 32, **options: Any
) -> Iterator[Any]:
    """Yields the prediction for each image, in their order.

    Ray restarts an actor that is killed, and computes its images again. The images are paths or
    stored files; the other arguments are those of `BatchPredictor`. Raises `RuntimeError` if the
    cluster fails.
    """
    import ray.data

    task_size = batch_size * _BATCHES_PER_TASK
    starts = range(0, len(images), task_size)
    items = [{"images": [*map(_portable, images[start : start + task_size])]} for start in starts]
    resources = ray.cluster_resources()
    cores, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
    actors = min(gpus or cores, len(items))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.execution_options.preserve_order = True
    dataset = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        _ListPredictor,
        batch_size=None,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=max(cores // actors, 1) if gpus else 1,
        num_gpus=min(gpus, 1),
        fn_constructor_args=(source,),
        fn_constructor_kwargs={"batch_size": batch_size, **options},
    )
    # Prints the text if this process is ended from outside Python, as Ray does.
    text = "keras-vit: Ray ended this process, because its cluster is gone"
    command = [sys.executable, "-IS", "-c", _WATCH_SCRIPT, text]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        for row in dataset.iter_rows():
            yield from row["predictions"]
    except ray.exceptions.RayError as error:
        raise RuntimeError(f"Ray stopped: {str(error).strip().splitlines()[-1]}") from error
    finally:
        process.communicate(b"done")


def _portable(image: Any) -> Any:
    """Returns a small reference to an image that is valid in any process and current folder."""
    if isinstance(image, StoredFile):
        return StoredFile(image.files.subset([image.position]), 0)
    return image if str(image).startswith(URL_SCHEMES) else os.path.abspath(image)
