"""Two workers in two processes over the loopback, as TF_CONFIG has them on two machines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from keras_vit.runs.config import write_config
from keras_vit.training import Recipe, Run, RunConfig
from tests.training.replicas import CASES
from tests.training.worker_processes import assert_alike, finish, log_of, processes

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

RECIPE = Recipe(
    epochs=3,
    batch_size=8,
    accumulation_steps=2,
    learning_rate=3e-3,
    clip_norm=0.5,
    ema_momentum=0.8,
    precision="float32",
).replace(mixup=0.3, rand_augment_ops=1, erasing=0.3)


def start(
    config: Path, out: Path, workers: int = 2, options: dict[int, str] | None = None
) -> list[subprocess.Popen[bytes]]:
    """Starts a run of `training.train` on some workers."""
    commands = [
        ["tests.training.worker", str(config), str(out)]
        + [o for i, o in (options or {}).items() if i == index]
        for index in range(workers)
    ]
    return processes(commands, out)


@pytest.fixture(scope="module")
def configs(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("configs")
    for name, strategy in (("one", "cpu"), ("two", "multiworker")):
        config = RunConfig(
            str(photos), "ViTNano", split_seed=3, recipe=RECIPE, strategy=strategy, save_steps=2
        )
        write_config(folder / f"{name}.yaml", config)
    return {name: folder / f"{name}.yaml" for name in ("one", "two")}


@pytest.fixture(scope="module")
def single(configs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("single") / "run"
    assert finish(start(configs["one"], out, workers=1)) == [0], log_of(out)
    return Run(out)


@pytest.mark.timeout(600)
def test_two_workers_train_as_one(configs: dict[str, Path], single: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert finish(start(configs["two"], out)) == [0, 0], log_of(out)
    assert_alike(Run(out), single)
    assert Run(out).resolved()["devices"] == "2 devices on 2 workers"


@pytest.mark.timeout(900)
def test_killed_worker_is_started_again_and_all_go_on(
    configs: dict[str, Path], single: Run, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    codes = finish(start(configs["two"], out, options={1: "kill=5"}))
    assert codes[1] == -9
    assert codes[0] != 0, "the chief must notice that a worker is gone"
    assert Run(out).checkpoints.is_dir(), log_of(out)
    assert not Run(out).evaluation.exists()
    assert finish(start(configs["two"], out)) == [0, 0], log_of(out)
    assert_alike(Run(out), single)


@pytest.fixture(scope="module")
def updates(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, np.ndarray], ...]:
    """What one process finds, and what each of two find."""
    found = []
    for name, workers in (("single", 1), ("double", 2)):
        out = tmp_path_factory.mktemp(name) / "found"
        commands = [["tests.training.worker_updates", str(out)]] * workers
        assert finish(processes(commands, out), 900) == [0] * workers, log_of(out)
        found += [dict(np.load(f"{out}.{index}.npz")) for index in range(workers)]
    return tuple(found)


def part(found: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {key: value for key, value in found.items() if key.startswith(f"{name}/")}


@pytest.mark.timeout(2000)
@pytest.mark.parametrize("case", [*CASES, "short-last-batch"])
def test_two_workers_make_the_same_updates(
    updates: tuple[dict[str, np.ndarray], ...], case: str
) -> None:
    single, *both = (part(found, case) for found in updates)
    assert single[f"{case}/losses"].size == (8 if case == "short-last-batch" else 20)
    for found in both:
        assert found.keys() == single.keys()
        worst = max(float(np.abs(found[k] - single[k]).max()) for k in single)
        print(case, float(np.abs(found[f"{case}/losses"] - single[f"{case}/losses"]).max()), worst)
        for key, value in single.items():
            # 5e-5 for weights: AdamW divides tiny gradients by tiny roots.
            tolerance = 5e-5 if "/weights/" in key else 1e-5
            np.testing.assert_allclose(found[key], value, atol=tolerance, err_msg=key)


def test_two_workers_agree_in_half_precision(
    updates: tuple[dict[str, np.ndarray], ...],
) -> None:
    for precision in ("mixed_bfloat16", "mixed_float16"):
        single, *both = (found[f"{precision}/losses"] for found in updates)
        assert np.isfinite(single).all()
        for losses in both:
            print(precision, np.abs(losses - single).max())
            assert np.abs(losses - single).max() < 5e-3


def test_two_workers_drop_other_units_and_agree_in_the_mean(
    updates: tuple[dict[str, np.ndarray], ...],
) -> None:
    single, one, other = (found["dropout/losses"][39] for found in updates)
    assert one == other  # both report the loss of the whole batch
    print("dropout", single, one)
    assert one != single
    assert one == pytest.approx(single, abs=0.06)  # as in test_training_model.py
