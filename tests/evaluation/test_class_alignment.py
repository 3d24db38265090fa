from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from keras_vit.evaluation import align


def examples(labels: list[int], *class_names: str) -> SimpleNamespace:
    return SimpleNamespace(targets=np.array(labels, "int32"), class_names=class_names)


def test_align_matches_names() -> None:
    data = examples([0, 1, 2, 1], "tulip", "daisy", "rose")
    assert align(["daisy", "iris", "rose", "tulip"], data).tolist() == [3, 0, 2, 0]


def test_align_keeps_equal_classes_although_a_name_occurs_twice() -> None:
    data = examples([2, 0, 1], "crane", "crow", "crane")
    assert align(["crane", "crow", "crane"], data).tolist() == [2, 0, 1]


def test_align_trusts_indices_where_the_model_has_no_labels() -> None:
    assert align(None, examples([1, 0], "daisy", "rose")).tolist() == [1, 0]


def test_align_ignores_classes_that_do_not_occur() -> None:
    assert align(["rose"], examples([1, 1], "weed", "rose")).tolist() == [0, 0]


def test_align_names_the_classes_that_the_model_lacks() -> None:
    data = examples([0, 1, 2], "daisy", "orchid", "moss")
    with pytest.raises(
        ValueError, match=r"the model lacks: orchid, moss.*with the classes daisy, rose"
    ):
        align(["daisy", "rose"], data)


def test_align_does_not_guess_between_classes_of_one_name() -> None:
    with pytest.raises(ValueError, match="the model has more than one: crane"):
        align(["crane", "crow", "crane"], examples([0], "crane"))


def test_align_keeps_its_message_short() -> None:
    labels = [f"class {index}" for index in range(1000)]
    with pytest.raises(ValueError, match=r"class 19 and 980 more$"):
        align(labels, examples([0], "other"))


def test_align_moves_every_label_that_an_image_shows() -> None:
    shown = np.array([[1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]], "uint8")
    data = SimpleNamespace(targets=shown, class_names=("tulip", "daisy", "rose", "moss"))
    found = align(["daisy", "iris", "rose", "tulip", "lily"], data)
    assert found.tolist() == [[0, 0, 1, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
    assert align(data.class_names, data) is shown
    with pytest.raises(ValueError, match="the model lacks: rose"):
        align(["daisy", "tulip"], data)
