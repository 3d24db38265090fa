"""What hostile files cost those that decode, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.data.hostile_files import BOMBS

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).parents[2]
COMMANDS = ("check", "predict", "read_each")
# Beside what one small image takes. Measured at most, in GB, by the check: JPEG of a camera, turned
# 0.83, not turned 0.42; PNG of 8000 x 8000 0.42; all others 0.06.
GIGABYTES = 1.0
SECONDS = 60  # measured 10
DECODERS = """
import json, sys, time
import numpy as np
import tensorflow as tf
from keras_vit.data import Examples, audit
from keras_vit.data.image_reading import Limits, read_each
from keras_vit.preprocessing import Preprocessing

def check(files):
    names = tuple(map(str, range(len(files))))
    examples = Examples(names, np.zeros(len(files)), ("a",), "memory", encoded=tuple(files))
    return dict(audit(examples, progress=False).bad)

read = tf.function(
    lambda files: read_each(files, Preprocessing(size=32), Limits()),
    input_signature=[tf.TensorSpec((None,), tf.string)],
    autograph=False,
)
"""
BOMB = """
def peak():
    # Not ru_maxrss, which begins with that of the process that started this one.
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e6

command, path = sys.argv[1:]
small = tf.io.encode_jpeg(np.zeros((50, 37, 3), np.uint8)).numpy()
if command == "predict":
    from keras_vit import models
    from keras_vit.export import load_predictor
    config = models.size("Micro/4").replace(num_layers=1, image_size=(32, 32), classes=3)
    predictor = load_predictor(models.build(config))

def say(file):
    if command == "check":
        return check([file]).get("0", "")
    if command == "read_each":
        return read(tf.constant([file])).message[0].numpy().decode()
    try:
        predictor.probabilities([file])
    except ValueError as error:
        return str(error)
    return ""

assert say(small) == ""
file = open(path, "rb").read()
before, start = peak(), time.monotonic()
said = say(file)
seconds = time.monotonic() - start
print(json.dumps({"said": said, "gigabytes": peak() - before, "seconds": seconds}))
"""
MUTANTS = """
from tests.data.hostile_files import mutants
files = mutants(int(sys.argv[1]), seed=29)
bad = check(files)
messages = []
for start in range(0, len(files), 8):
    messages += read(tf.constant(files[start : start + 8])).message.numpy().tolist()
narrow = {name for name, why in bad.items() if "the shorter side must be" in why}
differing = [
    (name, bad.get(name, ""), message.decode())
    for name, message in zip(map(str, range(len(files))), messages)
    if (name in bad) != bool(message) and name not in narrow
]
print(json.dumps({"read": len(files) - len(bad), "differing": differing}))
"""


def run(script: str, *arguments: object) -> dict[str, Any]:
    """What the script prints in a process of its own, which must end well."""
    result = subprocess.run(
        [sys.executable, "-c", DECODERS + script, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=550,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bombs")
    paths = {}
    for number, (name, (make, _)) in enumerate(BOMBS.items()):
        paths[name] = folder / str(number)
        paths[name].write_bytes(make())
    return paths


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of Linux")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", BOMBS)
def test_bomb_costs_little(name: str, command: str, bombs: dict[str, Path]) -> None:
    found = run(BOMB, command, bombs[name])
    print(name, command, found)
    _, why = BOMBS[name]
    assert (found["said"] == "") == (why == ""), found
    assert why in found["said"]
    assert found["gigabytes"] < GIGABYTES
    assert found["seconds"] < SECONDS


def agree(number: int) -> None:
    """Mutants stop no process, and the check and the server say the same of each."""
    found = run(MUTANTS, number)
    assert found["differing"] == []
    assert 0.05 * number < found["read"] < 0.95 * number, "mutations of one kind prove little"


@pytest.mark.slow
def test_mutants_crash_nothing_and_get_one_verdict() -> None:
    agree(60)


@pytest.mark.slow
def test_many_mutants_crash_nothing_and_get_one_verdict() -> None:
    agree(2000)
