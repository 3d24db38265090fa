from __future__ import annotations

from pathlib import Path

import keras
import pytest
import tensorflow as tf

from keras_vit.export import saved_model, warmup

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow_serving", reason="needs the extra serving")


@pytest.mark.slow
def test_warm_up_requests_are_answered(
    exported: dict[str, Path], images: list[bytes], tmp_path: Path
) -> None:
    pytest.importorskip("tensorflow_serving", reason="needs the extra serving")
    folder = tmp_path / "1"
    saved_model.write(keras.saving.load_model(exported["keras"]), folder)
    path = warmup.write(folder, images[:2], name="flowers", batch_sizes=(1, 3))
    assert path == folder / "assets.extra" / "tf_serving_warmup_requests"
    loaded = tf.saved_model.load(folder)
    seen = []
    for request in warmup.requests(path):
        signature = loaded.signatures[request.model_spec.signature_name]
        assert request.model_spec.name == "flowers"
        inputs = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
        answer = signature(**inputs)
        seen.append((request.model_spec.signature_name, len(next(iter(answer.values())))))
        if "ok" in answer:
            assert answer["ok"].numpy().all()
    assert set(seen) == {(name, size) for name in loaded.signatures for size in (1, 3)}
    # A batch of pixels takes no room: the last value stands for the rest.
    assert path.stat().st_size < 10 * sum(map(len, images[:2])) + 20_000


def test_requests_need_images_and_their_format(
    exported: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="`images` must contain at least one"):
        warmup.write(exported["saved_model"], [], name="vit")
    monkeypatch.setattr(warmup.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install -e "\.\[serving\]"'):
        warmup.write(exported["saved_model"], [b"image"], name="vit")
