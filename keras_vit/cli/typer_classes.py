"""Typer classes of the commands: help without flags' types, and option names of before."""

from __future__ import annotations

import sys
from typing import Any

import typer.core

from keras_vit.escapes import say

# Option names of earlier versions, which still work in the commands that have the name of today.
EARLIER_NAMES = {"--device": "--memory", "--report": "--json", "--no-resume": "--resume"}


class _WithoutFlagTypes:
    def get_params(self, ctx: Any) -> list[Any]:
        """Returns all parameters."""
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""  # instead of <bool>
        return params


class Command(_WithoutFlagTypes, typer.core.TyperCommand):
    """A command that also accepts the option names of earlier versions."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments, after a note on each option name of an earlier version."""
        names = {name for param in self.params for name in param.opts}
        new_args = []
        for argument in args:
            name, equals, value = argument.partition("=")
            new = EARLIER_NAMES.get(name)
            if new not in names or name in names:
                new_args.append(argument)
            elif new == "--resume":
                say("Note: `--no-resume` is the default.", sys.stderr)
            else:
                say(f"Note: `{name}` is now `{new}`.", sys.stderr)
                new_args.append(f"{new}{equals}{value}")
        try:
            return super().parse_args(ctx, new_args)
        except Exception as error:
            if "unexpected extra argument" in str(error) and "--data" in names:
                ctx.fail(f"{error}. Images are given by `--data`.")
            raise


class Group(_WithoutFlagTypes, typer.core.TyperGroup):
    """The command `keras-vit`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command; names `keras-vit data check` to a user of `keras-vit check`."""
        if args[0] in ("check", "preview") and args[0] not in self.commands:
            ctx.fail(f"No such command '{args[0]}'. Did you mean `keras-vit data {args[0]}`?")
        return super().resolve_command(ctx, args)
