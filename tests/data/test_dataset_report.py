from __future__ import annotations

import dataclasses
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from keras_vit.data import DatasetReport, Examples, ImageAudit, check, load, split
from tests.training.photos import write_photos

Noise = Callable[..., Examples]
Save = Callable[..., bytes]


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(pixels.astype("uint8")).save(file, "PNG")
    return file.getvalue()


def names(*indices: int) -> tuple[str, ...]:
    return tuple(f"{i:03d}.png" for i in indices)


def test_good_images_are_counted_and_measured(noise: Noise, save: Save) -> None:
    sizes = [(11, 7), (13, 5), (17, 9), (12, 8), (19, 6)]
    examples = noise(5, encoded=tuple(save(i, size) for i, size in enumerate(sizes)))
    found = check(examples.subset([0, 1, 2, 3]), progress=False)
    assert found.counts == {"a": 2, "b": 1, "c": 1}
    # Medians of the heights 5 7 8 9 and of the widths 11 12 13 17, cut to whole pixels.
    assert found.sizes == {"smallest": (5, 11), "median": (7, 12), "largest": (9, 17)}
    assert found.audit.bad == found.leaks == found.odd_sizes == found.flat == found.dark == ()
    assert found.source == "noise"


def test_good_data_set_is_not_refused(noise: Noise) -> None:
    found = check(noise(13), progress=False)
    assert (found.refused, found.blocking, found.rare) == ("", False, {})
    assert found.text().splitlines() == [
        "13 images in 3 classes of noise",
        "  a       5   38.5%",
        "  b       4   30.8%",
        "  c       4   30.8%",
        "image sizes, height x width in pixels: smallest 7 x 11, median 7 x 11, largest 7 x 11",
        found.cut_off,
        "",
        "No problems found; no two images have the same pixels.",
    ]


def test_odd_images_are_found(noise: Noise, save: Save) -> None:
    encoded = [save(i, (20, 10)) for i in range(11)]
    encoded[1] = save(1, (81, 10))  # more than four times as wide
    encoded[2] = save(2, (80, 10))
    encoded[3] = save(3, (20, 2))  # less than a quarter as high
    encoded[4] = png(np.full((10, 20, 3), 97))
    encoded[5] = png(np.zeros((10, 20, 3)))
    # As [0, 1] written as whole numbers.
    encoded[6] = png(np.random.default_rng(3).integers(0, 2, (10, 20, 3)))
    encoded[7] = png(np.random.default_rng(3).integers(0, 4, (10, 20, 3)))
    encoded[8] = png(np.full((10, 20, 3), (255, 0, 0)))  # red is not one value
    found = check(noise(11, encoded=tuple(encoded)), progress=False)
    assert found.odd_sizes == names(1, 3)
    assert found.flat == names(4, 5)
    assert found.dark == names(6)
    assert not found.blocking
    lines = found.text().splitlines()[5:]
    assert lines == [
        found.cut_off,
        "",
        "Unusual size (2):",
        "  001.png",
        "  003.png",
        "Images with a single pixel value (2):",
        "  004.png",
        "  005.png",
        "Nearly black images (were values in [0, 1] saved as 0 to 255?) (1):",
        "  006.png",
    ]


def test_rare_classes_are_named(noise: Noise) -> None:
    labels = np.array([0] * 22 + [1] * 2 + [2] * 3)
    found = check(noise(27, targets=labels), progress=False)
    assert found.rare == {"b": 2}  # a tenth of 22 is 2.2
    title = "Classes below a tenth of the largest class (see class_weights=balanced) (1):\n  b: 2"
    assert found.text().endswith(title)
    assert not found.blocking


def test_bad_images_block_and_are_not_counted(noise: Noise, save: Save) -> None:
    encoded = (*(save(i) for i in range(9)), b"text", save(9)[:99])
    found = check(noise(11, encoded=encoded), progress=False)
    assert found.counts == {"a": 3, "b": 3, "c": 3}
    assert dict(found.audit.bad).keys() == set(names(9, 10))
    assert (found.refused, found.blocking) == ("", True)
    assert "2 of 11 images cannot be used:\n  009.png: not a JPEG" in found.text()


def test_leaks_are_images_of_both_parts(noise: Noise, save: Save) -> None:
    # 0 = 6 across the parts, 1 = 7 within training, 3 = 8 within validation.
    encoded = tuple(save(seed) for seed in (0, 1, 2, 3, 4, 5, 0, 1, 3, 9, 10, 11))
    splits = tuple("validation" if i in (3, 4, 5, 6, 8) else "train" for i in range(12))
    found = check(noise(12, encoded=encoded, splits=splits), progress=False)
    assert found.audit.duplicates == (names(0, 6), names(1, 7), names(3, 8))
    assert found.leaks == (names(0, 6),)
    assert found.near_duplicate_leaks == ()
    assert "Near-duplicate" not in found.text()
    assert not found.blocking
    title = "Duplicate images in several splits (1):\n  000.png = 006.png"
    assert title in found.text()
    without = check(noise(12, encoded=encoded), progress=False)
    assert (without.leaks, without.audit.duplicates) == ((), found.audit.duplicates)


def test_what_training_refuses_is_said(noise: Noise, save: Save) -> None:
    one_class = check(noise(7, targets=np.zeros(7)), progress=False)
    assert one_class.refused.startswith("Training needs images of at least two classes")
    assert one_class.blocking
    assert one_class.text().endswith(one_class.refused)

    lonely = check(noise(7, targets=np.array([0, 0, 0, 0, 1, 1, 2])), progress=False)
    assert "at least two images, one for training" in lonely.refused

    # Two files of class c, but one picture: nothing is left to validate with.
    labels = np.array([0, 0, 0, 1, 1, 2, 2])
    twins = (*(save(i) for i in range(6)), save(5))
    twice = check(noise(7, targets=labels, encoded=twins), progress=False)
    assert "with only 1 for class 'c'" in twice.refused
    assert twice.blocking


def test_nothing_usable_is_reported(noise: Noise) -> None:
    found = check(noise(2, encoded=(b"", b"x")), progress=False)
    assert (found.counts, found.sizes) == ({"a": 0, "b": 0, "c": 0}, {})
    assert found.blocking
    assert found.rare == {}
    assert found.text().splitlines()[:5] == [
        "0 images in 3 classes of noise",
        "  0  images that can be used",
        "  1  empty file: a 1",
        "  1  not a JPEG, PNG, GIF, BMP or WebP: b 1",
        "  a       0    0.0%",
    ]


def test_oriented_images_are_counted_and_seen_upright(noise: Noise, save: Save) -> None:
    notes = [PIL.Image.Exif() for _ in range(3)]
    for note, number in zip(notes, (1, 3, 6), strict=True):
        note[0x0112] = number
    encoded = (*(save(i) for i in range(3)), *(save(i, exif=notes[i]) for i in range(3)))
    found = check(noise(6, encoded=encoded), progress=False)
    assert found.audit.sizes["005.png"] == (11, 7)
    assert found.audit.duplicates == (names(0, 3),)
    assert found.to_json()["oriented"] == found.audit.oriented == 2
    assert found.text().splitlines()[6] == "images rotated according to their EXIF orientation: 2"


def test_report_is_json(noise: Noise, save: Save) -> None:
    encoded = (*(save(i) for i in range(6)), save(0), b"text")
    splits = ("train",) * 6 + ("validation",) * 2
    found = check(noise(8, encoded=encoded, splits=splits), progress=False)
    content = json.loads(json.dumps(found.to_json()))
    assert content == {
        "source": "noise",
        "counts": {"a": 3, "b": 2, "c": 2},
        "leaks": [["000.png", "006.png"]],
        "twin_classes": [],
        "cut_off": found.cut_off,
        "sizes": {"smallest": [7, 11], "median": [7, 11], "largest": [7, 11]},
        "odd_sizes": [],
        "flat": [],
        "dark": [],
        "refused": found.refused,
        "rare": {},
        "oriented": 0,
        "notes": [],
        "inventory": {
            "used": 7,
            "unreadable": {"not a JPEG, PNG, GIF, BMP or WebP": {"b": 1}},
            "ignored": {},
        },
        "bad": {"007.png": "not a JPEG, PNG, GIF, BMP or WebP"},
        "duplicates": [["000.png", "006.png"]],
        "contradictions": [],
    }


def test_long_lists_are_cut_and_many_classes_left_out() -> None:
    report = DatasetReport(
        source="many",
        counts={str(i): 7 for i in range(101)},
        audit=ImageAudit(bad=(), digests={}),
        leaks=(),
        sizes={},
        odd_sizes=tuple(f"{i:02d}.jpg" for i in range(23)),
        flat=(),
        dark=(),
        refused="",
    )
    lines = report.text().splitlines()
    assert lines[:4] == ["707 images in 101 classes of many", "", "Unusual size (23):", "  00.jpg"]
    assert lines[-1] == "  ... and 3 more"
    few = dataclasses.replace(report, counts={str(i): 7 for i in range(100)})
    assert few.text().splitlines()[1] == "  0        7    1.0%"


def test_progress_bar_can_be_turned_off(noise: Noise, capsys: pytest.CaptureFixture[str]) -> None:
    check(noise(3), progress=False)
    assert capsys.readouterr() == ("", "")
    check(noise(3))
    assert "Checking images" in capsys.readouterr().err


def test_digits_are_trainable_and_balanced() -> None:
    found = check(load("digits").subset(range(300)), progress=False)
    assert sum(found.counts.values()) == 300
    assert not found.blocking
    assert found.sizes["median"] == (8, 8)


def test_images_are_counted_once_whatever_they_show(several: Examples) -> None:
    found = check(several, progress=False)
    assert found.text().splitlines()[:5] == [
        "7 images in 3 classes of noise",
        "  a       4   57.1%",
        "  b       3   42.9%",
        "  c       3   42.9%",
        "  2 of the images show none of these classes",
    ]
    content = found.to_json()
    assert (content["images"], content["without_class"], content["refused"]) == (7, 2, "")
    assert json.loads(json.dumps(content)) == json.loads(json.dumps(found.to_json()))


def test_images_that_can_be_converted_come_with_the_command(tmp_path: Path) -> None:
    source = write_photos(tmp_path / "my photos")
    (source / "ant" / "a.heic").write_bytes(bytes(4) + b"ftypheic" + bytes(200))
    text = check(load(source)).text()
    assert f"`keras-vit data convert '{source}' NEW_FOLDER`" in text


def photos_of(folder: Path, seeds: dict[str, int]) -> Path:
    """Photographs by name; those of one seed differ in quality only."""
    for number, (name, seed) in enumerate(seeds.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(jpeg(seed, 90 - number))
    return folder


def jpeg(seed: int, quality: int) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 256, (9, 13, 3), "uint8")
    file = io.BytesIO()
    PIL.Image.fromarray(noise).resize((130, 90)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def test_one_photograph_in_several_splits_is_a_leak(tmp_path: Path) -> None:
    seeds = {"train/a/1.jpg": 1, "train/b/2.jpg": 2, "val/a/3.jpg": 1, "val/b/4.jpg": 4}
    found = check(load(photos_of(tmp_path, seeds)), progress=False)
    assert found.leaks == (("train/a/1.jpg", "val/a/3.jpg"),)
    assert found.near_duplicate_leaks == found.leaks
    title = (
        "Near-duplicate images in several splits; training keeps them, so that scores are too "
        "high: remove them from all splits but one (1):\n  train/a/1.jpg = val/a/3.jpg"
    )
    assert title in found.text()
    assert "Duplicate images in several splits" not in found.text()


def test_one_photograph_stays_on_one_side_of_a_new_split(tmp_path: Path) -> None:
    seeds = {f"{name}/{i}{e}.jpg": i for name in "ab" for i in range(12) for e in ("", "-edited")}
    seeds = {name: seed + 100 * name.startswith("b") for name, seed in seeds.items()}
    examples = load(photos_of(tmp_path, seeds))
    found = check(examples, progress=False)
    assert len(found.audit.twins) == 24
    assert "Images of the same photograph by name or content, kept on one side" in found.text()
    for seed in range(5):
        apart, joined = (
            split(examples, found.audit.digests, twins, seed=seed)[1]
            for twins in ((), found.audit.twins)
        )
        sides = [
            {examples.names[i].replace("-edited", "") for i in part} for part in (apart, joined)
        ]
        assert len(sides[0]) > len(apart) / 2
        assert len(sides[1]) == len(joined) / 2


def test_a_class_of_one_photograph_is_on_both_sides(tmp_path: Path) -> None:
    seeds = {"a/1.jpg": 1, "a/2.jpg": 1, "b/3.jpg": 2, "b/4.jpg": 3}
    examples = load(photos_of(tmp_path, seeds))
    found = check(examples, progress=False)
    assert found.audit.twins == (("a/1.jpg", "a/2.jpg"),)
    for part in split(examples, found.audit.digests, found.audit.twins):
        assert sorted(examples.targets[part]) == [0, 1]


@pytest.mark.parametrize("other", ["daisy", "Daisy ", "DAISY"])
def test_classes_that_differ_in_little_are_a_finding(tmp_path: Path, other: str) -> None:
    seeds = {"Daisy/1.jpg": 1, "Daisy/2.jpg": 2, f"{other}/3.jpg": 3, "rose/4.jpg": 4}
    found = check(load(photos_of(tmp_path, seeds)), progress=False)
    assert found.twin_classes == (("Daisy", other),)
    merge = f"mv -n {shlex.quote(str(tmp_path / other))}/* {tmp_path / 'Daisy'}/"
    assert f"  'Daisy' (2 images) = '{other}' (1 images): {merge}" in found.text()


def test_classes_in_two_unicode_forms_are_a_finding(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(jpeg(1, 90))
    (tmp_path / "2.jpg").write_bytes(jpeg(2, 90))
    (tmp_path / "labels.csv").write_text("file,label\n1.jpg,caf\u00e9\n2.jpg,cafe\u0301\n")
    found = check(load(tmp_path), progress=False)
    assert "'cafe\u0301' (1 images) = 'caf\u00e9' (1 images)" in found.text()
