"""HTML evaluation page written by `keras-vit evaluate --report`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from keras_vit import data, files
from keras_vit.tasks.task import Details
from keras_vit.visualization.html_page import Section, page, preformatted, table


def write_evaluation(
    details: Details,
    examples: data.Examples,
    folder: str | os.PathLike[str],
    *,
    title: str,
    subtitle: str,
    configuration: Mapping[str, Any] | None = None,
    versions: Mapping[str, Any] | None = None,
    audit: data.ImageAudit | None = None,
    progress: bool = False,
) -> Path:
    """Writes an evaluation as a self-contained `index.html` and as `report.json`.

    Args:
        details: Details returned by `keras_vit.tasks.evaluate_in_detail`.
        examples: The images; damaged, dark and identical images are listed on the page.
        folder: Output folder, created if it does not exist.
        title: Name of the model.
        subtitle: Description of the evaluation data.
        configuration: Training configuration. Paths are shown without their folders.
        versions: Versions of the packages.
        audit: Audit of the images; by default they are audited here.
        progress: Whether the check of the images shows a progress bar.

    Returns:
        Path of the page.

    Examples:
        >>> from keras_vit import models, tasks
        >>> config = models.size("Micro/4").replace(image_size=(8, 8), classes=10)
        >>> digits = data.load("digits").subset(range(50))
        >>> details = tasks.evaluate_in_detail(models.build(config), digits)
        Note: model without class names; outputs by position: 0, 1, 2, 3, 4, 5, 6, 7 and 2 more.
        >>> path = write_evaluation(details, digits, "report", title="Digit", subtitle="50 digits")
        >>> "<h1>Digit</h1>" in path.read_text()
        True
    """
    out = Path(folder)
    shown_configuration = files.without_folders(dict(configuration or {}))
    source = Path(examples.source).name or examples.source  # folders are private
    examples_to_check = dataclasses.replace(examples, source=source, notes=(), ignored={})
    check = dataclasses.replace(data.check(examples_to_check, audit, progress=progress), refused="")
    problems = Section("data", "Image problems", [preformatted(check.text())])
    sections = [*details.sections(), problems]
    if shown_configuration:
        text = yaml.safe_dump(shown_configuration, sort_keys=False, allow_unicode=True)
        sections.append(Section("configuration", "Training configuration", [preformatted(text)]))
    if versions:
        rows = [[name, str(version)] for name, version in versions.items() if version]
        sections.append(Section("versions", "Versions", [table(["package", "version"], rows)]))
    # File names may be invalid UTF-8.
    files.write_text(out / "index.html", page(title, subtitle, sections), "backslashreplace")
    content = {**details.to_json(), "data": check.to_json()}
    content |= {"configuration": shown_configuration, "versions": dict(versions or {})}
    files.write_json(out / "report.json", content)
    return out / "index.html"
