from __future__ import annotations

import json
from typing import Any

import keras
import pytest

from keras_vit import accelerators
from keras_vit.training import Recipe, devices
from keras_vit.training.distribution import Devices

ON_JAX = keras.backend.backend() == "jax"


def test_one_device_is_its_own_chief() -> None:
    found = devices("cpu")
    assert (found.replicas, found.worker, found.workers) == (1, 0, 1)
    assert found.is_chief


def test_two_devices_share_a_batch() -> None:
    found = devices("jax" if ON_JAX else "mirrored")
    assert (found.replicas, found.workers) == (2, 1)
    assert found.name == ("2 JAX devices" if ON_JAX else "2 CPUs")


def test_auto_takes_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TPU_NAME", raising=False)
    # Several logical CPUs are one machine's; on JAX somebody has asked for them.
    assert devices("auto").replicas == (2 if ON_JAX else 1)


@pytest.mark.tensorflow
def test_only_gpu_is_used_unless_the_cpu_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TPU_NAME", raising=False)
    for name in ("list_physical_devices", "list_logical_devices"):
        monkeypatch.setattr(tf.config, name, lambda kind: ["a device"] if kind == "GPU" else [])
    assert devices("auto") == Devices("one device")  # TensorFlow itself computes on the GPU
    cpu = devices("cpu")
    assert (cpu.name, cpu.replicas) == ("one CPU", 1)
    assert "CPU:0" in cpu.strategy.extended.worker_devices[0].upper()


@pytest.mark.tensorflow
@pytest.mark.slow
def test_one_cpu_beside_a_gpu_trains_as_one_device() -> None:
    import tensorflow as tf

    from tests.training.replicas import BATCH, differences, updates

    cpu = Devices("one CPU", strategy=tf.distribute.OneDeviceStrategy("/cpu:0"))
    one, other = (updates(where, number=3 * BATCH) for where in (None, cpu))
    assert max(differences(one, other)) < 1e-6


@pytest.mark.skipif(not ON_JAX, reason="needs the JAX backend")
def test_cpu_beside_a_gpu_needs_to_be_said_to_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(
        ValueError, match=r"strategy='cpu' needs JAX_PLATFORMS=cpu to be set before .*'gpu'"
    ):
        devices("cpu")


def test_layout_ends_with_the_run() -> None:
    found = devices("jax" if ON_JAX else "cpu")
    with found.active():
        assert (keras.distribution.distribution() is not None) == ON_JAX
    assert keras.distribution.distribution() is None


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("miror", "`strategy` must be one of .* Did you mean 'mirrored'"),
        (
            "mirrored" if ON_JAX else "jax",
            "needs the (jax|tensorflow) backend: set KERAS_BACKEND=.* before Python starts",
        ),
    ],
)
def test_strategy_is_checked(strategy: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        devices(strategy)


@pytest.mark.parametrize(
    ("batch_size", "accumulation_steps", "fits"),
    [(12, 1, True), (12, 3, True), (12, 2, True), (9, 1, False), (6, 2, False)],
)
def test_batch_must_divide_evenly(batch_size: int, accumulation_steps: int, fits: bool) -> None:
    recipe = Recipe(batch_size=batch_size, accumulation_steps=1)
    if batch_size % accumulation_steps == 0:
        recipe = recipe.replace(accumulation_steps=accumulation_steps)
    where = Devices("two", replicas=2)
    if fits:
        where.check(recipe)
        return
    message = f"must be a multiple of the number of devices.*batch_size={batch_size}, 2 devices"
    with pytest.raises(ValueError, match=message):
        where.check(recipe)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{nonsense", "TF_CONFIG must be JSON with the entries `cluster` and `task`;.*nonsense"),
        ("[]", "TF_CONFIG must be JSON with the entries `cluster` and `task`;"),
        ("", "needs TF_CONFIG to list at least two workers"),
        (json.dumps({"cluster": {"worker": ["a:1"]}}), "needs TF_CONFIG to list at least two"),
    ],
)
def test_tf_config_is_checked(monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(ValueError, match=message):
        devices("multiworker")


@pytest.mark.tensorflow
def test_auto_finds_the_workers_of_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))

    class Resolver:
        task_id, task_type = 1, "worker"

    class Strategy:
        cluster_resolver, num_replicas_in_sync = Resolver(), 4

    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", Strategy)
    found = devices("auto")
    assert (found.replicas, found.worker, found.workers) == (4, 1, 2)
    assert not found.is_chief


@pytest.mark.tensorflow
def test_missing_tpu_is_said_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    def none(*args: Any) -> None:
        raise ValueError("Please provide a TPU Name to connect to.")

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", none)
    with pytest.raises(ValueError, match=r"KERAS_BACKEND=jax and use strategy='jax'..*a TPU Name"):
        devices("tpu")


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("named", "here", "asked"),
    [
        ("", "tpu", "local"),
        ("", "cpu", ""),
        ("my-tpu", "tpu", "my-tpu"),
        ("my-tpu", "cpu", "my-tpu"),
    ],
)
def test_tpu_of_this_machine_is_taken_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch, named: str, here: str, asked: str
) -> None:
    import tensorflow as tf

    seen = []

    def resolver(tpu: str) -> None:
        seen.append(tpu)
        raise ValueError("a fake")

    monkeypatch.setenv("TPU_NAME", named)
    monkeypatch.setattr(accelerators, "detect", lambda: here)
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
    with pytest.raises(ValueError, match="needs a TPU that TensorFlow can connect to"):
        devices("tpu")
    assert seen == [asked]


@pytest.mark.tensorflow
def test_auto_takes_a_tpu_that_tensorflow_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    class Resolver:
        def __init__(self, tpu: str) -> None:
            self.tpu = tpu

    class Strategy:
        num_replicas_in_sync = 8

        def __init__(self, resolver: Resolver) -> None:
            self.tpu = resolver.tpu

    for name in ("TF_CONFIG", "TPU_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(accelerators, "detect", lambda: "tpu")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["one"] * (kind == "TPU"))
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", lambda resolver: None)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", lambda resolver: None)
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", Resolver)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", Strategy)
    found = devices("auto")
    assert (found.name, found.replicas, found.strategy.tpu) == ("8 TPU cores", 8, "local")


@pytest.mark.tensorflow
def test_model_parallel_needs_jax() -> None:
    with pytest.raises(ValueError, match="`model_parallel` needs strategy='jax'"):
        devices("mirrored", model_parallel=2)


@pytest.mark.skipif(not ON_JAX, reason="needs the JAX backend")
def test_model_parallel_divides_the_wide_matrices() -> None:
    from tests.training.replicas import differences, updates

    where = devices("jax", model_parallel=2)
    assert where.replicas == 1
    one, other = updates(None), updates(where)
    losses, weights = differences(one, other)
    assert losses < 1e-5  # 4e-7 was seen
    assert weights < 1e-5
    value = other.training_model.network.get_layer("block_00").mlp.expand.kernel.value
    assert value.sharding.shard_shape(value.shape) == (24, 19)


@pytest.mark.skipif(not ON_JAX, reason="needs the JAX backend")
def test_model_parallel_must_divide_the_devices() -> None:
    with pytest.raises(ValueError, match="`model_parallel` must divide the number of devices"):
        devices("jax", model_parallel=3)
