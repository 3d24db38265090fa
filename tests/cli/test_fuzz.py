"""Generated command lines, configurations and tables: a result, or one message and exit code."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

from keras_vit.cli.app import app
from tests.cli.commands import Call

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(3000)]

VALUES = (
    *("", "0", "-1", "1", "2", "3.5", "1e999", "nan", "abc", "a=b", "[1]", "{a: 1}", "null"),
    *(
        "8x12",
        "16x1000000",
        "99999999999999999999",
        "☃",
        "x" * 300,
        "../..",
        "/dev/null",
        "\x1b[2J",
    ),
    *("ViTNano", "ViTB16", "ResNet50", "imagenet", "digits", "tfds:mnist", "softmax", "auto"),
    *("mixup=", "mixup=0.2", "layers=5", "augmentation=5", "epochs=[1]", "crop_area=[1,2,3]"),
)
COMMANDS = (("train",), ("evaluate",), ("predict",), ("export",), ("data", "check"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated names of outputs are relative to this folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def parameters(words: tuple[str, ...]) -> list[click.Parameter]:
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    return [p for p in command.params if not {"--help", "--out", "--to"} & set(p.opts)]


def check(code: int, output: str, error: str, what: object) -> None:
    """A usage error has Typer's frame; any other is a line and hints; findings are output."""
    assert code in (0, 1, 2), what
    assert "Traceback" not in error, what
    assert "\x1b[2J" not in output + error, what
    if code == 1:
        message = error[error.rfind("keras-vit: ") :]
        assert message.startswith("keras-vit: ") or output, (what, error)
        assert len(message.splitlines()) < 30, (what, error)


@pytest.fixture
def sources(run: Path, photos: Path, tmp_path: Path) -> list[str]:
    table = tmp_path / "labels.csv"
    table.write_text("file,label\na.jpg,b\n")
    first = next(photos.glob("*/*.jpg"))
    return [str(p) for p in (run, run / "last.keras", run / "config.yaml", photos, first, table)]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_generated_arguments(
    words: tuple[str, ...], call: Call, sources: list[str], tmp_path: Path
) -> None:
    draw, options = random.Random(" ".join(words)), parameters(words)
    codes = []
    for number in range(250):
        line: list[str] = []
        for parameter in draw.sample(options, draw.randint(1, min(4, len(options)))):
            name = draw.choice(parameter.opts) if parameter.param_type_name == "option" else None
            value = draw.choice(draw.choice((VALUES, sources)))
            flag = isinstance(parameter, click.Option) and parameter.is_flag
            line += [part for part in (name, None if flag else value) if part is not None]
        out = tmp_path / f"out{number}"
        if words == ("train",):  # what runs ends soon
            line += ["--epochs", "1", "--no-tensorboard", "--out", str(out), "--image-size", "8x12"]
            line += draw.choice([[], ["--data", sources[3], "--model", "ViTNano"]])
        elif words in (("evaluate",), ("predict",), ("export",)):
            line = [draw.choice(sources), *line]
            line += ["--to", str(out)] if words != ("evaluate",) else []
        code, output, error = call(*words, *line)
        check(code, output, error, (words, line))
        codes.append(code)
        shutil.rmtree(out, ignore_errors=True)
    assert {1, 2} <= set(codes)


def mutated(text: str, draw: random.Random) -> str:
    """Changes lines, values and characters."""
    lines = text.splitlines()
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(lines))
        kind = draw.randrange(5)
        if kind == 0:
            lines[at] = re.sub(r":.*", lambda _: f": {draw.choice(VALUES)}", lines[at])
        elif kind == 1:
            lines.insert(at, draw.choice(lines))
        elif kind == 2:
            lines[at] = draw.choice(VALUES)
        elif kind == 3:
            cut = draw.randrange(len(lines[at]) + 1)
            lines[at] = (
                lines[at][:cut] + draw.choice("\0\t,;\"'[{:&*!%\x1b☃\ud800") + lines[at][cut:]
            )
        else:
            del lines[at]
            lines = lines or [""]
    return "\n".join(lines) + draw.choice(["\n", ""])


def table(photos: Path) -> str:
    rows = [f"{path.relative_to(photos)},{path.parent.name}" for path in photos.glob("*/*.*")]
    return "\n".join(["file,label", *rows])


def configuration(run: Path) -> str:
    return (run / "config.yaml").read_text().replace("epochs: 4", "epochs: 1")


@pytest.mark.parametrize(
    ("kind", "count"), [("data check", 550), ("train", 100), ("evaluate", 100)]
)
def test_mutated_files(
    kind: str, count: int, call: Call, photos: Path, run: Path, tmp_path: Path
) -> None:
    """A table of images, a configuration to train with, and that of a finished run."""
    draw = random.Random(kind)
    here = Path(shutil.copytree(photos, tmp_path / "photos"))
    sound = table(here) if kind == "data check" else configuration(run)
    for number in range(count):
        text, out = mutated(sound, draw), tmp_path / f"out{number}"
        file, line = here / "labels.csv", ("data", "check", here / "labels.csv")
        if kind == "train":
            file = tmp_path / "config.yaml"
            line = ("train", "--config", file, "--out", out, "--no-tensorboard", "--epochs", 1)
        elif kind == "evaluate":
            file, line = Path(shutil.copytree(run, out)) / "config.yaml", ("evaluate", out)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        code, output, error = call(*line)
        check(code, output, error, text)
        shutil.rmtree(out, ignore_errors=True)
