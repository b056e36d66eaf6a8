"""Progress: bars on standard error where somebody is watching, log records always, nothing on standard output."""

import io
import logging
import sys
from typing import Any

import pandas as pd
import pytest

from neuralsurv.progress import bar, wanted
from small_cohort import quick_model, small_cohort

COHORT = small_cohort()


class Terminal(io.StringIO):
    """A standard error that a person is looking at."""

    def isatty(self) -> bool:
        return True


def show_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of standard error. (Not a fixture: pytest replaces the stream after those.)"""
    # What a terminal can do is read from its name; a plain one keeps escape codes out of the text.
    monkeypatch.setenv("TERM", "dumb")
    # Rich widens or narrows with the window.
    monkeypatch.setenv("COLUMNS", "120")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


def test_wanted_off_a_terminal() -> None:
    assert wanted(True)
    assert wanted(1)
    assert not wanted(False)
    assert not wanted(0)
    assert not wanted("auto")


def test_wanted_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    show_on_a_terminal(monkeypatch)
    assert wanted("auto")
    assert not wanted(False)


def test_a_bar_shows_title_and_words_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("counting sheep", 3, True) as advance:
        advance(3, "three sheep")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "counting sheep" in captured.err
    assert "three sheep" in captured.err


@pytest.mark.parametrize(("total", "said"), [(3, True), (None, False)])
def test_the_time_left_is_shown_where_the_number_of_steps_is_known(
    total: int | None, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with bar("counting sheep", total, True) as advance:
        advance(1, "one sheep")
    assert (" left " in capsys.readouterr().err) == said


@pytest.mark.parametrize("verbose", [True, False])
def test_every_step_is_logged_with_or_without_a_bar(
    verbose: bool, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, logger="neuralsurv")
    with bar("counting sheep", None, verbose) as advance:
        advance(1, "one sheep")
        advance(2, "two sheep")
    assert [(r.name, r.levelno, r.getMessage()) for r in caplog.records] == [
        ("neuralsurv", logging.DEBUG, "counting sheep: one sheep"),
        ("neuralsurv", logging.DEBUG, "counting sheep: two sheep"),
    ]
    assert ("counting sheep" in capsys.readouterr().err) == verbose


def test_an_error_inside_the_block_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), bar("counting sheep", None, True):
        raise KeyboardInterrupt
    assert "counting sheep" in capsys.readouterr().err


def test_a_verbose_fit_shows_its_bars_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    model = quick_model(verbose=True, starts=2).fit(COHORT.x, COHORT.y)
    captured = capsys.readouterr()
    assert captured.out == ""
    for title in ("mode, 2 starts", "variational sweeps"):
        assert title in captured.err
    assert f"sweep {model.diagnostics_.sweeps}, ELBO {model.elbo_[-1]:.4f}" in captured.err.replace("\n", " ")


def test_an_automatic_fit_shows_bars_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = show_on_a_terminal(monkeypatch)
    quick_model(verbose="auto").fit(COHORT.x, COHORT.y)
    assert "variational sweeps" in terminal.getvalue()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("verbose", ["auto", False])
def test_off_a_terminal_nothing_is_shown(verbose: Any, capsys: pytest.CaptureFixture[str]) -> None:
    quick_model(verbose=verbose).fit(COHORT.x, COHORT.y)
    assert capsys.readouterr() == ("", "")


def test_false_is_silent_on_a_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = show_on_a_terminal(monkeypatch)
    quick_model(verbose=False).fit(COHORT.x, COHORT.y)
    assert terminal.getvalue() == ""


def test_a_fit_logs_what_it_does(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="neuralsurv")
    model = quick_model().fit(COHORT.x, COHORT.y)
    assert {record.name for record in caplog.records} == {"neuralsurv"}
    texts = [record.getMessage() for record in caplog.records]
    sweeps = [text for text in texts if text.startswith("variational sweeps: sweep ")]
    assert len(sweeps) == model.diagnostics_.sweeps
    assert f"ELBO {model.elbo_[-1]:.4f}" in sweeps[-1]
    assert any(text.startswith("mode: step 1, U = ") for text in texts)


def test_a_long_prediction_shows_a_bar_and_a_short_one_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    model = quick_model(draws=2, hidden=()).fit(COHORT.x, COHORT.y).set_params(verbose=True)
    capsys.readouterr()
    crowd = pd.concat([COHORT.x] * 26)
    assert len(model.predict(crowd)) == 1040
    captured = capsys.readouterr()
    assert "1040 of 1040 people" in captured.err
    assert captured.out == ""
    model.predict(COHORT.x)
    assert capsys.readouterr() == ("", "")
