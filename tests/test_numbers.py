"""Numbers that are repeated in several pages are equal, and equal to those of the measurement."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README, CHANGES = "README.md", "CHANGELOG.md"
FLOWERS, FIRST, RECIPES = "docs/flowers.md", "docs/first_run.md", "docs/recipes.md"
PERFORMANCE, MEASURED, PLANNING = "docs/performance.md", "docs/measured.md", "docs/planning.md"
RESULTS = "benchmarks/results/"
WORDS = {"four": "4", "nine": "9", "ten": "10"}
DEMO = r"saved_model .*? (0\.\d+) 1\.0000 \S+ dynamic_range .*? (0\.\d+) 1\.0000"
# What a number is, and the pages where it stands, with a pattern whose groups are the number.
REPEATED = {
    "accuracy on flowers, mean of three seeds": {
        README: r"accuracy of \*\*(0\.\d+)\*\* on the images held out \(mean of three seeds",
        FLOWERS: r"735 images held out \|.*?\| mean \| \*\*(0\.\d+)\*\* \|",
        FIRST: r"that of three seeds is (0\.\d+)",
        RECIPES: r"(0\.\d+) \(three seeds, 735 images\)",
    },
    "accuracy on flowers, mean of five seeds": {
        FLOWERS: r"734 images held out \|.*?\| mean \| \*\*(0\.\d+)\*\* \|",
        FIRST: r"The mean of five seeds is (0\.\d+)",
        RECIPES: r"(0\.\d+) \(measured, mean of five seeds, 734 images\)",
    },
    "accuracy on flowers, seed 0 on 734 images": {
        FLOWERS: r"\| 0 \| (0\.\d+) \((\d+)\) \| (0\.\d+) to (0\.\d+) \| 14 \|",
        FIRST: r"accuracy (0\.\d+) \((\d+) of 734, 95% interval (0\.\d+) to (0\.\d+)\)",
    },
    "number of flower photographs": {
        README: r"On (\d+) flower photographs",
        FLOWERS: r"Data: (\d+) photographs",
        FIRST: r"the (\d+) TensorFlow flower photographs",
        "docs/data.md": r"Measured with the (\d+) photographs\s+of",
    },
    "minutes of a run on flowers": {
        README: r"all defaults, (\w+) minutes on two CPU cores",
        FLOWERS: r"in float32, (\w+) minutes per run on two cores",
    },
    "accuracy of the demo": {README: DEMO, FIRST: DEMO},
    "minutes of the demo": {
        README: r"handwritten digits, in (\w+) to (\w+) minutes",
        FIRST: r"The demo then takes (\w+) minutes on two idle cores, and (\w+) minutes",
    },
    "GB and minutes of the installation": {
        README: r"first: (\d) GB of downloads, (\d) to (\d) minutes",
        FIRST: r"about (\d) GB of packages .*? takes (\d) to (\d) minutes",
    },
    "GB of the installation, unpacked": {
        "docs/install.md": r"(\d) GB of downloads, (\S+) GB unpacked",
        FIRST: r"about (\d) GB of packages into `\.venv` \((\S+) GB unpacked\)",
    },
    "speed on a GPU relative to timm: training, inference": {
        README: r"bfloat16 trains (0\.\d+) times and predicts (0\.\d+) times as fast",
        PERFORMANCE: r"images/s \((0\.\d+) of timm; .*?`predict` .*? \((0\.\d+); jitted",
        f"{RESULTS}gpu_2026-11-26.md": r"-fit \| \S+ \| (0\.\d+) .*?-fit \| \S+ \| (0\.\d+) ",
    },
    "speed of attention by cuDNN: training at 224 and 1024 pixels": {
        MEASURED: r"with JAX: training (1\.\d+) to (1\.\d+) times",
        PERFORMANCE: r"512 and 1024 pixels is (1\.\d+), 1\.\d+ and (1\.\d+) times",
        CHANGES: r"trains (1\.\d+) times as fast at 224 pixels and (1\.\d+) times at 1024",
        f"{RESULTS}gpu_attention_2026-11-26.md": (
            r"\| 128 \| \S+ \| \S+ \| (1\.\d+) .*?\| 4 \| \S+ \| \S+ \| (1\.\d+)"
        ),
    },
    "speed of attention by cuDNN: inference at 224 and 1024 pixels": {
        MEASURED: r"of the memory, inference (1\.\d+) to (2\.\d+)",
        PERFORMANCE: r"inference is (1\.\d+), 1\.\d+ and (2\.\d+) times",
        f"{RESULTS}gpu_attention_2026-11-26.md": (
            r"## Inference.*?\| 128 \| \S+ \| \S+ \| (1\.\d+) .*?\| 4 \| \S+ \| \S+ \| (2\.\d+)"
        ),
    },
    "agreement of outputs with other libraries, and hybrids": {
        README: r"torchvision within (\S+) \(hybrids (\S+)\)",
        MEASURED: r"and (\S+) \(real sizes; hybrids 2e-4 and (\S+)\)",
    },
    "agreement of exported files": {
        README: r"model within (\S+), TFLite in float32 within (\S+); .*? on (\d+%)",
        MEASURED: r"model within (\S+), TFLite in float32 within (\S+); .*? on (\d+%)",
    },
}


def read(page: str) -> str:
    """A page with its lines joined, so that a pattern need not know where they break."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize("name", REPEATED)
def test_number_is_the_same_in_all_pages(name: str) -> None:
    found = {}
    for page, pattern in REPEATED[name].items():
        match = re.search(pattern, read(page))
        assert match, f"{page} does not contain {pattern}"
        found[page] = [WORDS.get(number, number) for number in match.groups()]
    first = next(iter(found.values()))
    assert found == dict.fromkeys(found, first)


def test_means_on_flowers_are_those_of_the_seeds() -> None:
    for images in (734, 735):
        table = read(FLOWERS).partition(f"on the {images} images held out |")[2].split("mean |")
        rows = re.findall(r"\| \d \| (0\.\d+) \((\d+)\)", table[0])
        assert len(rows) >= 3
        assert all(accuracy == f"{int(correct) / images:.4f}" for accuracy, correct in rows)
        mean = sum(int(correct) for _, correct in rows) / len(rows) / images
        assert table[1].startswith(f" **{mean:.4f}** |")


def speeds() -> dict[str, list[tuple[str, str]]]:
    """Least and greatest median of the races of a kind: beside KerasHub, timm, timm by OpenVINO."""
    races: dict[str, list[list[float]]] = {}
    table = (ROOT / RESULTS / "peers_2026-11-23.md").read_text(encoding="utf-8")
    for line in table.partition("\n## ")[0].splitlines():
        race, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.match("Inference|Training", race):
            task, *_, precision = race.split(", ")
            medians = [float(cell.split()[0]) for cell in (*cells[:2], cells[3]) if cell]
            races.setdefault(f"{task.lower()}, {precision}", []).append(medians)
    return {
        kind: [(f"{min(column):.2f}", f"{max(column):.2f}") for column in zip(*rows, strict=True)]
        for kind, rows in races.items()
    }


@pytest.mark.parametrize("page", [README, PERFORMANCE])
def test_speeds_in_a_table_are_those_of_the_races(page: str) -> None:
    assert len(speeds()) == 4
    for kind, ranges in speeds().items():
        cells = [" to ".join(pair) for pair in ranges]
        assert f"| {' | '.join([kind, *cells, *[''] * (3 - len(cells))])}" in read(page)


def test_speeds_in_the_table_of_claims_are_those_of_the_races() -> None:
    found = {kind: [" to ".join(pair) for pair in ranges] for kind, ranges in speeds().items()}
    training, inference = (
        [found[f"{task}, {precision}"] for precision in ("bfloat16", "float32")]
        for task in ("training", "inference")
    )
    page = read(MEASURED)
    for expected in (
        f"training {training[0][0]} times as fast in bfloat16 and {training[1][0]} in float32, "
        f"inference {inference[0][0]} and {inference[1][0]} |",
        f"training {training[0][1]} in bfloat16 and {training[1][1]} in float32, inference in "
        f"TensorFlow {inference[0][1]} and {inference[1][1]}, with OpenVINO {inference[0][2]} and "
        f"{inference[1][2]} |",
    ):
        assert expected in page


def test_error_of_planning_is_that_of_the_table() -> None:
    rows = re.findall(
        r"\| \w+/16 \| \w+ \| ?([^|]*?) ?\| \d+ \| .*? \| (\d\.\d+) \|", read(PLANNING)
    )
    others = ("4 parts", "inference", "classifier alone")
    ratios = [float(ratio) for kind, ratio in rows if kind.strip() not in others]
    low, high = (f"{100 * (ratio - 1):.0f}%" for ratio in (min(ratios), max(ratios)))
    assert f"memory of training with whole batches by {low} to {high}" in read(MEASURED)


def test_calibration_is_that_of_the_picture() -> None:
    # Read from docs/images/report_1280_light.png; change both together.
    assert "is 0.075 before and 0.010 after scaling, and the best temperature is 0.66" in read(
        "docs/evaluation.md"
    )
