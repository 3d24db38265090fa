from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import call_main, check_failure
from tests.export.model_server import ModelServer, models_folder, until

pytestmark = pytest.mark.tensorflow


def test_rollout_from_canary_to_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("keras_vit.tf_serving.rollout.POLL_SECONDS", 0.01)
    models = models_folder(tmp_path, versions=(1,))
    server = ModelServer(tmp_path / "models.config")

    def call(step: str) -> str:
        code = call_main("rollout", step, models, "--server", server.address)
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return out

    try:
        until(lambda: server.available() == [1])
        assert call("status").split() == ["1", "AVAILABLE"]
        (models / "vit" / "2").mkdir()
        assert "loading versions [1, 2] ...\ncanary -> 2, stable -> 1 ...\n" in call("canary")
        out = call("promote").splitlines()
        assert [line.split() for line in out[-2:]] == [
            ["2", "AVAILABLE", "canary", "stable"],
            ["1", "AVAILABLE"],
        ]
        assert "unloading versions [2] ...\n" in call("back")
        assert server.available() == [1]
    finally:
        server.close()


def test_config_folder_is_used_before_the_folder_above(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """export/config is the folder that the server's container gets."""
    models = models_folder(tmp_path, versions=(1,))
    (tmp_path / "config").mkdir()
    (tmp_path / "models.config").rename(tmp_path / "config" / "models.config")
    (tmp_path / "models.config").write_text("no configuration")
    server = ModelServer(tmp_path / "config" / "models.config")
    try:
        until(lambda: server.available() == [1])
        assert call_main("rollout", "status", models, "--server", server.address) == 0
        assert capsys.readouterr().out.split() == ["1", "AVAILABLE"]
    finally:
        server.close()


def test_config_is_beside_a_link_to_the_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = models_folder(tmp_path, versions=(1,))
    (tmp_path / "disk").mkdir()
    models.rename(tmp_path / "disk" / "models")
    models.symlink_to(tmp_path / "disk" / "models")
    server = ModelServer(tmp_path / "models.config")
    try:
        until(lambda: server.available() == [1])
        assert call_main("rollout", "status", models, "--server", server.address) == 0
        assert capsys.readouterr().out.split() == ["1", "AVAILABLE"]
    finally:
        server.close()


def test_rollout_without_versions_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = call_main("rollout", "canary", tmp_path)
    check_failure(code, capsys.readouterr().err, "`MODELS` must contain vit/1, as written by")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["canary", "--version", 3], "`MODELS` must contain vit/3, as written by"),
        (
            ["promote", "--version", 2],
            "`--version` is only for canary. Received: --version with ",
        ),
        (["status", "--config", "no.config"], "`--config` must be the server's model config file"),
    ],
)
def test_rollout_refuses(
    arguments: list[object], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step, *options = arguments
    code = call_main("rollout", step, models_folder(tmp_path, versions=(1, 2)), *options)
    check_failure(code, capsys.readouterr().err, expected)
