from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import (
    Examples,
    evaluation_dataset,
    image_dataset,
    load,
    training_dataset,
)
from keras_vit.data.decode_and_resize import prepare
from keras_vit.data.pipeline import check_shard, reader
from keras_vit.preprocessing import Preprocessing

PREPROCESSING = Preprocessing(size=(5, 7), channels="bgr")
Noise = Callable[..., Examples]


@pytest.fixture
def eleven(noise: Noise) -> Examples:
    return noise(11)


@pytest.mark.slow
def test_evaluation_shows_all_images_as_the_contract_says(eleven: Examples) -> None:
    dataset = evaluation_dataset(eleven, PREPROCESSING, batch_size=3)
    assert dataset.cardinality() == 4
    x = np.concatenate([x for x, _ in dataset])
    y = np.concatenate([y for _, y in dataset])
    expected = [prepare(tf.constant(eleven.read(i)), PREPROCESSING) for i in range(11)]
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(y, np.eye(3)[eleven.targets])


def test_image_dataset_equals_evaluation(eleven: Examples) -> None:
    encoded = [eleven.read(i) for i in range(11)]
    labeled = evaluation_dataset(eleven, PREPROCESSING, batch_size=4)
    plain = image_dataset(encoded, PREPROCESSING, batch_size=4)
    assert plain.cardinality() == 3
    for x, (expected, _) in zip(plain, labeled, strict=True):
        np.testing.assert_array_equal(x, expected)
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer"):
        image_dataset(encoded, PREPROCESSING, batch_size=0)


@pytest.mark.slow
def test_files_are_read_like_memory(
    tmp_path: Path, write: Callable[..., Path], noise: Noise
) -> None:
    files = load(write(tmp_path, [f"{c}/caf\udce9{i}.png" for c in "ab" for i in range(3)]))
    memory = noise(
        6,
        targets=files.targets,
        class_names=files.class_names,
        encoded=tuple(files.read(i) for i in range(6)),
    )
    for read in (
        lambda examples: evaluation_dataset(examples, PREPROCESSING, batch_size=4),
        lambda examples: training_dataset(examples, PREPROCESSING, batch_size=3, epochs=2),
    ):
        for (x1, y1), (x2, y2) in zip(read(files), read(memory), strict=True):
            np.testing.assert_array_equal(x1, x2)
            np.testing.assert_array_equal(y1, y2)


@pytest.mark.slow
def test_no_iterator_ends_with_tf_data_s_tuner(eleven: Examples) -> None:
    """The tuner may hold up whoever drops an iterator for as long as it has lived."""
    png = tf.io.encode_png(tf.zeros((5, 7, 3), "uint8")).numpy()
    for dataset in (
        evaluation_dataset(eleven, PREPROCESSING, batch_size=3),
        image_dataset([png], PREPROCESSING, batch_size=3),
        training_dataset(eleven, PREPROCESSING, batch_size=3, epochs=1),
    ):
        assert dataset.options().autotune.enabled is False


def test_digits_are_read_in_their_own_contract() -> None:
    digits = load("digits").subset(range(13))
    preprocessing = Preprocessing(size=8, resize="squash", channels="grayscale")
    ((x, y),) = evaluation_dataset(digits, preprocessing, batch_size=13).as_numpy_iterator()
    assert x.shape == (13, 8, 8, 1)
    assert (x.min(), x.max()) == (-1, 1)
    np.testing.assert_array_equal(y.argmax(-1), digits.targets)


@pytest.mark.slow
def test_padded_batches_have_weights(eleven: Examples) -> None:
    padded = evaluation_dataset(eleven, PREPROCESSING, batch_size=4, pad=True)
    assert len(padded) == 3
    assert padded.element_spec == (
        tf.TensorSpec((4, 5, 7, 3), tf.float32),
        tf.TensorSpec((4, 3), tf.float32),
        tf.TensorSpec((4,), tf.float32),
    )
    plain = evaluation_dataset(eleven, PREPROCESSING, batch_size=4)
    for (x, y, weight), (images, labels) in zip(padded, plain, strict=True):
        real = len(images)
        np.testing.assert_array_equal(weight, [1] * real + [0] * (4 - real))
        np.testing.assert_array_equal(x[:real], images)
        np.testing.assert_array_equal(y[:real], labels)
        assert np.isfinite(x).all()
    assert real == 3
    full = evaluation_dataset(eleven, PREPROCESSING, batch_size=11, pad=True)
    ((_, _, weight),) = full.as_numpy_iterator()
    np.testing.assert_array_equal(weight, np.ones(11))


@pytest.mark.parametrize("workers", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 6))])
def test_evaluation_shards_make_up_the_batches_of_one_worker(
    eleven: Examples, workers: int
) -> None:
    parts = []
    for index in range(workers):
        dataset = evaluation_dataset(
            eleven, PREPROCESSING, batch_size=6, pad=True, shard=(index, workers)
        )
        assert len(dataset) == 2
        assert dataset.element_spec[2].shape == (6 // workers,)
        parts.append(list(dataset.as_numpy_iterator()))
    whole = evaluation_dataset(eleven, PREPROCESSING, batch_size=6, pad=True)
    for shares, expected in zip(zip(*parts, strict=True), whole, strict=True):
        for part, value in zip(zip(*shares, strict=True), expected, strict=True):
            np.testing.assert_array_equal(np.concatenate(part), value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be a positive integer. Received: batch_size=0"),
        ({"shard": (0, 2)}, r"`pad` must be True with .*Received: pad=False, shard=\(0, 2\)"),
        ({"shard": (3, 3), "pad": True}, r"`shard` must be .* index < workers. .*=\(3, 3\)"),
        ({"shard": (0, 0), "pad": True}, r"`shard` must be \(index, workers\)"),
        ({"shard": (0, 5), "pad": True}, r"`batch_size` must be a mul.*=4, shard=\(0, 5\)"),
    ],
)
def test_evaluation_dataset_rejects(eleven: Examples, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluation_dataset(eleven, PREPROCESSING, **({"batch_size": 4} | options))


def test_check_shard_takes_every_worker() -> None:
    for index in range(3):
        check_shard(6, (index, 3))
    with pytest.raises(ValueError, match=r"Received: shard=\(3, 3\)"):
        check_shard(6, (3, 3))
    with pytest.raises(ValueError, match=r"Received: batch_size=7, shard=\(0, 3\)"):
        check_shard(7, (0, 3))


def test_reader_reads_by_index_inside_tf_data(eleven: Examples) -> None:
    dataset = tf.data.Dataset.range(11).map(reader(eleven))
    for i, (encoded, label) in enumerate(dataset.as_numpy_iterator()):
        assert encoded == eleven.read(i)
        np.testing.assert_array_equal(label, np.eye(3)[eleven.targets[i]])


def test_reader_gives_all_that_an_image_shows(several: Examples) -> None:
    dataset = tf.data.Dataset.range(7).map(reader(several))
    _, labels = dataset.element_spec
    assert (labels.shape, labels.dtype) == ((3,), tf.float32)
    found = [label for _, label in dataset.as_numpy_iterator()]
    np.testing.assert_array_equal(found, several.targets)
