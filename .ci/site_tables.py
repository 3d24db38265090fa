"""Rows of the tables of the documentation site, as JSON: `python .ci/site_tables.py models`."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable
from typing import Any

from keras_vit import data, models, training, zoo
from keras_vit.weights import list_weights


def constructors() -> list[list[Any]]:
    """Returns size, operations and best weights of every constructor."""
    rows = []
    for name, build in zoo.CONSTRUCTORS.items():
        weights = list_weights(name)
        best = max((w for w in weights if w.top1), key=lambda w: w.top1 or 0, default=None)
        size = (build.config.default_image_size, models.count_parameters(build.config))
        operations = models.count_flops(build.config)
        shown = best and [best.name, best.top1, best.license]
        drawn = max((w.top1 for w in weights if w.top1 and w.image_size == 224), default=None)
        rows.append([name, *size, operations, len(weights), shown, drawn])
    return rows


def summaries(*packages: str) -> dict[str, dict[str, str]]:
    """Returns the public names of packages and the first lines of their docstrings."""
    return {
        package.__name__: {
            name: (inspect.getdoc(getattr(package, name)) or "").partition("\n")[0]
            for name in package.__all__
        }
        for package in map(importlib.import_module, packages)
    }


def settings() -> list[list[Any]]:
    """Returns name, default and description of every field of a recipe and its augmentation."""
    rows = []
    for values in (training.Recipe(), data.Augmentation()):
        listed = (inspect.getdoc(values) or "").partition("Args:\n")[2].partition("\n\n")[0]
        for name, text in re.findall(r"^    (\w+): (.*?)(?=^    \w|\Z)", listed, re.M | re.S):
            if name != "augmentation":
                rows.append([name, getattr(values, name), " ".join(text.split())])
    return rows


if __name__ == "__main__":
    tables: dict[str, Callable[..., Any]] = {
        "models": constructors,
        "summaries": summaries,
        "settings": settings,
    }
    print(json.dumps(tables[sys.argv[1]](*sys.argv[2:])))
