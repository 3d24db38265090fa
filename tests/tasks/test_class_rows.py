from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.tasks.class_rows import ClassRows, in_graph

pytestmark = pytest.mark.tensorflow
ROWS = np.arange(6, dtype="f").reshape(2, 3) / 7
CLASSES = ClassRows(("rose", "Ähre"), ROWS)


def test_parsed_file_equals_the_written_one() -> None:
    found = ClassRows.parse(CLASSES.to_bytes())
    assert found.names == CLASSES.names
    np.testing.assert_array_equal(found.rows, ROWS)


@pytest.mark.parametrize("content", [b"no protobuf", CLASSES.to_bytes()[:-5], b""])
def test_damaged_files_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"`classes` must be .* Received: x/classes.pb"):
        ClassRows.parse(content, "x/classes.pb")


def test_images_of_one_batch_may_have_different_classes() -> None:
    more = ClassRows((*CLASSES.names, "tulip"), np.concatenate([ROWS, ROWS[:1] + 9]))
    both = tf.constant([CLASSES.to_bytes(), more.to_bytes()])
    names, rows, present, valid = (x.numpy() for x in in_graph(both, ROWS))
    assert [[name.decode() for name in row] for row in names] == [
        [*CLASSES.names, ""],
        [*CLASSES.names, "tulip"],
    ]
    assert present.tolist() == [[True, True, False], [True, True, True]]
    np.testing.assert_array_equal(rows[0, :2], ROWS)
    np.testing.assert_array_equal(rows[1], more.rows)
    assert valid.tolist() == [True, True]


@pytest.mark.parametrize(
    "other",
    [
        ClassRows(CLASSES.names, ROWS + np.float32(1e-6)),
        ClassRows((*CLASSES.names, "tulip"), np.concatenate([ROWS[:1], ROWS])),
        ClassRows(CLASSES.names, ROWS[:, :2]),
        ClassRows(CLASSES.names, np.pad(ROWS, [(0, 0), (0, 4)])),
        ClassRows(CLASSES.names[:1], ROWS[:1]),
        ClassRows((), ROWS[:0]),
    ],
    ids=["rows", "order", "fewer features", "more features", "fewer classes", "no classes"],
)
def test_classes_of_another_model_are_found_and_do_not_change_the_others(other: ClassRows) -> None:
    both = tf.constant([other.to_bytes(), CLASSES.to_bytes()])
    _, rows, present, valid = (x.numpy() for x in in_graph(both, ROWS))
    assert valid.tolist() == [False, True]
    np.testing.assert_array_equal(rows[1][present[1]], ROWS)
    assert in_graph(both[:1], ROWS)[3].numpy().tolist() == [False]
