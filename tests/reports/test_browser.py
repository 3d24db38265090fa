"""The report in a real browser: every section, no error, no request, on a screen and on a phone.

Needs Chromium and its driver (on Debian: apt install chromium chromium-driver). With
KERAS_VIT_REPORT it opens that page in place of one that it makes; with KERAS_VIT_SCREENSHOTS it
leaves pictures in that folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call_main

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECTIONS = {
    *("summary", "classes", "confusion", "calibration", "mistakes", "data"),
    *("configuration", "versions"),
}
LOOKS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def page(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("KERAS_VIT_REPORT"):
        return Path(given).resolve()
    folder = tmp_path_factory.mktemp("report")
    assert call_main("evaluate", run, "--out", folder, "--report", folder / "report") == 0
    return folder / "report" / "index.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("Chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield opened
    opened.quit()


def open_page(browser: Any, page: Path, width: int, look: str) -> None:
    browser.get_log("performance")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    feature = {"name": "prefers-color-scheme", "value": look}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(page.as_uri())


@pytest.mark.parametrize(("width", "look"), LOOKS)
def test_report_opens_without_an_error_or_a_request(
    browser: Any, page: Path, width: int, look: str
) -> None:
    open_page(browser, page, width, look)
    shown = browser.execute_script(
        "return [...document.querySelectorAll('section')].filter(s => s.querySelector('h2')"
        ".getBoundingClientRect().height > 0 && s.getBoundingClientRect().height > 60)"
        ".map(s => s.id)"
    )
    assert set(shown) >= SECTIONS
    assert browser.get_log("browser") == []
    asked = [
        event["params"]["request"]["url"]
        for event in (json.loads(e["message"])["message"] for e in browser.get_log("performance"))
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]
    assert browser.execute_script(
        "return [...document.images].every(i => i.complete && i.naturalWidth > 0)"
    )
    # Nothing is wider than the page but what scrolls by itself.
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    inks = browser.execute_script(
        "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
    )
    ink, paper = (sum(map(int, c[c.index("(") + 1 : -1].split(",")[:3])) for c in inks)
    assert (ink < paper) == (look == "light")
    assert abs(ink - paper) > 450
    if folder := os.environ.get("KERAS_VIT_SCREENSHOTS"):
        height = browser.execute_script("return document.documentElement.scrollHeight")
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        browser.save_screenshot(str(Path(folder) / f"report_{width}_{look}.png"))


def test_text_in_drawings_is_in_the_pages_ink(browser: Any, page: Path) -> None:
    open_page(browser, page, 1280, "dark")
    fills = browser.execute_script(
        "return [...document.querySelectorAll('#calibration svg text')]"
        ".map(t => getComputedStyle(t).fill)"
    )
    ink = browser.execute_script("return getComputedStyle(document.body).color")
    assert len(fills) > 5
    assert set(fills) == {ink}
