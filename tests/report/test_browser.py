"""The page in a real browser: its script runs, it fits a phone, it prints. Needs Chromium (Debian: chromium)."""

import os
import re
import subprocess
import tempfile

import numpy as np
import pytest
from matplotlib import image

from browser import CHROMIUM, at_home_in
from neuralsurv.report.page import render
from report.small_report import report

if CHROMIUM is None and not os.environ.get("CI"):
    pytest.skip("Chromium is not installed: apt-get install chromium", allow_module_level=True)

# Acts as a reader would, and leaves what it sees in the title of the page.
ACT = """<script>
addEventListener("load", () => {
  const figures = [...document.querySelectorAll("figure")];
  const cohort = figures[0], svg = cohort.querySelector("svg.chart");
  svg.dispatchEvent(new KeyboardEvent("keydown", {key: "End", bubbles: true}));
  const read = cohort.querySelector(".values").textContent;
  const button = cohort.querySelectorAll(".legend button")[1];
  button.click();
  const hidden = getComputedStyle(cohort.querySelector('g[data-series="1"]')).display;
  document.title = JSON.stringify({
    read, after: cohort.querySelector(".values").textContent, hidden, pressed: button.getAttribute("aria-pressed"),
    wide: document.documentElement.scrollWidth, window: innerWidth,
    dark: getComputedStyle(document.body).backgroundColor,
  });
});
</script></body>"""


def chromium(*arguments):
    assert CHROMIUM is not None, "Chromium is not installed, and continuous integration needs it"
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        return subprocess.run(
            [CHROMIUM, *flags, *arguments],
            env=at_home_in(home),
            capture_output=True,
            encoding="utf-8",
            timeout=240,
            check=True,
        ).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("browser")
    page = render(report(), [("Model", "m.neuralsurv")])
    (place / "report.html").write_text(page, encoding="utf-8")
    (place / "acting.html").write_text(page.replace("</body>", ACT), encoding="utf-8")
    return place


def test_the_script_reads_values_and_hides_lines(folder):
    import html
    import json

    dom = chromium(
        "--window-size=1200,900", "--virtual-time-budget=20000", "--dump-dom", f"file://{folder}/acting.html"
    )
    seen = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1]))
    assert seen["read"].startswith("time ")
    last = report().cohort.survival[-1]
    shown = re.search(r"Kaplan–Meier: ([\d.e-]+) \(90% interval", seen["read"])
    assert float(shown[1]) == pytest.approx(last, rel=0.01, abs=1e-3)
    assert "mean prediction: " in seen["read"]
    assert "mean prediction: " not in seen["after"]
    assert (seen["hidden"], seen["pressed"]) == ("none", "false")


def test_a_phone_shows_the_page_without_scrolling_sideways(folder):
    import html
    import json

    # Chromium's window is at least 500 wide, so a frame of a phone's width holds the page.
    frame = '<iframe src="acting.html" width="360" height="800" style="border:0"></iframe>'
    (folder / "phone.html").write_text(
        f"<!doctype html><title>wait</title>{frame}<script>setInterval(() => {{"
        "const seen = document.querySelector('iframe').contentDocument.title;"
        "if (seen.startsWith('{')) document.title = seen; }, 50)</script>",
        encoding="utf-8",
    )
    dom = chromium(
        "--allow-file-access-from-files", "--virtual-time-budget=20000", "--dump-dom", f"file://{folder}/phone.html"
    )
    seen = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1]))
    assert seen["window"] == 360
    assert seen["wide"] <= 360


def test_light_and_dark_pictures_are_not_empty(folder):
    for name, flags in (("light", []), ("dark", ["--blink-settings=preferredColorScheme=0"])):
        out = folder / f"{name}.png"
        chromium(*flags, "--window-size=1100,1600", f"--screenshot={out}", f"file://{folder}/report.html")
        picture = image.imread(out)[..., :3]
        assert picture.shape[:2] == (1600, 1100)
        assert picture.std() > 0.05
        assert (np.median(picture) > 0.5) == (name == "light")


def test_it_prints(folder):
    out = folder / "report.pdf"
    chromium(f"--print-to-pdf={out}", "--no-pdf-header-footer", f"file://{folder}/report.html")
    assert out.read_bytes().startswith(b"%PDF")
    assert out.stat().st_size > 20_000
