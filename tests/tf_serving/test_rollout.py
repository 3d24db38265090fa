from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from keras_vit.export import Rollout, ServingError
from keras_vit.tf_serving import rollout
from tests.export.model_server import ModelServer, models_folder, until

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def config(tmp_path: Path) -> Path:
    models_folder(tmp_path, versions=(1,))
    return tmp_path / "models.config"


@pytest.fixture
def server(config: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setattr(rollout, "POLL_SECONDS", 0.01)
    running = ModelServer(config)
    until(lambda: running.available() == [1])
    yield running
    running.close()


def release(config: Path, number: int) -> None:
    (config.parent / "models" / "vit" / str(number)).mkdir(parents=True)


def rolling(config: Path, server: ModelServer, timeout: float = 20) -> Rollout:
    return Rollout(config, server.address, timeout=timeout, log=lambda line: None)


def clients(server: ModelServer) -> tuple[int | None, int | None, int | None]:
    """What those of "stable", of "canary", and those that name no version get."""
    return server.answers("stable"), server.answers("canary"), server.answers()


def test_three_releases_and_one_step_back(config: Path, server: ModelServer) -> None:
    found = rolling(config, server)
    for new in (2, 3, 4):
        release(config, new)
        found.canary(new)
        assert server.available() == [new - 1, new]
        assert clients(server) == (new - 1, new, new)
        found.promote()
        assert server.available() == [new - 1, new]
        assert clients(server) == (new, new, new)
    found.back()
    assert server.available() == [3]
    assert clients(server) == (3, 3, 3)
    assert (server.refused, server.unanswered) == ([], [])
    assert config.read_text().startswith("# Read by tensorflow_model_server")


def test_a_label_on_a_version_that_is_not_there_is_refused(
    config: Path, server: ModelServer
) -> None:
    """What the page said before: both labels in one edit. The next canary never loads."""
    found = rolling(config, server)
    release(config, 2)
    found.canary(2)
    release(config, 3)
    found._write({2, 3}, {"stable": 2, "canary": 3})
    until(lambda: len(server.refused) > 20)
    assert server.available() == [1, 2]
    assert clients(server) == (1, 2, 2)


def test_a_canary_that_was_replaced_is_not_gone_back_to(
    config: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rolling(config, server)
    release(config, 2)
    release(config, 3)
    found.canary(2)
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        # Before the wait for unloading, and before the file that asks for it.
        patch.setattr(found, "_resolved", lambda labels: sys.exit())
        with contextlib.suppress(SystemExit):
            found.canary(3)
    until(lambda: server.answers("canary") == 3)
    assert server.available() == [1, 2, 3]
    found.promote()
    found.back()
    assert clients(server) == (1, 1, 1)


def test_a_server_that_does_not_answer_for_a_while_is_waited_for(
    config: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rolling(config, server)
    release(config, 2)
    ask, failures = found._ask, iter(range(5))

    def slow(*part: str | None) -> Any:
        if "specific" in config.read_text() and next(failures, None) is not None:
            raise ServingError("busy")
        return ask(*part)

    monkeypatch.setattr(found, "_ask", slow)
    found.canary(2)
    assert clients(server) == (1, 2, 2)


def test_canary_is_withdrawn_and_replaced(config: Path, server: ModelServer) -> None:
    found = rolling(config, server)
    for new in (2, 3):
        release(config, new)
        found.canary(new)
        assert server.available() == [1, new]
        assert clients(server) == (1, new, new)
    found.back()
    assert server.available() == [1]
    assert clients(server) == (1, 1, 1)


@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupted_step_goes_on(
    after: int, config: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rolling(config, server)
    release(config, 2)
    release(config, 3)
    found.canary(2)
    wait = found._wait
    for step, expected in [
        (lambda: found.canary(3), (1, 3, 3)),
        (found.promote, (3, 3, 3)),
        (found.back, (1, 1, 1)),
    ]:
        waits = iter(range(after))

        def interrupted(*args: Any, waits: Iterator[int] = waits) -> None:
            if next(waits, None) is None:
                raise KeyboardInterrupt
            wait(*args)

        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(found, "_wait", interrupted)
            step()
        if found._versions() != {1}:  # `back` is through but for waiting
            # Of `promote`, if the server has followed meanwhile.
            with contextlib.suppress(ValueError):
                step()
        until(lambda expected=expected: clients(server) == expected)
    assert (server.refused, server.unanswered) == ([], [])


def test_a_version_that_does_not_load_changes_nothing(config: Path, server: ModelServer) -> None:
    found = rolling(config, server)
    release(config, 2)
    found.canary(2)
    before = config.read_text()
    release(config, 3)
    server.broken.add(3)
    with pytest.raises(
        RuntimeError,
        match=r"version 3 did not load: no variables\. .*has been restored",
    ):
        found.canary(3)
    assert config.read_text() == before
    until(lambda: 3 not in server.loading)
    assert server.available() == [1, 2]
    assert clients(server) == (1, 2, 2)
    server.broken.clear()
    found.canary(3)
    assert clients(server) == (1, 3, 3)


def test_a_server_that_does_not_read_its_config_is_told(config: Path, server: ModelServer) -> None:
    before = config.read_text()
    release(config, 2)
    server.deaf = True
    with pytest.raises(
        RuntimeError,
        # A slow machine may reach the step after it.
        match=r"(loading versions \[1, 2\]|canary -> 2, stable -> 1): not finished after 0\.1 s; "
        r"the server reports .*1 AVAILABLE\. The server must .*models\.config has been restored",
    ):
        rolling(config, server, timeout=0.1).canary(2)
    assert config.read_text() == before


def test_status_names_versions_and_errors(config: Path, server: ModelServer) -> None:
    release(config, 2)
    server.broken.add(2)
    found = rolling(config, server)
    until(lambda: server.states.get(2, ("", ""))[0] == "END")
    assert [(v.number, v.state, v.error) for v in found.status()] == [
        (2, "END", "no variables"),
        (1, "AVAILABLE", ""),
    ]
    assert found.labels() == {}


@pytest.mark.parametrize("content", [{}, []])
def test_status_of_another_service_is_an_error(
    config: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch, content: Any
) -> None:
    monkeypatch.setattr(server, "_status", lambda path: (200, content))
    with pytest.raises(ServingError, match=r"'vit': 200: the server must be TensorFlow"):
        rolling(config, server).status()


def test_steps_that_make_no_sense_are_refused(config: Path, server: ModelServer) -> None:
    found = rolling(config, server)
    with pytest.raises(ValueError, match=r"`canary` must be a label in .*Received: labels none"):
        found.promote()
    with pytest.raises(
        ValueError, match=r"a version older than the stable one.*: stable 1, loaded \[1\]"
    ):
        found.back()
    with pytest.raises(
        ValueError,
        match=r"`version` must be newer .*Received: version=1, stable none, available \[1\]",
    ):
        found.canary(1)
    release(config, 2)
    found.canary(2)
    found.promote()
    with pytest.raises(
        ValueError, match=r"newer than the stable version, .*Received: version=2, stable 2, "
    ):
        found.canary(2)
    before = config.read_bytes()
    with pytest.raises(
        ValueError,
        match=r"`canary` must be .* newer than `stable`.*labels {'canary': 2, 'stable': 2}",
    ):
        found.promote()
    assert config.read_bytes() == before


def test_back_needs_a_version_that_is_loaded(
    config: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rolling(config, server)
    monkeypatch.setattr(found, "status", list)  # a server that has loaded nothing yet
    with pytest.raises(
        ValueError, match=r"a version older than the stable one. Received: stable none, loaded \[\]"
    ):
        found.back()


def test_the_config_keeps_its_permissions(config: Path, server: ModelServer) -> None:
    config.chmod(0o664)
    release(config, 2)
    rolling(config, server).canary(2)
    assert config.stat().st_mode & 0o777 == 0o664


def test_arguments_are_checked(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"`server` must be the REST .*server='localhost:8501'"):
        Rollout(config, "localhost:8501")
    with pytest.raises(ValueError, match=r"`name` must be one of 'vit'\. .*name='other'"):
        Rollout(config, name="other")
    with pytest.raises(
        ValueError, match=r"`config` must be the server's .*No such file .*none\.config"
    ):
        Rollout(tmp_path / "none.config")
    (tmp_path / "bad.config").write_text("model_config_list {")
    with pytest.raises(ValueError, match=r"`config` must be .* a ModelServerConfig .*bad\.config"):
        Rollout(tmp_path / "bad.config")
    with pytest.raises(RuntimeError, match=r"^http://localhost:1, model 'vit': ConnectionError: "):
        Rollout(config, "http://localhost:1").status()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install -e "\.\[serving\]"'):
        Rollout(config)


def test_password_in_the_address_is_refused(config: Path) -> None:
    with pytest.raises(ValueError, match="without a password") as error:
        Rollout(config, "http://ann:secret@localhost:8501")
    assert str(error.value).endswith("Received: server='http://...@localhost:8501'")


def test_password_of_netrc_is_not_sent(
    config: Path, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine localhost login ann password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    sent: list[Any] = []
    send = requests.Session.send

    def recorded(session: Any, request: Any, **options: Any) -> Any:
        sent.append(request.headers)
        return send(session, request, **options)

    monkeypatch.setattr(requests.Session, "send", recorded)
    rolling(config, server).status()
    assert sent
    assert not any("Authorization" in headers for headers in sent)
