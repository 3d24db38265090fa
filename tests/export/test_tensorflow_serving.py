"""The server itself, where there is one, with the files of export/."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.export import Client, ServingError, load_predictor, saved_model
from keras_vit.tf_serving import batching
from tests.export.conftest import tiny

SERVER = os.environ.get("KERAS_VIT_TF_SERVING") or shutil.which("tensorflow_model_server")
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(
        not SERVER,
        reason="no tensorflow_model_server; test_client.py and test_serving_session.py send the "
        "same requests to a stand-in and to TensorFlow's C API",
    ),
]

CONFIG = Path(__file__).parents[2] / "export" / "config"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


@pytest.fixture
def server(exported: dict[str, Path], tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    """Its gRPC address, its REST address, and the folder that it watches."""
    models = tmp_path / "models"
    shutil.copytree(exported["saved_model"], models / "vit" / "1")
    config = (CONFIG / "models.config").read_text().replace("/models/vit", str(models / "vit"))
    (tmp_path / "models.config").write_text(config)
    grpc, rest = free_port(), free_port()
    command = [
        SERVER,
        f"--port={grpc}",
        f"--rest_api_port={rest}",
        f"--model_config_file={tmp_path / 'models.config'}",
        f"--batching_parameters_file={batching.write_config(tmp_path, 1000)}",
        f"--monitoring_config_file={CONFIG / 'monitoring.config'}",
        "--enable_batching=true",
        "--file_system_poll_wait_seconds=1",
    ]
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"localhost:{grpc}", f"http://localhost:{rest}", models / "vit"
    finally:
        running.terminate()
        running.wait(20)
        print((tmp_path / "log").read_text()[-3000:])


def wait_for(client: Client, image: bytes) -> None:
    for _ in range(60):
        try:
            client.predict([image])
        except ServingError:
            time.sleep(1)
        else:
            return
    raise AssertionError("the server does not answer")


def test_answers_are_those_of_the_model_while_a_new_version_comes(
    server: tuple[str, str, Path], model: keras.Model, images: list[bytes]
) -> None:
    grpc, rest, watched = server
    other = tiny()
    other.set_weights([weight * 0.9 for weight in model.get_weights()])
    versions = [load_predictor(m).probabilities(images) for m in (model, other)]
    with Client(grpc) as by_grpc, Client(rest) as by_rest:
        wait_for(by_grpc, images[0])

        def ask(number: int) -> int:
            """Returns which of the two versions answered."""
            client = (by_grpc, by_rest)[number % 2]
            index = number % len(images)
            found = client.predict([images[index], b"text"])
            assert [prediction.ok for prediction in found] == [True, False]
            differences = [np.abs(v[index] - found[0].probabilities).max() for v in versions]
            assert min(differences) < 1e-5
            return int(np.argmin(differences))

        with futures.ThreadPoolExecutor(8) as pool:
            assert set(pool.map(ask, range(100))) == {0}
            saved_model.write(other, watched / "2")
            answered = []
            while len(answered) < 5000 and not all(answered[-50:] or [0]):
                answered += pool.map(ask, range(50))
            assert set(answered[-50:]) == {1}
