"""The filter of TensorFlow's log, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Without Keras, as a command starts.
START = """import keras_vit_toolkit
keras_vit_toolkit.register_package()
from keras_vit import startup as start
"""

LOG = (
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    b"I0000 00:00:1795485911.319100    4332 port.cc:153] oneDNN custom operations are on.\n"
    b"E0000 00:00:1795485982.200211    5372 cuda_platform.cc:52] failed call to cuInit\n"
    b"2025-09-17 14:44:05.157831: I external/local_xla/cudart_stub.cc:32] no cuda drivers\n"
    b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"
)
OTHER = b"UserWarning: odd\nF0000 00:00:1795485911.3 43 cpu.cc:1] needs AVX instructions\n"


def run_quietly(code: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A process that writes a log, and what must be read, within `quiet_tensorflow`."""
    before = f"import os\n{START}with start.quiet_tensorflow():\n    "
    return subprocess.run(
        [sys.executable, "-c", f"{before}os.write(2, {LOG + OTHER!r})\n{code}"],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
        cwd=ROOT,
        capture_output=True,
        check=False,
    )


def test_quiet_tensorflow_leaves_out_its_log_and_nothing_else() -> None:
    done = run_quietly("os.write(2, b'I0000 00:00:1 afterwards\\n')")
    assert done.stderr == OTHER + b"I0000 00:00:1 afterwards\n"
    assert done.returncode == 0


def test_what_python_writes_goes_past_the_filter() -> None:
    code = "    import sys; print(LOG, file=sys.stderr); loud = sys.stderr\nprint('end', file=loud)"
    done = run_quietly(code.replace("LOG", repr(LOG.decode())))
    assert sorted(done.stderr.splitlines()) == sorted((OTHER + LOG + b"\nend").splitlines())


def test_stderr_that_was_replaced_stays() -> None:
    code = """
import contextlib, io
with contextlib.redirect_stderr(io.StringIO()) as said, start.quiet_tensorflow():
    import sys; print("kept", file=sys.stderr)
assert said.getvalue() == "kept\\n" and sys.stderr is sys.__stderr__"""
    done = run_quietly(code)
    assert (done.stderr, done.returncode) == (OTHER, 0)


@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), 9)", "raise OSError('full')"])
def test_quiet_tensorflow_loses_nothing_in_a_crash(end: str) -> None:
    done = run_quietly(f"    os.write(2, b'the end'); {end}")
    assert done.returncode != 0
    assert done.stderr.startswith(OTHER + b"the end")
    assert b"full" in done.stderr or "raise" not in end


def test_quiet_tensorflow_leaves_out_nothing_at_log_level_0() -> None:
    assert run_quietly("", TF_CPP_MIN_LOG_LEVEL="0").stderr == LOG + OTHER


@pytest.mark.parametrize("level", ["0", "2"])
def test_predictions_of_many_models_print_no_warning(level: str) -> None:
    code = f"""{START}start.start_keras()
import keras, numpy as np
for size in range(1, 9):
    model = keras.Sequential([keras.Input((size,)), keras.layers.Dense(1)])
    model.predict(np.zeros((2, size)), verbose=0)
"""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": level, "KERAS_BACKEND": "tensorflow"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    assert (b"tf.function retracing" in done.stderr) == (level == "0")


def test_quiet_tensorflow_does_without_stderr() -> None:
    code = f"{START}with start.quiet_tensorflow(): print(1)"
    command = f"exec {sys.executable} -c '{code}' 2>&-"
    done = subprocess.run(command, shell=True, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    assert (done.stdout, done.returncode) == (b"1\n", 0)


@pytest.mark.slow
def test_package_lists_its_public_names_and_imports_subpackages_on_access() -> None:
    code = """
import keras_vit
names = dir(keras_vit)
assert {"ViTB16", "load_predictor", "data", "training", "export"} <= {*names}
assert not [name for name in names if name.startswith("_") and name != "__version__"]
assert callable(keras_vit.data.load) and callable(keras_vit.training.train)
assert all(hasattr(keras_vit, name) for name in names)
assert not hasattr(keras_vit, "nothing")"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
