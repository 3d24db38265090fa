"""The files in export/ at the top of the repository."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from keras_vit.data import image_reading
from keras_vit.export import warmup
from keras_vit.tasks.classification import serving_graph
from keras_vit.tf_serving import batching

EXPORT = Path(__file__).parents[2] / "export"
SERVING_PAGE = EXPORT.parent / "docs" / "serving.md"
CONFIG = EXPORT / "config"
KUBERNETES = sorted((EXPORT / "kubernetes").glob("*.yaml"))
FLAG = re.compile(r"--(\w+)=(\S+)")
COMPOSE = yaml.safe_load((EXPORT / "docker-compose.yml").read_text())


def messages() -> Any:
    """The messages of the two files whose .proto no package ships.

    Fields as in tensorflow_serving/servables/tensorflow/session_bundle_config.proto and
    tensorflow_serving/config/monitoring_config.proto of TensorFlow Serving.
    """
    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    file = descriptor_pb2.FileDescriptorProto(
        name="tests/serving.proto", package="serving", syntax="proto3"
    )
    file.dependency.append("google/protobuf/wrappers.proto")

    def message(name: str, *fields: tuple[str, int, Any, int]) -> None:
        described = file.message_type.add(name=name)
        for key, number, kind, label in fields:
            if isinstance(kind, str):
                described.field.add(
                    name=key, number=number, type=field.TYPE_MESSAGE, type_name=kind, label=label
                )
            else:
                described.field.add(name=key, number=number, type=kind, label=label)

    whole = ".google.protobuf.Int64Value"
    message(
        "BatchingParameters",
        ("max_batch_size", 1, whole, one),
        ("batch_timeout_micros", 2, whole, one),
        ("max_enqueued_batches", 3, whole, one),
        ("num_batch_threads", 4, whole, one),
        ("thread_pool_name", 5, ".google.protobuf.StringValue", one),
        ("allowed_batch_sizes", 6, field.TYPE_INT64, many),
        ("pad_variable_length_inputs", 7, field.TYPE_BOOL, one),
        ("enable_large_batch_splitting", 8, ".google.protobuf.BoolValue", one),
        ("max_execution_batch_size", 9, whole, one),
    )
    message(
        "PrometheusConfig",
        ("enable", 1, field.TYPE_BOOL, one),
        ("path", 2, field.TYPE_STRING, one),
    )
    message("MonitoringConfig", ("prometheus_config", 1, ".serving.PrometheusConfig", one))
    pool = descriptor_pool.DescriptorPool()
    wrappers = descriptor_pb2.FileDescriptorProto()
    descriptor_pool.Default().FindFileByName("google/protobuf/wrappers.proto").CopyToProto(wrappers)
    pool.Add(wrappers)
    pool.Add(file)
    return lambda name: message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"serving.{name}")
    )()


def flags(arguments: list[str]) -> dict[str, str]:
    return dict(FLAG.fullmatch(argument).groups() for argument in arguments)  # type: ignore[union-attr]


def kubernetes(kind: str) -> list[dict[str, Any]]:
    documents = [d for path in KUBERNETES for d in yaml.safe_load_all(path.read_text())]
    return [document for document in documents if document["kind"] == kind]


def deployment() -> dict[str, Any]:
    (found,) = kubernetes("Deployment")
    return found


def pods() -> dict[str, dict[str, Any]]:
    """The pods of the server and of the copy, with their labels, by name."""
    (copy,) = kubernetes("Pod")
    return {"vit": deployment()["spec"]["template"], "vit-copy": copy}


def test_models_config_is_what_the_server_reads() -> None:
    model_server_config_pb2 = pytest.importorskip(
        "tensorflow_serving.config.model_server_config_pb2", reason="needs the extra serving"
    )
    config = text_format.Parse(
        (CONFIG / "models.config").read_text(), model_server_config_pb2.ModelServerConfig()
    )
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path) == ("vit", "/models/vit")


def test_batching_config_is_what_the_server_reads(tmp_path: Path) -> None:
    text = batching.write_config(tmp_path / "models", 1000, cores=6).read_text()
    config = text_format.Parse(text, messages()("BatchingParameters"))
    assert not config.allowed_batch_sizes, "a request without images hangs or ends the server"
    assert config.max_batch_size.value == warmup.BATCH_SIZES[-1]  # warmed up
    assert config.num_batch_threads.value == 6
    assert config.max_enqueued_batches.value >= 1
    assert config.HasField("batch_timeout_micros")


def test_monitoring_config_is_what_the_server_reads() -> None:
    text = (CONFIG / "monitoring.config").read_text()
    config = text_format.Parse(text, messages()("MonitoringConfig"))
    annotations = deployment()["spec"]["template"]["metadata"]["annotations"]
    assert config.prometheus_config.enable
    assert config.prometheus_config.path == annotations["prometheus.io/path"]


def test_a_misspelt_field_is_no_configuration() -> None:
    with pytest.raises(text_format.ParseError, match="max_batch"):
        text_format.Parse("max_batch { value: 32 }", messages()("BatchingParameters"))


def test_every_file_that_the_server_is_told_of_is_there() -> None:
    (container,) = deployment()["spec"]["template"]["spec"]["containers"]
    service = COMPOSE["services"]["serving"]
    for told in (flags(container["args"]), flags(service["command"])):
        files = {Path(value) for key, value in told.items() if key.endswith("_file")}
        assert len(files) == 3
        (exported,) = (file for file in files if file.name == batching.FILE)
        assert all((CONFIG / file.name).is_file() for file in files - {exported})
        assert told["enable_batching"] == "true"
    assert flags(service["command"])["batching_parameters_file"] == "/models/batching.config"
    (vit,) = [path for path in KUBERNETES if path.name == "vit.yaml"]
    for told_of in re.findall(r"--from-file=(config/\S+)", vit.read_text()):
        assert (EXPORT / told_of).is_file()


def test_documented_commands_name_services() -> None:
    """All services have profiles, so that `docker compose up` alone would start none."""
    pages = (
        EXPORT.parent / "README.md",
        EXPORT / "README.md",
        SERVING_PAGE,
        EXPORT / "docker-compose.yml",
    )
    texts = [path.read_text(encoding="utf-8") for path in pages]
    commands = [line for text in texts for line in re.findall(r"docker compose up([ \w-]*)", text)]
    assert commands
    for words in commands:
        assert any(word in COMPOSE["services"] for word in words.split()), words


def test_containers_get_only_the_files_that_they_read() -> None:
    """Compose reads .env, with the hash of the password, from the folder of its file."""
    for name in ("serving", "serving-gpu"):
        mounts = COMPOSE["services"][name]["volumes"]
        assert mounts == ["./models:/models:ro", "./config:/config:ro"]
    assert COMPOSE["services"]["proxy"]["volumes"][0] == "./Caddyfile:/etc/caddy/Caddyfile:ro"
    assert {path.name for path in CONFIG.iterdir()} == {"models.config", "monitoring.config"}


def test_the_server_has_a_thread_for_each_processor() -> None:
    (container,) = deployment()["spec"]["template"]["spec"]["containers"]
    limited = {container["resources"]["limits"]["cpu"]: flags(container["args"])}
    for name in ("serving", "serving-gpu"):
        service = COMPOSE["services"][name]
        limited[service["deploy"]["resources"]["limits"]["cpus"]] = flags(service["command"])
    for processors, told in limited.items():
        assert told["tensorflow_intra_op_parallelism"] == processors
        assert told["tensorflow_inter_op_parallelism"] == processors


def test_no_two_services_of_a_profile_have_the_same_port() -> None:
    for profile in ("cpu", "gpu", "proxy"):
        services = [s for s in COMPOSE["services"].values() if profile in s["profiles"]]
        ports = [port for service in services for port in service["ports"]]
        assert len(ports) == len(set(ports)) > 0


def test_no_container_may_more_than_it_needs() -> None:
    for pod in pods().values():
        (container,) = pod["spec"]["containers"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert not pod["spec"]["automountServiceAccountToken"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}
    for name, service in COMPOSE["services"].items():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert {"cpus", "memory"} <= service["deploy"]["resources"]["limits"].keys()
        if name != "proxy":
            assert not service["user"].startswith("0")
            assert "cap_add" not in service
            assert "healthcheck" in service
    assert COMPOSE["services"]["proxy"]["cap_add"] == ["NET_BIND_SERVICE"]


def test_temporary_folders_have_a_size() -> None:
    for pod in pods().values():
        for volume in pod["spec"]["volumes"]:
            assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": "no emptyDir"})
    for service in COMPOSE["services"].values():
        assert all(re.search(r":size=\d+m$", folder) for folder in service["tmpfs"])


def test_network_policies_cover_all_pods_in_both_directions() -> None:
    policies = {
        policy["metadata"]["name"]: policy["spec"] for policy in kubernetes("NetworkPolicy")
    }
    for name, pod in pods().items():
        labels = policies[name]["podSelector"]["matchLabels"]
        assert labels.items() <= pod["metadata"]["labels"].items()
        assert {*policies[name]["policyTypes"]} == {"Ingress", "Egress"}
        assert policies[name]["egress"] == []
    assert policies["vit-copy"]["ingress"] == []
    others = pods()["vit-copy"]["metadata"]["labels"]
    assert policies["vit"]["podSelector"]["matchLabels"].items() - others.items()


def signatures_with_images() -> int:
    """Number of signatures of a Vision Transformer that receive image files."""
    served = object.__new__(serving_graph.ServedClassifier)
    served.strings, served.pixels, served.images = "image_bytes", "pixels", "images"  # type: ignore
    served._extractor = True  # type: ignore[assignment]
    served._classes = None
    return [spec for _, spec in served.signatures().values()].count("image_bytes")  # type: ignore


def size(text: str) -> int:
    """Bytes of 16G in Compose and of 16Gi in Kubernetes, which are the same."""
    number, power = re.fullmatch(r"(\d+)([MG])i?", text).groups()  # type: ignore[union-attr]
    return int(number) << {"M": 20, "G": 30}[power]


def test_worst_case_fits_the_memory_limit(tmp_path: Path) -> None:
    """The table of docs/serving.md, "Memory of the server"."""
    caddyfile = (EXPORT / "Caddyfile").read_text()
    (body,) = re.findall(r"^\s*max_size (\d+)MB$", caddyfile, re.MULTILINE)
    (bodies,) = re.findall(r"^\s*max_conns_per_host (\d+)$", caddyfile, re.MULTILINE)
    decoding, model = 3e9, 4.1e9  # measured, on the same page
    (container,) = deployment()["spec"]["template"]["spec"]["containers"]
    limits = [container["resources"]["limits"]["memory"]]
    cores = {container["resources"]["limits"]["cpu"]}
    for name in ("serving", "serving-gpu"):
        limit = COMPOSE["services"][name]["deploy"]["resources"]["limits"]
        limits.append(limit["memory"])
        cores.add(limit["cpus"])
    (threads,) = map(int, cores)
    text = batching.write_config(tmp_path, 1000, cores=threads).read_text()
    config = text_format.Parse(text, messages()("BatchingParameters"))
    batch = config.max_batch_size.value * image_reading.Limits().max_bytes
    waiting = config.max_enqueued_batches.value * signatures_with_images() * batch * 2
    computed = config.num_batch_threads.value * batch * 3
    received = int(bodies) * int(body) * 1e6
    total = waiting + computed + received + decoding + model
    assert total <= min(map(size, limits))
    assert size(container["resources"]["requests"]["memory"]) > model
    assert config.max_enqueued_batches.value * config.max_batch_size.value >= 16  # 16 clients
    table = SERVING_PAGE.read_text().partition("## Memory of the server")[2].partition("\n- ")[0]
    rows = [float(number) for number in re.findall(r"\| ([\d.]+) GB \|$", table, re.MULTILINE)]
    parts = [waiting, computed, received, decoding, model, total]
    assert rows == [round(part / 1e9, 1) for part in parts]


def test_proxy_accepts_the_largest_image_and_no_compressed_body() -> None:
    caddyfile = (EXPORT / "Caddyfile").read_text()
    (body,) = re.findall(r"max_size (\d+)MB", caddyfile)
    assert int(body) * 1e6 > 2 * image_reading.Limits().max_bytes * 4 / 3  # base64
    assert "@compressed header Content-Encoding *" in caddyfile
    assert "respond @compressed 415" in caddyfile
    assert {"read_header", "read_body", "idle"} <= set(re.findall(r"\w+", caddyfile))


def test_compose_file_follows_its_schema() -> None:
    checked("--builtin-schema", "vendor.compose-spec", EXPORT / "docker-compose.yml")


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_kubernetes_files_follow_their_schemas(path: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs the extra dev")
    documents = [d for d in yaml.safe_load_all(path.read_text()) if d]
    assert documents
    for document in documents:
        validate.validate(document, desired_version=validate.latest_version(), strict=True)


def test_a_mistake_in_a_kubernetes_file_is_found() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs the extra dev")
    wrong = deployment()
    wrong["spec"]["replica"] = 2
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, desired_version=validate.latest_version(), strict=True)


def checked(*arguments: Any) -> None:
    pytest.importorskip("check_jsonschema", reason="needs the extra dev")
    result = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--output-format", "json", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, json.dumps(json.loads(result.stdout), indent=1)


def image_tags(path: Path) -> set[str]:
    """Tags of the server's image in a file, which for a GPU end in `-gpu`."""
    found = re.findall(r"tensorflow/serving:([\w.-]*\w)", path.read_text(encoding="utf-8"))
    return {tag.removesuffix("-gpu") for tag in found}


def test_all_name_the_same_image_of_the_server() -> None:
    vit = EXPORT / "kubernetes" / "vit.yaml"
    told = (EXPORT / "docker-compose.yml", vit, EXPORT / "README.md", SERVING_PAGE)
    tags = {path.name: image_tags(path) for path in (*told, *KUBERNETES)}
    named = {name: found for name, found in tags.items() if found}
    assert {path.name for path in told} <= named.keys()
    (expected,) = tags["vit.yaml"]
    assert all(found == {expected} for found in named.values()), named


def test_images_can_be_pinned() -> None:
    """By a variable in Compose; README.md contains the command for the digest."""
    for service in COMPOSE["services"].values():
        assert re.fullmatch(r"\$\{[A-Z_]+_IMAGE:-[\w./:-]+\}", service["image"])
    (tag,) = image_tags(EXPORT / "docker-compose.yml")
    command = f"docker buildx imagetools inspect tensorflow/serving:{tag} --format"
    assert command in (EXPORT / "README.md").read_text()


@pytest.mark.parametrize("path", [*KUBERNETES, EXPORT / "docker-compose.yml", EXPORT / "Caddyfile"])
def test_files_that_were_not_run_say_so(path: Path) -> None:
    assert "# NOT RUN" in path.read_text()
