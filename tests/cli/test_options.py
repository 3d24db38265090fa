from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from typer.testing import CliRunner

from keras_vit import choices, cli
from keras_vit.cli.options import (
    absolute,
    check_data,
    check_exists,
    check_files,
    check_json,
    check_out,
    check_resume,
    check_weights,
    given_options,
    parse_size,
    read_settings,
)
from keras_vit.data.image_audit import ON_BAD_IMAGE
from keras_vit.doctor.scaling_candidates import SCALES
from keras_vit.runs.config import METHODS
from keras_vit.training.distribution import STRATEGIES
from keras_vit.weights import list_weights
from tests.cli.commands import Call


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ("OnBadImage", ON_BAD_IMAGE),
        ("Strategy", STRATEGIES),
        ("Method", METHODS),
        ("Pixels", SCALES),
    ],
)
def test_commands_offer_what_the_package_knows(options: str, known: Any) -> None:
    # They say it once more, so that --help need not import TensorFlow.
    assert get_args(getattr(choices, options)) == tuple(known)


@pytest.mark.parametrize(
    ("text", "expected"), [("224", (224, 224)), ("48x80", (48, 80)), (None, None)]
)
def test_size_is_read(text: str | None, expected: tuple[int, int] | None) -> None:
    assert parse_size(text) == expected


def test_pipes_and_devices_are_no_images(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")  # whoever opens it waits for a writer
    for path in (tmp_path / "pipe.jpg", Path(os.devnull)):
        with pytest.raises(ValueError, match=rf"`IMAGE` must be a regular file.*{path}"):
            check_files("IMAGE", [path])


@pytest.mark.parametrize("text", ["", "x", "48x", "48 x 80", "-3", "4.5"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"`--image-size` must have the form 224 or 224x320\.",
    ):
        parse_size(text)


def test_existing_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    assert absolute("photos") == str(tmp_path / "photos")
    assert absolute("digits") == "digits"
    assert absolute(None) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mixup=0.2", {"mixup": 0.2}),
        ("weight_decay = 1e-4", {"weight_decay": 1e-4}),
        ("epochs=3", {"epochs": 3}),
        ("crop_area=[0.3, 1]", {"crop_area": (0.3, 1)}),
        ("trainable=['head/*', 'block_11/*']", {"trainable": ("head/*", "block_11/*")}),
        ("flip=false", {"flip": False}),
        ("image_size=", {"image_size": None}),
        ("decay=a=b", {"decay": "a=b"}),
    ],
)
def test_settings_are_read_as_yaml(text: str, expected: dict[str, Any]) -> None:
    assert read_settings([text]) == expected


def test_several_settings_are_one_table() -> None:
    assert read_settings(["mixup=1", "cutmix=2", "mixup=3"]) == {"mixup": 3, "cutmix": 2}
    assert read_settings(None) == {}


def test_setting_stands_beside_options() -> None:
    assert read_settings(["mixup=1"], epochs=3, seed=None) == {"mixup": 1, "epochs": 3}
    with pytest.raises(
        ValueError, match=r"`--set image_size` and --image-size set .* \(8, 9\) and \(7, 7\)"
    ):
        read_settings(["image_size=[8, 9]"], image_size=(7, 7))


@pytest.mark.parametrize("text", ["mixup", "mixup=[1", ""])
def test_what_sets_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"`--set` must have the form NAME=VALUE\. Received:"):
        read_settings([text])


@pytest.mark.parametrize("text", ["lora_layers=[*/attention/*]", "trainable=[*/mlp/*,head/*]"])
def test_text_of_a_list_that_begins_with_a_star_must_be_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"Quote text that begins with \*, .*\*\"\]'\. Rec"):
        read_settings([text])
    with pytest.raises(ValueError, match=r"must have the form NAME=VALUE\. Received"):
        read_settings(["trainable=[head/*"])


@pytest.mark.parametrize(
    ("arguments", "given", "refused"),
    [
        ([], set(), ""),
        (["--resume", "--out", "x", "--log"], {"resume", "out", "log"}, ""),
        (["--epochs", "4", "--set", "a"], {"epochs", "set_"}, "--epochs, --set$"),
        (["--resume", "--lr-end", "0"], {"resume", "lr_end"}, "Received: --lr-end$"),
    ],
)
def test_only_what_was_given_stands_beside_resume(
    arguments: list[str], given: set[str], refused: str, tmp_path: Path
) -> None:
    app = typer.Typer()
    seen: list[set[str]] = []

    @app.command()
    def command(
        context: typer.Context,
        resume: bool = False,
        out: str = "",
        log: bool = False,
        epochs: int = 4,
        lr_end: int = 0,
        set_: str = typer.Option("", "--set"),
    ) -> None:
        seen.append(given_options(context))
        check_resume(context, tmp_path, "log")

    (tmp_path / "config.yaml").touch()
    found = CliRunner().invoke(app, arguments)
    assert seen == [given]
    if not refused:
        assert found.exception is None
        return
    with pytest.raises(
        ValueError, match=rf"(?s)`--resume` must be given alone or with --out, --log; a.*{refused}"
    ):
        raise found.exception


def test_run_with_layers_for_a_task_is_not_offered_as_weights(call: Call, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("task: segmentation\n")
    (tmp_path / "curves.png").touch()
    code, output, _ = call("train", "--resume", "--out", tmp_path)
    assert code == 0
    assert f"keras-vit train --config {tmp_path}/config.yaml --epochs N --out NEW" in output


def test_a_path_with_nothing_there_is_refused(tmp_path: Path) -> None:
    check_exists("--config", None, "a file")
    check_exists("--config", tmp_path, "a file")
    with pytest.raises(ValueError, match=r"^`--config` must be a file\. Received: .*x, which does"):
        check_exists("--config", tmp_path / "x", "a file")


@pytest.mark.parametrize(
    "source",
    [
        None,
        "imagenet",
        "hf://org/name.bin",
        "https://host/a.npz",
        "hf-hub:timm/vit.augreg",
        "none",
        "timm/vit.augreg",
        "google/vit-large-patch16-224",
        "howto-i21k-Ti/16",
        "sam/ViT-B_16",
        "a.h5",
        "sam/ViT-B_16.npz",
    ],
)
def test_names_and_addresses_of_weights_are_no_missing_files(
    source: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.h5").touch()
    check_weights("--weights", source)


def test_a_missing_weight_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`--weights` must be an existing file, a URL"):
        check_weights("--weights", str(tmp_path / "a.npz"))
    for source in ("runs/nosuch.npz", "runs/nosuch", "./imagenet", "nosuch.safetensors"):
        with pytest.raises(ValueError, match=rf"Received: {source.removeprefix('./')}, which does"):
            check_weights("--weights", source)
    check_data(None)
    with pytest.raises(ValueError, match="`data` must be a folder of class folders"):
        check_data(str(tmp_path / "photos"))


def test_published_weights_are_no_missing_files() -> None:
    for row in list_weights():
        for source in (row.name, *row.aliases, *row.urls):
            check_weights("--weights", source)


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.txt"
    file.touch()
    for path in (None, tmp_path, tmp_path / "new" / "folder"):
        check_out("--out", path)
    for path in (file, tmp_path / "new" / "a.txt"):
        check_out("--out", path, folder=False)
    with pytest.raises(
        ValueError, match=r"`--out` must be a folder or .*b, but .*a\.txt is a file"
    ):
        check_out("--out", file / "b")
    with pytest.raises(ValueError, match=r"`--out` must be inside a folder\. .*a\.txt is a file"):
        check_out("--out", file / "b", folder=False)
    with pytest.raises(ValueError, match=r"`--out` must be a file\. .*which is a folder"):
        check_out("--out", tmp_path, folder=False)
    with pytest.raises(
        ValueError,
        match=r"a folder created by keras-vit; other folders .*which contains a\.txt",
    ):
        check_out("--out", tmp_path, ["a.txt"])
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # for tests run as root
    with pytest.raises(ValueError, match=rf"`--out` must be writable\. .*new, but {tmp_path} is"):
        check_out("--out", tmp_path / "new")


def test_report_is_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`--json` must end in \.json"):
        check_json(tmp_path / "labels.csv")
    (tmp_path / "annotations.json").touch()
    with pytest.raises(ValueError, match="`--json` must not exist yet"):
        check_json(tmp_path / "annotations.json")


@pytest.mark.parametrize("value", ["!!bool foo", "!!timestamp abc", "!!int ''"])
def test_values_that_yaml_cannot_construct(value: str) -> None:
    with pytest.raises(ValueError, match="`--set` must have the form NAME=VALUE"):
        read_settings([f"mixup={value}"])


@pytest.mark.parametrize("name", ["--set", "--batch-size", "--image-size", "--on-bad-image"])
def test_an_option_of_several_commands_is_described_alike(name: str) -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    found = {
        (tuple(option.opts), option.help)
        for command in ("train", "pretrain", "compare", "plan")
        for option in commands[command].params
        if name in option.opts
    }
    assert len(found) == 1
