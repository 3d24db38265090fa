from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from keras_vit.data import (
    Examples,
    read_split,
    require_trainable,
    split,
    write_split,
)
from keras_vit.data.splits import split_images, training_digests
from keras_vit.data.target_kinds import MULTI_LABEL

Noise = Callable[..., Examples]


def distinct(examples: Examples) -> dict[str, str]:
    return {name: f"digest of {name}" for name in examples.names}


@pytest.fixture
def uneven(noise: Noise) -> Examples:
    """50 images of class a, 23 of b, 2 of c."""
    return noise(75, targets=[0] * 50 + [1] * 23 + [2] * 2, encoded=(b"",) * 75)


def names(examples: Examples, indices: np.ndarray) -> set[str]:
    return {examples.names[i] for i in indices}


def test_every_class_is_divided_alike(uneven: Examples) -> None:
    train, validation = split(uneven, distinct(uneven), validation_fraction=0.3)
    assert np.bincount(uneven.targets[validation]).tolist() == [15, 7, 1]
    assert sorted([*train, *validation]) == list(range(75))
    assert list(train) == sorted(train)
    assert list(validation) == sorted(validation)


def test_small_classes_are_on_both_sides(noise: Noise) -> None:
    pairs = noise(6)
    for fraction in (0.01, 0.5, 0.99):
        train, validation = split(pairs, distinct(pairs), validation_fraction=fraction)
        for part in (train, validation):
            assert sorted(pairs.targets[part]) == [0, 1, 2]


def test_seed_decides(uneven: Examples) -> None:
    first, again, other = (
        names(uneven, split(uneven, distinct(uneven), seed=seed)[1]) for seed in (5, 5, 6)
    )
    assert first == again
    assert first != other


def test_order_of_the_examples_does_not_matter(uneven: Examples) -> None:
    shuffled = uneven.subset(np.random.default_rng(3).permutation(75))
    digests = distinct(uneven)
    digests["012.png"] = digests["003.png"]  # first in one order, second in the other
    digests["060.png"] = digests["001.png"]  # contradicting
    expected = names(uneven, split(uneven, digests)[1])
    assert names(shuffled, split(shuffled, digests)[1]) == expected


def test_one_class_may_grow_without_moving_another(noise: Noise, uneven: Examples) -> None:
    grown = noise(
        78,
        names=(*uneven.names, "x", "y", "z"),
        targets=[*uneven.targets, 1, 1, 1],
        encoded=(b"",) * 78,
    )
    before, after = (
        {n for n in names(e, split(e, distinct(e))[1]) if e.targets[e.names.index(n)] != 1}
        for e in (uneven, grown)
    )
    assert before == after


def test_same_content_never_straddles(uneven: Examples) -> None:
    # Images i and i + 25 are the same, within class a and across the classes.
    digests = {name: f"content {i % 25}" for i, name in enumerate(uneven.names[:73])}
    digests |= {name: name for name in uneven.names[73:]} | {"070.png": "b1", "071.png": "b2"}
    for seed in range(7):
        train, validation = split(uneven, digests, validation_fraction=0.4, seed=seed)
        contents = [{digests[name] for name in names(uneven, part)} for part in (train, validation)]
        assert len(contents[1]) > 2
        assert contents[0].isdisjoint(contents[1])
        assert len(train) + len(validation) == 75


def test_division_of_the_source_is_kept(noise: Noise) -> None:
    examples = noise(7, splits=("validation", *["train"] * 4, "validation", "train"))
    digests = distinct(examples)
    train, validation = split(examples, digests, validation_fraction=0.5)
    assert (train.tolist(), validation.tolist()) == ([1, 2, 3, 4, 6], [0, 5])
    digests["003.png"] = digests["005.png"]  # learned from, and validated on
    train, validation = split(examples, digests)
    assert (train.tolist(), validation.tolist()) == ([1, 2, 4, 6], [0, 5])


def test_empty_part_of_a_division_is_refused(noise: Noise) -> None:
    examples = noise(7, splits=("validation",) * 7)
    with pytest.raises(ValueError, match=r"images of their own\. .*noise with 0 and 7"):
        split(examples, distinct(examples))


def test_division_that_repeats_all_images_is_refused(noise: Noise) -> None:
    examples = noise(4, targets=[0, 1, 0, 1], splits=("train",) * 2 + ("validation",) * 2)
    digests = dict(zip(examples.names, "xyxy", strict=True))
    with pytest.raises(ValueError, match=r"of their own. Received: noise with 0 and 2"):
        split(examples, digests)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 20])
def test_split_rejects_fraction(noise: Noise, fraction: float) -> None:
    examples = noise(7)
    with pytest.raises(ValueError, match=rf"`validation_fraction` must be .*={fraction}"):
        split(examples, distinct(examples), validation_fraction=fraction)


def test_one_class_only_is_refused(noise: Noise) -> None:
    examples = noise(5, targets=[1] * 5)
    for check in (require_trainable, lambda e: split(e, distinct(e))):
        with pytest.raises(ValueError, match=r"at least two classes.*noise .* classes \['b'\]"):
            check(examples)


def test_class_with_one_image_is_refused(noise: Noise) -> None:
    examples = noise(5, targets=[0, 0, 1, 2, 2])
    for check in (require_trainable, lambda e: split(e, distinct(e))):
        with pytest.raises(ValueError, match=r"at least two images.*with one image of \['b'\]"):
            check(examples)


def test_class_without_images_is_allowed(noise: Noise) -> None:
    require_trainable(noise(5, targets=[0, 2, 0, 2, 2]))


def test_class_with_copies_of_one_image_is_refused(noise: Noise) -> None:
    examples = noise(6)
    digests = distinct(examples) | {"001.png": "same", "004.png": "same"}
    with pytest.raises(ValueError, match=r"two different images .* with only 1 for class 'b'"):
        split(examples, digests)


def test_written_split_is_read_back(tmp_path: Path, uneven: Examples) -> None:
    train, validation = split(uneven, distinct(uneven))
    write_split(tmp_path / "split.csv", uneven, train, validation)
    shuffled = uneven.subset(np.random.default_rng(3).permutation(75))
    again = read_split(tmp_path / "split.csv", shuffled)
    assert [names(shuffled, part) for part in again] == [
        names(uneven, part) for part in (train, validation)
    ]
    lines = (tmp_path / "split.csv").read_text().splitlines()
    assert len(lines) == 76
    assert lines[0] == "file,label,split"
    assert lines[-1] == f"{uneven.names[validation[-1]]},c,validation"


def test_split_with_awkward_names_is_read_back(tmp_path: Path, noise: Noise) -> None:
    odd = ('a, "b".png', "line\nbreak.png", "caf\udce9.png", "../\\'\t;.png", " .png ")
    examples = noise(5, names=odd)
    write_split(tmp_path / "split.csv", examples, [2, 0, 4], [1, 3])
    train, validation = read_split(tmp_path / "split.csv", examples)
    assert (train.tolist(), validation.tolist()) == ([2, 0, 4], [1, 3])


def test_changed_data_are_noticed(tmp_path: Path, noise: Noise) -> None:
    examples = noise(7)
    write_split(tmp_path / "split.csv", examples, [0, 1, 2], [3, 4])
    with pytest.raises(ValueError, match=r"Received: 1 missing: \['003.png'\]"):
        read_split(tmp_path / "split.csv", examples.subset([0, 1, 2, 4, 6]))
    with pytest.raises(ValueError, match=r"under another label: \['001.png'.*\]"):
        read_split(tmp_path / "split.csv", noise(7, targets=[0, 0, 2, 0, 1, 2, 0]))


def test_several_labels_are_divided_by_the_rarest(noise: Noise) -> None:
    # c is rarer than b, b rarer than a; 30 show a, of these 20 also b or c; 10 show nothing.
    rows = [[1, 0, 0]] * 10 + [[1, 1, 0]] * 10 + [[1, 0, 1]] * 5 + [[1, 1, 1]] * 5 + [[0] * 3] * 10
    examples = noise(40, targets=rows, encoded=(b"",) * 40)
    train, validation = split(examples, distinct(examples), validation_fraction=0.2)
    groups = [validation[(validation >= a) & (validation < b)].tolist()
              for a, b in ((0, 10), (10, 20), (20, 30), (30, 40))]  # fmt: skip
    assert [len(group) for group in groups] == [2, 2, 2, 2]
    assert sorted([*train, *validation]) == list(range(40))
    again = examples.subset(np.random.default_rng(5).permutation(40))
    found = split(again, distinct(again), validation_fraction=0.2)[1]
    assert names(again, found) == names(examples, validation)


@pytest.mark.parametrize("seed", range(25))
def test_every_label_is_learned_and_where_possible_validated(noise: Noise, seed: int) -> None:
    rows = np.random.default_rng(seed).random((31, 3)) < (0.5, 0.1, 0.08)
    rows[:2], rows[2:4] = [1, 1, 0], [0, 1, 1]
    rows[4:6] = [1, 0, 1]
    examples = noise(31, targets=rows, encoded=(b"",) * 31)
    train, validation = split(examples, distinct(examples), validation_fraction=0.15, seed=seed)
    assert np.all(rows[train].any(axis=0))
    assert np.all(rows[validation].any(axis=0))


def test_learning_goes_before_validating(noise: Noise) -> None:
    # Each class has two images, and no two parts of these three have every class.
    examples = noise(3, targets=[[1, 1, 0], [1, 0, 1], [0, 1, 1]])
    for seed in range(9):
        train, validation = split(examples, distinct(examples), seed=seed)
        assert len(validation) == 1
        assert np.all(examples.targets[train].any(axis=0))


def test_both_sides_are_mended_by_hand_worked_moves(noise: Noise) -> None:
    held_out = np.array([True, True, False, False, False])
    labels = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1]])
    MULTI_LABEL.balance(held_out, noise(5, targets=labels.tolist()))
    # 0 is learned from again; 2 is the first to spare of class 1, and 4 the only one of class 2:
    # without 3 nothing of class 1 would be left to learn from.
    assert held_out.tolist() == [False, True, True, False, True]


def test_one_label_is_enough_that_some_show(noise: Noise) -> None:
    examples = noise(4, targets=[[1], [0], [1], [0]], class_names=("a",))
    train, validation = split(examples, distinct(examples))
    assert sorted(examples.targets[validation].ravel()) == sorted(examples.targets[train].ravel())
    with pytest.raises(ValueError, match=r"with different labels. .*all 4 images .*\['a'\]"):
        require_trainable(noise(4, targets=[[1]] * 4, class_names=("a",)))


def test_label_with_one_image_is_trained_on_and_named(
    noise: Noise, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = noise(4, targets=[[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]])
    require_trainable(examples)
    train, validation = split(examples, distinct(examples))
    assert examples.targets[train].sum(axis=0).tolist() == [1, 1, 0]
    assert examples.targets[validation].sum(axis=0).tolist() == [1, 0, 0]
    assert "labels of one image are trained on and not validated: b." in capsys.readouterr().out
    same = split_images(examples, distinct(examples))
    assert [part.tolist() for part in same] == [train.tolist(), validation.tolist()]


def test_label_with_copies_of_one_image_is_trained_on_and_named(
    noise: Noise, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = noise(5, targets=[[1, 0], [1, 1], [0, 1], [0, 0], [0, 0]], class_names=("a", "b"))
    digests = distinct(examples) | {examples.names[2]: distinct(examples)[examples.names[1]]}
    train, _ = split(examples, digests)
    assert {1, 2} <= {*train.tolist()}
    assert "not validated: b." in capsys.readouterr().out


def test_several_labels_are_written_and_read_back(tmp_path: Path, several: Examples) -> None:
    path = tmp_path / "split.csv"
    write_split(path, several, [6, 2, 0], [3, 1])
    assert path.read_text().splitlines() == [
        *("file,labels,split", "006.png,a|b|c,train", "002.png,,train", "000.png,a,train"),
        *("003.png,b|c,validation", "001.png,a|b,validation"),
    ]
    train, validation = read_split(path, several)
    assert (train.tolist(), validation.tolist()) == ([6, 2, 0], [3, 1])
    changed = several.targets.copy()
    changed[2, 1] = 1
    with pytest.raises(ValueError, match=r"Received: 1 under another label: \['002.png'\]"):
        read_split(path, dataclasses.replace(several, targets=changed))


def test_one_label_each_is_not_several(tmp_path: Path, noise: Noise) -> None:
    one, several = noise(3), noise(3, targets=np.eye(3))
    for examples, other in ((one, several), (several, one)):
        write_split(tmp_path / "split.csv", examples, [0, 1], [2])
        with pytest.raises(ValueError, match="Received: 3 under another label"):
            read_split(tmp_path / "split.csv", other)


def test_test_images_are_neither_trained_on_nor_chosen_by(noise: Noise) -> None:
    splits = ("train",) * 5 + ("validation",) * 2 + ("test",) * 2
    examples = noise(9, splits=splits)
    # 0 = 5 (validation), 1 = 7 (test), 6 = 8 (test)
    digests = dict(zip(examples.names, "vtabcvwtw", strict=True))
    train, validation = split(examples, digests)
    assert (train.tolist(), validation.tolist()) == ([2, 3, 4], [5])


def test_validation_images_are_split_off_where_there_are_only_test_images(noise: Noise) -> None:
    examples = noise(20, splits=("train",) * 15 + ("test",) * 5)
    digests = distinct(examples)
    digests[examples.names[0]] = digests[examples.names[19]]
    train, validation = split(examples, digests)
    assert sorted([*train, *validation]) == list(range(1, 15))
    assert len(validation) == 3
    alone = dataclasses.replace(examples.subset(range(1, 15)), splits=None)
    assert names(alone, split(alone, digests)[1]) == names(examples, validation)


def test_test_images_are_written_and_read_back(tmp_path: Path, noise: Noise) -> None:
    examples, path = noise(5, splits=("train",) * 3 + ("test",) * 2), tmp_path / "split.csv"
    write_split(path, examples, [0, 2], [1], distinct(examples))
    assert read_split(path, examples, ("test",))[0].tolist() == [3, 4]
    assert [part.tolist() for part in read_split(path, examples)] == [[0, 2], [1]]


def test_replaced_images_are_noticed(tmp_path: Path, noise: Noise) -> None:
    examples, path = noise(5), tmp_path / "split.csv"
    digests = {name: f"{i:064d}"[::-1] for i, name in enumerate(examples.names)}
    write_split(path, examples, [0, 2], [1], digests)
    assert [part.tolist() for part in read_split(path, examples, digests=digests)] == [[0, 2], [1]]
    assert training_digests(path) == {digests["000.png"][:32], digests["002.png"][:32]}
    digests["002.png"] = "f" * 64
    with pytest.raises(ValueError, match=r"Received: 1 replaced: \['002.png'\]"):
        read_split(path, examples, digests=digests)


def test_split_without_its_columns_is_refused(tmp_path: Path, noise: Noise) -> None:
    path = tmp_path / "split.csv"
    path.write_text("name,label\n000.png,a\n")
    for read in (training_digests, lambda path: read_split(path, noise(3))):
        with pytest.raises(ValueError, match=r"must have the columns file and split\. Received"):
            read(path)


def test_split_of_an_earlier_version_has_no_digests(tmp_path: Path, noise: Noise) -> None:
    examples, path = noise(3), tmp_path / "split.csv"
    write_split(path, examples, [0, 2], [1])
    assert path.read_text().splitlines()[0] == "file,label,split"
    assert training_digests(path) == frozenset()
    found = read_split(path, examples, digests=distinct(examples))
    assert [part.tolist() for part in found] == [[0, 2], [1]]


def test_folds_are_stratified_and_hold_out_every_image_once(uneven: Examples) -> None:
    counts = uneven.class_counts()
    held_out = [split(uneven, distinct(uneven), folds=4, fold=fold)[1] for fold in range(4)]
    assert sorted(np.concatenate(held_out)) == list(range(len(uneven)))
    for part in held_out:
        assert np.abs(uneven.subset(part).class_counts() - counts / 4).max() < 2
    other = split(uneven, distinct(uneven), folds=4, seed=1)[1]
    assert not np.array_equal(other, held_out[0])


def test_images_without_a_digest_are_named(noise: Noise) -> None:
    examples = noise(6)
    digests = distinct(examples)
    del digests["004.png"]
    with pytest.raises(ValueError, match=r"`ImageAudit\.accept\(examples, .*none of 004\.png$"):
        split(examples, digests)


def test_folds_of_divided_data_are_refused(noise: Noise) -> None:
    splits = ("train",) * 6 + ("validation",) * 2
    examples = noise(8, targets=[0, 1] * 4, splits=splits)
    with pytest.raises(ValueError, match="`folds` must be 0 for data with a validation split"):
        split(examples, distinct(examples), folds=2)
