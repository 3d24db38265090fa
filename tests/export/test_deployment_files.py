"""The files in export/ at the top of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format

EXPORT = Path(__file__).parents[2] / "export"


def test_models_config_is_what_the_server_reads() -> None:
    model_server_config_pb2 = pytest.importorskip(
        "tensorflow_serving.config.model_server_config_pb2", reason="needs the extra serving"
    )
    config = text_format.Parse(
        (EXPORT / "models.config").read_text(), model_server_config_pb2.ModelServerConfig()
    )
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path) == ("vit", "/models/vit")


def test_docker_compose_starts_the_server_on_models_config() -> None:
    text = (EXPORT / "docker-compose.yml").read_text()
    assert "--model_config_file=/config/models.config" in text
    assert "./models.config:/config/models.config" in text
    assert "NOT RUN" in text
