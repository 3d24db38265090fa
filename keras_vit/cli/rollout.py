"""Command `keras-vit rollout`, for canary releases on a running TensorFlow Serving server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from keras_vit.cli.options import argument, check_exists, option
from keras_vit.escapes import say
from keras_vit.startup import start_keras


def rollout(
    step: Annotated[Literal["canary", "promote", "back", "status"], argument("STEP", "See above.")],
    models: Annotated[
        Path,
        argument(
            "MODELS", "Folder passed to `keras-vit export --to`.", exists=True, file_okay=False
        ),
    ],
    version: Annotated[int | None, option("Canary (default: the newest version).")] = None,
    config: Annotated[
        Path | None,
        option(
            "Model config file of the server, by default config/models.config, or else "
            "models.config, beside MODELS. It is rewritten, with only its top comments; the server "
            "must poll it."
        ),
    ] = None,
    server: Annotated[str, option("REST address of the server.")] = "http://localhost:8501",
    name: Annotated[str, option("Name of the model on the server.")] = "vit",
    timeout: Annotated[
        float, option("Timeout per step in seconds; large models take minutes to load.", min=1)
    ] = 900,
) -> None:
    """Roll out a new version on a running TensorFlow Serving server, or roll it back.

    After `keras-vit export RUN --to export/models` has written the next version:

    keras-vit rollout canary export/models

    loads it under the label `canary`. Requests for `stable` keep their version; requests without
    a version get the canary. `promote` moves the label `stable` to it and keeps the previous
    version loaded. `back` removes the canary or, without one, returns to the previous version and
    unloads the newer one. `status` shows the versions on the server, their states, and the labels
    in the config file.
    """
    if version is not None and step != "canary":
        raise ValueError(f"`--version` is only for canary. Received: --version with {step}")
    if step == "canary":
        versions = sorted(int(p.name) for p in (models / name).glob("*") if p.name.isdecimal())
        if not versions or version not in (None, *versions):
            raise ValueError(
                f"`MODELS` must contain {name}/{version or 1}, as written by `keras-vit export RUN "
                f"--to MODELS`. Received: MODELS={str(models)!r} with the versions {versions}"
            )
        version = version or versions[-1]  # by default the newest
    parent = Path(os.path.abspath(models)).parent  # of a link, not of its target
    default_config = parent / "config" / "models.config"
    config = config or (default_config if default_config.is_file() else parent / "models.config")
    check_exists("--config", config, "the server's model config file")
    start_keras()
    from keras_vit.export import Rollout

    canary_rollout = Rollout(config, server, name, timeout=timeout)
    if version is not None:
        canary_rollout.canary(version)
    elif step == "promote":
        canary_rollout.promote()
    elif step == "back":
        canary_rollout.back()
    labels = canary_rollout.labels().items()
    for served in canary_rollout.status():
        label_names = " ".join(label for label, number in labels if number == served.number)
        say(f"{served.number:>8}  {served.state:<10} {label_names} {served.error}".rstrip())
