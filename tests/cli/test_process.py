"""The command line as a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import pytest

from keras_vit import models, training
from tests.cli.commands import commands
from tests.training.photos import write_photos

pytestmark = pytest.mark.tensorflow

# Runs commands one after another; prints of each the status and what it imported that is slow.
RUN_ALL = """
import contextlib, io, json, sys
import keras_vit_toolkit
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            keras_vit_toolkit.main()
        except SystemExit as end:
            status = end.code
    slow = {"keras", "tensorflow", "jax", "sklearn", "matplotlib", "numpy"} & sys.modules.keys()
    print(json.dumps([status, sorted(slow), said.getvalue()]))
"""
PREDICT = "import keras_vit_toolkit; keras_vit_toolkit.main()"
MISTAKES = {
    "predict nosuch.keras x.jpg": "`RUN` must be a run folder or an exported file",
    "predict here.jpg x.jpg": "`SOURCE` must be an existing file or folder.",
    "predict --server a:1 --certificate no.pem here.jpg": "`--certificate` must be a PEM file",
    "predict --server a:1 --header x here.jpg": "`--header` must have the form NAME:VALUE.",
    "train --data nosuch": "`data` must be a folder of class folders",
    "train --data digits --weights ./no.npz": "`--weights` must be an existing file, a URL",
    "train --data digits --teacher nosuch": "`--teacher` must be a run folder",
    "train --data digits --set mixup": "`--set` must have the form",
    "train --config nosuch.yaml": "`--config` must be a config.yaml",
    "train --resume --out nosuch": "`--out` must be the folder of the run to resume",
    "pretrain --data nosuch": "`data` must be a folder of class folders",
    "pretrain --resume --out nosuch": "`--out` must be the folder of the run to resume",
    "compare --models A,B --data nosuch": "`data` must be a folder of class folders",
    "compare --models A,B --data digits --weights A=no.h5": "`--weights` must be an existing file",
    "evaluate nosuch": "`RUN` must be a run folder or a model file",
    "evaluate /nosuch/no.npz --model ViTB16": "`RUN` must be an existing file",
    "evaluate here.jpg --data nosuch": "`data` must be a folder of class folders",
    "explain nosuch here.jpg": "`RUN` must be a run folder or a model file",
    "explain here.jpg nosuch.jpg": "`IMAGE` must be an existing file.",
    "explain here.jpg /dev/zero": "`IMAGE` must be a regular file, not a folder, pipe",
    "predict here.jpg /dev/zero": "`SOURCE` must be a regular file, not a folder, pipe",
    "probe nosuch": "`RUN` must be a run folder or a model file",
    "probe here.jpg --data nosuch": "`data` must be a folder of class folders",
    "card nosuch": "`RUN` must be a run folder written by `keras-vit train --out`",
    "export nosuch --to to": "`RUN` must be a run folder or a model file",
    "export here.jpg --to to --data nosuch": "`data` must be a folder of class folders",
    "doctor nosuch": "`RUN` must be a run folder, or a .keras or .h5 file",
    "doctor here.jpg --data nosuch": "`data` must be a folder of class folders",
    "data check nosuch": "`data` must be a folder of class folders",
    "data preview nosuch": "`data` must be a folder of class folders",
    "plan --model ViTB16 --memory much": "`--memory` must be a size such as 16GiB.",
    "convert ./nosuch.npz there.npz": "`SOURCE` must be an existing file",
    "train --data digits --weights runs/nosuch.npz": "`--weights` must be an existing file, a",
    "train --data digits --out here.jpg/run": "`--out` must be a folder or be inside a folder",
    "train --data digits --out run": "which contains a run.",
    "train --data digits --out .": "`out` must be a new folder, or a folder created by keras-vit;",
    "train --resume --out .": "`--out` must be the folder of the run to resume",
    "pretrain --data digits --weights runs/nosuch.h5": "`--weights` must be an existing file, a",
    "pretrain --data digits --out here.jpg": "`--out` must be a folder or be inside a folder",
    "pretrain --data digits --out run": "which contains a run.",
    "pretrain --resume --out .": "`--out` must be the folder of the run to resume",
    "compare --models A,runs/B --data digits": "`--models` must be constructors or run",
    "compare --models A,B --data digits --weights A=no/a.npz": "`--weights` must be an existing",
    "compare --models A,B --data digits --out here.jpg": "`--out` must be a folder or be",
    "compare --models A,B --data digits --out files": "which contains comparison.md",
    "evaluate run": "`RUN` must be a run with a complete epoch. Received: run",
    "evaluate model.keras": "`--data` must be given",
    "evaluate no/a.npz --model ViTB16": "`RUN` must be an existing file",
    "evaluate here.jpg --data digits --out here.jpg": "`--out` must be a folder or be",
    "evaluate here.jpg --data digits --report here.jpg": "`--report` must be a folder or be inside",
    "explain here.jpg here.jpg --out here.jpg/a.png": "`--out` must be inside a folder",
    "probe here.jpg": "`--data` must be given",
    "probe here.jpg --data digits --cache .": "`--cache` must be a file",
    "probe here.jpg --data digits --out here.jpg": "`--out` must be a folder or be inside a folder",
    "card .": "`RUN` must be a run folder written by `keras-vit train --out`",
    "evaluate here.jpg --data digits --out files": "which contains evaluation.json",
    "predict here.jpg here.jpg --to here.jpg/a.csv": "`--to` must be inside a folder",
    "card run": "`--out` must be a folder or be inside a folder. Received: run/card, but",
    "card run --out here.jpg": "`--out` must be a folder or be inside a folder",
    "plan --model ViTB16 --memory 1G --json .": "`--json` must be a file",
    "export here.jpg --to here.jpg": "`--to` must be a folder or be inside a folder",
    "export here.jpg --to run --name card": "`--to` must be a folder or be inside a folder",
    "convert here.jpg here.jpg": "`TARGET` must not exist without --overwrite.",
    "convert here.jpg here.jpg/a.npz": "`TARGET` must be inside a folder",
    "doctor here.jpg --data digits --json .": "`--json` must be a file",
    "data check digits --json here.jpg/a.json": "`--json` must be inside a folder",
    "data preview digits --out here.jpg/a.png": "`--out` must be inside a folder",
    "data convert run here.jpg/new": "`DEST` must be a folder or be inside a folder",
    "data preview digits --out .": "`--out` must be a file",
    "rollout promote . --config nosuch": "`--config` must be the server's model config file",
}


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


@pytest.mark.slow
def test_sigint_stops_a_real_run_that_can_go_on(tmp_path: Path) -> None:
    code = (
        "import signal\n"
        # A process that was started in the background ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from keras_vit.cli import main\n"
        "main()"
    )
    data, run = write_photos(tmp_path / "photos"), training.Run(tmp_path / "run")
    size = ("--image-size", 8, "--batch-size", 8)
    command = ("train", "--data", data, "--model", "ViTMicro4", "--out", run.path, *size)
    process = subprocess.Popen(
        python(code, *command, "--epochs", 10_000), stdout=subprocess.PIPE, text=True
    )
    try:
        while not run.history.is_file() and process.poll() is None:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert f"keras-vit train --resume --out {run.path}" in output
    assert keras.saving.load_model(run.last).output_shape == (None, 3)
    hidden = {path.name for path in run.path.iterdir() if path.name.startswith(".")}
    assert hidden == {".keras_vit_output", ".keras_vit_lock"}  # no unfinished file


def test_help_and_mistakes_are_answered_without_keras(tmp_path: Path) -> None:
    names = ("here.jpg", "model.keras", "run/config.yaml", "run/card")
    for name in (*names, "files/comparison.md", "files/evaluation.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    cases = [(["--version"], 0, ""), *(([*words, "--help"], 0, "") for words in commands())]
    cases += [([*words, "--nosuch"], 2, "No such option: --nosuch") for words in commands()]
    cases += [(text.split(), 1, message) for text, message in MISTAKES.items()]
    done = subprocess.run(
        python(RUN_ALL, json.dumps([arguments for arguments, _, _ in cases])),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    for (arguments, status, expected), (ended, slow, said) in zip(cases, results, strict=True):
        assert (ended, slow) == (status, []), arguments
        assert expected in said, arguments


@pytest.mark.slow
@pytest.mark.parametrize("verbose", [False, True])
def test_errors_that_tensorflow_logs_are_left_out(tmp_path: Path, verbose: bool) -> None:
    cut = next(write_photos(tmp_path / "photos").glob("ant/*.jpg"))
    cut.write_bytes(cut.read_bytes()[:-40])
    done = subprocess.run(
        python(PREDICT, *(["--verbose"] if verbose else []), "data", "check", "photos"),
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"ant/{cut.name}: damaged or truncated JPEG" in done.stdout
    logged = [line for line in done.stderr.splitlines() if re.match(r"[IWE]\d{4} |WARNING", line)]
    assert any("Premature end of JPEG data" in line for line in logged) == verbose
    assert bool(logged) == verbose


@pytest.mark.slow
def test_predict_finds_layers_and_leaves_out_the_log_of_tensorflow(tmp_path: Path) -> None:
    config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=3)
    models.build(config).save(tmp_path / "model.keras")
    keras.utils.save_img(tmp_path / "gray.png", keras.ops.full((8, 8, 3), 90.0), scale=False)
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        python(PREDICT, "predict", "model.keras", "gray.png"),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.startswith("gray.png   ")
