"""Command-line options that several commands share, with their parsing and validation."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

import typer

from keras_vit import arguments, choices, files, output_folder
from keras_vit.constants import MAX_YAML

STANDARD_INPUT = Path("-")


def option(help: str, *flags: str, panel: str | None = None, **more: Any) -> Any:
    """Creates a `typer.Option` that `--help` lists in the group `panel`."""
    return typer.Option(*flags, help=help, rich_help_panel=panel, **more)


def argument(metavar: str, help: str, **more: Any) -> Any:
    """Creates a `typer.Argument` that `--help` lists under the name `metavar`."""
    return typer.Argument(metavar=metavar, help=help, **more)


# Groups of options in --help, for commands with many options.
image_option = functools.partial(option, panel="Images and model")
recipe_option = functools.partial(option, panel="Recipe")
device_option = functools.partial(option, panel="Devices")
run_option = functools.partial(option, panel="Run folder")
server_option = functools.partial(option, panel="Server")

DATA_HELP = (
    "A folder with one subfolder of images per class, a table (.csv, .tsv, .jsonl), a folder "
    "with labels.csv, tfds:NAME, hf:NAME, or digits (of scikit-learn; no download). For "
    "segmentation: a folder with images/ and masks/, or COCO's annotations (.json). For detection: "
    "Pascal VOC, COCO or YOLO."
)


def check_data(data: str | None) -> str | None:
    """Returns the value of `--data`; raises `ValueError` if it is given but is not a dataset."""
    if data is not None and not (data.lower().endswith(".json") and Path(data).is_file()):
        arguments.image_source(data)
    return data


def check_task(task: str) -> str:
    """Returns the value of `--task`; raises `ValueError` if no task has this name."""
    arguments.one_of("--task", task, choices.task_names())
    return task


def check_json(path: Path | None) -> Path | None:
    """Returns the value of `--json`; raises `ValueError` if it is not a new JSON file."""
    check_new_file("--json", path, (".json",))
    return path


JsonOption = Annotated[
    Path | None,
    option("Also write the result to a JSON file.", "--json", metavar="FILE", callback=check_json),
]
MemoryOption = Annotated[
    str, option("Total or free device memory, such as 16GiB (or 16G) or 24GB.", metavar="SIZE")
]
batch_size = functools.partial(option, "Batch size.", "--batch-size", "--batch", min=1, max=2**20)
BatchOption = Annotated[int, batch_size()]

DataOption = Annotated[str | None, image_option(DATA_HELP, callback=check_data)]
ModelOption = Annotated[str, image_option("Model constructor; see `keras-vit models`.")]
ConstructorOption = Annotated[
    str | None, image_option("Model constructor, such as ViTB16, of a weight file.", "--model")
]
SizeOption = Annotated[
    str | None,
    image_option(
        "Image size in pixels: 224 or HEIGHTxWIDTH. Default: that of the weights or recipe."
    ),
]
WeightsOption = Annotated[
    str | None,
    image_option(
        "Initial weights: a name (`keras-vit weights`), file or URL; none for random ones."
    ),
]
FractionOption = Annotated[float | None, image_option("Validation fraction (default: 0.2).")]
SplitSeedOption = Annotated[int | None, image_option("Random seed of the split (default: 0).")]
BadImageOption = Annotated[
    choices.OnBadImage,
    image_option("Images that cannot be decoded: list them and stop (fail), or skip them."),
]
TaskOption = Annotated[str, image_option(f"Task: {', '.join(choices.TASKS)}.", callback=check_task)]
RecipeOption = Annotated[
    str | None, recipe_option("Recipe; see `keras-vit recipes`. Default: that of the task.")
]
SetOption = Annotated[
    list[str] | None,
    recipe_option(
        "Recipe value to override, as in --set mixup=0.2; may be repeated.",
        "--set",
        metavar="NAME=VALUE",
    ),
]
EpochsOption = Annotated[int | None, recipe_option("Number of epochs (default: the recipe's).")]
BatchSizeOption = Annotated[
    int | None,
    recipe_option(
        "Global batch size, over all devices (default: the recipe's).", "--batch-size", "--batch"
    ),
]
OptimizerOption = Annotated[choices.Optimizer | None, recipe_option("sgd has momentum 0.9.")]
LearningRateOption = Annotated[
    float | None, recipe_option("Peak learning rate of training.", "--learning-rate", "--lr")
]
SeedOption = Annotated[int | None, recipe_option("Random seed; see also --split-seed.")]
PrecisionOption = Annotated[
    choices.Precision | None,
    recipe_option("Training precision; saved models are always float32.", show_default="auto"),
]
StrategyOption = Annotated[
    choices.Strategy | None,
    device_option("Distribution strategy; auto uses all devices of one kind.", show_default="auto"),
]
ParallelOption = Annotated[
    int | None, device_option("JAX devices per copy of the model (sharding).")
]
OutOption = Annotated[Path, run_option("Run folder to write.")]
SaveMinutesOption = Annotated[
    float | None, run_option("Minutes between saved training states within an epoch (default: 5).")
]
SaveStepsOption = Annotated[
    int | None, run_option("Steps between saved states, for several workers.")
]
ResumeOption = Annotated[bool, run_option("Resume the run in --out.", "--resume")]
ProfileOption = Annotated[tuple[int, int] | None, run_option("First and last step to profile.")]

# Options that are fields of a recipe, and options that may be paths.
_FIELDS = ("image_size", "epochs", "batch_size", "learning_rate", "optimizer", "precision", "seed")
_PATH_OPTIONS = {"data", "weights", "teacher"}


def parse_size(text: str | None) -> tuple[int, int] | None:
    """Parses the value of `--image-size`; returns the height and width in pixels."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
    if not match:
        raise ValueError(
            f"`--image-size` must have the form 224 or 224x320. Received: --image-size {text}"
        )
    return int(match[1]), int(match[2] or match[1])


def check_files(name: str, paths: list[Path], *, folders: bool = False) -> None:
    """Raises `ValueError` if any path is not an existing file or, with `folders`, a folder."""
    listed = [path for path in paths if not path.is_dir()]
    if len(listed) < len(paths) and not folders:
        raise ValueError(
            f"Every `{name}` must be a file; for all images in a folder, pass FOLDER/*. Received: "
            f"{', '.join(str(path) for path in paths if path not in listed)}"
        )
    if missing := [str(path) for path in listed if not path.exists()]:
        wanted = f"an existing file{' or folder' * folders}"
        raise ValueError(f"Every `{name}` must be {wanted}. Received: {', '.join(missing)}")
    for path in listed:
        arguments.regular_file(name, path)


def check_exists(name: str, path: Path | None, what: str) -> None:
    """Raises `ValueError` if `path` is given but does not exist."""
    if path is not None and not path.exists():
        raise ValueError(f"`{name}` must be {what}. Received: {path}, which does not exist")


def check_weights(name: str, source: str | None) -> None:
    """Raises `ValueError` if `source` is a path to a file that does not exist."""
    if not source or not re.search(r"[/\\]|\.\w+$", source):
        return  # a name of published weights, which is checked when they are loaded
    is_path = Path(source).is_absolute() or source.startswith(("./", "../"))
    # A URL, or the end of a URL in the table of published weights.
    is_url = ":" in source or source.startswith("timm/")
    if not is_path and (is_url or source in files.asset("weights.csv")):
        return
    check_exists(name, Path(source), "an existing file, a URL, or the name of published weights")


def check_out(
    name: str, path: Path | None, names: Sequence[str] = (), *, folder: bool = True
) -> None:
    """Raises `ValueError` unless an output file, or a folder for files `names`, is writable."""
    if path is None:
        return
    existing = path.absolute() if folder else path.absolute().parent
    while not existing.exists():
        existing = existing.parent
    if path.exists() and not folder and not path.is_file():
        kind = "folder" if path.is_dir() else "device or pipe"
        raise ValueError(f"`{name}` must be a file. Received: {path}, which is a {kind}")
    if not existing.is_dir():
        wanted = "be a folder or be inside a folder" if folder else "be inside a folder"
        raise ValueError(f"`{name}` must {wanted}. Received: {path}, but {existing} is a file")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"`{name}` must be writable. Received: {path}, but {existing} is not")
    if folder:
        output_folder.require_writable(path, names)


def check_new_file(name: str, path: Path | None, suffixes: Sequence[str]) -> None:
    """Raises `ValueError` unless an output file is new, writable and ends in one of `suffixes`."""
    check_out(name, path, folder=False)
    if path is not None and (path.suffix not in suffixes or path.exists()):
        wanted = "not exist yet" if path.suffix in suffixes else f"end in {', '.join(suffixes)}"
        raise ValueError(f"`{name}` must {wanted}. Received: {path}")


def write_json(path: Path | None, content: Any) -> None:
    """Writes the file of `--json`, if it is given."""
    if path is not None:
        files.write_json(path, content)
        print(f"\nWritten: {path}")


def absolute(name: str | None) -> str | None:
    """Makes the path of an existing file or folder absolute; returns other names unchanged."""
    return str(Path(name).resolve()) if name and Path(name).exists() else name


def read_settings(settings: list[str] | None, **options: Any) -> dict[str, Any]:
    """Parses all `--set NAME=VALUE` options as YAML and adds the values of other options."""
    import yaml

    settings_read = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        try:
            parsed = _number(yaml.safe_load(value))
            if not equals or (parsed is None and name.strip() != "image_size"):
                raise ValueError(setting)
            settings_read[name.strip()] = parsed
        except Exception as error:  # of constructors of YAML, too
            alias = isinstance(error, yaml.YAMLError) and "alias" in str(error)
            hint = """ Quote text that begins with *, as in 'NAME=["*/attention/*"]'.""" * alias
            raise ValueError(
                f"`--set` must have the form NAME=VALUE.{hint} Received: --set {setting}"
            ) from error
    other_options = {name: value for name, value in options.items() if value is not None}
    for name in other_options.keys() & settings_read.keys():
        raise ValueError(
            f"`--set {name}` and {_flag(name)} set the same value; pass only one of them. "
            f"Received: {settings_read[name]!r} and {other_options[name]!r}"
        )
    return settings_read | other_options


def _number(value: Any) -> Any:
    # YAML parses 1e-4 as text, because it requires a point before the e.
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
    return tuple(map(_number, value)) if isinstance(value, list) else value


def recipe_settings(context: typer.Context, **options: Any) -> dict[str, Any]:
    """Returns all recipe fields that the user has set, by `--set` or by other options."""
    settings = {name: context.params.get(name) for name in _FIELDS}
    settings["image_size"] = parse_size(settings["image_size"])
    return read_settings(context.params["set_"], **settings, **options)


def config_settings(context: typer.Context, config: type) -> dict[str, Any]:
    """Returns all fields of a run's configuration that the user has set, except the recipe."""
    names = {field.name for field in dataclasses.fields(config)} & given_options(context)
    settings = {name: context.params[name] for name in names - {"recipe"}}
    for name in names & _PATH_OPTIONS:
        if not isinstance(settings[name], list):  # as `--weights` of `compare`
            settings[name] = absolute(str(settings[name]))
    if settings.get("weights") == "none":
        settings["weights"] = None
    return settings


def given_options(context: typer.Context) -> set[str]:
    """Returns the names of all options that the user has set."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name != "DEFAULT"}


def check_resume(context: typer.Context, out: Path, *also_allowed: str) -> Path:
    """Returns the configuration of the run to resume; exits if the run is finished.

    Raises `ValueError` for options ignored by `--resume`.
    """
    import yaml

    config_path, final_file = out / "config.yaml", out / "curves.png"
    if (out / "fold_1" / "config.yaml").is_file():
        config_path, final_file = out / "fold_1" / "config.yaml", out / "folds.json"
    flags, config = ["--config", str(config_path)], {}
    with contextlib.suppress(Exception):  # of many types, and reported later
        text = config_path.read_bytes() if config_path.stat().st_size <= MAX_YAML else b""
        config = {k: value for k, value in yaml.safe_load(text).items() if isinstance(value, str)}
    if context.info_name == "pretrain":
        flags = [part for n in ("data", "model") for part in (f"--{n}", config.get(n, n.upper()))]
    # None of a cross-validation, and none with layers for another task, which cannot be left out.
    classifies = config.get("task", "classification") in ("classification", "multi_label")
    weights = ("--weights", out) * (classifies and config_path.parent == out)
    command = arguments.command(str(context.info_name), *flags, *weights)
    hint = f"To train longer, start a new run:\n  {command} --epochs N --out NEW"
    allowed = ["out", *also_allowed]
    if ignored := given_options(context) - {"resume", *allowed}:
        raise ValueError(
            f"`--resume` must be given alone or with {', '.join(map(_flag, allowed))}; a resumed "
            f"run keeps its own configuration. {hint}\nReceived: "
            f"{', '.join(sorted(map(_flag, ignored)))}"
        )
    check_exists("--out", config_path, "the folder of the run to resume")
    if final_file.is_file():
        print(f"The run {out} has already finished. {hint}")
        raise typer.Exit
    return config_path


def _flag(parameter: str) -> str:
    return f"--{parameter.strip('_').replace('_', '-')}"


def find_images(sources: Sequence[str | Path]) -> list[Any]:
    """Lists the images given as arguments, in folders or tables, or on standard input.

    An image is a path, or a `StoredFile` in object storage or packed shards.
    """
    from keras_vit.data.sources.load import load
    from keras_vit.data.sources.masks import without_masks
    from keras_vit.data.target_kinds import NO_TARGETS
    from keras_vit.storage.find_files import find_files
    from keras_vit.storage.paths import StoredFile, StoredFiles, fields_of_files, is_local, to_path

    def stored(files: Any) -> Iterable[StoredFile]:
        return map(StoredFile, repeat(files), range(len(files)))

    images: list[Any] = []
    libraries, tables = arguments.LIBRARIES, arguments.TABLE_SUFFIXES
    for source in sources:
        if str(source) == str(STANDARD_INPUT):
            images += [line for line in sys.stdin.read().split("\n") if line.strip()]
        elif str(source).startswith(libraries) or str(source).lower().endswith(tables):
            examples = load(source, NO_TARGETS)
            is_stored = isinstance(examples.encoded, StoredFiles)
            images += examples.paths or stored(examples.encoded if is_stored else examples)
        elif not (path := to_path(source)).is_dir():
            images.append(str(source))
        else:
            found = find_files(path).images
            names = without_masks(found)
            if len(names) < len(found):
                print(f"Note: masks left out: {len(found) - len(names)}.", file=sys.stderr)
            fields = fields_of_files(path, names)
            images += fields["paths"] if is_local(path) else stored(fields["encoded"])
    if not images:
        raise ValueError(
            f"`SOURCE` must contain at least one image. Received: {', '.join(map(str, sources))}"
        )
    return images
