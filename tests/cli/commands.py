"""Calling `keras-vit` in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
import typer

from keras_vit import cli

Call = Callable[..., tuple[int, str, str]]


def call_main(*arguments: object) -> int:
    """Runs `keras-vit ARGUMENTS` in this process; returns the exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["keras-vit", *map(str, arguments)])
        patch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as exit_:
            cli.main()
    return int(exit_.value.code or 0)


def with_places(command: Iterable[str], places: Mapping[str, Path]) -> list[str]:
    """Replaces names such as RUN at the beginning of words by their paths."""
    words = []
    for word in command:
        for name, path in places.items():
            word = word.replace(name, str(path)) if word.startswith(name) else word
        words.append(word)
    return words


def check_failure(code: int, message: str, expected: str) -> None:
    lines = [line for line in message.splitlines() if line.startswith("keras-vit: ")]
    assert code == 1
    assert len(lines) == 1
    assert expected in message
    assert "Traceback" not in message


def commands(group: typer.Typer = cli.app) -> Iterator[list[str]]:
    """Every command of the application, by its words."""
    yield []
    for command in group.registered_commands:
        yield [command.name or command.callback.__name__]
    for inner in group.registered_groups:
        yield from ([inner.name, *words] for words in commands(inner.typer_instance) if words)
