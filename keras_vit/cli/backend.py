"""Keras backend selection for the training commands."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

from keras_vit import accelerators


def prefer_jax_on_tpu(strategy: str | None, config: Path | None = None) -> None:
    """Selects JAX and prints a note on TPU machines, unless the user chose a backend.

    If `strategy` is None, the strategy is read from `config`, the config.yaml of a run. Keras reads
    its backend on import, so this function must be called before `start_keras`.
    """
    chosen = strategy or _configured_strategy(config)
    if os.environ.get("KERAS_BACKEND") or chosen not in (None, "auto", "jax"):
        return
    # TensorFlow in keras.json is no explicit choice: Keras writes this default on first import.
    if _configured_backend() != "tensorflow" or accelerators.detect() != "tpu":
        return
    if importlib.util.find_spec("jax") and importlib.util.find_spec("libtpu"):
        os.environ["KERAS_BACKEND"] = "jax"
        print(
            "This machine has a TPU, so training uses JAX. Set KERAS_BACKEND=tensorflow to use "
            "TensorFlow instead.",
            file=sys.stderr,
        )


def _configured_strategy(config: Path | None) -> object:
    if config is None:
        return None
    import yaml

    try:
        content = yaml.safe_load(config.read_text(encoding="utf-8"))
        return content.get("strategy")
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return None  # the command reports the error in the file later


def _configured_backend() -> object:
    folder = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser()
    try:
        content = json.loads((folder / "keras.json").read_text(encoding="utf-8"))
        return content.get("backend", "tensorflow")
    except (OSError, ValueError, AttributeError):
        return "tensorflow"
