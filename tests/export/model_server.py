"""A stand-in for TensorFlow Serving that loads versions, moves labels and refuses configs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

TICK = 0.01
CONFIG = Path(__file__).parents[2] / "export" / "config" / "models.config"


def models_folder(folder: Path, versions: Sequence[int]) -> Path:
    """`folder/models` with versions of "vit", and beside it the models.config of export/."""
    models = folder / "models"
    for version in versions:
        (models / "vit" / str(version)).mkdir(parents=True)
    text = CONFIG.read_text().replace("/models/vit", str(models / "vit"))
    (folder / "models.config").write_text(text)
    return models


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        time.sleep(TICK)


class ModelServer:
    """Reads `config` every tick, as the server does with --model_config_file_poll_wait_seconds.

    Like `ServerCore::ReloadConfig` it refuses a config as a whole if a label that it knows points
    to a version that is not available; a new label may, as with
    --allow_version_labels_for_unavailable_models.

    Args:
        config: models.config, with the model "vit" and its versions in `base_path`.
        seconds: How long a version loads.
    """

    def __init__(self, config: Path, seconds: float = 0.1) -> None:
        self.config, self.seconds = config, seconds
        self.broken: set[int] = set()  # these do not load
        self.deaf = False  # reads its config no more
        self.states: dict[int, tuple[str, str]] = {}
        self.labels: dict[str, int] = {}
        self.refused: list[str] = []  # labels for which a config was refused
        self.unanswered: list[str] = []  # clients that would have got an error at some tick
        self._aspired: set[int] = set()
        self.loading: dict[int, float] = {}  # versions, and when each began to load
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._tick()
        threading.Thread(target=self._run, daemon=True).start()
        self._http = ThreadingHTTPServer(("localhost", 0), self._handler())
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.address = f"http://localhost:{self._http.server_port}"

    def close(self) -> None:
        self._stop.set()
        self._http.shutdown()
        self._http.server_close()

    def available(self) -> list[int]:
        with self._lock:
            return sorted(n for n, (state, _) in self.states.items() if state == "AVAILABLE")

    def answers(self, label: str | None = None) -> int | None:
        """The version that a client gets, or None for an error."""
        with self._lock:
            number = self.labels.get(label) if label else max(self.available(), default=None)
            return number if number in self.available() else None

    def _run(self) -> None:
        while not self._stop.wait(TICK):
            self._tick()

    def _tick(self) -> None:
        with self._lock:
            if not self.deaf:
                self._reload()
            self._load()
            clients = [None, *self.labels]
            self.unanswered += [str(c) for c in clients if self.available() and not self.answers(c)]

    def _reload(self) -> None:
        found = text_format.Parse(
            self.config.read_text(), model_server_config_pb2.ModelServerConfig()
        )
        (model,) = found.model_config_list.config
        for label, number in model.version_labels.items():
            if label in self.labels and number not in self.available():
                self.refused.append(label)
                return
        self.labels = dict(model.version_labels)
        stored = sorted(int(path.name) for path in Path(model.base_path).iterdir())
        policy = model.model_version_policy
        if policy.WhichOneof("policy_choice") == "specific":
            self._aspired = set(policy.specific.versions) & set(stored)
        else:
            self._aspired = set(stored[-policy.latest.num_versions :])

    def _load(self) -> None:
        now = time.monotonic()
        for number in self._aspired - self.loading.keys():
            self.loading[number] = now
            self.states[number] = ("LOADING", "")
        for number, since in self.loading.items():
            if self.states[number][0] == "LOADING" and now > since + self.seconds:
                bad = number in self.broken
                self.states[number] = ("END", "no variables") if bad else ("AVAILABLE", "")
        if all(self.states[number][0] != "LOADING" for number in self._aspired):
            for number in self.loading.keys() - self._aspired:
                del self.loading[number]
                # What failed is reported until it is loaded again.
                self.states[number] = ("END", self.states[number][1])

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, content = server._status(self.path)
                self.send_response(code)
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            def log_message(self, *args: object) -> None:
                pass

        return Handler

    def _status(self, path: str) -> tuple[int, dict[str, object]]:
        start, _, rest = path.partition("/v1/models/vit")
        with self._lock:
            states = dict(self.states)
            if label := rest.removeprefix("/labels/").removesuffix("/metadata"):
                if start or label not in self.labels:
                    return 400, {"error": f"Unrecognized servable version label: {label}"}
                if rest.endswith("/metadata"):
                    return 200, {"model_spec": {"version": str(self.labels[label])}}
        # Of all versions, also where a label is in the path: GetModelStatusImpl ignores it.
        return 200, {
            "model_version_status": [
                {
                    "version": str(number),
                    "state": state,
                    "status": {"error_code": "UNKNOWN" if error else "OK", "error_message": error},
                }
                for number, (state, error) in states.items()
            ]
        }
