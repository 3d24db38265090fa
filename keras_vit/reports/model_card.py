"""Model card for publishing the model of a run on a model hub."""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
from pathlib import Path
from typing import Any

import yaml

from keras_vit import arguments, files, models, tasks
from keras_vit.escapes import markdown, markdown_table
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.history import read_rows
from keras_vit.tasks.classification.metrics import ClassScores, decimal
from keras_vit.tasks.task import numbers
from keras_vit.training import Run
from keras_vit.weights import registry

_PICTURES = {
    "confusion_matrix": "Confusion matrix",
    "label_scores": "Scores for each label",
    "curves": "Training curves",
    "mistakes": "The most confident mistakes",
}
_UNKNOWN = "unknown"
_LOADING = """\
## How to load it

```python
import keras
import tensorflow as tf

import keras_vit
from keras_vit import data

model = keras.saving.load_model("last.keras")
preprocessing = keras_vit.models.preprocessing_of(model)
image = data.prepare(tf.io.read_file("image.jpg"), preprocessing)
{output} = model.predict(image[tf.newaxis])[0]{decide}
```

Or `keras-vit predict last.keras image.jpg`."""
_ONE_CLASS = "\nprint(preprocessing.class_names[probabilities.argmax()])"
_MULTI_LABEL = "\npresent = preprocessing.present(probabilities)  # which labels the image shows"


def write_card(run: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> Path:
    """Writes a model card, `README.md`, in the format of model hubs, with its figures.

    Information that a run does not contain, such as uses to avoid, is left as a sentence to
    complete.

    Args:
        run: A complete run folder.
        folder: Output folder; by default `card/` of the run. It must not contain a README.md, which
            may have been completed by hand.

    Returns:
        Path of the card.

    Raises:
        ValueError: If the run is not complete, its evaluation.json is not of its held-out images,
            or the folder contains a README.md or other figures.

    Examples:
        >>> from keras_vit.training import Recipe, RunConfig, train
        >>> recipe = Recipe(epochs=1, batch_size=512, image_size=(16, 16))
        >>> config = RunConfig("digits", "ViTMicro4", recipe=recipe)
        >>> _ = train(config, "runs/digits", tensorboard=False)  # doctest: +ELLIPSIS
        Checking the images of digits ...
        ...
        >>> "pipeline_tag: image-classification" in write_card("runs/digits").read_text()
        True
    """
    source = Run(run)
    config = source.read_config()
    task = tasks.get(config.task)
    source.require_complete()
    out = Path(folder) if folder is not None else source.path / "card"
    if (out / "README.md").exists():
        raise ValueError(
            "`folder` must not contain a README.md, which you may have completed: rename or delete "
            f"it, or choose another folder. Received: {out}"
        )
    pictures = {getattr(source, name): title for name, title in _PICTURES.items()}
    pictures = {path: title for path, title in pictures.items() if path.is_file()}
    for path in pictures:
        copy = out / path.name
        if copy.exists() and not filecmp.cmp(path, copy, shallow=False):
            raise ValueError(
                "`folder` must not contain other figures; move them, or choose another folder. "
                f"Received: {copy}"
            )
    model = source.model()
    license_, origin = weights_license(config.weights, config.model)
    name, recipe, resolved = source.path.resolve().name, config.recipe, source.resolved()
    epochs = len(read_rows(source.history))
    stopped = f"{epochs} of at most " * (0 < epochs < recipe.epochs)
    preprocessing = models.preprocessing_of(model)
    height, width = preprocessing.size
    classifier = task.pipeline_tag == "image-classification"
    kind_of_model = "An image classifier" if classifier else f"A model for the task {task.name}"
    decide = _MULTI_LABEL if preprocessing.thresholds else _ONE_CLASS
    kind = "vision-transformer" if models.has_config(model) else "convolutional"
    with arguments.naming_place(
        "`run` must have a complete evaluation.json, of its held-out images; "
        f"`keras-vit evaluate RUN` writes it. Received: {source.evaluation}"
    ):
        scores = json.loads(source.evaluation.read_text(encoding="utf-8"))
        if "images" in scores and scores["images"] != "held out":
            raise ValueError(f"the images are {scores['images']}")
        front = _front_matter(name, task.pipeline_tag, [kind, config.model], license_, scores)
        metrics = _metrics(scores) if classifier else _numbers(scores)
    sections = [
        f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n\n# {markdown(name)}",
        f"{kind_of_model}, {markdown(config.model)} with {model.count_params():,} parameters, "
        f"for images of {height} x {width} pixels (images of other sizes are resized), trained "
        f"with keras_vit. Initial weights: {origin}.",
        _uses(preprocessing if classifier else None),
        f"## Data\n\nTrained on {markdown(resolved['training_examples'])} images of "
        f"{markdown(files.without_folders(config.data))}; "
        f"{markdown(resolved['validation_examples'])} more images were held out for "
        "validation.\n\n*To complete: where the images come from, who took and "
        "labeled them, and which people or subjects they do not show.*",
        metrics,
        "\n\n".join(f"![{title}]({path.name})" for path, title in pictures.items()),
        _LOADING.format(output=task.output, decide=decide if classifier else ""),
        f"## Training\n\n{stopped}{recipe.epochs} epochs, batch size {recipe.batch_size}, "
        f"{recipe.optimizer} with a learning rate of {recipe.learning_rate:g}, seed "
        f"{recipe.seed}; all settings are in `config.yaml` in the run folder.",
        f"## License\n\nInitial weights: {origin}. Check that the license of the images allows "
        "your use of the model.",
    ]
    for path in pictures:
        files.copy(path, out / path.name)
    files.write_text(out / "README.md", "\n\n".join(filter(None, sections)) + "\n")
    return out / "README.md"


def weights_license(weights: str | None, model: str) -> tuple[str, str]:
    """Returns the license and the origin of a model's initial weights, if known."""
    if weights is None:
        return _UNKNOWN, "none (random initialization)"
    name = Path(weights).name or weights
    for candidate in (weights, name):
        with contextlib.suppress(ValueError):
            row = registry.find_weights(model, candidate)
            return row.license.lower(), f"`{row.name}`, {row.license} ({row.urls[0]})"
    return _UNKNOWN, f"{_UNKNOWN}; check where {markdown(name)} came from"


def _front_matter(
    name: str, pipeline_tag: str | None, tags: list[str], license_: str, scores: dict[str, Any]
) -> dict[str, Any]:
    front: dict[str, Any] = {
        "license": license_,
        "library_name": "keras",
        **({"pipeline_tag": pipeline_tag} if pipeline_tag else {}),
        "tags": ["keras", *tags],
    }
    if "accuracy" in scores:
        result = {
            "task": {"type": "image-classification"},
            "dataset": {"name": "held-out images", "type": "imagefolder"},
            "metrics": [{"type": "accuracy", "value": round(scores["accuracy"], 4)}],
        }
        front["model-index"] = [{"name": name, "results": [result]}]
    return front


def _uses(preprocessing: Preprocessing | None) -> str:
    """Describes the classes; None for a model that is not a classifier."""
    to_complete = "*To complete: who the model is for, and what it must not be used for.*"
    if preprocessing is None:
        return f"## Intended use\n\n{to_complete}"
    labels = preprocessing.class_names or ()
    class_list = arguments.shortlist(list(map(markdown, labels)), shown=50)
    other_images = "is also assigned one of these classes, possibly with high confidence"
    if preprocessing.thresholds:
        other_images = "may be assigned no class, or one or more of these classes"
    return (
        f"## Intended use\n\nPredicts which of {len(labels)} classes an image shows: {class_list}. "
        f"An image of anything else {other_images}.\n\n{to_complete}"
    )


def _numbers(scores: dict[str, Any]) -> str:
    rows = [[markdown(name), f"{value:.4g}"] for name, value in numbers(scores).items()]
    tables = [markdown_table(["metric", "value"], rows)]
    if classes := scores.get("per_class"):
        cells = [[_cell(value) for value in row.values()] for row in classes]
        tables.append(markdown_table([markdown(name) for name in classes[0]], cells))
    return "\n\n".join(["## Metrics", "On the held-out images:", *tables])


def _cell(value: Any) -> str:
    return markdown(value) if isinstance(value, str) else decimal(value)


def _metrics(scores: dict[str, Any]) -> str:
    if "accuracy" not in scores:
        mean = decimal(scores["mean_average_precision"])
        return (
            f"## Metrics\n\nOn the {scores['num_examples']} held-out images, which were also "
            f"used to choose the thresholds: mean average precision {mean}, F1 "
            f"{scores['micro_f1']:.4f} micro, {scores['macro_f1']:.4f} macro."
        )
    low, high = scores["interval_95"]
    rows = [ClassScores(**row) for row in scores["per_class"]]
    cells = [[markdown(name), *map(decimal, values)] for name, *values in rows]
    return (
        f"## Metrics\n\nOn the {scores['num_examples']} held-out images: accuracy "
        f"**{scores['accuracy']:.4f}**, 95% interval {low:.4f} to {high:.4f}.\n\n"
        + markdown_table(["class", "precision", "recall", "F1", "images"], cells)
    )
