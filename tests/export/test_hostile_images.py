"""Images from people who mean harm, sent to the served model in the server's C API."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.session import signatures_of
from tests.data.test_image_reading import GOOD

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="needs the shared libraries of Linux"),
]

ROOT = Path(__file__).parents[2]
NUMBER = 5000
BATCH = 8
# Above what the process has when it has answered good images: four images at a time of 25 million
# pixels at the 9 bytes of a progressive JPEG, which is what the default limits allow.
MEGABYTES = 900
CLIENT = """
import json, resource, sys
import numpy as np
from benchmarks.session import Session
folder, work, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
session = Session(folder, json.load(open(f"{work}/signatures.json")))
with np.load(f"{work}/images.npz") as found:
    hostile = [found[str(i)].tobytes() for i in range(len(found.files) - 1)]
    good = found["good"].tobytes()
expected = session.call("serving_default", image_bytes=[good])["probabilities"][0]
session.call("serving_default", image_bytes=[good] * (batch + 1))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
read = 0
for start in range(0, len(hostile), batch):
    sent = [*hostile[start : start + batch], good]
    answer = session.call("serving_default", image_bytes=sent)
    assert answer["ok"][-1]
    assert np.abs(answer["probabilities"][-1] - expected).max() < 1e-5, start
    assert np.isfinite(answer["probabilities"]).all()
    assert all(bool(m) != bool(ok) for m, ok in zip(answer["message"], answer["ok"]))
    read += int(answer["ok"][:-1].sum())
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"read": read, "megabytes": (after - before) / 1024}))
"""


def mutated(image: bytes, generator: np.random.Generator) -> bytes:
    """Damages a file in one of the ways of a fuzzer."""
    data = bytearray(image)
    kind = generator.integers(6)
    place = int(generator.integers(len(data)))
    if kind == 0:
        return bytes(data[:place])
    if kind == 1:  # in the header, where the sizes are
        for at in generator.integers(0, min(len(data), 64), generator.integers(1, 5)):
            data[at] = generator.integers(256)
    elif kind == 2:
        for at in generator.integers(0, len(data), generator.integers(1, 20)):
            data[at] = generator.integers(256)
    elif kind == 3:
        length = int(generator.integers(1, 50))
        data[place : place + length] = b"\xff" * length
    elif kind == 4:
        data[place:place] = generator.bytes(int(generator.integers(1, 200)))
    else:
        other = int(generator.integers(len(data)))
        data[place:place] = data[min(place, other) : max(place, other)]
    return bytes(data)


def test_no_image_crashes_or_disturbs_or_takes_all_memory(
    exported: dict[str, Path], tmp_path: Path
) -> None:
    generator = np.random.default_rng(17)
    seeds = list(GOOD.values())
    hostile = [mutated(seeds[i % len(seeds)], generator) for i in range(NUMBER)]
    arrays = {str(i): np.frombuffer(image, np.uint8) for i, image in enumerate(hostile)}
    good = np.frombuffer(GOOD["jpeg 0"], np.uint8)
    np.savez(tmp_path / "images.npz", good=good, **arrays)
    signatures = signatures_of(exported["saved_model"])
    (tmp_path / "signatures.json").write_text(json.dumps(signatures))
    result = subprocess.run(
        [sys.executable, "-c", CLIENT, exported["saved_model"], tmp_path, str(BATCH)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=1800,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.splitlines()[-1])
    print(found)
    assert 0.05 * NUMBER < found["read"] < 0.95 * NUMBER, "mutations of one kind prove little"
    assert found["megabytes"] < MEGABYTES
