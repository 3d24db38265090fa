"""How long is it until a model is ready?

Fresh processes take turns. In each it is timed, one after the other, how long it takes to import
Keras, to import keras_vit after it, to build a model with random weights (`weights=None`), to read
the bytes of a file, to load weights from it into the model and to build another model with them
(`weights=path`): a process for each format. In others follows the first training step, with tracing
and compiling. Files come out of the system's cache, not from the disk: they were just written.

    python benchmarks/startup.py [--model ViTB16] [--trained ViTTi16] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
from train_step import hardware
from turns import spread

from keras_vit import weights, zoo

#: By suffix, what `keras_vit.save_weights` calls it.
FORMATS = {"npz": "npz", "safetensors": "timm", "weights.h5": "keras"}
KERAS, IMPORT = "import keras", "import keras_vit, after keras"
COMPILERS = ("graph", "XLA")
BATCH = 8  # images in the first training step

#: Runs statements given as JSON on the command line, by name, and prints of each the seconds and
#: those of the processor.
TIMED = """
import json, sys, time
names, seconds = {}, {}
for name, statement in json.loads(sys.argv[1]).items():
    start, processor = time.perf_counter(), time.process_time()
    exec(statement, names)
    seconds[name] = time.perf_counter() - start, time.process_time() - processor
print(json.dumps(seconds))
"""


def loading(model: str, path: Path, suffix: str) -> dict[str, str]:
    """Returns the statements of a process that loads weights, by name."""
    return {
        KERAS: "import keras",
        IMPORT: "import keras_vit",
        f"build {model}": f"model = keras_vit.{model}(weights=None)",
        f"read the bytes of .{suffix}": f"import pathlib; pathlib.Path({str(path)!r}).read_bytes()",
        f"load .{suffix}": f"keras_vit.load_weights(model, {str(path)!r})",
        f"build {model} with .{suffix}": f"keras_vit.{model}(weights={str(path)!r})",
    }


def training(model: str, compiler: str) -> dict[str, str]:
    """Returns the statements of a process that takes a training step, by name."""
    loss = "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
    images = f"numpy.zeros(({BATCH}, *model.input_shape[1:]), 'float32')"
    labels = f"numpy.zeros({BATCH}, 'int32')"
    return {
        KERAS: "import keras, numpy",
        IMPORT: "import keras_vit",
        f"build {model}": f"model = keras_vit.{model}(weights=None, classifier_activation=None)",
        f"first training step of {model}, {compiler}": (
            f"model.compile('adamw', {loss}, jit_compile={compiler == 'XLA'})\n"
            f"model.train_on_batch({images}, {labels})"
        ),
    }


def seconds(statements: dict[str, str]) -> dict[str, tuple[float, float]]:
    """Returns of each statement in a fresh process the seconds and those of the processor.

    The latter are of all threads; where others compute as well, they tell more.
    """
    command = [sys.executable, "-c", TIMED, json.dumps(statements)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def table(times: dict[str, list[tuple[float, float]]], model: str) -> str:
    """Returns the table of all times; what loads a file is compared to reading its bytes."""
    read = {
        name: times[f"read the bytes of .{suffix}"]
        for suffix in FORMATS
        for name in (f"load .{suffix}", f"build {model} with .{suffix}")
    }
    lines = [
        "| what | processes | s | of the processor | s relative to reading the bytes |",
        "|---|---|---|---|---|",
    ]
    for name, values in times.items():
        taken, processor = zip(*values, strict=True)
        ratios = [a / b for (a, _), (b, _) in zip(values, read.get(name, values), strict=True)]
        compared = spread(ratios, 1) if name in read else ""
        lines.append(
            f"| {name} | {len(values)} | {spread(taken, 2)} | {spread(processor, 2)} | {compared} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="ViTB16", help="constructor of what is loaded")
    parser.add_argument(
        "--trained", nargs="*", default=["ViTTi16"], help="constructors of what is trained"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of every process")
    parser.add_argument("--out", type=Path, help="Markdown file to write the table to")
    options = parser.parse_args()
    times: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        paths = {suffix: Path(folder) / f"model.{suffix}" for suffix in FORMATS}
        model = zoo.constructor(options.model)(weights=None)
        for suffix, path in paths.items():
            weights.save_weights(model, path, FORMATS[suffix])
        megabytes = max(path.stat().st_size for path in paths.values()) / 1e6
        del model
        processes = [loading(options.model, path, suffix) for suffix, path in paths.items()]
        processes += [training(n, compiler) for n in options.trained for compiler in COMPILERS]
        for turn in range(options.rounds):
            for statements in processes:
                for name, taken in seconds(statements).items():
                    times[name].append(taken)
            text = (
                f"# Until a model is ready\n\n{hardware()}; Python {platform.python_version()}, "
                f"Keras {keras.__version__} on {keras.backend.backend()}.\n"
                "Medians over fresh processes, which took turns, and the range in brackets. Files "
                f"of {megabytes:.0f} MB, in the system's cache. A first training step has {BATCH} "
                f"images, and traces and compiles before.\n\n{table(times, options.model)}\n"
            )
            if options.out:  # complete after each round
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(text, encoding="utf-8")
            print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
    print(text)


if __name__ == "__main__":
    main()
