import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from neuralsurv.report.svg import SvgChart, number, stepped, ticks


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 999, [0, 200, 400, 600, 800]),
        (-3, 7, [-2, 0, 2, 4, 6]),
        (0.1, 0.13, [0.1, 0.11, 0.12, 0.13]),
        (5, 5, [5]),
    ],
)
def test_ticks_are_round_and_inside(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234.5, "1,234"), (0.25, "0.25"), (12.55, "12.6"), (1e-7, "1e-7"), (3e9, "3e+9"),
     (999.7, "1,000"), (1e-10, "1e-10"), (float("inf"), "∞"),
     (float("nan"), "–"), (-0.5, "-0.5"), (100.0, "100")],
)  # fmt: skip
def test_numbers(value, text):
    assert number(value) == text


def test_steps_hold_their_value_up_to_the_next():
    x, y = stepped(np.array([0.0, 1.0, 3.0]), np.array([1.0, 0.5, 0.2]))
    assert list(zip(x, y, strict=True)) == [(0, 1), (1, 1), (1, 0.5), (3, 0.5), (3, 0.2)]


def chart() -> SvgChart:
    return SvgChart((0.0, 10.0), (0.0, 1.0), "time", "survival", "A picture of <something> & more")


def points(svg: str) -> list[list[tuple[float, float]]]:
    found = re.findall(r'points="([^"]*)"', svg)
    return [[tuple(map(float, pair.split(","))) for pair in text.split()] for text in found]


def test_a_line_goes_through_its_points():
    picture = chart()
    picture.line("a", [0, 5, 10], [1, 0.5, 0], 0)
    left, right, top, bottom = json.loads(picture.data())["box"]
    assert points(picture.svg()) == [[(left, top), ((left + right) / 2, (top + bottom) / 2), (right, bottom)]]


def test_a_band_encloses_its_line_and_values_outside_stay_inside_the_picture():
    picture = chart()
    picture.line("a", [0, 10], [0.5, 0.5], 0, band=([0.25, 0.25], [0.75, 2.0]), band_name="90 %")
    band, line = points(picture.svg())
    assert len(band) == 4
    assert min(y for _, y in band) >= 12
    assert max(y for _, y in band) > line[0][1] > min(y for _, y in band)
    assert json.loads(picture.data())["series"][0]["high"] == [0.75, 2.0]


def test_pictures_are_well_formed_and_escaped():
    picture = chart()
    picture.line("<b>&", [0, 10], [1, 0], 1, steps=True, dashed=True)
    picture.dots([5], [0.5], [0.4], [0.6], 0, ["5 < 6 & so on"])
    picture.bars([0, 5, 10], [0.5, 0.2], 0, ["a", "b"])
    picture.rule(across=0.5, up=3, diagonal=True)
    root = ElementTree.fromstring(picture.svg())
    assert root.get("aria-label") == "A picture of <something> & more"
    assert root.get("role") == "img"
    assert len(root.findall(".//rect")) == 2
    assert len(root.findall("./line[@class='rule']")) == 3
    rows = SvgChart((-1.0, 1.0), (0.0, 1.0), "change", "", "Effects", ["first", "second <"])
    rows.intervals([0.1, 0.2], [0.0, -1.0], [0.5, 1.0], 0, ["x", "y"])
    root = ElementTree.fromstring(rows.svg())
    texts = [text.text for text in root.findall("./text")]
    assert "first" in texts
    assert "second <" in texts


@pytest.mark.parametrize("name", ["<!--<script>", "]]>", "&lt;", "a\u2028b\u2029"])
def test_data_cannot_change_how_the_page_is_read(name):
    picture = chart()
    picture.line(name, [0, 1], [1, 2], 0)
    assert not set(picture.data()) & set("<>&\u2028\u2029")
    assert json.loads(picture.data())["series"][0]["name"] == name


def test_data_cannot_close_the_script():
    picture = chart()
    picture.line("</script><script>", [0, 1], [1, float("nan")], 0)
    assert "</script>" not in picture.data()
    found = json.loads(picture.data())["series"][0]
    assert found["name"] == "</script><script>"
    assert found["y"] == [1.0, None]
