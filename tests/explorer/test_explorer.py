"""The explorer's page in a real browser: keys, screen readers, a phone, dark mode. Needs Chromium."""

import os
import time

import numpy as np
import pytest
from matplotlib import image

from browser import CHROMIUM, Browser
from explorer.own_site import READY, Site
from neuralsurv.report import svg
from neuralsurv.service.covariates import covariates_of
from service.small_service import model, table, write

if CHROMIUM is None and not os.environ.get("CI"):
    pytest.skip("Chromium is not installed: apt-get install chromium", allow_module_level=True)

TOKEN = "a-token-of-many-letters"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(write(tmp_path_factory.mktemp("explorer"))) as address:
        yield address


@pytest.fixture(scope="module")
def slow_site(tmp_path_factory):
    # Of two requests at the same time the later one is often answered first.
    with Site(write(tmp_path_factory.mktemp("slow")), delays=(0.4, 0.05, 0.25, 0.0, 0.15)) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


@pytest.fixture
def page(browser, site):
    browser.events.clear()
    browser.size(1280, 900)
    browser.open(f"{site}/", READY)
    yield browser
    assert browser.complaints() == []


def numbers(page):
    """The table of numbers, as a dictionary from its rows to their cells."""
    script = (
        "[...document.querySelectorAll('#numbers tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return {row[0]: row[1:] for row in page.run(script)}


def text(page, selector):
    return page.run(f"document.querySelector({selector!r}).textContent")


def settle(page):
    page.wait("!document.body.classList.contains('busy')")
    time.sleep(0.05)
    page.wait("!document.body.classList.contains('busy')")


def fill(page, field, value):
    page.run(f"document.getElementById('{field}').focus()")
    page.type(value)
    settle(page)


def percent(value):
    return "under 1 %" if value < 0.01 else f"{round(100 * value)} %"


class TestForm:
    def test_it_is_built_from_the_features(self, page):
        labels = page.run("[...document.querySelectorAll('.field > label')].map((label) => label.textContent)")
        assert labels == ["age", "dose", "visits", "stage", "smoker"]
        options = "[...document.querySelectorAll('#{}  option')].map((option) => option.textContent)"
        assert page.run(options.format("field-3")) == ["II", "III", "not known"]
        assert page.run(options.format("field-4")) == ["no", "yes", "not known"]
        slider = page.run(
            "(() => { const s = document.querySelectorAll('input[type=range]')[2]; return [s.min, s.max, s.step]; })()"
        )
        assert slider == ["0", "6", "1"]
        assert page.run("document.querySelectorAll('input[type=checkbox]').length") == 3

    def test_what_is_shown_is_what_the_library_says(self, page):
        fill(page, "field-0", "70")
        fill(page, "field-1", "0.1")
        page.run("document.getElementById('field-4').value = '1'")
        page.run("document.getElementById('field-4').dispatchEvent(new Event('change'))")
        settle(page)
        person = table({"age": 70.0, "dose": 0.1, "visits": 3, "stage": "III", "smoker": True})
        half, mean = model().predict_median(person), model().predict_rmst(person, model().time_scale_)
        own = model().predict_event_time(person)
        shown = numbers(page)

        def number(value):
            return f"after {float(f'{model().time_scale_:.3g}'):g}" if np.isinf(value) else f"{float(f'{value:.3g}'):g}"

        def estimate(found):
            low, high = (number(end.iloc[0]) for end in found.interval(0.9))
            return f"{number(found.median.iloc[0])} ({low} to {high})"

        assert shown["median time"] == [estimate(half)]
        mean_row = next(name for name in shown if name.startswith("mean time up to"))
        assert shown[mean_row] == [estimate(mean)]
        assert shown["own event time"] == [" to ".join(number(end.iloc[0]) for end in own.interval(0.9))]

    def test_a_slider_moved_by_keys_moves_box_curve_and_band(self, page):
        before = page.run("document.querySelector('#survival polygon').getAttribute('points')")
        page.run("document.querySelectorAll('input[type=range]')[0].focus()")
        for _ in range(3):
            page.press("PageUp")
        settle(page)
        page.wait(f"document.querySelector('#survival polygon').getAttribute('points') !== {before!r}")
        slider, box = page.run(
            "[document.querySelectorAll('input[type=range]')[0].value, document.getElementById('field-0').value]"
        )
        assert float(slider) == float(box) > 65

    def test_leaving_the_training_range_is_said_everywhere(self, page):
        assert text(page, "#outside") == ""
        fill(page, "field-0", "120")
        page.wait("document.querySelector('#outside li')")
        low, high = model().encoding_.columns[0].low, model().encoding_.columns[0].high
        words = f"age 120 lies above {low:.3g} to {high:.3g}, the range the model was trained on"
        assert words in text(page, "#outside")
        assert words in text(page, "#field-0-note")
        assert page.run("!!document.querySelector('#survival polyline.dashed')")
        page.wait("document.getElementById('spoken').textContent.includes('Outside the training range: age.')")
        fill(page, "field-0", "60")
        page.wait("!document.querySelector('#outside li')")
        assert text(page, "#field-0-note") == ""
        assert not page.run("!!document.querySelector('#survival polyline.dashed')")

    def test_a_value_that_is_not_known(self, page):
        before = numbers(page)
        page.run("document.getElementById('field-1-unknown').click()")
        settle(page)
        page.wait(f"document.querySelector('#numbers tbody').textContent !== {''.join(before)!r}")
        assert numbers(page) != before
        assert text(page, "#outside li").startswith("dose not known: every draw takes another value")
        fill(page, "field-1", "0.2")
        page.wait("!document.querySelector('#outside li')")
        assert not page.run("document.getElementById('field-1-unknown').checked")

    def test_an_empty_field_says_what_is_needed_and_keeps_the_curve(self, page):
        before = numbers(page)
        fill(page, "field-0", "")
        assert text(page, "#field-0-note") == "type a number, or tick “not known”"
        assert page.run("document.getElementById('field-0').getAttribute('aria-invalid')") == "true"
        assert numbers(page) == before

    def test_a_refusal_of_the_service_is_shown_at_its_field(self, page):
        fill(page, "field-1", "1.7e308")
        page.wait("!document.getElementById('alarm').hidden")
        assert "column 'dose' is too far from the training data" in text(page, "#alarm")
        fill(page, "field-1", "0.1")
        page.wait("document.getElementById('alarm').hidden")
        # A browser reports every answer of 4xx as an error; this one was asked for.
        page.events.clear()

    def test_until_and_level(self, page):
        narrow = numbers(page)["median time"]
        page.run("document.getElementById('level').value = '0.5'")
        page.run("document.getElementById('level').dispatchEvent(new Event('change'))")
        settle(page)
        page.wait(f"!document.querySelector('#numbers').textContent.includes({narrow[0]!r})")
        end = 2 * model().time_scale_
        page.run(f"document.getElementById('until').value = '{end}'")
        page.run("document.getElementById('until').dispatchEvent(new Event('change'))")
        settle(page)
        page.wait("document.querySelector('#survival .shade')")
        assert "the last time the model has seen, curves are extrapolated" in text(page, "#outside")


# Writes down, whenever it changes, what the page says of the age, beside what stands in its field.
WATCH_AGE = """
  window.said = [];
  const look = () => window.said.push([document.getElementById('field-0').value,
    document.getElementById('field-0-note').textContent, document.getElementById('outside').textContent]);
  const every = {childList: true, characterData: true, subtree: true};
  for (const id of ['field-0-note', 'outside']) new MutationObserver(look).observe(document.getElementById(id), every);
"""


class TestOvertakenAnswers:
    """Answers that come late, in any order, to a page on which somebody goes on typing."""

    @pytest.fixture
    def page(self, browser, slow_site):
        browser.events.clear()
        browser.size(1280, 900)
        browser.open(f"{slow_site}/", READY)
        browser.run(WATCH_AGE)
        yield browser
        assert browser.complaints() == []

    @pytest.mark.parametrize("pause", [0.0, 0.05, 0.15])
    def test_only_the_last_value_that_was_typed_is_spoken_of(self, page, pause):
        for value in ("62", "120", "58"):
            page.run("document.getElementById('field-0').focus(); document.getElementById('field-0').select()")
            for key in value:
                page.press(key)
                time.sleep(pause)
        typical = {feature.column.name: feature.sent for feature in covariates_of(model().encoding_)}
        found = model().predict_rmst(table({**typical, "age": 58.0}), model().time_scale_).median.iloc[0]
        page.wait(f"document.querySelector('#numbers').textContent.includes('{float(f'{found:.3g}'):g} (')")
        settle(page)
        assert (text(page, "#field-0-note"), text(page, "#outside"), text(page, "#alarm")) == ("", "", "")
        # At no moment stood beside the field a sentence about another value. Above a curve that is still that of an
        # older value it may, but not once the field is back inside the range.
        low, high = model().encoding_.columns[0].low, model().encoding_.columns[0].high
        for value, note, outside in page.run("window.said"):
            assert not note or note.startswith(f"age {value} lies "), (value, note)
            assert not outside or not low <= float(value) <= high, (value, outside)

    def test_a_late_answer_does_not_speak_over_an_empty_field(self, page):
        page.run("document.getElementById('field-0').focus()")
        page.type("120")
        page.type("")
        time.sleep(0.6)
        assert text(page, "#field-0-note") == "type a number, or tick “not known”"
        assert text(page, "#outside") == ""

    def test_a_refusal_is_gone_when_the_value_is_good_again(self, page):
        page.run("document.getElementById('field-1').focus()")
        for value in ("1.7e308", "0.1", "1.7e308", "0.05"):
            page.type(value)
            time.sleep(0.1)
        settle(page)
        assert (text(page, "#alarm"), text(page, "#field-1-note")) == ("", "")
        assert not page.run("document.getElementById('field-1').hasAttribute('aria-invalid')")
        page.events.clear()

    def test_pinned_people_follow_a_change_of_level_that_was_overtaken(self, page):
        page.run("document.getElementById('pin').click()")
        before = numbers(page)["median time"][1]
        page.run("document.getElementById('level').value = '0.5'")
        page.run("document.getElementById('level').dispatchEvent(new Event('change'))")
        page.run("document.getElementById('field-0').focus()")
        page.type("60")
        page.wait("document.querySelector('#numbers').textContent.includes('60')")
        settle(page)
        assert numbers(page)["median time"][1] != before

    def test_what_is_pinned_is_what_is_drawn(self, page):
        shown = numbers(page)["median time"]
        page.run("document.getElementById('field-0').focus()")
        page.type("75")
        page.run("document.getElementById('pin').click()")
        settle(page)
        page.wait("document.querySelector('#numbers').textContent.includes('75')")
        assert numbers(page)["age"][1] != "75"
        assert numbers(page)["median time"][1:] == shown

    def test_the_curve_follows_a_slider_that_is_moved(self, page):
        page.run("""
          window.drawn = new Set();
          const svg = document.querySelector('#survival svg');
          const note = () => window.drawn.add(svg.querySelector('polyline').getAttribute('points'));
          new MutationObserver(note).observe(svg, {childList: true});
        """)
        page.run("document.querySelectorAll('input[type=range]')[0].focus()")
        moves = 0
        while page.run("window.drawn.size") < 3 and moves < 200:
            page.press("ArrowRight" if moves < 100 else "ArrowLeft")
            time.sleep(0.04)
            moves += 1
        assert moves < 200


class TestComparing:
    def test_pin_change_and_remove(self, page):
        page.run("document.getElementById('pin').focus()")
        page.press("Enter")
        fill(page, "field-0", "75")
        page.wait("document.querySelectorAll('#survival polyline').length === 2")
        shown = numbers(page)
        assert shown[""] == ["this person", "person A"]
        assert shown["age"][0] == "75"
        assert shown["median time"][0] != shown["median time"][1]
        assert "visits" not in shown
        page.run("document.querySelector('#pins button').focus()")
        page.press("Enter")
        settle(page)
        page.wait("document.getElementById('field-0').value !== '75'")
        page.run("document.querySelectorAll('#pins button')[1].focus()")
        page.press("Enter")
        assert page.run("document.querySelectorAll('#pins li').length") == 0
        assert page.run("document.activeElement.id") == "pin"

    def test_five_and_no_more(self, page):
        for _ in range(5):
            page.run("document.getElementById('pin').click()")
        assert page.run("document.getElementById('pin').disabled")
        colours = page.run(
            "[...document.querySelectorAll('#survival polyline')].map((line) => line.getAttribute('class'))"
        )
        assert len(set(colours)) == 6

    def test_names_can_be_given_and_are_only_text(self, page):
        page.run("document.getElementById('pin').click()")
        page.run("document.querySelector('#pins input').focus()")
        page.type("<img src=x onerror=alert(1)>")
        page.press("Enter")
        page.wait("document.querySelector('#numbers').textContent.includes('<img src=x')")
        assert page.run("document.querySelectorAll('img').length") == 0

    def test_what_one_covariate_does(self, page):
        page.wait("document.querySelector('#vary polyline')")
        fill(page, "field-0", "60")
        page.wait("document.querySelector('#vary .values').textContent.startsWith('age 60this person')")
        assert "if only age were another" in text(page, "#vary-note")
        place = page.run("document.querySelector('#survival .values span').textContent")
        at = float(place.split()[-1])
        varied = text(page, "#vary .values")
        typical = {feature.column.name: feature.sent for feature in covariates_of(model().encoding_)}
        found = model().predict_survival(table({**typical, "age": 60.0}), [at])
        # The time is shown with three digits, so the share may be off by one.
        shown = int(varied.split(": ")[1].split(" %")[0])
        assert abs(shown - 100 * found.median.iloc[0, 0]) < 1.5


class TestWithoutAPointer:
    def test_tab_goes_through_the_page_in_the_order_of_reading(self, page):
        page.run("document.body.focus()")
        seen = []
        for _ in range(40):
            page.press("Tab")
            place = page.run(
                "(() => { const found = document.activeElement; const box = found.getBoundingClientRect();"
                "return [found.id || found.type || found.getAttribute('class') || found.tagName, box.width > 0,"
                "getComputedStyle(found).outlineStyle]; })()"
            )
            if place[0] in ("BODY", "skip") and seen:
                break
            seen.append(tuple(place))
        names = [name for name, _, _ in seen]
        numbers = [name for place in range(3) for name in ("range", f"field-{place}", f"field-{place}-unknown")]
        assert names[:14] == ["skip", *numbers, "field-3", "field-4", "typical", "chart"]
        assert names[14:17] == ["pin", "level", "until"]
        assert all(wide for _, wide, _ in seen)
        # Whoever has the focus shows it.
        assert {style for _, _, style in seen} <= {"solid", "auto"}

    def test_everything_that_can_be_used_has_a_name(self, page):
        page.run("document.getElementById('pin').click()")
        roles = {"button", "textbox", "slider", "spinbutton", "combobox", "checkbox", "image", "region", "table"}
        tree = page.spoken_tree()
        without = [role for role, name in tree if role in roles and not name and role != "table"]
        assert without == []
        assert ("spinbutton", "age") in tree
        assert ("slider", "age, slider") in tree
        assert ("button", "Remove person A") in tree
        assert any(
            role == "image" and name.startswith("Survival with 90 % bands. this person: ") for role, name in tree
        )
        assert [name for role, name in tree if role == "heading"][:3] == [
            "small.neuralsurv",
            "Person",
            "Survival, compared",
        ]
        identifiers = page.run("[...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(set(identifiers)) == len(identifiers)

    def test_the_chart_is_read_with_arrow_keys(self, page):
        page.run("document.querySelector('#survival svg').focus()")
        page.press("Home")
        assert text(page, "#survival .values") == "time 0this person: 100 % (100 % to 100 %)"
        assert page.run("document.querySelector('#survival .values').getAttribute('aria-live')") == "polite"
        page.press("ArrowRight")
        assert text(page, "#survival .values") != "time 0this person: 100 % (100 % to 100 %)"
        page.press("End")
        last = model().time_scale_
        assert text(page, "#survival .values").startswith(f"time {float(f'{last:.3g}'):g}")
        # The hazard is read at the same time, and so is the table.
        assert text(page, "#hazard .values").startswith(f"time {float(f'{last:.3g}'):g}")
        assert f"survival at {float(f'{last:.3g}'):g}" in numbers(page)

    def test_changes_are_spoken(self, page):
        page.run("document.getElementById('spoken').textContent = ''")
        fill(page, "field-0", "72")
        page.wait("document.getElementById('spoken').textContent.startsWith('Survival at ')")
        assert "Median time" in text(page, "#spoken")

    def test_a_table_stands_in_for_the_charts(self, page):
        rows = page.run("[...document.querySelectorAll('#values tbody tr')].map((row) => row.textContent)")
        assert 10 <= len(rows) <= 16
        assert rows[0].startswith("0100 % (100 % to 100 %)")


class TestLooks:
    def test_a_phone_does_not_scroll_sideways_and_keeps_the_curve_in_sight(self, page):
        page.size(360, 740, phone=True)
        page.run("document.getElementById('pin').click()")
        fill(page, "field-0", "120")
        page.wait("document.querySelector('#outside li')")
        assert page.run("[document.documentElement.scrollWidth, innerWidth]") == [360, 360]
        page.run("document.getElementById('field-3').scrollIntoView({block: 'nearest'})")
        chart, field = page.run(
            "['#survival svg', '#field-3'].map((one) => {"
            "const box = document.querySelector(one).getBoundingClientRect(); return [box.top, box.bottom]; })"
        )
        assert 0 <= chart[0] < chart[1] <= 740
        # A field that comes into sight is not hidden behind the curve.
        assert field[1] <= page.run("document.getElementById('curve').getBoundingClientRect().top")

    def test_light_and_dark_pictures(self, page, tmp_path):
        for dark in (False, True):
            page.size(1000, 700, dark=dark)
            page.picture(tmp_path / "page.png")
            picture = image.imread(tmp_path / "page.png")[..., :3]
            assert picture.shape[:2] == (700, 1000)
            assert picture.std() > 0.05
            assert (np.median(picture) < 0.5) == dark

    @pytest.mark.parametrize("dark", [False, True])
    def test_text_stands_out_from_its_ground(self, page, dark):
        page.size(1280, 900, dark=dark)
        fill(page, "field-0", "120")
        page.wait("document.querySelector('#outside li')")
        assert page.run(CONTRAST) == []


# Texts whose contrast with the colour behind them is below 4.5 to 1.
CONTRAST = """(() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
      .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const low = [];
  for (const one of document.querySelectorAll("main *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.checkVisibility?.() || one.disabled) continue;
    const style = getComputedStyle(one);
    const ink = one.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [light(ink), light(ground(one))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push([one.tagName, one.textContent.slice(0, 30), ratio]);
  }
  return low;
})()"""


class TestAround:
    def test_nothing_is_fetched_from_elsewhere(self, page, site):
        assert all(address.startswith((site, "data:,")) for address in page.requested())
        assert len(page.requested()) >= 9

    def test_a_replaced_model_is_taken_up(self, browser, tmp_path):
        path = write(tmp_path)
        with Site(path) as address:
            browser.size(1280, 900)
            browser.open(f"{address}/", READY)
            fill(browser, "field-0", "70")
            before = numbers(browser)
            write(tmp_path, 4)
            end = time.monotonic() + 60
            while "The model file was replaced" not in text(browser, "#replaced"):
                assert time.monotonic() < end
                time.sleep(0.15)
                browser.run("document.getElementById('field-0').dispatchEvent(new Event('input'))")
            settle(browser)
            browser.wait(f"!document.getElementById('numbers').textContent.includes({before['median time'][0]!r})")
            assert browser.run("document.getElementById('field-0').value") == "70"

    def test_a_service_that_has_ended_is_said(self, browser, tmp_path):
        with Site(write(tmp_path)) as address:
            browser.open(f"{address}/", READY)
        fill(browser, "field-0", "70")
        browser.wait("!document.getElementById('alarm').hidden")
        assert text(browser, "#alarm").startswith("The service does not answer.")

    def test_a_token_comes_behind_the_hash_and_leaves_the_address(self, browser, tmp_path):
        with Site(write(tmp_path), TOKEN) as address:
            browser.open(f"{address}/", "!document.getElementById('alarm').hidden")
            assert text(browser, "#alarm").startswith("A token is needed: open the whole address")
            browser.open("about:blank", "true")
            browser.open(f"{address}/#token={TOKEN}", READY)
            assert browser.run("location.href") == f"{address}/"


def test_numbers_and_ticks_are_those_of_the_report(page):
    values = [0, 1, -0.5, 0.25, 12.55, 99.96, 999.7, 1234.4, -56789.1, 999999.7, 1.5e6, 3e9, 9.9996e-5, 1e-4, 1.234e-7]
    shown = page.run(f"import('./assets/chart.js').then(({{ number }}) => {values}.map(number))")
    assert shown == [svg.number(value) for value in values]
    assert page.run("import('./assets/chart.js').then(({ number }) => [NaN, Infinity, -Infinity].map(number))") == [
        svg.number(value) for value in (np.nan, np.inf, -np.inf)
    ]
    ranges = [[0, 1], [0, 999], [-3, 7], [0.1, 0.13], [5, 5], [0, 1e-9], [1, 2.4], [0, 123456], [-2e6, 3e6]]
    ticks = page.run(f"import('./assets/chart.js').then(({{ ticks }}) => {ranges}.map((range) => ticks(...range)))")
    assert ticks == [svg.ticks(*ends) for ends in ranges]


def test_assets_are_the_known_files_and_nothing_else(site):
    from urllib.error import HTTPError
    from urllib.request import urlopen

    with urlopen(f"{site}/assets/live_chart.js") as answer:
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        assert b"export function lineChart" in answer.read()
    for name in ("page.py", "..%2Fpage.py", "../page.py", "index.html"):
        with pytest.raises(HTTPError, match="404") as caught:
            urlopen(f"{site}/assets/{name}")
        caught.value.close()
