"""The blocks of a Markdown page that are executed: those after a line `<!-- runs -->`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli.commands import call_main

_BLOCK = re.compile(r"^<!-- runs -->\n+```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def marked_blocks(text: str) -> list[tuple[str, str]]:
    """Language and content of each marked block, in their order."""
    return _BLOCK.findall(text)


def run_python(block: str, page: Path, scope: dict[str, Any]) -> None:
    exec(compile(block, str(page), "exec"), scope)


def run_bash(block: str, quicker: Mapping[str, str]) -> None:
    """Runs the lines of a block in this process; each must call `keras-vit`.

    Args:
        block: The block.
        quicker: Options to add, by the name of the command.
    """
    for line in block.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "keras-vit", line
        arguments += quicker.get(arguments[0], "").split()
        assert call_main(*arguments) == 0, line
