"""Training on two hosts: two network namespaces of Linux, joined by a virtual cable."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keras_vit.storage.packing import pack
from keras_vit.training import Run
from tests.training.photos import write_photos
from tests.training.worker_processes import assert_alike, finish, log_of, processes

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(1800)]

NAMES = tuple(f"keras-vit-{os.getpid()}-{host}" for host in "ab")
ADDRESSES = ("10.83.0.1", "10.83.0.2")
PORT = 12345
STEPS = 18  # two epochs of nine
OPTIONS = (
    *("--model", "ViTMicro4", "--image-size", "8", "--epochs", "2", "--batch-size", "8"),
    *("--save-steps", "4", "--precision", "float32", "--set", "mixup=0.3", "--no-tensorboard"),
)
Losses = dict[tuple[int, int], float]
Start = Callable[..., list[subprocess.Popen[bytes]]]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    """Two network namespaces with an address each."""
    if not shutil.which("ip"):
        pytest.skip("needs the command `ip` (iproute2)")
    try:
        for name in NAMES:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        peer = ("peer", "name", "eth0", "netns", NAMES[1])
        ip("link", "add", "eth0", "netns", NAMES[0], "type", "veth", *peer)
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
    except subprocess.CalledProcessError as error:
        remove_hosts()
        pytest.skip(f"needs permission for `ip netns add`: {error.stderr.strip()}")
    yield
    remove_hosts()


def remove_hosts() -> None:
    for name in NAMES:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def set_cable(state: str) -> None:
    ip("-n", NAMES[1], "link", "set", "eth0", state)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """97 images in packed shards, of which training holds out 19."""
    folder = tmp_path_factory.mktemp("data")
    write_photos(folder / "photos", {"ant": 29, "bee": 37, "cow": 31})
    pack(folder / "photos", folder / "packed", processes=1)
    return folder / "packed"


def start_one(packed: Path, out: Path, *options: str) -> list[subprocess.Popen[bytes]]:
    words = ["train", "--data", str(packed), *OPTIONS, "--strategy", "cpu", *options]
    words = ["tests.training.host", f"{out}.losses.0", *words, "--out", str(out)]
    return processes([words], out)


@pytest.fixture(scope="module")
def single(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("single") / "run"
    assert finish(start_one(packed, out), 600) == [0], log_of(out)
    return out


@pytest.fixture
def start(hosts: None, packed: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts or resumes a run on both hosts."""
    out, all_started = tmp_path / "run", []

    def started(resume: bool = False) -> list[subprocess.Popen[bytes]]:
        new = ["--data", str(packed), *OPTIONS, "--strategy", "multiworker"]
        words = ["train", *(["--resume"] if resume else new), "--out", str(out)]
        all_started.append(
            both := processes(
                [["tests.training.host", f"{out}.losses.{host}", *words] for host in range(2)],
                out,
                [f"{address}:{PORT}" for address in ADDRESSES],
                [["ip", "netns", "exec", name] for name in NAMES],
            )
        )
        return both

    yield started
    for process in itertools.chain(*all_started):
        process.kill()
        process.wait()


def losses(out: Path, host: int = 0) -> Losses:
    """Mean loss of the epoch so far by epoch and step; of a repeated step, the last."""
    path = Path(f"{out}.losses.{host}")
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return {(int(epoch), int(step)): float(loss) for epoch, step, loss in rows}


def wait_for_step(out: Path, step: int, seconds: int = 400) -> None:
    end = time.monotonic() + seconds
    while len(losses(out, 1)) < step:
        assert time.monotonic() < end, log_of(out)
        time.sleep(0.02)


def largest_difference(ours: Losses, theirs: Losses) -> float:
    assert ours.keys() == theirs.keys()
    assert len(ours) == STEPS
    return max(abs(ours[step] - theirs[step]) for step in theirs)


def assert_same_end(out: Path, single: Path) -> None:
    for host in range(2):
        difference = largest_difference(losses(out, host), losses(single))
        print(f"host {host}: largest difference of a loss {difference:.1e}")
        assert difference < 1e-5  # 1.2e-7 was seen
    assert_alike(Run(out), Run(single))


def test_two_hosts_train_as_one(start: Start, single: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert finish(start(), 600) == [0, 0], log_of(out)
    assert_same_end(out, single)
    assert Run(out).resolved()["devices"] == "2 devices on 2 workers"


def test_another_seed_has_other_losses(packed: Path, single: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert finish(start_one(packed, out, "--seed", "5"), 600) == [0], log_of(out)
    assert largest_difference(losses(out), losses(single)) > 1e-3


def test_ten_seconds_without_network_change_nothing(
    start: Start, single: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    both = start()
    wait_for_step(out, 5)
    set_cable("down")
    time.sleep(2)  # the step in progress may be complete
    before = len(losses(out))
    time.sleep(8)
    try:
        assert len(losses(out)) == before < STEPS
    finally:
        set_cable("up")
    assert finish(both, 600) == [0, 0], log_of(out)
    assert_same_end(out, single)


@pytest.mark.parametrize("event", ["worker killed", "chief killed", "network lost"])
def test_lost_host_ends_the_run_and_it_resumes(
    start: Start,
    single: Path,
    tmp_path: Path,
    event: str,
) -> None:
    out = tmp_path / "run"
    both = start()
    wait_for_step(out, 6)  # the last state is that of step 4
    begun = time.monotonic()
    if event == "network lost":
        set_cable("down")
        left = both
    else:
        killed = int(event == "worker killed")
        both[killed].kill()
        left = [both[1 - killed]]
    try:
        codes = finish(left, 150)
    finally:
        set_cable("up")
    print(f"{event}: ended after {time.monotonic() - begun:.0f} s")
    for process in both:
        process.wait()
    log = log_of(out)
    assert codes == [1] * len(left), log
    assert log.count("keras-vit: Another worker ended or cannot be reached") == len(left), log
    assert "Traceback" not in log
    assert not Run(out).evaluation.exists()
    assert finish(start(resume=True), 600) == [0, 0], log_of(out)
    assert_same_end(out, single)
