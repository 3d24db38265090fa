from __future__ import annotations

from pathlib import Path

import keras
import pytest
import tensorflow as tf

from keras_vit.export import saved_model, warmup

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow_serving", reason="needs the extra serving")


@pytest.mark.slow
def test_warm_up_requests_are_answered(exported: dict[str, Path], tmp_path: Path) -> None:
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    folder = tmp_path / "1"
    saved_model.write(keras.saving.load_model(exported["keras"]), folder)
    path = warmup.write_requests(folder, name="flowers", batch_sizes=(1, 3))
    assert path == folder / "assets.extra" / "tf_serving_warmup_requests"
    loaded = tf.saved_model.load(folder)
    seen, sent = [], set()
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        request = logs.PredictionLog.FromString(record).predict_log.request
        signature = loaded.signatures[request.model_spec.signature_name]
        assert request.model_spec.name == "flowers"
        inputs = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
        answer = signature(**inputs)
        for tensor in inputs.values():
            sent.update(tensor.numpy().tolist() if tensor.dtype == tf.string else ())
        seen.append((request.model_spec.signature_name, len(next(iter(answer.values())))))
        if "ok" in answer:
            assert answer["ok"].numpy().all()
    assert set(seen) == {(name, size) for name in loaded.signatures for size in (1, 3)}
    (image,) = sent
    assert tf.io.decode_jpeg(image).shape == (480, 640, 3)
    # A batch of pixels takes no room: the last value stands for the rest.
    assert path.stat().st_size < 20 * len(image) + 20_000


def test_requests_need_their_format(
    exported: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install -e "\.\[serving\]"'):
        warmup.write_requests(exported["saved_model"], name="vit")
