from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from keras_vit import cli
from tests.cli.commands import Call, check_failure, commands

pytestmark = pytest.mark.tensorflow


def test_commands_are_in_groups(call: Call) -> None:
    _, output, _ = call("--help")
    groups = [line.split()[1] for line in output.splitlines() if line.startswith("╭─")]
    assert groups == ["Options", "Train", "Evaluate", "Deploy", "Weights", "Help", "Data"]


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_help_fits_80_columns_and_has_no_types_of_flags(command: list[str]) -> None:
    output = CliRunner().invoke(cli.app, [*command, "--help"], env={"COLUMNS": "80"}).output
    assert max(map(len, output.splitlines())) <= 80
    assert "<bool>" not in output
    assert "…" not in output


def test_a_run_has_the_same_name_in_every_command() -> None:
    found = typer.main.get_command(cli.app)
    names = {
        name: next(p for p in found.commands[name].params if p.param_type_name == "argument")
        for name in ("evaluate", "explain", "probe", "card", "doctor", "export", "predict")
    }
    assert {n: p.metavar for n, p in names.items()} == {
        name: "[RUN] SOURCE..." if name == "predict" else "RUN" for name in names
    }


def test_batch_size_has_one_alias() -> None:
    found = typer.main.get_command(cli.app)
    sizes = [
        set(p.opts)
        for command in found.commands.values()
        for p in command.params
        if p.name == "batch_size"
    ]
    assert len(sizes) == 9
    assert all(names == {"--batch-size", "--batch"} for names in sizes)


@pytest.mark.usefixtures("nano")
@pytest.mark.parametrize("join", [" ", "="])
def test_option_name_of_an_earlier_version_works_and_names_the_new(
    call: Call, tmp_path: Path, join: str
) -> None:
    report = tmp_path / "plan.json"
    earlier = " ".join([f"--device{join}1GiB", f"--report{join}{report}"]).split()
    code, output, messages = call("plan", "--model", "ViTNano", *earlier)
    assert code == 0
    assert messages.startswith(
        "Note: `--device` is now `--memory`.\nNote: `--report` is now `--json`.\n"
    )
    assert json.loads(report.read_text())["memory"]
    assert f"Written: {report}" in output


def test_a_flag_that_was_the_default_is_accepted(call: Call, tmp_path: Path) -> None:
    code, _, message = call("train", "--no-resume", "--out", tmp_path)
    assert code == 1
    assert message.startswith("Note: `--no-resume` is the default.\nkeras-vit: `--data` must name")


def test_train_without_the_name_of_the_option_points_to_it(call: Call) -> None:
    code, _, message = call("train", "photos")
    assert code == 2
    assert "unexpected extra argument(s) (photos). Images are given by `--data`." in message


@pytest.mark.parametrize("name", ["check", "preview"])
def test_check_and_preview_are_commands_of_data(call: Call, name: str) -> None:
    code, _, message = call(name, "photos")
    assert code == 2
    assert f"Did you mean `keras-vit data {name}`?" in message


def test_images_before_the_run_are_refused(call: Call, tmp_path: Path) -> None:
    run, image = tmp_path / "run", tmp_path / "cat.jpg"
    run.mkdir()
    (run / "config.yaml").touch()
    image.touch()
    code, _, message = call("predict", image, run)
    check_failure(
        code,
        message,
        f"`RUN` must be the first argument, as in `keras-vit predict {run} {image}`. Received: "
        f"{image} {run}",
    )


@pytest.mark.parametrize("command", ["evaluate", "explain", "export", "predict"])
def test_a_run_without_its_last_model_is_named(call: Call, tmp_path: Path, command: str) -> None:
    (tmp_path / "config.yaml").touch()
    more = {"evaluate": [], "export": ["--to", tmp_path / "to"]}.get(command, [__file__])
    code, _, message = call(command, tmp_path, *more)
    check_failure(code, message, "`RUN` must be a run with a complete epoch. Received: ")
    assert message.endswith(f"{tmp_path}, which has no last.keras\n")
    (tmp_path / "best.keras").touch()
    _, _, message = call(command, tmp_path, *more)
    assert message.endswith(f"has no last.keras; its best epoch is {tmp_path}/best.keras\n")
