"""The page as text: complete, self-contained, escaped."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from neuralsurv.report import page as page_module
from neuralsurv.report.page import render
from report.small_report import EVIL, report

VOID = {"meta"}


class Reader(HTMLParser):
    """Checks that every element is closed in order, and collects what a reader or a browser would see."""

    def __init__(self):
        super().__init__()
        self.open, self.elements, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["script"], ["style"]):
            self.text.append(data)


@pytest.fixture(scope="module")
def page():
    return render(report(), [("Model", "m.neuralsurv"), ("Data", EVIL)])


@pytest.fixture(scope="module")
def read(page):
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


def test_nothing_is_fetched(page, read):
    assert re.findall(r"https?://[^\"' )]*", page) == ["http://www.w3.org/2000/svg"], "the name of SVG, not an address"
    assert "@import" not in page
    assert "url(" not in page
    for _, attributes in read.elements:
        assert not {"src", "href", "srcset"} & set(attributes)
    policy = next(a["content"] for tag, a in read.elements if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'")


def test_names_from_the_data_cannot_act(page, read):
    assert "<script>alert" not in page
    assert EVIL in " ".join(read.text)
    scripts = [a for tag, a in read.elements if tag == "script"]
    acting = [a for a in scripts if a != {"type": "application/json"}]
    assert acting == [{"type": "module"}], "our own script and no other"


def test_every_section_is_there(read):
    text = " ".join(read.text)
    for title in ("Warnings", "Cohort", "Model and fit", "Individual survival curves", "Calibration", "Discrimination",
                  "Covariate effects", "Where the model is least certain"):  # fmt: skip
        assert title in text
    assert f"{report().accuracy.concordance:.3f}" in text
    assert f"p = {report().accuracy.distribution.p_value:.3f}" in text
    for warning in report().warnings:
        assert warning in text


def test_every_picture_is_drawn_without_a_script_and_has_words(read):
    pictures = [a for tag, a in read.elements if tag == "svg" and a.get("class") == "chart"]
    # Cohort, bound, people, histogram, three times, area, Brier, effects, width.
    assert len(pictures) == 11
    for attributes in pictures:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 40
    lines = [a for tag, a in read.elements if tag == "polyline"]
    assert len(lines) == 2 + 1 + 5 + 1 + 2 + 1


def test_data_of_the_pictures_is_json(page):
    found = re.findall(r'<script type="application/json">(.*?)</script>', page)
    assert len(found) == 6
    for text in found:
        content = json.loads(text)
        for line in content["series"]:
            assert len(line["x"]) == len(line["y"])


def test_language_title_and_viewport(page):
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "<title>Survival model report</title>" in page
    for words in ("@media print", "prefers-color-scheme: dark", "max-width: 40rem"):
        assert words in page


def test_a_report_with_nothing_to_say(page):
    accuracy = replace(report().accuracy, concordance=None, distance=None, discrimination=None, brier=None, groups=())
    bare = replace(report(), warnings=[], effects=[], accuracy=accuracy)
    text = render(bare, [])
    assert "None of the checks found a problem." in text
    assert "No covariate varies among these rows." in text
    assert "not defined for these rows" in text
    late = replace(report(), last_training=report().horizon / 2)
    assert "curves are extrapolated" in render(late, [])
    assert "curves are extrapolated" not in page


def test_groups_without_rows():
    group = report().accuracy.groups[0]
    empty = replace(group, table=group.table[:0])
    shown = render(replace(report(), accuracy=replace(report().accuracy, groups=(empty,))), [])
    assert "No row is followed up to" in shown


def test_the_caption_says_that_only_the_largest_effects_are_shown(monkeypatch):
    assert "largest effects are shown" not in render(report(), [])
    monkeypatch.setattr(page_module, "MOST_COVARIATES", 1)
    one = replace(report(), effects=report().effects[:1])
    assert f"Of {len(report().covariates)} covariates, the 1 with the largest effects are shown." in render(one, [])
