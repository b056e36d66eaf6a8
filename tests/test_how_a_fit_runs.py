"""The page "How a fit runs" names the modules that a default fit and its prediction pass through, each once."""

import re
import sys
from pathlib import Path

import pytest

import neuralsurv
from small_cohort import small_cohort

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(neuralsurv.__file__).resolve().parent
# Used at many steps, or only by another kind of table, and no step of their own.
EVERYWHERE = {"arguments.py", "errors.py", "memory.py", "names.py", "progress.py", "inference/threads.py"}
MOST_LINES = 45


@pytest.fixture(scope="module")
def named():
    text = (ROOT / "docs" / "how-a-fit-runs.md").read_text(encoding="utf-8")
    return re.findall(r"`([\w/]+\.py)`", text)


@pytest.fixture(scope="module")
def passed():
    """The modules whose code runs, in the order of their first call."""
    cohort, seen = small_cohort(30), {}

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE) and frame.f_code.co_name != "<module>":
            seen.setdefault(path.relative_to(SOURCE).as_posix(), len(seen))

    model = neuralsurv.NeuralSurv(random_state=0, draws=20, verbose=False)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        model.fit(cohort.frame(), time="years", event="died")
        model.predict_survival(cohort.x.head(2), [0.5]).interval(0.9)
    finally:
        sys.setprofile(before)
    return set(seen)


def test_every_module_is_there_and_named_once(named):
    assert len(named) == len(set(named))
    assert [name for name in named if not (SOURCE / name).is_file()] == []


def test_no_module_on_the_way_is_left_out(named, passed):
    assert passed - EVERYWHERE - set(named) == set()


def test_it_fits_on_one_screen():
    lines = (ROOT / "docs" / "how-a-fit-runs.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES
