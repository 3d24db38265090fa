"""Comparison of models that are trained on the same images with the same recipe."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_vit import data, files, output_folder, tasks, weights, zoo
from keras_vit.escapes import markdown, markdown_table
from keras_vit.evaluation import McNemar, mcnemar
from keras_vit.models.keras_applications import application_names
from keras_vit.reports.comparison_worker import RUN, ModelResult, measure_run, run_model
from keras_vit.tasks.classification.figures import comparison_curves
from keras_vit.tasks.classification.metrics import Report, decimal, evaluate_predictions
from keras_vit.training import Run, RunConfig
from keras_vit.visualization import save_figure

GOOD = 0.95  # accuracy up to which the training minutes are counted
_FILES = ("comparison.md", "comparison.json", "curves.png")
_SHOWN_CLASSES = 20  # in the table; comparison.json contains all classes


def _training_speed(result: ModelResult) -> str:
    unknown = result.training_speed is None and len(result.history) == 1
    return "- (one epoch)" if unknown else decimal(result.training_speed, 1)


_COST: dict[str, Callable[[ModelResult], str]] = {
    "parameters, millions": lambda c: decimal(c.parameters / 1e6, 2),
    "GFLOPs per image": lambda c: decimal(c.flops and c.flops / 1e9, 2),
    "images/s in training": _training_speed,
    "images/s in inference": lambda c: decimal(c.inference_speed, 1),
    "peak host memory in training, GB": lambda c: decimal(c.peak_memory and c.peak_memory / 1e9, 2),
    "minutes of training": lambda c: decimal(c.training_minutes, 1),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Results of a model comparison.

    Args:
        results: Results of the models, in the order given by the user.
        reports: Evaluation of each classifier's predictions; none for other tasks.
        tests: McNemar's test for each pair of names of classifiers.
        metric: Validation metric in the histories.

    Examples:
        >>> report = evaluate_predictions([0, 1], [[0.9, 0.1], [0.2, 0.8]], ["daisy", "rose"])
        >>> names = {"names": ("a.jpg", "b.jpg"), "class_names": ("daisy", "rose")}
        >>> vit = ModelResult(
        ...     name="ViT", start=None, labels=np.array([0, 1]), probabilities=np.eye(2),
        ...     history=(), parameters=7, flops=None, peak_memory=None, training_minutes=None,
        ...     training_speed=None, inference_speed=70.0, **names,
        ... )
        >>> "| accuracy " in Comparison((vit,), (report,), {}).markdown()
        True
    """

    results: tuple[ModelResult, ...]
    reports: tuple[Report, ...]
    tests: dict[tuple[str, str], McNemar]
    metric: str = "accuracy"

    def markdown(self) -> str:
        """Formats the comparison as Markdown."""
        table = markdown_table(["", *(markdown(c.name) for c in self.results)], self._rows())
        parts = [f"## Results on {len(self.results[0].names)} held-out images", table]
        parts += [test.text(*map(markdown, names)) for names, test in self.tests.items()]
        if len(self.tests) > 1:
            parts.append(
                f"Of {len(self.tests)} tests, one in twenty is expected to have p < 0.05 by "
                "chance; the p-values are not corrected for multiple comparisons."
            )
        untrained = [markdown(c.name) for c in self.results if c.start is None]
        if untrained:
            parts.append(
                f"**Started from random weights: {', '.join(untrained)}.** Training from scratch "
                "on few images says little about pretrained models."
            )
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Returns all results as a dictionary that can be stored as JSON."""
        models, omitted = [], ("names", "labels", "probabilities", "class_names")
        for result, report in itertools.zip_longest(self.results, self.reports):
            fields = {k: v for k, v in dataclasses.asdict(result).items() if k not in omitted}
            if report:
                fields |= {f"minutes_to_{GOOD}": result.minutes_to(GOOD), **report.to_json()}
            models.append(fields)
        tests = [{"models": pair, **test._asdict()} for pair, test in self.tests.items()]
        return {"models": models, "mcnemar": tests}

    def write(self, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Writes `comparison.md`, `comparison.json` and `curves.png` into a folder.

        Args:
            folder: The folder.

        Returns:
            The files.
        """
        table, content, picture = (Path(folder, name) for name in _FILES)
        files.write_text(table, self.markdown())
        files.write_json(content, self.to_json())
        curves = comparison_curves({c.name: c.history for c in self.results}, self.metric)
        return table, content, save_figure(curves, picture)

    def _rows(self) -> list[list[str]]:
        rows = self._class_rows() if self.reports else []
        for name in dict.fromkeys(name for c in self.results for name in c.scores):
            values = (c.scores.get(name) for c in self.results)
            rows.append([name, *("-" if v is None else f"{v:.4g}" for v in values)])
        rows += [[title, *map(cell, self.results)] for title, cell in _COST.items()]
        if self.reports:
            minutes = (decimal(c.minutes_to(GOOD), 1) for c in self.results)
            rows.append([f"minutes to {GOOD:.0%} accuracy", *minutes])
        start = (markdown(c.start) if c.start else "**random weights**" for c in self.results)
        return [["started from", *start], *rows]

    def _class_rows(self) -> list[list[str]]:
        scores = [{row.name: row.f1 for row in report.per_class} for report in self.reports]
        names = [n for n in self.results[0].class_names if any(n in f1 for f1 in scores)]
        rows = [
            ["accuracy", *(f"**{report.accuracy:.4f}**" for report in self.reports)],
            ["95% interval", *("{:.4f} to {:.4f}".format(*r.interval) for r in self.reports)],
            ["mean F1", *(f"{report.macro_f1:.4f}" for report in self.reports)],
        ]
        for name in names[:_SHOWN_CLASSES]:
            rows.append([f"F1 of {markdown(name)}", *(decimal(f1.get(name)) for f1 in scores)])
        if omitted := names[_SHOWN_CLASSES:]:
            rows.append([f"... and {len(omitted)} more classes", *("" for _ in scores)])
        return rows


def compare(
    config: RunConfig,
    models: Sequence[str],
    out: str | os.PathLike[str],
    *,
    start: Mapping[str, str] | None = None,
) -> Comparison:
    """Trains models on the same data split with the same recipe, and compares the results.

    Models are trained and measured one after the other, each in its own process. An interrupted
    comparison resumes when called again with the same arguments.

    Args:
        config: Data, split, recipe and devices for all models; `model` and `weights` are ignored.
        models: Constructors of this package, networks of `keras.applications`, and folders of
            runs on the same data, which are measured but not trained again.
        out: Folder of the comparison.
        start: Initial weights by model name; models without an entry start from random weights.

    Returns:
        The comparison.

    Raises:
        ValueError: Before training, if a model or its weights do not exist, or a run used other
            images or another split; afterwards, if a training fails.

    Examples:
        >>> compare(RunConfig("digits", ""), ["ViTMicro4"], "comparison")
        Traceback (most recent call last):
        ValueError: `models` must contain at least two models with different names. ...
    """
    start, out = dict(start or {}), Path(out)
    names = (*zoo.CONSTRUCTORS, *application_names())
    runs = {name: Run(name) for name in models if name not in names and Run(name).config.is_file()}
    task = tasks.get(config.task)
    _check(task, models, start, runs)
    with output_folder.writing(out, "compare", _FILES):
        _check_images(config, models, runs, task.load(config.data))
        results = []
        for name in models:
            if name in runs:
                label = _label(runs[name])
                print(f"\n{label}: measuring the existing run", flush=True)
                results.append(measure_run(label, runs[name], out / "runs" / label))
                continue
            model_config = dataclasses.replace(config, model=name, weights=start.get(name))
            print(f"\n{name}: {model_config.weights or 'from random weights'}", flush=True)
            results.append(run_model(name, model_config, out / "runs" / name))
        first = results[0]
        for other in results[1:]:
            if other.names != first.names or other.class_names != first.class_names:
                raise ValueError(
                    "All models must be evaluated on the same images and classes. Received: "
                    f"{first.name} with {len(first.names)} images of {len(first.class_names)} "
                    f"classes, {other.name} with {len(other.names)} images of "
                    f"{len(other.class_names)} classes"
                )
        classifiers = results if config.task == "classification" else []
        reports = [
            evaluate_predictions(c.labels, c.probabilities, c.class_names) for c in classifiers
        ]
        pairs = itertools.combinations(classifiers, 2)
        tests = {(a.name, b.name): mcnemar(a.labels, a.predicted, b.predicted) for a, b in pairs}
        metric, _ = task.monitor or ("loss", "")
        comparison = Comparison(tuple(results), tuple(reports), tests, metric)
        comparison.write(out)
        return comparison


def _check(
    task: type[tasks.Task], models: Sequence[str], start: Mapping[str, str], runs: Mapping[str, Run]
) -> None:
    labels = {_label(runs[name]) if name in runs else name for name in models}
    if len(models) < 2 or len(labels) < len(models):
        raise ValueError(
            "`models` must contain at least two models with different names. Received: "
            f"models={list(models)}"
        )
    for name in models:
        if name in runs:
            runs[name].require_complete()
        else:
            task.check_model(name)
    for name, file in start.items():
        if name not in models or name in runs:
            raise ValueError(
                "`start` must contain weights only for models that are trained. Received: "
                f"weights for {name!r}, with the models {list(models)}"
            )
        if name in zoo.CONSTRUCTORS:
            weights.read_checkpoint(file, name)  # raises if the weights are not for this model
        elif file != "imagenet" and not Path(file).is_file():
            raise ValueError(
                f"Weights of {name} must be 'imagenet' or a Keras weight file. Received: {file!r}"
            )


def _check_images(
    config: RunConfig, models: Sequence[str], runs: Mapping[str, Run], examples: data.Examples
) -> None:
    """Raises `ValueError` before any training if an existing run used a different data split."""
    if examples.multi_label:
        raise ValueError(
            "`data` must have exactly one class per image to compare models. Received: "
            f"{config.data}"
        )
    if not runs:
        return
    if len(runs) < len(models):
        usable, audit = data.usable_images(examples, config.on_bad_image)
        _, held_out = data.split(
            usable,
            audit.digests,
            audit.twins,
            validation_fraction=config.validation_fraction,
            seed=config.split_seed,
            group_by=config.group_by,
            folds=config.folds,
            fold=config.fold,
        )
        expected = {usable.names[i] for i in held_out}
    else:
        expected = _held_out(runs[models[0]], examples)
    for run in runs.values():
        if _held_out(run, examples) != expected:
            raise ValueError(
                "A run must have the same validation images as the models that it is compared "
                "with: pass the --split-seed and --validation-fraction of the run. Received: "
                f"{run.path}, whose {run.split.name} contains different validation images"
            )


def _held_out(run: Run, examples: data.Examples) -> set[str]:
    return {examples.names[i] for i in data.read_split(run.split, examples)[1]}


def _label(run: Run) -> str:
    """Returns the name of a run's folder, without the path, for privacy."""
    path = run.path.resolve()
    # Runs of a comparison are all named `run`, each in a folder with the model's name.
    return path.parent.name if path.name == RUN else path.name
