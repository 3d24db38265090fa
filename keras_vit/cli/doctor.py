"""`keras-vit doctor`."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer

from keras_vit.cli.options import DataOption, check_data, check_exists, check_out
from keras_vit.startup import start_keras


class Pixels(enum.StrEnum):
    """The values that a model of another library was trained with."""

    raw = "0..255"
    unit = "0..1"
    signed = "-1..1"
    imagenet = "imagenet"
    caffe = "caffe"


def doctor(
    model: Annotated[
        Path,
        typer.Argument(metavar="RUN_OR_MODEL", help="Run folder, or any .keras or .h5 model."),
    ],
    data: DataOption = None,
    pixels: Annotated[
        Pixels | None,
        typer.Option(help="What the model was trained on, if it does not carry that itself."),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option("--learning-rate", "--lr", help="That it is, or will be, trained with."),
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Images to ask the model about.")] = 256,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a step.")] = 16,
    range_steps: Annotated[
        int, typer.Option(min=0, help="Steps of the learning rate test, 10 or more; 0 for none.")
    ] = 60,
    report: Annotated[Path | None, typer.Option(help="Also write it as JSON.")] = None,
) -> None:
    """Find what is usually wrong with a model that does not learn or answers badly.

    Looks at pixels, labels, loss, learning rate, frozen layers, classes and activations; prints
    what was seen and the fix. Nothing is changed. Ends with status 1 if something is serious.
    Without --data a run is examined on its own images.

    keras-vit doctor model.keras --data photos/
    """
    check_exists("RUN_OR_MODEL", model, "a run folder, or a .keras or .h5 file")
    check_data(data)
    if data is None and model.is_file():
        raise ValueError(
            f"`--data` must name labelled images, unless a run is examined. Received: {model}"
        )
    check_out("--report", report, folder=False)
    start_keras()
    from keras_vit import data as sources
    from keras_vit import files
    from keras_vit.doctor import examine

    findings = examine(
        model,
        sources.load(data) if data is not None else None,
        pixels=pixels.value if pixels else None,
        learning_rate=learning_rate,
        sample=sample,
        batch_size=batch_size,
        range_steps=range_steps,
        progress=lambda line: print(line, file=sys.stderr),
    )
    print("\n\n".join(finding.text() for finding in findings))
    counts = [sum(f.severity == s for f in findings) for s in ("serious", "warning")]
    print(f"\n{counts[0]} serious, {counts[1]} to look at.")
    if report:
        files.write_json(report, [finding.to_json() for finding in findings])
        print(f"Written: {report}")
    if counts[0]:
        raise typer.Exit(1)
