"""Typer application for the command `keras-vit`, with its subcommands and global options."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import platform
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from keras_vit._version import __version__
from keras_vit.cli import classes as classes_commands
from keras_vit.cli import compare, evaluate, export, plan, predict, rollout
from keras_vit.cli import data as data_commands
from keras_vit.cli import doctor as doctor_command
from keras_vit.cli import drift as drift_command
from keras_vit.cli import environment as environment_command
from keras_vit.cli import train as training_commands
from keras_vit.cli import weights as weights_commands
from keras_vit.cli.options import option
from keras_vit.cli.typer_classes import Command, Group
from keras_vit.escapes import say
from keras_vit.startup import LOG_LEVEL

# Commands check their arguments first, then call `start_keras` and import Keras and TensorFlow,
# which takes seconds; --help and wrong paths must not be slow.

app = typer.Typer(
    cls=Group,
    rich_markup_mode="markdown",
    help="Train, evaluate and serve Vision Transformers.\n\nTo try it without data:\n\n"
    "    keras-vit train --data digits --model ViTMicro4 --image-size 16 --out runs/digits",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if not requested:
        return
    from importlib import metadata

    print(f"keras-vit-toolkit {__version__}")
    print(f"python {platform.python_version()}")
    for name in ("keras", "tensorflow", "tensorflow-tpu", "jax"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            print(f"{name} {metadata.version(name)}")
    raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, option("Print the versions.", "--version", callback=_version, is_eager=True)
    ] = False,
    verbose: Annotated[
        bool, option("Also print TensorFlow's log (useful for bug reports).", "--verbose")
    ] = False,
) -> None:
    """Global options."""
    if verbose:
        os.environ[LOG_LEVEL] = "0"  # child processes inherit it


_GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    "Train": (
        training_commands.train,
        training_commands.pretrain,
        training_commands.recipes,
        plan.plan,
    ),
    "Evaluate": (
        evaluate.evaluate,
        compare.compare,
        evaluate.explain,
        evaluate.probe,
        evaluate.card,
        doctor_command.doctor,
        drift_command.drift,
    ),
    "Deploy": (export.export, predict.predict, rollout.rollout),
    "Weights": (weights_commands.models, weights_commands.weights, weights_commands.convert),
}
for group, commands in _GROUPS.items():
    for command in commands:
        app.command(cls=Command, rich_help_panel=group)(command)
app.add_typer(classes_commands.app, name="classes", rich_help_panel="Deploy")
app.add_typer(data_commands.app, name="data", rich_help_panel="Data")
app.command(cls=Command, rich_help_panel="Help")(environment_command.env)


_show_warning = warnings.showwarning


def _show_note(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Prints a warning to the user as one line, and any other with its place in the code."""
    if category is UserWarning:
        say(f"Note: {message}", sys.stderr)
    else:
        _show_warning(message, category, *where, **more)


def main() -> None:
    """Runs the command line; prints expected errors as a message instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names that the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")
    warnings.simplefilter("always", UserWarning)
    warnings.showwarning = _show_note
    try:
        app()
    except (ValueError, OSError, RuntimeError, FloatingPointError, ImportError) as error:
        full = getattr(error, "errno", None) == errno.ENOSPC
        hint = ". Complete files are kept. Free some space, and repeat the command." if full else ""
        say(f"keras-vit: {error}{hint}", sys.stderr)
        sys.exit(1)
