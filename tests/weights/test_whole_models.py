"""Files that claim more than they hold end in one error, before memory is taken for the claim."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.weights import metadata, save_weights
from keras_vit.weights.containers import safetensors
from keras_vit.weights.whole_models import load_model

# Prints the error of loading each file, the seconds and the growth of the peak in MB; a sound model
# comes first, for what every first load takes. Not ru_maxrss, which starts at that of the parent.
SCRIPT = """
import json, sys, time
from pathlib import Path
from keras_vit.weights import read_checkpoint
from keras_vit.weights.whole_models import load_model
def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
first, *others = sys.argv[1:]
load_model(first), read_checkpoint(first)
found = {}
for path in others:
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to what is taken now
    before, start = peak(), time.monotonic()
    try:
        (load_model if path.endswith(".keras") else read_checkpoint)(path)
        error = ""
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    found[Path(path).name] = error, time.monotonic() - start, peak() - before
print(json.dumps(found))
"""
CONFIG = models.size("Micro/4").replace(image_size=(8, 12), position_embedding="sincos_2d")


def _changed(source: Path, target: Path, **members: bytes) -> None:
    """Copies a .keras file with other members."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, members.get(name.partition(".")[0]) or old.read(name))


def _reconfigured(source: Path, target: Path, old: str, new: str) -> None:
    text = zipfile.ZipFile(source).read("config.json").decode()
    assert old in text
    _changed(source, target, config=text.replace(old, new).encode())


def _long_config(sound: Path, path: Path) -> None:
    _changed(sound, path, config=b'{"a": "' + b" " * 100 * 2**20 + b'"}')


def _long_metadata(sound: Path, path: Path) -> None:
    _changed(sound, path, metadata=b'{"a": "' + b" " * 17 * 2**20 + b'"}')


def _brackets(sound: Path, path: Path) -> None:
    _changed(sound, path, config=b"[" + b"[]," * 5_000_000 + b"0]")


def _members(sound: Path, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(90_000):
            archive.writestr(f"{number}", b"")


def _wide(sound: Path, path: Path) -> None:
    keras.Sequential([keras.Input((7,)), keras.layers.Dense(5)]).save(path.with_name("a.keras"))
    _reconfigured(path.with_name("a.keras"), path, '"units": 5', '"units": 1000000000')


def _wide_and_wrong(sound: Path, path: Path) -> None:
    """The last layer cannot be built, after the wide one."""
    layers = [keras.layers.Dense(5), keras.layers.Reshape([5])]
    keras.Sequential([keras.Input((7,)), *layers]).save(path.with_name("a.keras"))
    _reconfigured(path.with_name("a.keras"), path, '"units": 5', '"units": 1000000000')


def _positions(sound: Path, path: Path) -> None:
    _reconfigured(sound, path, '"position_grid": [2, 3]', '"position_grid": [9000, 9000]')


def _image_size(sound: Path, path: Path) -> None:
    save_weights(load_model(sound), path, "timm")
    told = json.loads(safetensors.read_metadata(path)[metadata.KEY])
    told["config"]["image_size"] = [20000, 20000]
    tensors = safetensors.read_safetensors(path)
    safetensors.write_safetensors(path, tensors, {metadata.KEY: json.dumps(told)})


def _folder(sound: Path, path: Path) -> None:
    path.mkdir()
    safetensors.write_safetensors(path / "model.safetensors", {"a": np.zeros(3)})
    (path / "config.json").touch()
    os.truncate(path / "config.json", 300 * 10**6)


BOMBS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "a.config.keras": (_long_config, "declares 10[0-9],"),
    "b.metadata.keras": (_long_metadata, r"metadata\.json has 17,825,801 bytes .* 16,777,216"),
    "c.brackets.keras": (_brackets, r"config\.json has 5,000,001 brackets \(limit: 250,000"),
    "d.members.keras": (_members, r"list of members has 4,[\d,]+ bytes \(limit: 4,194,304"),
    "e.wrong.keras": (_wide_and_wrong, "Exception encountered when calling Reshape"),
    "e.wide.keras": (_wide, r"describes a model of 32,0[\d,]+ bytes but contains \d"),
    "f.positions.keras": (_positions, r"`grid` must be .* 16,777,216 .*\(9000, 9000\)"),
    "g.safetensors": (_image_size, r"image_size=\(20000, 20000\) and a grid of \(5000, 5000\)"),
    "h": (_folder, r"its JSON has 300,000,000 bytes \(limit: 16,777,216"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "sound.keras"
    models.build(CONFIG).save(path)
    return path


@pytest.fixture(scope="module")
def found(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("bombs")
    for name, (write, _) in BOMBS.items():
        write(sound, folder / name)
    paths = [str(path) for path in (sound, *(folder / name for name in BOMBS))]
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, *paths], capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="writes to /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_a_claim_takes_little_memory_and_time(name: str, found: dict[str, list[Any]]) -> None:
    error, seconds, growth = found[name]
    assert re.match(f"(ValueError|WeightFileError): .*{BOMBS[name][1]}", error)
    # Keras' layers do not know their file.
    assert name in error or name in ("e.wrong.keras", "f.positions.keras")
    # Measured: 0.1 seconds and 28 MB, of brackets.
    assert seconds < 5
    assert growth < 300


def test_load_model_leaves_nothing_behind(sound: Path) -> None:
    model = load_model(sound)
    assert all(variable.value is not None for variable in model.variables)
    with keras.StatelessScope():
        pass  # gives values to variables that are left without
    assert model(np.zeros((1, 8, 12, 3))).shape == (1, 1000)
    assert not load_model(sound).compiled


@pytest.mark.tensorflow
def test_load_model_compiles_where_asked(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(5)])
    model.compile("sgd", "mse")
    model.save(tmp_path / "m.keras")
    assert load_model(tmp_path / "m.keras", compile=True).compiled


def test_load_model_leaves_errors_to_keras(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="File not found"):
        load_model(tmp_path / "m.keras")


def test_zip_without_a_model(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "weights.keras", "w") as archive:
        archive.writestr("a.npy", b"")
    with pytest.raises(ValueError, match=r"not a Keras model: it contains no config\.json"):
        load_model(tmp_path / "weights.keras")


def test_custom_layer_is_a_value_error(tmp_path: Path) -> None:
    class Mine(keras.layers.Dense):
        pass

    keras.Sequential([keras.Input((5,)), Mine(3)]).save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match=r"load_model can load.*m\.keras.*not locate class 'Mine'"):
        load_model(tmp_path / "m.keras")
