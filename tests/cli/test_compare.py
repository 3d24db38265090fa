from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from keras_vit import reports
from tests.cli.commands import Call, check_failure

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("nano")]


@pytest.mark.slow
def test_compare_of_two_runs_prints_and_writes_the_table(
    run: Path, photos: Path, call: Call, tmp_path: Path
) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    code, output, _ = call(
        *("compare", "--models", f"{run}, {other}", "--data", photos),
        *("--out", tmp_path / "comparison"),
    )
    assert code == 0
    table = (tmp_path / "comparison" / "comparison.md").read_text()
    assert table in output
    assert "p = 1, may be chance" in table


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--models", "ViTTi16"), "`models` must contain at least two models with"),
        (("--models", "ViTTi16,ResNet51"), "Did you mean 'ResNet50'"),
        (
            ("--models", "ViTTi16,ResNet50", "--weights", "imagenet"),
            "must be NAME=WEIGHTS.",
        ),
        (
            ("--models", "ViTTi16,ResNet50", "--weights", "=imagenet"),
            "must be NAME=WEIGHTS.",
        ),
    ],
)
def test_compare_refuses_before_it_trains(
    options: tuple[str, ...], expected: str, photos: Path, call: Call, tmp_path: Path
) -> None:
    code, _, message = call("compare", "--data", photos, "--out", tmp_path / "out", *options)
    check_failure(code, message, expected)
    assert not (tmp_path / "out").exists()


def test_ctrl_c_names_the_same_command(
    photos: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reports, "compare", stopped)
    code, output, _ = call(
        *("compare", "--models", "ViTTi16,ResNet50", "--data", photos, "--out", tmp_path / "out")
    )
    assert code == 130
    assert output.endswith(
        "Interrupted. The same command resumes from the last saved state, or starts again.\n"
    )


def test_many_weights_are_no_path(
    photos: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, str]] = []

    def stopped(*arguments: object, start: dict[str, str]) -> None:
        started.append(start)
        raise KeyboardInterrupt

    monkeypatch.setattr(reports, "compare", stopped)
    names = [f"Model{number}" for number in range(14)]  # longer together than a file name
    weights = [word for name in names for word in ("--weights", f"{name}=imagenet")]
    options = ("--models", ",".join(names), "--data", photos, "--out", tmp_path / "out")
    assert call("compare", *options, *weights)[0] == 130
    assert started == [dict.fromkeys(names, "imagenet")]
