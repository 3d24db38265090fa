"""Recipes and options that users of version 17e621a wrote into scripts are still there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from keras_vit import cli, training
from keras_vit.cli.typer_classes import EARLIER_NAMES
from tests.compatibility.narrow import FILES

pytestmark = pytest.mark.tensorflow

RECIPES = json.loads((FILES / "recipes.json").read_text(encoding="utf-8"))
OPTIONS = json.loads((FILES / "options.json").read_text(encoding="utf-8"))
REMOVED_FIELDS = {"clip_variable_norm", "sam_radius"}  # on purpose: 0 in every recipe
# On purpose: `--real` was never run on the labels that it was for, and `--markdown` wrote a page of
# the documentation.
REMOVED = {"keras-vit evaluate": {"--real"}, "keras-vit weights": {"--markdown"}}


@pytest.mark.parametrize("name", RECIPES["train"])
def test_recipe_has_the_numbers_it_had(name: str) -> None:
    check(training.recipe(name), RECIPES["train"][name])


@pytest.mark.parametrize("name", RECIPES["pretrain"])
def test_pretraining_recipe_has_the_numbers_it_had(name: str) -> None:
    check(training.pretraining_recipe(name), RECIPES["pretrain"][name])


def check(recipe: training.Recipe, stored: dict[str, Any]) -> None:
    found = json.loads(json.dumps(dataclasses.asdict(recipe)))
    assert {stored[name] for name in REMOVED_FIELDS} == {0.0}
    outer = stored.keys() - REMOVED_FIELDS - {"augmentation"}
    assert {name: found[name] for name in outer} == {name: stored[name] for name in outer}
    inner = found["augmentation"]
    assert {name: inner[name] for name in stored["augmentation"]} == stored["augmentation"]


def commands(command: Any, words: str = "keras-vit") -> Iterator[tuple[str, Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{words} {name}")


@pytest.fixture(scope="module")
def found() -> dict[str, set[str]]:
    """The names of every command's options."""
    return {
        words: {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
        for words, command in commands(typer.main.get_command(cli.app))
    }


@pytest.mark.parametrize("words", OPTIONS)
def test_command_has_the_options_it_had(words: str, found: dict[str, set[str]]) -> None:
    assert words in found
    earlier = {name for name, new in EARLIER_NAMES.items() if new in found[words]}
    assert set(OPTIONS[words]) - found[words] - earlier == REMOVED.get(words, set())
    assert not earlier & found[words]


def test_stored_help_tells_of_every_stored_option() -> None:
    text = (FILES / "help.txt").read_text(encoding="utf-8")
    sections = dict(part.split(" --help\n", 1) for part in text.split("$ ")[1:])
    assert sections.keys() == OPTIONS.keys()
    for words, options in OPTIONS.items():
        assert [name for name in options if name not in sections[words]] == [], words
