"""`keras-vit rollout`: a new version on a running TensorFlow Serving."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keras_vit.cli.options import check_exists
from keras_vit_toolkit import start_keras

if TYPE_CHECKING:
    from keras_vit.export import Rollout

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Try a new version on a running TensorFlow Serving, promote it, go back.\n\n"
    "After `keras-vit export RUN --to export/models` has written the next version:\n\n"
    "    keras-vit rollout canary export/models\n\n"
    "Clients that ask for the label `canary` get it, those that ask for `stable` keep what they "
    "have. Then\n\n"
    "    keras-vit rollout promote export/models\n\n"
    "gives it to `stable`, too, and `keras-vit rollout back export/models` returns.",
)

ModelsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="MODELS",
        help="Folder given to `keras-vit export --to`.",
        exists=True,
        file_okay=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        help="The server's model config file; by default models.config beside MODELS. It is "
        "rewritten, without comments below the first; the server polls it."
    ),
]
ServerOption = Annotated[str, typer.Option(help="REST address of the server.")]
NameOption = Annotated[str, typer.Option(help="Name of the model on the server.")]
TimeoutOption = Annotated[
    float, typer.Option(min=1, help="Seconds for each step; large models load for minutes.")
]
SERVER = "http://localhost:8501"


@app.command()
def canary(
    models: ModelsArgument,
    version: Annotated[int | None, typer.Option(help="By default the newest in MODELS.")] = None,
    config: ConfigOption = None,
    server: ServerOption = SERVER,
    name: NameOption = "vit",
    timeout: TimeoutOption = 900,
) -> None:
    """Load a new version for clients of the label `canary`.

    Clients of `stable` keep what they have; those that name no version get the canary.

    keras-vit rollout canary export/models
    """
    folders = (models / name).glob("*")
    numbers = sorted(int(path.name) for path in folders if path.name.isdecimal())
    if not numbers:
        raise ValueError(
            "`MODELS` must hold the versions of the model, as `keras-vit export RUN --to MODELS` "
            f"writes them. Received: MODELS={str(models)!r}, where {name}/1 is missing"
        )
    if version is not None and version not in numbers:
        raise ValueError(f"`--version` must be one of {numbers}. Received: --version {version}")
    rollout = _rollout(models, config, server, name, timeout)
    rollout.canary(numbers[-1] if version is None else version)
    _show(rollout)


@app.command()
def promote(
    models: ModelsArgument,
    config: ConfigOption = None,
    server: ServerOption = SERVER,
    name: NameOption = "vit",
    timeout: TimeoutOption = 900,
) -> None:
    """Give the canary to clients of `stable`; the version before stays loaded.

    keras-vit rollout promote export/models
    """
    rollout = _rollout(models, config, server, name, timeout)
    rollout.promote()
    _show(rollout)


@app.command()
def back(
    models: ModelsArgument,
    config: ConfigOption = None,
    server: ServerOption = SERVER,
    name: NameOption = "vit",
    timeout: TimeoutOption = 900,
) -> None:
    """Withdraw the canary or, without one, return to the version before.

    The newer version is unloaded; all clients get the older one.

    keras-vit rollout back export/models
    """
    rollout = _rollout(models, config, server, name, timeout)
    rollout.back()
    _show(rollout)


@app.command()
def status(
    models: ModelsArgument,
    config: ConfigOption = None,
    server: ServerOption = SERVER,
    name: NameOption = "vit",
) -> None:
    """Show the versions on the server, their states, and the labels in the config file.

    keras-vit rollout status export/models
    """
    _show(_rollout(models, config, server, name, timeout=1))


def _rollout(models: Path, config: Path | None, server: str, name: str, timeout: float) -> Rollout:
    config = config or models.resolve().parent / "models.config"
    check_exists("--config", config, "the server's model config file")
    start_keras()
    from keras_vit.export import Rollout

    return Rollout(config, server, name, timeout=timeout)


def _show(rollout: Rollout) -> None:
    labels = sorted(rollout.labels().items())
    for version in rollout.status():
        named = " ".join(label for label, number in labels if number == version.number)
        print(f"{version.number:>8}  {version.state:<10} {named} {version.error}".rstrip())
