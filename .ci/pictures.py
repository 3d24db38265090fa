"""Pictures of the documentation, from finished runs: `make pictures RUN=runs/flowers`.

RUN is a run on the flower photographs, COMPARISON a folder written by `keras-vit compare`,
PRETRAINED a run of `keras-vit pretrain`. Those of the benchmarks are written by `make bench`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

IMAGES = Path(__file__).parents[1] / "docs" / "images"
# Photographs to explain: one of each class, of the validation set.
CLASSES = ("daisy", "dandelion", "roses", "tulips")
# File name, width in pixels, theme.
SCREENS = (("report_1280_light.png", 1280, "light"), ("report_390_dark.png", 390, "dark"))


def main() -> None:
    """Writes the pictures that the given runs contain."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--comparison", type=Path)
    parser.add_argument("--pretrained", type=Path)
    arguments = parser.parse_args()
    run = arguments.run
    shutil.copy(run / "curves.png", IMAGES / "flowers_curves.png")
    shutil.copy(run / "confusion_matrix.png", IMAGES / "flowers_confusion_matrix.png")
    if arguments.comparison:
        shutil.copy(arguments.comparison / "curves.png", IMAGES / "comparison_curves.png")
    if arguments.pretrained:
        source = arguments.pretrained / "reconstruction.png"
        shutil.copy(source, IMAGES / "pretraining_reconstruction.png")
    samples = [min(run.glob(f"samples/{name}*")) for name in CLASSES]
    with tempfile.TemporaryDirectory() as folder:
        explanation = Path(folder, "explanation.png")
        _keras_vit("explain", run, *samples, "--out", explanation)
        _small(explanation, IMAGES / "explanation.png")
        _keras_vit("evaluate", run, "--report", f"{folder}/report")
        for name, width, theme in SCREENS:
            screenshot = Path(folder, name)
            _screen(Path(folder, "report", "index.html"), screenshot, width, theme)
            _small(screenshot, IMAGES / name)


def _keras_vit(*arguments: object) -> None:
    program = "import keras_vit_toolkit; keras_vit_toolkit.main()"
    subprocess.run([sys.executable, "-c", program, *map(str, arguments)], check=True)


def _small(source: Path, picture: Path, width: int = 1000) -> None:
    """Copies a picture with at most `width` columns and 256 colors."""
    image = Image.open(source).convert("RGB")
    image.thumbnail((width, image.height))
    image.quantize(256).save(picture, optimize=True)


def _screen(page: Path, picture: Path, width: int, theme: str) -> None:
    """Writes a screenshot of a whole page in Chromium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(option)
    with webdriver.Chrome(options=options) as browser:
        devtools: Any = browser.execute_cdp_cmd
        scheme = {"name": "prefers-color-scheme", "value": theme}
        devtools("Emulation.setEmulatedMedia", {"features": [scheme]})
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        devtools("Emulation.setDeviceMetricsOverride", metrics)
        browser.get(page.resolve().as_uri())
        height = browser.execute_script("return document.documentElement.scrollHeight")
        devtools("Emulation.setDeviceMetricsOverride", {**metrics, "height": height})
        browser.save_screenshot(str(picture))


if __name__ == "__main__":
    main()
