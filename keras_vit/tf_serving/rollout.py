"""Canary releases, promotion and rollback of model versions on TensorFlow Serving."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from keras_vit import arguments, files
from keras_vit.tf_serving.transports import Rest, ServingError

STABLE, CANARY = "stable", "canary"
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


@dataclass
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

    config: str | Path
    server: str = "http://localhost:8501"
    name: str = "vit"
    _: KW_ONLY
    timeout: float = 900.0
    log: Callable[[str], None] = print

    def __post_init__(self) -> None:
        arguments.positive("timeout", self.timeout)
        if not self.server.startswith(("http://", "https://")) or "@" in self.server:
            raise ValueError(
                "`server` must be the REST address of the server, such as http://HOST:8501, "
                "without a password. "
                f"Received: server={arguments.without_password(self.server)!r}"
            )
        self._read()

    def status(self) -> list[ServedVersion]:
        """Returns the model versions on the server, newest first.

        Raises:
            RuntimeError: If the server does not respond or does not have the model.
        """
        versions = [
            ServedVersion(int(v["version"]), v["state"], v["status"]["error_message"])
            for v in self._ask("", lambda content: content["model_version_status"])
        ]
        return sorted(versions, key=lambda version: -version.number)

    def labels(self) -> dict[str, int]:
        """Returns the version number of each label in the configuration file."""
        return dict(sorted(self._read()[1].version_labels.items()))

    def canary(self, version: int) -> None:
        """Serves a version to the clients that request the label `canary`.

        Clients of `stable` keep their version. Requests without a version get the newest loaded
        version, which is now the canary.

        Args:
            version: Version newer than the stable one, with a folder in the model's base path.

        Raises:
            ValueError: If the version is not newer, or no older version is available.
            RuntimeError: If the server does not load the version.
        """
        stable = self.labels().get(STABLE) or self._previous(version)
        if stable is None or stable >= version:
            raise ValueError(
                "`version` must be newer than the stable version, or than an available version if "
                f"none is stable. Received: version={version}, stable {stable or 'none'}, "
                f"available {sorted(self._versions())}"
            )
        self._move({stable, version}, {STABLE: stable, CANARY: version})

    def promote(self) -> None:
        """Makes the canary the stable version; keeps the previous version loaded for `back`.

        Raises:
            ValueError: If there is no canary, or the canary is already stable.
            RuntimeError: If the server does not apply the change.
        """
        labels = self.labels()
        canary, stable = labels.get(CANARY, 0), labels.get(STABLE, 0)
        previous = stable if 0 < stable < canary else self._previous(canary)
        versions = {canary, previous or canary}
        new_labels = {STABLE: canary, CANARY: canary}
        # An interrupted call may have written labels that the server has not applied.
        done = labels == new_labels and self._versions() == versions and self._resolved(new_labels)
        if done or not canary:
            raise ValueError(
                f"`{CANARY}` must be a label in {self.config}, newer than `{STABLE}`; roll out a "
                f"version first. Received: labels {labels or 'none'}"
            )
        self._move(versions, new_labels)

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
        target = stable if newest > stable else self._previous(stable)
        if target is None:
            raise ValueError(
                "The server must have loaded a version older than the stable one. Received: "
                f"stable {stable or 'none'}, loaded {sorted(loaded)}"
            )
        self._move({target}, {STABLE: target, CANARY: target})

    def _previous(self, version: int) -> int | None:
        """Returns the newest version older than `version`; None if there is none."""
        return max((number for number in self._versions() if number < version), default=None)

    def _versions(self) -> set[int]:
        """Returns the versions listed in the configuration file, or else all available versions."""
        policy = self._read()[1].model_version_policy
        if policy.WhichOneof("policy_choice") == "specific":
            return set(policy.specific.versions)
        return _available(self.status())

    def _move(self, versions: Set[int], labels: Mapping[str, int]) -> None:
        old_config, old_labels = Path(self.config).read_text(encoding="utf-8"), self.labels()
        all_versions = self._versions() | versions
        earlier_states = set(self.status())  # reports errors until the next attempt

        def is_loaded() -> bool:
            states = set(self.status())
            earlier_states.intersection_update(states)
            for version in states - earlier_states:
                if version.number in versions and version.error:
                    raise RuntimeError(f"version {version.number} did not load: {version.error}")
            return versions <= _available(states)

        try:
            self._write(all_versions, old_labels)
            self._wait(f"loading versions {sorted(versions)}", is_loaded)
            self._write(all_versions, labels)
            label_moves = (f"{label} -> {number}" for label, number in sorted(labels.items()))
            self._wait(", ".join(label_moves), lambda: self._resolved(labels))
        except RuntimeError as error:
            files.write_text(self.config, old_config)
            raise RuntimeError(f"{error}. {self.config} has been restored") from error
        if removed := all_versions - versions:
            self._write(versions, labels)
            step = f"unloading versions {sorted(removed)}"
            self._wait(step, lambda: not removed & _available(self.status()))

    def _wait(self, step: str, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.timeout
        self.log(f"{step} ...")
        while True:
            try:
                if is_done():
                    return
                states = ", ".join(f"{v.number} {v.state}" for v in self.status())
            except ServingError as error:  # a server may be slow while loading a large model
                states = str(error)
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{step}: not finished after {self.timeout:g} s; the server reports "
                    f"{states}. The server must check its config file for changes "
                    "(--model_config_file, --model_config_file_poll_wait_seconds)"
                )
            time.sleep(POLL_SECONDS)

    def _resolved(self, labels: Mapping[str, int]) -> bool:
        # The metadata, because the status of a label contains all versions.
        try:
            return all(
                self._ask("/metadata", lambda m: m["model_spec"]["version"], label) == str(number)
                for label, number in labels.items()
            )
        except ServingError:  # also if the server has no such label yet
            return False

    def _ask(self, path: str, read: Callable[..., Any], label: str | None = None) -> Any:
        with contextlib.closing(Rest(self.server, self.name, label)) as server:
            return server.request(path, _REQUEST_SECONDS, read)

    def _read(self) -> tuple[Any, Any]:
        """Returns the content of the configuration file, and the entry of the model in it."""
        reason = "reading models.config needs tensorflow-serving-api"
        arguments.require_package("tensorflow_serving", "serving", reason)
        from tensorflow_serving.config import model_server_config_pb2

        config = model_server_config_pb2.ModelServerConfig()
        try:
            text_format.Parse(Path(self.config).read_text(encoding="utf-8"), config)
        except (OSError, text_format.ParseError, UnicodeDecodeError) as error:
            raise ValueError(
                "`config` must be the server's models.config, a ModelServerConfig in text format. "
                f"Received: config={str(self.config)!r}: {error}"
            ) from error
        models = {model.name: model for model in config.model_config_list.config}
        arguments.one_of("name", self.name, [*models])
        return config, models[self.name]

    def _write(self, versions: Set[int], labels: Mapping[str, int]) -> None:
        config, model = self._read()
        model.model_version_policy.specific.versions[:] = sorted(versions)
        model.version_labels.clear()
        model.version_labels.update(labels)
        lines = Path(self.config).read_text(encoding="utf-8").splitlines(keepends=True)
        comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
        files.write_text(self.config, "".join(comment) + text_format.MessageToString(config))


def _available(versions: Iterable[ServedVersion]) -> set[int]:
    return {version.number for version in versions if version.state == "AVAILABLE"}
