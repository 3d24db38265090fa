"""The script that wrote `tests/compatibility/files`, with the code of version 17e621a.

The files stand for what users have on their disks, so they must not be made again because a test
fails: then the code is to be mended. Where a later version writes another format, new files come
beside these. From the root of a checkout of that version:

    PYTHONPATH=. python tests/compatibility/make_files.py OUT

It works within OUT, so that no file holds a path of the machine that wrote it. Some files are made
smaller than a user's, which changes nothing for who reads them: zip archives are compressed again,
random weights are rounded, pictures and logs are left out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import ml_dtypes
import numpy as np
import PIL.Image
import typer

import keras_vit
from keras_vit import cli, export, models, training, zoo
from keras_vit.reports import compare, contestant
from keras_vit.training.schedules import WarmupDecay
from tests.compatibility.narrow import CONFIG, NAME, NARROWER, constructors, means
from tests.helpers import randomise

CLASSES = ("ant", "bee", "cow")
PER_CLASS = 8
RECIPE = training.Recipe(
    epochs=3,
    batch_size=6,
    learning_rate=0.02,
    dropout_rate=0.1,
    stochastic_depth_rate=0.2,
    precision="float32",
)
STOPPED_AFTER = 5  # steps; an epoch has three
COMMON = {"split_seed": 3, "validation_fraction": 0.25, "strategy": "cpu", "keep": 1}
DECODER = {"decoder_width": 8, "decoder_depth": 1, "decoder_heads": 2}

Expected = dict[str, np.ndarray]


def write_data() -> None:
    """Writes small images of three colors, and a table that gives them several labels."""
    generator = np.random.default_rng(11)
    lines = ["file,labels"]
    for label, name in enumerate(CLASSES):
        folder = Path("data/photos", name)
        folder.mkdir(parents=True)
        for index in range(PER_CLASS):
            pixels = generator.integers(0, 160, (11 + index % 3, 13, 3), "uint8")
            pixels[..., label] += 12
            path = folder / f"{index:02d}{'.jpg' if index % 4 == 1 else '.png'}"
            PIL.Image.fromarray(pixels).save(path)
            shown = {name, CLASSES[index % 3]} if index % 4 else set()
            lines.append(f"photos/{name}/{path.name},{'|'.join(sorted(shown))}")
    Path("data/labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def rounded(model: keras.Model) -> keras.Model:
    """Gives all weights random values of few bits, which a zip archive makes small."""
    weights = randomise(model).get_weights()
    model.set_weights([w.astype(ml_dtypes.bfloat16).astype(w.dtype) for w in weights])
    return model


def compress(folder: str | Path) -> None:
    """Compresses the zip archives in a folder again, as tightly as it goes."""
    for path in (*Path(folder).rglob("*.keras"), *Path(folder).rglob("*.npz")):
        with zipfile.ZipFile(path) as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in content.items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def build(dtype: str | None = None, thresholds: Any = None, **changes: Any) -> keras.Model:
    contract = keras_vit.Preprocessing(
        size=(16, 16), mean=0.4, std=0.3, class_names=CLASSES, thresholds=thresholds
    )
    config = CONFIG.replace(classes=len(CLASSES), **changes)
    return rounded(models.build(config, preprocessing=contract, dtype=dtype))


def users_model() -> keras.Model:
    images = keras.Input((16, 16, 3), name="photo")
    encoder = zoo.constructor(NAME)(
        include_top=False, weights=None, pooling="token", input_shape=(16, 16, 3)
    )
    answer = keras.layers.Dense(5, activation="softmax", name="mine")(encoder(images))
    return rounded(keras.Model(images, answer, name="users"))


def compiled(pixels: np.ndarray) -> keras.Model:
    model = build()
    schedule = WarmupDecay(0.01, total_steps=20, warmup_steps=2)
    model.compile(
        keras_vit.AdamW(learning_rate=schedule, weight_decay=0.02),
        "sparse_categorical_crossentropy",
        jit_compile=False,
    )
    for _ in range(3):
        model.train_on_batch(pixels, np.array([0, 1]))
    return model


def all_models(pixels: np.ndarray) -> Iterator[tuple[str, keras.Model]]:
    yield "softmax", build()
    yield "sigmoid", build(thresholds=(0.2, 0.5, 0.7), classifier_activation="sigmoid")
    yield "distillation", build(distillation_token=True, distillation_head=True)
    yield "map", build(pooling="map", class_token=False)
    yield "registers", build(register_tokens=3, layer_scale=0.1)
    yield "sincos_2d", build(position_embedding="sincos_2d", pooling="gap", class_token=False)
    yield "learned_2d", build(position_embedding="learned_2d")
    yield "hybrid", build(stem_blocks=(1,), stem_width=32, patch_size=1)
    yield "merged", keras_vit.reduce_tokens(build(), per_block=5)
    yield "pruned", keras_vit.reduce_tokens(build(), per_block=5, method="prune")
    yield "mixed_bfloat16", build(dtype="mixed_bfloat16")
    yield "users_model", users_model()
    yield "compiled", compiled(pixels)


def write_models(expected: Expected) -> None:
    Path("keras").mkdir()
    pixels, contracts = expected["pixels"], {}
    for name, model in all_models(pixels):
        model.save(f"keras/{name}.keras")
        expected[f"keras/{name}"] = keras.ops.convert_to_numpy(model(pixels, training=False))
        if name != "users_model":
            contracts[name] = {
                "config": models.config_of(model).get_config(),
                "preprocessing": models.preprocessing_of(model).get_config(),
            }
        if name == "compiled":
            losses = [model.train_on_batch(pixels, np.array([0, 1])) for _ in range(3)]
            expected["losses"] = np.array(losses)
    write_json("contracts.json", contracts)
    compress("keras")


def write_weights() -> None:
    Path("weights").mkdir()
    model = keras.saving.load_model("keras/softmax.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other libraries compute otherwise
        for path, format in (
            ("model.weights.h5", "keras"),
            ("model.npz", "npz"),
            ("model.safetensors", "timm"),
            ("huggingface", "huggingface"),
        ):
            keras_vit.save_weights(model, f"weights/{path}", format=format)


class StopAfter(keras.callbacks.Callback):
    """Ctrl-C during a step; the run saves its state when it is done."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def on_train_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGINT)


def write_stopped(name: str, start: Callable[[Path], Any], expected: Expected) -> None:
    """Writes a run that was stopped, and what comes of one that nothing disturbed."""
    start(Path("undisturbed"))
    last = keras.saving.load_model("undisturbed/last.keras")
    pixels = expected["pixels"]
    expected[f"runs/{name}"] = keras.ops.convert_to_numpy(last(pixels, training=False))
    expected[f"means/{name}"] = means(last)
    shutil.rmtree("undisturbed")
    module = importlib.import_module("keras_vit.training.loop")
    fit = module.fit_remaining
    also = (StopAfter(STOPPED_AFTER),)
    out = Path("runs", name)
    with mock.patch.object(module, "fit_remaining", lambda *a: fit(*a[:2], [*a[2], *also])):
        try:
            start(out)
        except KeyboardInterrupt:
            print(f"{name} is stopped")
    (state,) = (out / "checkpoints").iterdir()
    if state.name != f"step_{STOPPED_AFTER:09d}.npz":
        raise RuntimeError(f"{name} was stopped at {state}")
    for folder in ("samples", "tensorboard"):
        shutil.rmtree(out / folder, ignore_errors=True)
    compress(out)


class Start:
    """Starts one run in a folder."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords

    def __call__(self, out: Path) -> None:
        config = self.keywords["config"]
        if isinstance(config, training.RunConfig):
            training.train(config, out, tensorboard=False)
        else:
            training.pretrain(config, out)


def write_runs(expected: Expected) -> None:
    labeled = training.RunConfig("data/photos", NAME, recipe=RECIPE, **COMMON)
    soft = RECIPE.replace(distillation="soft")
    unlabeled = training.PretrainConfig("data/photos", NAME, recipe=RECIPE, **DECODER, **COMMON)
    for name, config in {
        "classification": dataclasses.replace(labeled, recipe=RECIPE.replace(ema_momentum=0.5)),
        "multi_label": dataclasses.replace(labeled, data="data/labels.csv"),
        "distillation": dataclasses.replace(
            labeled,
            recipe=soft,
            weights="keras/distillation.keras",
            teacher="keras/softmax.keras",
        ),
        "masked_autoencoder": unlabeled,
        "masked_patches": dataclasses.replace(unlabeled, method="masked-patches"),
    }.items():
        write_stopped(name, Start(config=config), expected)

    finished = Path("runs/finished")
    training.train(labeled, finished, tensorboard=False)
    for picture in finished.glob("*.png"):
        picture.unlink()
    shutil.rmtree(finished / "checkpoints")
    (finished / "best.keras").unlink()
    for sample in sorted((finished / "samples").iterdir())[2:]:
        sample.unlink()
    compress(finished)


def write_bundle(expected: Expected) -> None:
    export.bundle(
        "runs/finished",
        "bundle",
        rungs=("float32", "dynamic_range", "int8"),
        runtimes=("onnx", "openvino"),
        min_agreement=0.0,
        warm_up=False,
        full=True,
        verbose=0,
    )
    remove_path(Path("bundle/vit-files/1"))
    images = [Path("data/photos", name).read_bytes() for name in ("ant/01.jpg", "cow/02.png")]
    for path in (Path("runs/finished"), Path("bundle/vit"), *Path("bundle").rglob("*.tflite")):
        expected[f"files/{path.as_posix()}"] = export.load_predictor(path).predict(images)


def remove_path(folder: Path) -> None:
    """Makes the path that OpenVINO notes in its file relative, and renews the manifest."""
    path, manifest = folder / "model.xml", folder / "manifest.json"
    content = path.read_bytes().replace(f"{os.getcwd()}/".encode(), b"")
    path.write_bytes(content)
    told = json.loads(manifest.read_text(encoding="utf-8"))
    told["files"][path.name] |= {
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    manifest.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def write_comparison() -> None:
    config = training.RunConfig("data/photos", "", recipe=RECIPE, **COMMON)
    # In this process, which alone knows the constructors.
    with mock.patch.object(contestant, "_in_a_process", lambda name, *a: contestant.main(*a)):
        compare(config, [NAME, NARROWER], "comparison")
    Path("comparison/curves.png").unlink()
    for run in Path("comparison/runs").glob("*/run"):
        for path in run.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.suffix in (".keras", ".png"):
                path.unlink()


def write_recipes() -> None:
    found = {name: published.recipe for name, published in training.RECIPES.items()}
    for name in ("augreg", "augreg-aug_light1-wd_0.03-do_0.1-sd_0.1"):
        found[name] = training.recipe(name)
    before = {name: p.recipe for name, p in training.PRETRAINING_RECIPES.items()}
    write_json(
        "recipes.json",
        {
            "train": {name: dataclasses.asdict(recipe) for name, recipe in found.items()},
            "pretrain": {name: dataclasses.asdict(recipe) for name, recipe in before.items()},
        },
    )


def write_help() -> None:
    """Writes `--help` of every command to read, and the names of all options to compare."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    texts, options = [], {}
    for words, command in commands(typer.main.get_command(cli.app)):
        call = [sys.executable, "-m", "keras_vit", *words, "--help"]
        text = subprocess.run(call, env=environment, check=True, capture_output=True, text=True)
        title = " ".join(["keras-vit", *words])
        texts.append(f"$ {title} --help\n{text.stdout}")
        options[title] = sorted(
            name for p in command.params if p.param_type_name == "option"
            for name in (*p.opts, *p.secondary_opts)
        )  # fmt: skip
    lines = [line.rstrip() for line in "\n".join(texts).splitlines()]
    Path("help.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json("options.json", options)


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


def write_json(name: str, content: Any) -> None:
    Path(name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main(out: str) -> None:
    Path(out).mkdir(parents=True)
    os.chdir(out)
    Path("scratch").mkdir()
    tempfile.tempdir = "scratch"
    make = tempfile.mkdtemp
    tempfile.mkdtemp = lambda *args, **options: os.path.relpath(make(*args, **options))
    keras.utils.set_random_seed(7)
    pixels = np.random.default_rng(3).normal(size=(2, 16, 16, 3)).astype("float32")
    expected: Expected = {"pixels": pixels}
    with constructors():
        write_data()
        write_models(expected)
        write_weights()
        write_runs(expected)
        write_bundle(expected)
        write_comparison()
    write_recipes()
    write_help()
    np.savez_compressed("expected.npz", **expected)
    shutil.rmtree("scratch")


if __name__ == "__main__":
    main(sys.argv[1])
