from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from keras_vit import arguments


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("ViTB61", " Did you mean 'ViTB16'?"),
        ("vitb16", " Did you mean 'ViTB16'?"),
        ("resnet", ""),
        ("", ""),
    ],
)
def test_nearest(value: str, hint: str) -> None:
    assert arguments.nearest(value, ["ViTB16", "ViTL32"]) == hint


def test_shortlist_counts_what_it_leaves_out() -> None:
    assert arguments.shortlist(["a", "b", "c"], shown=3) == "a, b, c"
    assert arguments.shortlist(["a", "b", "c"], shown=1) == "a and 2 more"


def test_text_table_aligns_each_column() -> None:
    rows = [("name", "px", "license"), ("imagenet", "224", "MIT"), ("a", "32", "")]
    assert arguments.text_table(rows, "<><") == [
        "name       px  license",
        "imagenet  224  MIT",
        "a          32",
    ]


def test_listed_shows_twenty_lines_at_most() -> None:
    lines = [str(i) for i in range(21)]
    assert arguments.listed("Title:", lines[:20]) == "Title:\n  " + "\n  ".join(lines[:20])
    assert arguments.listed("Title:", lines).splitlines()[-2:] == ["  19", "  ... and 1 more"]
    assert arguments.listed("Title:", []) == "Title:"


def test_one_of_accepts_an_option() -> None:
    arguments.one_of("mode", "b", ("a", "b"))
    arguments.one_of("mode", None, ("a", None))


def test_one_of_names_options_value_and_the_nearest() -> None:
    with pytest.raises(
        ValueError,
        match=r"^`mode` must be one of these\. Did you mean 'crop'\? Options: 'ab', 'crop'\. "
        r"Received: mode='crp'$",
    ):
        arguments.one_of("mode", "crp", ("ab", "crop"))
    with pytest.raises(ValueError, match=r"^`n` must be one of 1, 2\. Received: n=3$"):
        arguments.one_of("n", 3, (1, 2))


def test_among_checks_like_one_of() -> None:
    check = arguments.among("a", None)
    check("mode", None)
    with pytest.raises(ValueError, match=r"^`mode` must be one of 'a', None\. Received: mode=3$"):
        check("mode", 3)


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_positive_int_returns_an_int(value: object) -> None:
    result = arguments.positive_int("n", value)
    assert result == 3
    assert type(result) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, "1", None, True, [1], np.float32(2)])
def test_positive_int_refuses(value: object) -> None:
    with pytest.raises(ValueError, match=r"^`n` must be a positive integer\. Received: n="):
        arguments.positive_int("n", value)


def test_hidden_size_is_shared_equally_by_the_heads() -> None:
    assert arguments.hidden_size(15, 3) == 15


@pytest.mark.parametrize("value", [16, None])
def test_hidden_size_refuses(value: int | None) -> None:
    message = rf"^`hidden_size` must be a multiple of `num_heads`\. Received: hidden_size={value}, "
    with pytest.raises(ValueError, match=message):
        arguments.hidden_size(value, 3)


@pytest.mark.parametrize("value", [0, 0.5, 7, np.float64(0.25)])
def test_non_negative_returns_a_float(value: float) -> None:
    result = arguments.non_negative("x", value)
    assert result == value
    assert isinstance(result, float)


@pytest.mark.parametrize("value", [-1, -0.5, float("inf"), float("nan"), True, "1", None])
def test_non_negative_refuses(value: object) -> None:
    with pytest.raises(ValueError, match=r"^`x` must be a non-negative number\. Received: x="):
        arguments.non_negative("x", value)


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float64(0.25)])
def test_fraction_returns_a_float(value: float) -> None:
    result = arguments.fraction("x", value)
    assert result == value
    assert isinstance(result, float)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), True, "1", None])
def test_fraction_refuses(value: object) -> None:
    with pytest.raises(ValueError, match=r"^`x` must be in \[0, 1\]\. Received: x="):
        arguments.fraction("x", value)


@pytest.mark.parametrize("value", [0.5, np.float64(0.25)])
def test_fractions_without_their_ends_return_a_float(value: float) -> None:
    for check in (arguments.inner_fraction, arguments.positive_fraction):
        assert type(check("x", value)) is float
    assert arguments.positive_fraction("x", 1) == 1.0


@pytest.mark.parametrize("value", [0, -0.1, 1.1, float("nan"), True, "0.5", None])
def test_fractions_without_their_ends_refuse(value: object) -> None:
    with pytest.raises(ValueError, match=r"^`x` must be in \(0, 1\]\. Received: x="):
        arguments.positive_fraction("x", value)
    for outside in (value, 1):
        with pytest.raises(ValueError, match=r"^`x` must be in \(0, 1\)\. Received: x="):
            arguments.inner_fraction("x", outside)


@pytest.mark.parametrize("value", [0, 0.0, 0.5, np.float64(0.25)])
def test_rate_returns_a_float(value: float) -> None:
    result = arguments.rate("r", value)
    assert result == value
    assert isinstance(result, float)


@pytest.mark.parametrize("value", [1, 1.0, -0.1, float("nan"), "0.1", None, True])
def test_rate_refuses(value: object) -> None:
    with pytest.raises(ValueError, match=r"^`r` must be a number in \[0, 1\)\. Received: r="):
        arguments.rate("r", value)


@pytest.mark.parametrize(
    ("value", "pair"), [(7, (7, 7)), ((3, 5), (3, 5)), ([3, 5], (3, 5)), (np.int32(2), (2, 2))]
)
def test_size_pair(value: object, pair: tuple[int, int]) -> None:
    assert arguments.size_pair("size", value) == pair


@pytest.mark.parametrize("value", [(3,), (3, 5, 7), ()])
def test_size_pair_refuses_other_lengths(value: object) -> None:
    with pytest.raises(ValueError, match=r"`size` must be .* a pair \(height, width\)\. Received"):
        arguments.size_pair("size", value)


@pytest.mark.parametrize("value", [0, (3, 0), (3, None), "16", 2.5])
def test_size_pair_refuses_other_values(value: object) -> None:
    with pytest.raises(ValueError, match="`size` must be a positive integer"):
        arguments.size_pair("size", value)


def test_image_source_names_what_may_be_there_and_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    Path("table.CSV").touch()
    Path("a.png").touch()
    Path("table.tsv").touch()
    Path("table.jsonl").touch()
    Path("photos.zip").mkdir()
    tables = ("table.CSV", "table.tsv", "table.jsonl")
    for data in ("photos", tmp_path, "photos.zip", *tables, "tfds:cifar10", "digits"):
        arguments.image_source(data)
    with pytest.raises(ValueError, match=r"^`data` must be a folder of class f") as error:
        arguments.image_source("fotos")
    assert str(error.value).endswith(
        "Did you mean 'photos'? Received: data='fotos', which does not exist"
    )
    with pytest.raises(ValueError, match=r"\. Received: data='a\.png'$"):
        arguments.image_source("a.png")
    with pytest.raises(ValueError, match=r"Did you mean 'table\.jsonl'\? Received"):
        arguments.image_source("tabel.jsonl")


@pytest.mark.parametrize(
    ("suffix", "remedy"),
    [
        *((suffix, "Save the spreadsheet as CSV UTF-8.") for suffix in (".xlsx", ".xls", ".ods")),
        *(
            (suffix, "Unpack the archive and pass the folder.")
            for suffix in (".zip", ".tar", ".tar.gz", ".tgz", ".7z", ".TGZ")
        ),
        (".parquet", "Save its images as files, and list their names and labels in a CSV file."),
        (
            ".json",
            "List names and labels in a CSV file; COCO's masks need `--task segmentation`, its "
            "boxes `--task detection`.",
        ),
    ],
)
def test_image_source_says_what_to_do_with_other_files(
    tmp_path: Path, suffix: str, remedy: str
) -> None:
    path = tmp_path / f"photos{suffix}"
    with pytest.raises(ValueError, match=r"which does not exist$"):
        arguments.image_source(path)
    path.touch()
    with pytest.raises(ValueError, match=r"^`data` must be a folder or a table") as error:
        arguments.image_source(path)
    assert str(error.value) == (
        f"`data` must be a folder or a table. {remedy} Received: data='{path}'"
    )


def test_regular_file_refuses_folders_pipes_and_devices(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", os.devnull):
        with pytest.raises(
            ValueError, match="`image` must be a regular file, not a folder, pipe or"
        ):
            arguments.regular_file("image", path)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    arguments.regular_file("image", tmp_path / "link")


def test_command_quotes_what_a_shell_would_change() -> None:
    assert arguments.command("predict", Path("runs/a"), "x.png") == "keras-vit predict runs/a x.png"
    assert arguments.command("card", "it's b") == "keras-vit card 'it'\"'\"'s b'"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://ann:a@b/c@host:1/d", "https://...@host:1/d"),
        ("ann:a//b@host:1", "...@host:1"),
        ("host:1", "host:1"),
        ("http://host/a", "http://host/a"),
    ],
)
def test_without_password_keeps_scheme_and_host(url: str, expected: str) -> None:
    assert arguments.without_password(url) == expected


def test_install_hint_names_the_checkout_or_pypi(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(arguments, "__file__", str(tmp_path / "keras_vit" / "arguments.py"))
    assert arguments.install_hint("onnx") == 'run: pip install "keras-vit-toolkit[onnx]"'
    (tmp_path / "pyproject.toml").touch()
    assert arguments.install_hint("onnx").endswith('checkout, run: pip install -e ".[onnx]"')


def test_require_package_says_how_to_install_it() -> None:
    arguments.require_package("numpy", "onnx", "ONNX needs numpy")
    with pytest.raises(ImportError, match=r"^ONNX needs nowhere; .*pip install .*\[onnx\]"):
        arguments.require_package("nowhere", "onnx", "ONNX needs nowhere")


def test_numbers_beyond_floats_are_refused() -> None:
    for check in (arguments.positive, arguments.non_negative):
        with pytest.raises(ValueError, match="must be a"):
            check("rate", 10**400)
