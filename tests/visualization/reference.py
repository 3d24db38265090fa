"""Attention weights of published code, and what other published code makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

CASES = ("official_token", "official_gap", "wzmiaomiao_vit_small", "hf_deit_with_teacher")


def attention_of(name: str, recipe: ModuleType) -> tuple[list[np.ndarray], dict[str, Any]]:
    """The attention weights of every block, and what the reference says of the case."""
    folder = Path(recipe.__file__).parent
    case = json.loads((folder / "train" / "attention_maps.json").read_text())["inputs"][name]
    outputs = recipe.outputs(recipe.load(folder / f"{case['case']}.json"))
    names = sorted(key for key in outputs if key.startswith("attention"))
    return [outputs[key] for key in names], case


def expected_of(name: str, recipe: ModuleType, file: str = "attention_maps") -> np.ndarray:
    with np.load(Path(recipe.__file__).parent / "train" / f"{file}.npz") as stored:
        return stored[name]
