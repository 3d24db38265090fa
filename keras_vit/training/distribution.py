"""Device selection for training: one device, several GPUs, a TPU, or several machines."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_vit import accelerators, arguments
from keras_vit.choices import STRATEGIES
from keras_vit.runs.recipe import Recipe

# Time after which a worker that sends no message counts as lost. With TensorFlow's default of
# 10 s, a short failure of the network ends a run.
HEARTBEAT_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Devices:
    """Devices that a run trains on, and the role of the current process.

    Args:
        name: Name for messages and the run's configuration.
        replicas: Number of model replicas, among which a batch is divided.
        worker: Index of this process; worker 0, the chief, writes.
        workers: Number of processes.
        strategy: The tf.distribute strategy, if any.
        layout: The keras.distribution, if any.
    """

    name: str
    replicas: int = 1
    worker: int = 0
    workers: int = 1
    strategy: Any = None
    layout: Any = None

    @property
    def is_chief(self) -> bool:
        """True if the current process writes the run folder."""
        return self.worker == 0

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context manager in which to build the model and its optimizer."""
        return self.strategy.scope() if self.strategy else contextlib.nullcontext()

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """Context manager that activates the `keras.distribution`, if any."""
        return self.layout.scope() if self.layout else contextlib.nullcontext()

    def check(self, recipe: Recipe) -> None:
        """Raises `ValueError` if batches cannot be divided evenly among the devices."""
        parts = self.replicas * recipe.accumulation_steps
        if recipe.batch_size % parts:
            raise ValueError(
                "`batch_size` must be a multiple of the number of devices times "
                f"`accumulation_steps`. Received: batch_size={recipe.batch_size}, "
                f"{self.replicas} devices, accumulation_steps={recipe.accumulation_steps}"
            )

    def distribute(self, make: Callable[[tuple[int, int]], tf.data.Dataset]) -> Any:
        """Creates the training dataset of the current worker, for use with `fit`."""
        shard = (self.worker, self.workers)
        if self.strategy is None or self.workers == 1:
            return make(shard)
        local_replicas = self.replicas // self.workers

        def per_replica(_: tf.distribute.InputContext) -> tf.data.Dataset:
            dataset = make(shard)
            batch = dataset.element_spec[0].shape[0]
            num_batches = int(dataset.cardinality()) * local_replicas
            dataset = dataset.rebatch(batch // local_replicas, drop_remainder=True)
            return dataset.apply(tf.data.experimental.assert_cardinality(num_batches))

        return self.strategy.distribute_datasets_from_function(per_replica)


def devices(strategy: str = "auto", model_parallel: int = 1) -> Devices:
    """Selects the devices to train on.

    Args:
        strategy: One of:

            - `"auto"`: the workers of TF_CONFIG, a TPU, all GPUs or, on the JAX backend, all
              devices, if available; otherwise one device;
            - `"cpu"`: one CPU, even if there are GPUs;
            - `"mirrored"`: all GPUs of this machine, or all logical CPUs without a GPU;
            - `"tpu"`: the TPU of TPU_NAME, or else of this machine, on TensorFlow;
            - `"multiworker"`: the machines of TF_CONFIG, see docs/scaling.md;
            - `"jax"`: all devices of the JAX backend, of all processes.
        model_parallel: Number of devices over which the model is sharded, on the JAX backend.

    Returns:
        The devices.

    Raises:
        ValueError: If there are no devices of this kind, or they require another backend.

    Examples:
        >>> devices("cpu").replicas
        1
    """
    arguments.one_of("strategy", strategy, STRATEGIES)
    arguments.positive_int("model_parallel", model_parallel)
    on_jax = keras.backend.backend() == "jax"
    if strategy == "auto":
        strategy = _detect_strategy(on_jax)
    if (strategy == "jax") != on_jax and strategy not in ("cpu", "one"):
        required = "jax" if strategy == "jax" else "tensorflow"
        raise ValueError(
            f"strategy={strategy!r} needs the {required} backend: set KERAS_BACKEND={required} "
            f"before Python starts. Received: backend={keras.backend.backend()!r}"
        )
    if model_parallel > 1 and strategy != "jax":
        raise ValueError(
            "`model_parallel` needs strategy='jax'; tf.distribute copies the whole model to every "
            f"device. Received: model_parallel={model_parallel}, strategy={strategy!r}"
        )
    factories: dict[str, Callable[[], Devices]] = {
        "one": lambda: Devices("one device"),
        "cpu": _cpu,
        "mirrored": _mirrored,
        "tpu": _tpu,
        "multiworker": _multiworker,
        "jax": lambda: _jax(model_parallel),
    }
    return factories[strategy]()


def _detect_strategy(on_jax: bool) -> str:
    """Detects the strategy that uses all available devices; "one" for a single device."""
    if on_jax:
        return "jax" if len(keras.distribution.list_devices()) > 1 else "one"
    if len(_cluster().get("worker", [])) + len(_cluster().get("chief", [])) > 1:
        return "multiworker"
    if os.environ.get("TPU_NAME") or tf.config.list_physical_devices("TPU"):
        return "tpu"
    return "mirrored" if len(tf.config.list_logical_devices("GPU")) > 1 else "one"


def _cluster() -> dict[str, list[str]]:
    try:
        return dict(json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {}))
    except (ValueError, AttributeError) as error:
        raise ValueError(
            "TF_CONFIG must be JSON with the entries `cluster` and `task`; see docs/scaling.md. "
            f"Received: TF_CONFIG={os.environ['TF_CONFIG']!r}"
        ) from error


def _cpu() -> Devices:
    if keras.backend.backend() == "jax":
        import jax

        if jax.default_backend() != "cpu":
            raise ValueError(
                "strategy='cpu' needs JAX_PLATFORMS=cpu to be set before Python starts, because "
                f"otherwise JAX prefers an accelerator. Received: {jax.default_backend()!r}"
            )
    elif tf.config.list_physical_devices("GPU"):
        return Devices("one CPU", strategy=tf.distribute.OneDeviceStrategy("/cpu:0"))
    return Devices("one device")


def _mirrored() -> Devices:
    device_type = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    names = [device.name for device in tf.config.list_logical_devices(device_type)]
    if len(names) < 2:
        raise ValueError(
            "strategy='mirrored' needs at least two devices of one kind; with a single device, "
            f"use strategy='auto'. Received: {len(names)} {device_type}"
        )
    strategy = _mirrored_strategy(tuple(names))
    return Devices(f"{len(names)} {device_type}s", replicas=len(names), strategy=strategy)


@functools.cache
def _mirrored_strategy(names: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    # A second strategy in a process would reuse the keys of the first strategy's collectives, and
    # TensorFlow would fail with "Shape mismatch in the collective instance".
    return tf.distribute.MirroredStrategy(names)


def _tpu() -> Devices:
    address = "local" if accelerators.detect() == "tpu" else ""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            os.environ.get("TPU_NAME") or address
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise ValueError(
            "strategy='tpu' needs a TPU that TensorFlow can connect to. For TPUs, Keras on JAX is "
            f"recommended: set KERAS_BACKEND=jax and use strategy='jax'. Received: {error}"
        ) from error
    strategy = tf.distribute.TPUStrategy(resolver)
    num_replicas = strategy.num_replicas_in_sync
    return Devices(f"{num_replicas} TPU cores", replicas=num_replicas, strategy=strategy)


def _multiworker() -> Devices:
    cluster = _cluster()
    workers = len(cluster.get("chief", [])) + len(cluster.get("worker", []))
    if workers < 2:
        raise ValueError(
            "strategy='multiworker' needs TF_CONFIG to list at least two workers; see "
            f"docs/scaling.md. Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}"
        )
    _extend_heartbeat()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    chiefs = cluster.get("chief", []) if resolver.task_type == "worker" else []
    num_replicas = strategy.num_replicas_in_sync
    return Devices(
        f"{num_replicas} devices on {workers} workers",
        replicas=num_replicas,
        worker=len(chiefs) + resolver.task_id,
        workers=workers,
        strategy=strategy,
    )


def _extend_heartbeat() -> None:
    """Extends the heartbeat timeout of the service with which the strategy detects lost workers."""
    # Neither the strategy nor any public function has this timeout.
    from tensorflow.python.eager import context

    eager = context.context()
    eager.configure_coordination_service = functools.partial(
        eager.configure_coordination_service, heartbeat_timeout_in_ms=HEARTBEAT_SECONDS * 1000
    )


def _jax(model_parallel: int) -> Devices:
    import jax

    names = keras.distribution.list_devices()
    replicas, remainder = divmod(len(names), model_parallel)
    if remainder or not replicas:
        raise ValueError(
            "`model_parallel` must divide the number of devices. "
            f"Received: model_parallel={model_parallel}, {len(names)} devices"
        )
    if model_parallel == 1:
        # The pipeline shards the datasets itself, in the same order as on one device.
        layout = keras.distribution.DataParallel(devices=names, auto_shard_dataset=False)
    else:
        mesh = keras.distribution.DeviceMesh((replicas, model_parallel), ("batch", "model"), names)
        layout = keras.distribution.ModelParallel(
            layout_map=_layout_map(mesh), batch_dim_name="batch", auto_shard_dataset=False
        )
    return Devices(
        f"{len(names)} JAX devices",
        replicas=replicas,
        worker=jax.process_index(),
        workers=jax.process_count(),
        layout=layout,
    )


def _layout_map(mesh: Any) -> Any:
    """Returns a layout that shards input projections by columns and output projections by rows."""
    layout = keras.distribution.LayoutMap(mesh)
    for pattern in ("attention/qkv", "mlp/expand"):
        layout[f".*{pattern}/kernel"] = (None, "model")
        layout[f".*{pattern}/bias"] = ("model",)
    for pattern in ("attention/out", "mlp/reduce"):
        layout[f".*{pattern}/kernel"] = ("model", None)
    return layout
