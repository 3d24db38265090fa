"""Replies of a server that is not TensorFlow Serving with a model of this package."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.export import Client, ServingError

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow_serving", reason="needs the extra serving")

OUTPUTS: dict[str, Any] = {
    "probabilities": np.array([[0.25, 0.75]] * 2, np.float32),
    "top_scores": np.array([[0.75, 0.25]] * 2, np.float32),
    "top_indices": np.array([[1, 0]] * 2, np.int32),
    "top_labels": np.array([[b"bee", b"ant"]] * 2, object),
    "present": np.array([[False, True]] * 2),
    "ok": np.array([True, False]),
    "message": np.array([b"", b"no image"], object),
}
IMAGES = [b"1", b"2"]


class Replies:
    """What the server answers: bytes, for the metadata and for predictions."""

    def __init__(self) -> None:
        self.metadata = self.prediction = b""
        self.address = ""


@contextlib.contextmanager
def grpc_server() -> Iterator[Replies]:
    import grpc

    replies = Replies()

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            name = "metadata" if details.method.endswith("GetModelMetadata") else "prediction"
            return grpc.unary_unary_rpc_method_handler(lambda *_: getattr(replies, name))

    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([Handler()])
    replies.address = f"localhost:{server.add_insecure_port('localhost:0')}"
    server.start()
    yield replies
    server.stop(0).wait()


@contextlib.contextmanager
def rest_server() -> Iterator[Replies]:
    replies = Replies()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(replies.metadata)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(replies.prediction)

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    replies.address = f"http://localhost:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield replies
    server.shutdown()
    server.server_close()


def grpc_metadata() -> bytes:
    from tensorflow_serving.apis import get_model_metadata_pb2

    found = get_model_metadata_pb2.SignatureDefMap()
    info = found.signature_def["serving_default"].inputs["image_bytes"]
    info.dtype = tf.string.as_datatype_enum
    info.tensor_shape.CopyFrom(tf.TensorShape([None]).as_proto())
    answer = get_model_metadata_pb2.GetModelMetadataResponse()
    answer.metadata["signature_def"].Pack(found)
    return answer.SerializeToString()


def grpc_prediction(change: Callable[[Any], None] = lambda outputs: None, **outputs: Any) -> bytes:
    from tensorflow_serving.apis import predict_pb2

    answer = predict_pb2.PredictResponse()
    for key, value in (OUTPUTS | outputs).items():
        if value is not None:
            answer.outputs[key].CopyFrom(tf.make_tensor_proto(value))
    change(answer.outputs)
    return answer.SerializeToString()


def rest_metadata() -> bytes:
    info = {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": "-1"}]}}
    found = {"signature_def": {"serving_default": {"inputs": {"image_bytes": info}}}}
    return json.dumps({"metadata": {"signature_def": found}}).encode()


def rest_prediction(**outputs: Any) -> bytes:
    def plain(value: Any) -> Any:
        listed = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(listed, list):
            return [plain(item) for item in listed]
        return listed.decode() if isinstance(listed, bytes) else listed

    found = {key: plain(value) for key, value in (OUTPUTS | outputs).items() if value is not None}
    return json.dumps({"outputs": found}).encode()


KINDS = {
    "grpc": (grpc_server, grpc_metadata, grpc_prediction),
    "rest": (rest_server, rest_metadata, rest_prediction),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def replies(kind: str) -> Iterator[Replies]:
    server, metadata, prediction = KINDS[kind]
    with server() as found:
        found.metadata, found.prediction = metadata(), prediction()
        yield found


def test_sound_reply(replies: Replies) -> None:
    with Client(replies.address) as client:
        first, second = client.predict(IMAGES)
    assert (first.label, first.present, second.message) == ("bee", ("bee",), "no image")


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"ok": None}, "has no ok"),
        ({"ok": np.array([True])}, r"ok of shape \(1,\) for a request of 2 images"),
        ({"ok": np.array([b"false", b"true"], object)}, "ok is str"),
        ({"probabilities": np.array([[np.nan, 1], [0, 1]], np.float32)}, "with NaN or infinity"),
        ({"top_scores": np.array([[np.inf, 1], [0, 1]], np.float32)}, "with NaN or infinity"),
        ({"top_scores": np.array([[7, 1], [0, 1]], np.float32)}, r"numbers outside of \[0, 1\]"),
        ({"probabilities": np.array([[-1, 1], [0, 1]], np.float32)}, r"outside of \[0, 1\]"),
        ({"probabilities": np.array([0.5, 0.5], np.float32)}, r"probabilities is float\d\d of sh"),
        ({"top_labels": np.array([[1, 2], [3, 4]], np.int32)}, "top_labels is int"),
        ({"top_indices": np.array([[1, 7], [0, 1]], np.int32)}, "index 7 is out of bounds"),
        ({"message": np.array(1.0)}, r"message of shape \(\)"),
    ],
)
def test_wrong_outputs_are_errors(
    outputs: dict[str, Any], message: str, kind: str, replies: Replies
) -> None:
    replies.prediction = KINDS[kind][2](**outputs)
    with (
        Client(replies.address) as client,
        pytest.raises(ServingError, match=f"{replies.address}.*{message}"),
    ):
        client.predict(IMAGES)


def large_shape(outputs: Any) -> None:
    for size in (1 << 33, -1):
        outputs["probabilities"].tensor_shape.dim[0].size = size


def not_utf8(outputs: Any) -> None:
    outputs["message"].string_val[0] = b"\xff"


def long_string(outputs: Any) -> None:
    outputs["message"].string_val[:] = [b"a" * 100_000] + [b""] * 9999
    outputs["message"].tensor_shape.dim[0].size = 10_000


def no_such_dtype(outputs: Any) -> None:
    outputs["ok"].dtype = 999


@pytest.mark.parametrize("change", [large_shape, not_utf8, long_string, no_such_dtype])
def test_wrong_tensors_are_errors(change: Callable[[Any], None]) -> None:
    with grpc_server() as replies:
        replies.metadata, replies.prediction = grpc_metadata(), grpc_prediction(change)
        with Client(replies.address) as client, pytest.raises(ServingError, match="invalid resp"):
            client.predict(IMAGES)


def test_compressed_messages_are_not_expanded() -> None:
    """A message of 100 KB would be one of 100 MB."""
    import grpc

    replies = Replies()

    def service(handler: Any, details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda *_: bytes(100 << 20))

    handler = type("Handler", (grpc.GenericRpcHandler,), {"service": service})()
    server = grpc.server(futures.ThreadPoolExecutor(2), compression=grpc.Compression.Gzip)
    server.add_generic_rpc_handlers([handler])
    replies.address = f"localhost:{server.add_insecure_port('localhost:0')}"
    server.start()
    with Client(replies.address, timeout=20) as client, pytest.raises(ServingError, match="INTER"):
        client.predict(IMAGES)
    server.stop(0).wait()


@pytest.mark.parametrize(
    "outputs", [[], {}, 5, "text", {"a": {"b": 1}}, {"a": [[1], [2, 3]]}, {"a": [1, "b"]}, [None]]
)
def test_json_of_another_form_is_an_error(outputs: Any) -> None:
    with rest_server() as replies:
        replies.metadata = rest_metadata()
        replies.prediction = json.dumps({"outputs": outputs}).encode()
        with Client(replies.address) as client, pytest.raises(ServingError, match="response"):
            client.predict(IMAGES)


def mutated(body: bytes, draw: random.Random) -> bytes:
    """One to four changes: of a byte, a repetition, a deletion, or a random insertion."""
    changed = bytearray(body)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(changed) + 1)
        end = min(len(changed), at + draw.randint(1, 30))
        kind = draw.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] = draw.randrange(256)
        elif kind == 1:
            changed[at:at] = changed[at:end] * draw.randint(1, 50)
        elif kind == 2:
            del changed[at:end]
        elif kind == 3:
            changed[at:at] = draw.randbytes(draw.randint(1, 20))
        else:
            words = [
                b"[",
                b"{",
                b"null",
                b"NaN",
                b"-1",
                b"1e999",
                b'"',
                b"true",
                b"\\u0000",
                b"9" * 40,
            ]
            changed[at:end] = draw.choice(words) * draw.choice([1, 1, 2, 3000])
    return bytes(changed)


@pytest.mark.slow
def test_mutated_replies(kind: str, replies: Replies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the replies are metadata; each is an error or a prediction, within its time."""
    import resource

    monkeypatch.setattr("time.sleep", lambda seconds: None)  # before further attempts
    sound, draw = (replies.metadata, replies.prediction), random.Random(17)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB
    results = {"error": 0, "prediction": 0}
    for number in range(5000):
        replies.metadata, replies.prediction = sound
        if number % 2:
            replies.metadata = mutated(sound[0], draw)
        else:
            replies.prediction = mutated(sound[1], draw)
        try:
            with Client(replies.address, timeout=5) as client:
                assert len(client.predict(IMAGES)) == 2
            results["prediction"] += 1
        except (ServingError, ValueError):  # inputs that do not fit the signatures
            results["error"] += 1
    assert min(results.values()) > 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 << 10


def repeated_string(outputs: Any) -> None:
    outputs["message"].string_val[:] = [b"a" * 1000]
    outputs["message"].tensor_shape.dim[0].size = 8_000_000


def repeated_numbers(outputs: Any) -> None:
    for number in range(40):
        outputs[f"more{number}"].CopyFrom(tf.make_tensor_proto(np.zeros(1)))
        outputs[f"more{number}"].tensor_shape.dim[0].size = 1 << 23


@pytest.mark.parametrize("change", [repeated_string, repeated_numbers])
def test_values_are_not_repeated(change: Callable[[Any], None]) -> None:
    test_wrong_tensors_are_errors(change)


def test_long_strings_are_counted_over_all_outputs() -> None:
    more = {f"more{n}": ["a" * 1000, *[""] * 9999] for n in range(30)}
    with rest_server() as replies:
        replies.metadata, replies.prediction = rest_metadata(), rest_prediction(**more)
        with Client(replies.address) as client, pytest.raises(ServingError, match="very different"):
            client.predict(IMAGES)


@pytest.mark.parametrize("outputs", [{"top_labels": []}, {"top_scores": [[1.0]] * 2}])
def test_labels_without_scores_are_errors(outputs: dict[str, Any]) -> None:
    with rest_server() as replies:
        replies.metadata, replies.prediction = rest_metadata(), rest_prediction(**outputs)
        with Client(replies.address) as client, pytest.raises(ServingError, match="invalid resp"):
            client.predict(IMAGES)


@pytest.mark.parametrize("start", ["http://", "https://", "grpc://", ""])
def test_address_with_a_password_is_refused_without_printing_it(start: str) -> None:
    with pytest.raises(ValueError, match="without a password") as error:
        Client(f"{start}me:sec/ret@localhost:8501")
    assert str(error.value).endswith(f"Received: address='{start}...@localhost:8501'")
