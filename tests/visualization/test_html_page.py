from __future__ import annotations

import io
import re
from html.parser import HTMLParser

import numpy as np
import PIL.Image
import pytest

from keras_vit.visualization import html_page


class Balance(HTMLParser):
    """Knows whether every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: object) -> None:
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_complete_and_refers_to_nothing_outside() -> None:
    parts = {
        "How < many?": [html_page.paragraph("a & b"), html_page.preformatted("x < y")],
        "Numbers": [html_page.numbers([("0.97", "right & proper")])],
        "Table": [html_page.table(["class", "n"], [["<daisy>", "3"]])],
    }
    sections = [
        html_page.Section(name, title, parts[title])
        for name, title in zip(("one", "two", "three"), parts, strict=True)
    ]
    text = html_page.page("Flowers & <more>", "five 'kinds'", sections)
    balance = Balance()
    balance.feed(text)
    assert balance.open == []
    assert re.findall(r'<section id="(\w+)">', text) == ["one", "two", "three"]
    assert "<h1>Flowers &amp; &lt;more&gt;</h1>" in text
    assert "<td>&lt;daisy&gt;</td><td>3</td>" in text
    assert "x &lt; y" in text
    assert not re.search(r"https?://|src=\"(?!data:)|@import", text)


@pytest.mark.parametrize(("side", "kind"), [(16, "png"), (80, "jpeg")])
@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_hold_their_images(side: int, kind: str, channels: int) -> None:
    import base64

    image = np.full((side, side + 3, channels), 200, "uint8")
    text = html_page.pictures([([image, image], 'a "black" cat')])
    assert text.count(f"data:image/{kind};base64,") == 2
    assert 'alt="a &quot;black&quot; cat"' in text
    encoded = re.search(r"base64,([^\"]+)", text)[1]
    with PIL.Image.open(io.BytesIO(base64.b64decode(encoded))) as stored:
        assert stored.size == (side + 3, side)
        assert abs(int(np.asarray(stored).min()) - 200) <= 2


def test_a_note_is_set_apart() -> None:
    assert html_page.paragraph("a", note=True) == '<p class="note">a</p>'


def test_confused_lists_the_most_frequent_pairs_first() -> None:
    cells = np.array([[0, 0, 7], [0, 1, 2], [1, 0, 3], [1, 1, 0], [2, 0, 3]])
    table = html_page.confused(cells, ["daisy", "rose", "<tulip>"], [9, 3, 12], "images")
    rows = re.findall("<tr>(<td>.*?)</tr>", table)
    assert [re.sub("<.*?>", " ", row).split() for row in rows] == [
        ["rose", "daisy", "3", "100.0%"],
        ["&lt;tulip&gt;", "daisy", "3", "25.0%"],
        ["daisy", "rose", "2", "22.2%"],
    ]
    many = [[0, other, 1] for other in range(1, 13)]
    table = html_page.confused(np.array(many), list("abcdefghijklm"), [12] * 13, "images")
    assert table.count("<td>a</td>") == 10


def test_confused_is_empty_without_confusions() -> None:
    assert not html_page.confused(np.array([[0, 0, 7], [1, 1, 3]]), ["daisy", "rose"], [7, 3], "n")
