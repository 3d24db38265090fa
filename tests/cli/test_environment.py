from __future__ import annotations

import getpass
import platform
import re
import socket
from collections import Counter
from importlib import metadata
from pathlib import Path

import keras
import pytest

from keras_vit import accelerators
from keras_vit.cli import environment
from tests.cli.commands import Call

pytestmark = pytest.mark.tensorflow


def rows(output: str) -> dict[str, str]:
    return {line[:20].strip(): line[21:] for line in output.splitlines()}


def test_env_names_versions_and_the_machine(call: Call) -> None:
    code, output, message = call("env")
    found = rows(output)
    assert (code, message) == (0, "")
    assert found["python"] == platform.python_version()
    assert found["system"] == platform.platform()
    assert found["keras"] == keras.__version__
    for name in (
        "keras-vit-toolkit",
        "tensorflow",
        "tensorflow-datasets",
        "tensorboard",
        "numpy",
        "pillow",
    ):
        assert found[name] == metadata.version(name)
    assert {"jax", "pillow-heif", "ai-edge-litert", "onnxruntime", "openvino"} <= found.keys()
    assert re.search(r"\S, \d+ cores", found["processor"])
    assert found["backend"] == keras.backend.backend()
    assert re.search(r"\d+ x (CPU|GPU|TPU)", found["devices"])
    assert found["accelerator"] != ""
    if Path("/proc/meminfo").is_file():
        assert re.fullmatch(r"\d+\.\d GiB, \d+\.\d GiB", found["memory, free"])


def test_env_tells_nothing_private(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_VIT_SECRET", "value-of-a-variable")
    _, output, _ = call("env")
    for private in (socket.gethostname(), getpass.getuser()):
        assert not re.search(rf"(?<![\w.-]){re.escape(private)}(?![\w.-])", output)
    for private in (str(Path.home()), str(Path.cwd()), "value-of-a-variable"):
        assert private not in output


def test_env_without_linux_and_extras(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "proc_field", lambda file, name: "")
    monkeypatch.setattr(environment, "_PACKAGES", "no-such-package")
    found = rows(call("env")[1])
    assert (found["memory, free"], found["no-such-package"]) == ("-, -", "-")
    assert " cores" in found["processor"]


def test_env_says_that_a_gpu_is_not_used(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerators, "detect", lambda: "gpu")
    for device, expected in (("CPU", "gpu, not used"), ("GPU NVIDIA H200", "gpu")):
        seen = Counter([device, device])
        monkeypatch.setattr(environment, "_devices", lambda backend, seen=seen: seen)
        found = rows(call("env")[1])
        assert (found["devices"], found["accelerator"]) == (f"2 x {device}", expected)
