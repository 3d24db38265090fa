"""Command `keras-vit predict`."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keras_vit import arguments, choices, output_folder
from keras_vit.cli import options as opt
from keras_vit.cli import prediction_table
from keras_vit.cli.model_argument import check_run, load_given_model
from keras_vit.escapes import say
from keras_vit.startup import start_keras

if TYPE_CHECKING:
    from keras_vit.export import Prediction


def predict(
    sources: Annotated[
        list[str],
        opt.argument(
            "[RUN] SOURCE...",
            "RUN: run folder, exported file or folder of exports (omit it with --server). SOURCE: "
            "image files, folders or tables of images, packed shards, s3:// or gs:// folders, "
            "tfds:NAME, hf:NAME, or - to read file names from standard input.",
        ),
    ],
    to: Annotated[
        Path | None,
        opt.option("Write the predictions to this file (.csv, .jsonl, .parquet; COCO's .json)."),
    ] = None,
    every_class: Annotated[
        bool, opt.option("With --to: write the probability of every class.", "--all")
    ] = False,
    embed: Annotated[
        bool, opt.option("With --to: write the features before the classifier.", "--embed")
    ] = False,
    top: Annotated[int, opt.option("Number of classes to print.", min=1)] = 3,
    constructor: opt.ConstructorOption = None,
    image_size: opt.SizeOption = None,
    batch_size: Annotated[int | None, opt.batch_size(show_default="32; 16 with --server")] = None,
    trust: Annotated[
        bool, opt.option("Run a SavedModel whose operators can read and write any file.", "--trust")
    ] = False,
    engine: Annotated[
        choices.Engine | None,
        opt.option("With --to: compute with Ray, on all cores or GPUs of its cluster."),
    ] = None,
    address: Annotated[
        str | None,
        opt.option(
            "Address of the Ray cluster, which contains this machine.",
            metavar="HOST:PORT",
            show_default="Ray is started on this machine",
        ),
    ] = None,
    server: Annotated[
        str | None,
        opt.server_option(
            "Address of TensorFlow Serving: HOST:PORT for gRPC, an http(s):// URL for REST.",
            metavar="HOST:PORT",
        ),
    ] = None,
    name: Annotated[str, opt.server_option("Model name on the server.")] = "vit",
    version: Annotated[
        str | None,
        opt.server_option(
            "Model version: a number, or a label such as canary.", show_default="the newest"
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        opt.server_option(
            "File classes.pb of `keras-vit export --prototypes` to classify by.", metavar="FILE"
        ),
    ] = None,
    tls: Annotated[bool, opt.server_option("Encrypt gRPC.", "--tls")] = False,
    certificate: Annotated[
        Path | None,
        opt.server_option(
            "File with trusted certificates (PEM).",
            metavar="FILE",
            show_default="the certificates included in gRPC and requests",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        opt.server_option(
            "Request header, such as 'Authorization: Basic ...'; may be repeated.",
            metavar="NAME:VALUE",
        ),
    ] = None,
    timeout: Annotated[float, opt.server_option("Timeout in seconds.")] = 30.0,
) -> None:
    """Print the most probable classes of images, or write them to a table.

    For multi-label models, print all labels above their thresholds. An image that cannot be read
    gets a line with the reason, and the exit status is 1.

    keras-vit predict runs/photos cat.jpg dog.png

    keras-vit predict runs/photos photos/ --to predictions.csv

    keras-vit predict --server localhost:8500 cat.jpg dog.png
    """
    size = opt.parse_size(image_size)
    batch_size = batch_size or (16 if server else 32)  # a server accepts at most 16
    model = Path(sources[0])  # unused with a server
    image_sources = sources if server else sources[1:]
    if not image_sources:
        raise ValueError(
            "`keras-vit predict` needs a run folder or exported file (or `--server`) and at "
            f"least one image. Received: {sources[0]}"
        )
    if not server:
        opt.check_exists("RUN", model, "a run folder or an exported file")
        if not _is_model(model) and (models := [s for s in image_sources if _is_model(Path(s))]):
            raise ValueError(
                "`RUN` must be the first argument, as in `keras-vit predict "
                f"{models[0]} {model}`. Received: {' '.join(map(str, sources))}"
            )
        check_run(model)
    if size and not constructor:
        raise ValueError(f"`--image-size` needs `--model`. Received: --image-size {image_size}")
    if address and not engine:
        raise ValueError(f"`--address` needs `--engine ray`. Received: --address {address}")
    table_options = {"--all": every_class, "--embed": embed, "--engine": engine}
    for option in (name for name, value in table_options.items() if value):
        if to is None or server:
            raise ValueError(f"`{option}` needs `--to`, without `--server`. Received: {option}")
    if classes and not server:
        raise ValueError(
            "`--classes` needs `--server`; without it, the file in the SavedModel is used. "
            f"Received: --classes {classes}"
        )
    headers = dict(map(_header, header or ()))
    opt.check_exists("--certificate", certificate, "a PEM file")
    opt.check_exists("--classes", classes, "a file classes.pb")
    not_local = (*arguments.URL_SCHEMES, *arguments.LIBRARIES)
    stdin = str(opt.STANDARD_INPUT)
    files = [s for s in image_sources if not s.startswith(not_local) and s != stdin]
    opt.check_files("SOURCE", list(map(Path, files)), folders=True)
    opt.check_new_file("--to", to, prediction_table.SUFFIXES)
    start_keras()
    from keras_vit import export
    from keras_vit.tasks.classification.prediction import BEST, Scores, optional_cells

    if server is not None and top > BEST:
        raise ValueError(
            f"`--top` must be at most {BEST} with `--server`, because responses contain no more "
            f"classes. Received: --top {top}"
        )
    top = max(top, BEST) if to else top
    paths = opt.find_images(image_sources)
    with contextlib.ExitStack() as stack:
        if server is not None:
            client = stack.enter_context(
                export.Client(
                    server,
                    name,
                    version=int(version) if version and version.isdecimal() else version,
                    tls=tls,
                    certificate=certificate,
                    headers=headers,
                    timeout=timeout,
                )
            )
            class_rows = classes.read_bytes() if classes else None
            digest = hashlib.sha256(class_rows or b"").hexdigest()
            identity = {"server": f"{server} {name} {version}", "classes_sha256": digest}
            predict: Any = functools.partial(
                _request_predictions, client, batch_size, class_rows, to is not None
            )
            if to:
                readable = next((answer for answer in predict(paths) if answer.ok), None)
                table: Any = Scores(further=list(optional_cells(readable) if readable else ()))
        else:
            load = functools.partial(load_given_model, classifier=not embed)
            network: Any = load(model, constructor, size) if constructor else model
            if embed:
                table = export.load.Embeddings()
                predict = functools.partial(export.embed, network, batch_size=batch_size)
            else:
                predictor = export.load_predictor(network, trust=trust)
                table = predictor.task.table(predictor.preprocessing, every_class=every_class)
                predict = functools.partial(predictor.iterate, batch_size=batch_size, top=top)
            if engine:
                from keras_vit.export import ray_engine

                ray_engine.connect(address)
                source: Any = model.absolute()
                if constructor:
                    source = functools.partial(load, source, constructor, size)
                predict = functools.partial(
                    ray_engine.predict,
                    source=source,
                    batch_size=batch_size,
                    embedding=embed,
                    top=top,
                    trust=trust,
                )
            identity = _identity(model, constructor, size) if to else {}
            if not embed:
                identity |= {"top": str(top)}
                identity["preprocessing"] = json.dumps(predictor.preprocessing.get_config())
        if to and to.suffix == ".json" and not hasattr(table, "coco_rows"):
            raise ValueError(
                "`--to` must end in .csv, .jsonl or .parquet, because results in the format of "
                f"COCO need a detector. Received: --to {to}"
            )
        if to and to.suffix == ".json":
            files_of_ids = {table.image_id(path): path for path in paths}
            if hidden := [path for path in paths if files_of_ids[table.image_id(path)] != path]:
                raise ValueError(
                    "`SOURCE` must contain images of different names for results in the format of "
                    f"COCO. Received: {hidden[0]} and {files_of_ids[table.image_id(hidden[0])]}"
                )
        if to:
            failed = _write(to, table, paths, predict, identity)
        else:
            failed = _print(list(map(str, paths)), predict(paths), top)
    if failed:
        raise typer.Exit(1)


def _is_model(path: Path) -> bool:
    files = ("config.yaml", "saved_model.pb", "batching.config")  # of a run, an export, exports
    is_model_file = path.suffix in (".keras", ".tflite", ".onnx", ".xml")
    return is_model_file or any((path / file).is_file() for file in files)


def _identity(model: Path, constructor: str | None, size: Any) -> dict[str, str]:
    """Returns the SHA-256 of a model's files, and the constructor that loads them."""
    from keras_vit.export.manifest import sha256

    last_model = model / "last.keras"
    path = last_model if last_model.is_file() else model
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    digests = [sha256(file) for file in files]
    if len(digests) != 1:
        digests = [hashlib.sha256("".join(digests).encode()).hexdigest()]
    loader = f"{constructor} {size}" if constructor else ""
    return {"model_sha256": digests[0], "constructor": loader}


def _print(paths: list[str], predictions: Iterator[Prediction], top: int) -> int:
    """Prints predictions; returns the number of images that could not be read."""
    failed = 0
    width = min(max(map(len, paths)), 60)
    for path, prediction in zip(paths, predictions, strict=True):
        say(f"{path:<{width}}   {prediction.text(top)}".replace("\n", "\\n"))
        failed += not prediction.ok
    return failed


def _write(
    to: Path,
    table: Any,
    images: Sequence[Any],
    predict: Callable[[Sequence[Any]], Iterator[Any]],
    identity: dict[str, str],
) -> int:
    """Writes predictions to a table; returns the number of images that could not be read."""
    from rich.console import Console
    from rich.progress import track

    table_rows = table.coco_rows if to.suffix == ".json" else table.rows
    write_pictures, folder = getattr(table, "write_pictures", None), to.with_suffix("")

    def rows_from(start: int) -> Iterator[tuple[list[dict[str, Any]], bool]]:
        remaining, console = images[start:], Console(stderr=True)
        predictions = track(predict(remaining), "Predicting", len(remaining), console=console)
        pairs = zip(remaining, predictions, strict=True)
        for number, (image, prediction) in enumerate(pairs, start + 1):
            if write_pictures:
                write_pictures(folder, number, image, prediction)
            message = prediction.message if hasattr(prediction, "message") else prediction[1]
            yield table_rows(image if write_pictures else str(image), prediction), not message

    names_hash = hashlib.sha256()
    for image in images:
        names_hash.update(f"{image}\0".encode(errors="surrogateescape"))
    identity |= {"images_sha256": names_hash.hexdigest(), "columns": "|".join(table.columns)}
    with output_folder.writing(folder, "predict") if write_pictures else contextlib.nullcontext():
        others = [p for p in folder.glob("[!.]*") if not p.name[:5].isdecimal()]
        if write_pictures and others:
            raise ValueError(
                f"`--to` must have another name, since {folder}/ for its pictures contains other "
                f"files. Received: --to {to}, with {others[0]}"
            )
        failed = prediction_table.write_table(to, table.columns, len(images), rows_from, identity)
    outputs = f"{to} and {folder}/" if write_pictures else str(to)
    print(f"Written: {outputs} ({len(images)} images, {failed} of which cannot be read)")
    return failed


def _request_predictions(
    client: Any, batch_size: int, classes: bytes | None, for_table: bool, paths: Sequence[Any]
) -> Iterator[Prediction]:
    """Yields a server's predictions for image files; for a table, only of a classifier."""
    import numpy as np

    from keras_vit.export import Prediction
    from keras_vit.export.predictor import encode

    path_iterator, unreadable = iter(paths), functools.partial(Prediction, np.zeros(0), (), ())
    while batch := [encode(path) for path in islice(path_iterator, batch_size)]:
        readable = [content for content, message in batch if not message]
        options = {"batch_size": batch_size, "classes": classes}
        predictions = iter(client.predict(readable, **options) if readable else ())
        for _, message in batch:
            prediction = unreadable(message=message) if message else next(predictions)
            if for_table and hasattr(prediction, "objects"):
                raise ValueError(
                    "`--to` with `--server` must be for a classifier; `keras-vit predict EXPORT` "
                    "writes the objects that a detector finds. Received: a server with a detector"
                )
            yield prediction


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (colon and name.strip()):
        raise ValueError(f"`--header` must have the form NAME:VALUE. Received: {text!r}")
    return name.strip(), value.strip()
