"""Keras backend selection for the training commands."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_vit import accelerators


def prefer_jax_on_tpu(strategy: str | None, config: Path | None = None) -> None:
    """Selects JAX and prints a note on TPU machines, unless the user chose a backend.

    If `strategy` is None, the strategy is read from `config`, the config.yaml of a run. Keras reads
    its backend on import, so this function must be called before `start_keras`.
    """
    import yaml

    strategy_name = strategy or _read_field(config, "strategy", yaml.safe_load)
    if os.environ.get("KERAS_BACKEND") or strategy_name not in (None, "auto", "jax"):
        return
    # TensorFlow in keras.json is not an explicit choice: Keras writes this default on first import.
    folder = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser()
    backend = _read_field(folder / "keras.json", "backend", json.loads)
    if backend not in (None, "tensorflow") or accelerators.detect() != "tpu":
        return
    if importlib.util.find_spec("jax") and importlib.util.find_spec("libtpu"):
        os.environ["KERAS_BACKEND"] = "jax"
        print(
            "This machine has a TPU, so training uses JAX. Set KERAS_BACKEND=tensorflow to use "
            "TensorFlow instead.",
            file=sys.stderr,
        )


def _read_field(path: Path | None, name: str, parse: Callable[[str], Any]) -> object:
    """Returns a field of a YAML or JSON file, or None without such a file or field."""
    try:
        return parse(path.read_text(encoding="utf-8")).get(name) if path else None
    except Exception:  # the command or Keras reports the error in the file later
        return None
