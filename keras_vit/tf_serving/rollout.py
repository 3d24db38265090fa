"""Canary releases, promotion and rollback of model versions on TensorFlow Serving."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_vit import arguments, files
from keras_vit.escapes import terminal
from keras_vit.tf_serving.transports import Rest, ServingError

STABLE, CANARY = "stable", "canary"
AVAILABLE = "AVAILABLE"
POLL_SECONDS = 1.0
_REQUEST_SECONDS = 10.0


@dataclass(frozen=True)
class ServedVersion:
    """Model version and its state as reported by the server.

    Args:
        number: Version number.
        state: `"START"`, `"LOADING"`, `"AVAILABLE"`, `"UNLOADING"` or `"END"`.
        error: Error message of loading; empty if there is none.
    """

    number: int
    state: str
    error: str = ""


class Rollout:
    """Moves the labels `stable` and `canary` of a model on a running TensorFlow Serving server.

    The server refuses a whole `models.config` if one of its labels points to a version that is not
    available. So each method writes the file up to three times and waits after each write: versions
    are added, then labels moved, then versions removed. If the server does not apply a change, the
    previous file is restored, except if a version is not unloaded, which is only reported. An
    interrupted method can be called again.

    Args:
        config: The server's `models.config`, which the server polls
            (`--model_config_file_poll_wait_seconds`).
        server: REST address of the server.
        name: The model's name in the file.
        timeout: Timeout in seconds for each step; loading and warming up a large model take
            minutes.
        log: Function called with each line of progress.

    Raises:
        ImportError: If tensorflow-serving-api is not installed.
        ValueError: If the file is not a `models.config` or does not contain the model.

    Examples:
        >>> rollout = Rollout("export/config/models.config")  # doctest: +SKIP
        >>> rollout.canary(5)  # doctest: +SKIP
        >>> rollout.promote()  # doctest: +SKIP
    """

    def __init__(
        self,
        config: str | Path,
        server: str = "http://localhost:8501",
        name: str = "vit",
        *,
        timeout: float = 900.0,
        log: Callable[[str], None] = print,
    ) -> None:
        arguments.positive("timeout", timeout)
        if not server.startswith(("http://", "https://")) or "@" in server:
            raise ValueError(
                "`server` must be the REST address of the server, such as http://HOST:8501, "
                f"without a password. Received: server={arguments.without_password(server)!r}"
            )
        self.config = Path(config)
        self._server, self._name, self._timeout, self._log = server, name, timeout, log
        self._read()

    def status(self) -> list[ServedVersion]:
        """Returns the model versions on the server, newest first.

        Raises:
            RuntimeError: If the server does not respond or does not have the model.
        """
        found = [
            ServedVersion(int(v["version"]), v["state"], v["status"]["error_message"])
            for v in self._ask("", "model_version_status")
        ]
        return sorted(found, key=lambda version: -version.number)

    def labels(self) -> dict[str, int]:
        """Returns the version number of each label in the configuration file."""
        return dict(self._read()[1].version_labels)

    def canary(self, version: int) -> None:
        """Serves a version to the clients that request the label `canary`.

        Clients of `stable` keep their version. Requests without a version get the newest loaded
        version, which is now the canary.

        Args:
            version: Version newer than the stable one, with a folder in the model's base path.

        Raises:
            ValueError: If it is not newer, or no version can be the stable one.
            RuntimeError: If the server does not load the version.
        """
        arguments.positive_int("version", version)
        labels = self.labels()
        stable = labels[STABLE] if STABLE in labels else self._previous(version)
        if stable is None:
            raise ValueError(
                "`version` must be newer than at least one available version, which becomes the "
                f"stable version. Received: version={version}, "
                f"available [{_numbers(self._versions())}]"
            )
        if stable >= version:
            raise ValueError(
                f"`version` must be newer than the stable version. Received: version={version}; "
                f"the stable version is {stable}"
            )
        self._move({stable, version}, {STABLE: stable, CANARY: version})

    def promote(self) -> None:
        """Makes the canary the stable version; keeps the previous version loaded for `back`.

        Raises:
            ValueError: If there is no canary, or the canary is already stable.
            RuntimeError: If the server does not apply the change.
        """
        labels = self.labels()
        if CANARY not in labels:
            raise ValueError(
                f"`{CANARY}` must be a version label in {self.config}; roll out a version first. "
                f"Received: labels {labels or 'none'}"
            )
        new = labels[CANARY]
        stable = labels.get(STABLE, new)
        previous = self._previous(new) if stable == new else stable
        versions = {new} if previous is None else {new, previous}
        after = {STABLE: new, CANARY: new}
        # An interrupted call may have written labels that the server has not applied.
        if labels == after and self._versions() == versions and self._resolved(after):
            raise ValueError(
                f"`{CANARY}` must be newer than `{STABLE}`; roll out a version first. Received: "
                f"version {new}, which is already {STABLE}"
            )
        self._move(versions, after)

    def back(self) -> None:
        """Withdraws the canary, or rolls back to the previous version if there is no canary.

        The newer version is unloaded, so that requests without a version get the older version too.

        Raises:
            ValueError: If no older version is loaded.
            RuntimeError: If the server does not apply the change.
        """
        loaded = self._versions()
        newest = max(loaded, default=0)
        stable = self.labels().get(STABLE, newest)
        to = stable if newest > stable else self._previous(stable)
        if to is None:
            raise ValueError(
                "The server must have loaded a version older than the stable one. Received: "
                f"stable {stable or 'none'}, loaded [{_numbers(loaded)}]"
            )
        self._move({to}, {STABLE: to, CANARY: to})

    def _previous(self, version: int) -> int | None:
        """Returns the newest version older than `version`; None if there is none."""
        return max((number for number in self._versions() if number < version), default=None)

    def _versions(self) -> set[int]:
        """Returns the versions listed in the configuration file, or else all available versions."""
        policy = self._read()[1].model_version_policy
        if policy.WhichOneof("policy_choice") == "specific":
            return set(policy.specific.versions)
        return {found.number for found in self.status() if found.state == AVAILABLE}

    def _move(self, versions: Set[int], labels: Mapping[str, int]) -> None:
        before, had = self.config.read_bytes(), self.labels()
        every = self._versions() | versions
        # The server reports an earlier error until the version is loaded again.
        old_errors = {version.number for version in self.status() if version.error}

        def loaded() -> bool:
            found = {version.number: version for version in self.status()}
            for number in versions & found.keys():
                if not found[number].error:
                    old_errors.discard(number)
                elif number not in old_errors:
                    raise RuntimeError(
                        f"version {number} did not load: {terminal(found[number].error)}"
                    )
            return all(n in found and found[n].state == AVAILABLE for n in versions)

        def unloaded() -> bool:
            return not any(v.number in dropped and v.state == AVAILABLE for v in self.status())

        try:
            self._write(every, had)
            self._wait(f"loading {_named(versions)}", loaded)
            if labels != had:
                self._write(every, labels)
                moved = (f"{label} -> {number}" for label, number in sorted(labels.items()))
                self._wait(", ".join(moved), lambda: self._resolved(labels))
        except RuntimeError as error:
            self._put(before)
            raise RuntimeError(f"{error}. {self.config} has been restored") from error
        if dropped := every - versions:
            self._write(versions, labels)
            self._wait(f"unloading {_named(dropped)}", unloaded)

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._timeout
        self._log(f"{what} ...")
        while True:
            try:
                if done():
                    return
                states = ", ".join(f"{v.number} {terminal(v.state)}" for v in self.status())
            except ServingError as error:  # a server may be slow while loading a large model
                states = str(error)
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{what}: not finished after {self._timeout:g} s; the server reports "
                    f"{states}. The server must check its config file for changes "
                    "(--model_config_file, --model_config_file_poll_wait_seconds)"
                )
            time.sleep(POLL_SECONDS)

    def _resolved(self, labels: Mapping[str, int]) -> bool:
        # Not the status of a label: it contains all versions.
        try:
            return all(
                self._ask("/metadata", "model_spec", label)["version"] == str(number)
                for label, number in labels.items()
            )
        except ServingError:  # also if the server has no such label yet
            return False

    def _ask(self, path: str, key: str, label: str | None = None) -> Any:
        with contextlib.closing(Rest(self._server, self._name, label)) as server:
            return server.request(path, _REQUEST_SECONDS)[key]

    def _read(self) -> tuple[Any, Any]:
        """Returns the content of the configuration file, and the entry of the model in it."""
        try:
            from google.protobuf import text_format
            from tensorflow_serving.config import model_server_config_pb2
        except ImportError as error:
            raise ImportError(
                "reading models.config needs tensorflow-serving-api; "
                + arguments.install_hint("serving")
            ) from error
        if not self.config.is_file():
            raise ValueError(
                "`config` must be the server's models.config. Received: "
                f"config={str(self.config)!r}, which does not exist"
            )
        try:
            found = text_format.Parse(
                self.config.read_text(encoding="utf-8"), model_server_config_pb2.ModelServerConfig()
            )
        except (text_format.ParseError, UnicodeDecodeError) as error:
            raise ValueError(
                "`config` must be a ModelServerConfig in text format. "
                f"Received: config={str(self.config)!r}: {error}"
            ) from error
        models = {model.name: model for model in found.model_config_list.config}
        if self._name not in models:
            raise ValueError(
                f"`name` must be a model in {self.config}: {', '.join(map(repr, models))}. "
                f"Received: name={self._name!r}"
            )
        return found, models[self._name]

    def _write(self, versions: Set[int], labels: Mapping[str, int]) -> None:
        from google.protobuf import text_format

        config, model = self._read()
        model.model_version_policy.specific.versions[:] = sorted(versions)
        model.version_labels.clear()
        model.version_labels.update(labels)
        lines = self.config.read_text(encoding="utf-8").splitlines(keepends=True)
        comment = "".join(itertools.takewhile(lambda line: line.startswith("#"), lines))
        self._put((comment + text_format.MessageToString(config)).encode())

    def _put(self, content: bytes) -> None:
        if content != self.config.read_bytes():
            with files.atomic_path(self.config) as temporary:
                temporary.write_bytes(content)


def _named(versions: Set[int]) -> str:
    return ("version " if len(versions) == 1 else "versions ") + _numbers(versions)


def _numbers(versions: Set[int]) -> str:
    return arguments.shortlist([*map(str, sorted(versions))])
