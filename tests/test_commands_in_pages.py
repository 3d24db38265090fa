"""Command lines of the pages use commands and options that `keras-vit` has.

Of an option with several names only the first counts, so that all pages use the same one.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from keras_vit import cli

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "export/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]
APP: Any = typer.main.get_command(cli.app)
BLOCK = re.compile(r"^ *```.*?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
# Pages of one command: options that stand there without a command are its own.
ABOUT = {"doctor.md": ["doctor"], "planning.md": ["plan"]}
# Options of timm's scripts and of pip.
OTHERS = {
    *("--mixup", "--cutmix", "--smoothing", "--reprob", "--layer-decay", "--drop-path"),
    *("--clip-grad", "--model-ema-decay", "--no-deps"),
}


def options(command: Any) -> dict[str, Any]:
    """Options of a command, by their first name and by the first that negates them."""
    return {
        name: option
        for option in command.params
        if option.param_type_name == "option" and not option.hidden
        for name in (*option.opts[:1], *option.secondary_opts[:1])
    }


def leaves(command: Any) -> Iterator[Any]:
    """All commands below one, and that command."""
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from leaves(inner)


def text_of(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        return text
    cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    return "\n\n".join(f"```\n{cell}\n```\n{cell}" for cell in cells)  # code, and code in prose


def codes(text: str) -> list[str]:
    """Lines of blocks, and code within lines of prose."""
    blocks = "\n".join(BLOCK.findall(text)).replace("\\\n", " ")
    return [*blocks.splitlines(), *INLINE.findall(BLOCK.sub("", text))]


def command_lines(text: str) -> Iterator[str]:
    for code in codes(text):
        # At the beginning, after `$ ` or `!`, and after variables: KERAS_BACKEND=jax keras-vit ...
        if found := re.match(r"(?:\$ |!|(?:[A-Z_]+=\S+ )+)?(keras-vit(?: .*)?)$", code.strip()):
            yield found[1]


def problems(line: str) -> list[str]:
    """What a command line uses that `keras-vit` does not have, and required options it lacks."""
    words = shlex.split(line, comments=True)[1:]
    command, found, given, complete = APP, [], set(), False
    while words:
        word = words.pop(0)
        if re.match("--?[a-z]", word):
            name = word.partition("=")[0]
            given.add(name)
            if name not in (known := options(command)):
                found.append(f"{name}: {line}")
            elif not known[name].is_flag:
                del words[: "=" not in word]  # its value
        elif hasattr(command, "commands") and word not in ("COMMAND", "..."):
            if word not in command.commands or command.commands[word].hidden:
                return [*found, f"{word}: {line}"]
            command = command.commands[word]
        else:
            complete = True  # with an argument, and so not the command's name or options alone
    required = [p.opts[0] for p in command.params if p.required and p.param_type_name == "option"]
    return [*found, *(f"{name}: {line}" for name in required if complete and name not in given)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_in_a_page_exist(page: Path) -> None:
    text = text_of(page)
    assert [problem for line in command_lines(text) for problem in problems(line)] == []
    command = APP
    for word in ABOUT.get(page.name, []):
        command = command.commands[word]
    known = {name for inner in leaves(command) for name in options(inner)}
    alone = [word for code in codes(text) if code.startswith("--") for word in code.split()]
    unknown = {word.partition("=")[0] for word in alone if re.fullmatch("--[a-z-]+(=.*)?", word)}
    assert unknown - known - OTHERS == set()


def test_command_lines_are_found() -> None:
    found = [line for page in PAGES for line in command_lines(text_of(page))]
    assert len(found) >= 120
    block = "```\n$ keras-vit doctor a \\\n  --pixels 0..1  # why\nA=1 keras-vit env\n```\n"
    assert [line.split()[1] for line in command_lines(f"{block}`keras-vit x`")] == [
        "doctor",
        "env",
        "x",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("keras-vit --verbose train --data photos --set 'trainable=[head/*]'  # --no", None),
        ("keras-vit data check photos", None),
        ("keras-vit COMMAND ...", None),
        ("keras-vit export RUN --to models --tflite=float32 --tflite KIND", None),
        ("keras-vit export --onnx", None),
        ("keras-vit trian", "trian"),
        ("keras-vit data look", "look"),
        ("keras-vit train --sed 0", "--sed"),
        ("keras-vit train --batch 4", "--batch"),
        ("keras-vit evaluate runs/a --onnx", "--onnx"),
        ("keras-vit export runs/a --onnx", "--to"),
    ],
)
def test_what_is_missing_is_named(line: str, expected: str | None) -> None:
    assert problems(line) == ([] if expected is None else [f"{expected}: {line}"])
