"""Command `keras-vit doctor`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from keras_vit import choices
from keras_vit.cli import options as opt
from keras_vit.escapes import say, terminal
from keras_vit.startup import start_keras


def doctor(
    model: Annotated[Path, opt.argument("RUN", "Run folder, or any .keras or .h5 model.")],
    data: opt.DataOption = None,
    pixels: Annotated[
        choices.Pixels | None,
        opt.option("Pixel scaling that the model expects, if the model file does not store it."),
    ] = None,
    learning_rate: opt.LearningRateOption = None,
    sample: Annotated[int, opt.option("Maximum number of images to predict.", min=1)] = 256,
    batch_size: opt.BatchOption = 16,
    range_steps: Annotated[
        int, opt.option("Steps of the learning-rate range test, at least 10; 0 skips it.", min=0)
    ] = 60,
    json: opt.JsonOption = None,
) -> None:
    """Find common mistakes in a model that does not train or has a low accuracy.

    Checks pixels, labels, loss, learning rate, frozen layers, classes and activations; prints
    each finding and its fix. Nothing is changed. Ends with status 1 if a finding is serious.
    Without --data a run is examined on its validation images.

    keras-vit doctor model.keras --data photos/
    """
    opt.check_exists("RUN", model, "a run folder, or a .keras or .h5 file")
    if data is None and model.is_file():
        raise ValueError(f"`--data` must be given unless `RUN` is a run. Received: {model}")
    start_keras()
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from keras_vit.doctor import examine

    findings = examine(
        model,
        data,
        pixels=pixels,
        learning_rate=learning_rate,
        sample=sample,
        batch_size=batch_size,
        range_steps=range_steps,
        progress=lambda line: say(line, sys.stderr),
    )
    table = Table("finding", "evidence and fix", show_lines=True)
    for finding in findings:
        lines = [finding.evidence, *([f"Fix: {finding.fix}"] if finding.fix else ())]
        cells = (f"{finding.severity.upper()}\n{finding.name}", "\n".join(lines))
        table.add_row(*(Text(terminal(cell)) for cell in cells))
    Console(highlight=False).print(table)
    counts = [sum(f.severity == s for f in findings) for s in ("serious", "warning")]
    print(f"\nSerious: {counts[0]}, warnings: {counts[1]}.")
    opt.write_json(json, [finding.to_json() for finding in findings])
    if counts[0]:
        raise typer.Exit(1)
