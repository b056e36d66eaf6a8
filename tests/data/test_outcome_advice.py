import numpy as np
import pytest

from neuralsurv.data.outcome_advice import codes_advice, half_step, is_word, likely_events, plain_form, zero_advice


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Dead", "dead"),
        ("Dead", " dead\u00a0"),
        ("Dead", "\ufeffde\u00adad\u200b"),
        ("d e a d", "dead"),
        ("Décédé", "DECEDE"),
        ("De\u0301ce\u0301de\u0301", "Décédé"),
        ("Straße", "STRASSE"),
        ("１", "1"),
        ("1.0", "1"),
        ("01", "1"),
    ],
)
def test_spellings_of_one_value(one, other):
    assert plain_form(one) == plain_form(other)


@pytest.mark.parametrize(("one", "other"), [("dead", "death"), ("1", "2"), ("yes", "no"), ("II", "III")])
def test_different_values(one, other):
    assert plain_form(one) != plain_form(other)


@pytest.mark.parametrize(
    ("values", "event"),
    [
        (["no", "yes"], ["yes"]),
        (["Dead", "Lost", "alive"], ["Dead"]),
        (["Alive", "Dead", "dead "], ["Dead", "dead "]),
        (["II", "III"], ["III"]),
        (["censored", "transplant"], ["transplant"]),
        (["alive"], ["alive"]),
    ],
)
def test_the_likely_event(values, event):
    assert likely_events(values) == event


@pytest.mark.parametrize(
    ("value", "word"), [("dead", True), ("1", False), ("-2.5e3", False), ("nan", False), (" ", False)]
)
def test_words(value, word):
    assert is_word(value) is word


@pytest.mark.parametrize(
    ("times", "half"),
    [
        ([0, 3, 5, 12], 1.0),
        ([0, 12], 6.0),
        ([0, 0], 0.5),
        ([0.0, 0.1, 0.1 + 1e-16, 0.3], 0.05),
        ([0, 1 / 12, 2 / 12], 1 / 24),
    ],
)
def test_half_of_the_smallest_step(times, half):
    assert half_step(np.array(times, dtype=float)) == pytest.approx(half)


def test_advice_on_codes_and_on_amounts():
    assert codes_advice("status", np.array([1.0, 2.0])).startswith("R codes censored as 1 and the event as 2: ")
    assert codes_advice("s", np.array([0.0, 1.0, 2.0])).endswith("for example df['s'] = df['s'] == 2")
    assert (
        codes_advice("dose", np.arange(30.0))
        == "it has 30 different values and does not look like an event column; check the name"
    )


def test_advice_on_negative_times_does_not_add_half_a_step():
    assert zero_advice("t", np.array([-1.0, 2.0])) == "Drop these rows: df = df[df['t'] > 0]; or correct them."
