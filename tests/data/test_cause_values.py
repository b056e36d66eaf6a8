import numpy as np
import pandas as pd
import pytest

from neuralsurv.data.cause_values import any_event, cause_flags, cause_number, read_causes, require_one_cause
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError

TIME = np.arange(1.0, 7.0)


def outcome(event, **more):
    return Outcome.from_arrays(TIME[: len(event)], event, several=True, **more)


@pytest.mark.parametrize(
    ("event", "names", "censoring"),
    [
        ([0, 1, 2, 2, 0, 1], (1, 2), "0"),
        ([0.0, 3.0, 7.0, 3.0], (3, 7), "0"),
        (["0", "1", "2", "2"], (1, 2), "0"),
        (["censored", "relapse", "death", "death"], ("death", "relapse"), "censored"),
        (["Alive", "relapse", "death", "death"], ("death", "relapse"), "Alive"),
        ([0, "relapse", "death", 0], ("death", "relapse"), "0"),
        (pd.Categorical(["b", "a", "b"], categories=["censored", "a", "b"]), ("a", "b"), "censored"),
        (pd.Series(pd.array([0, 1, 2], dtype="Int64")), (1, 2), "0"),
    ],
)
def test_codes_and_names_of_causes(event, names, censoring):
    found = read_causes(event, "status")
    assert (found.names, found.censoring) == (names, censoring)
    words = [str(value).removesuffix(".0") for value in np.asarray(event)]
    for word, is_event, cause in zip(words, found.event, found.cause, strict=True):
        assert is_event == (word != censoring)
        assert not is_event or str(names[cause]) == word


@pytest.mark.parametrize("event", [[0, 1, 1], [True, False], [1, 1], np.array([0.0, 1.0]), [0, 2, 2], [1, 2, 1]])
def test_a_column_of_one_cause_is_none(event):
    assert read_causes(event, "status") is None


def test_what_works_today_keeps_its_meaning():
    found = outcome([0, 1, 1, 0])
    assert (found.causes, found.cause, found.note) == ((), None, "")
    assert found.event.tolist() == [False, True, True, False]


def test_the_note_counts_the_rows_of_every_value():
    expected = "column 'status' was read as 2 causes: 1 (1 row), 2 (3 rows); 0 (2 rows) is censoring."
    assert outcome([0, 1, 2, 2, 0, 2], names=("time", "status", "entry", "weight")).note == expected


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ([0, 1, 1.5, 2], "holds 1.5 among 4 different values; causes are whole numbers from 1, and 0 is censoring"),
        ([-1, 0, 1, 2], "holds -1 among 4 different values"),
        (
            [1, 2, 3],
            "holds 1, 2, 3 and no 0, so that nothing says which of them is censoring.*'censored', 2: 'relapse'",
        ),
        (["a", "b", "c"], "none of these is known to mean censoring. Write 'censored'.*if no row is censored, say so"),
        (["alive", "censored", "a", "b"], "holds 'alive', 'censored', which may all mean censoring"),
        (["censored", "Death", "death", "a"], "holds 'Death' and 'death', written differently only in case"),
        (["censored", "1", "a"], "holds '1' beside names of causes .*give every cause a name"),
        (["0", "nan", "a"], "holds 'nan' beside names of causes"),
        ([True, 0, "a", "b"], "holds 'True' beside names of causes"),
        ([0, 1, 2, np.nan], "missing \\(NaN\\) in 1 row"),
        (["censored", "a", "b", None], "missing \\(NaN\\) in 1 row"),
        (["dead", "alive", "dead"], "say which of them mean the event"),
        ([1, 2, 2], "R codes censored as 1 and the event as 2"),
        ([0, 2, 2], "must be 0/1 or True/False, but holds 2"),
    ],
)
def test_unclear_columns_are_refused(event, message):
    with pytest.raises(InputError, match=message):
        outcome(event)


def test_many_names_are_shortened_in_a_message():
    with pytest.raises(InputError, match="'a', 'b', 'c', 'd', 'e', 'f' and 1 more"):
        read_causes(list("abcdefg"), "status")


def test_amounts_are_no_causes():
    with pytest.raises(InputError, match="has 20 different values and does not look like an event column"):
        Outcome.from_arrays(np.arange(1.0, 21.0), np.arange(20), several=True)


def test_one_cause_is_needed_unless_several_are_allowed():
    with pytest.raises(InputError, match="must be 0/1 or True/False, but holds 2"):
        Outcome.from_arrays(TIME, [0, 1, 2, 2, 0, 2])
    with pytest.raises(InputError, match="the outcome has 2 causes, and one is needed here"):
        Outcome.from_any(outcome([0, 1, 2]))


def test_causes_are_ordered_by_frequency_whatever_their_names():
    first, second = outcome(["censored", "b", "a", "b"]), outcome(["censored", "x", "y", "x"])
    assert first.by_frequency().causes == ("b", "a")
    assert second.by_frequency().causes == ("x", "y")
    assert first.by_frequency().cause.tolist() == second.by_frequency().cause.tolist() == [0, 0, 1, 0]
    # As many events of each: the earlier ones come first.
    assert outcome(["censored", "b", "a", "censored"]).by_frequency().causes == ("b", "a")
    assert outcome([0, 1, 1]).by_frequency().causes == ()


def test_causes_survive_selection_and_new_weights():
    found = Outcome.from_any(outcome([0, 1, 2, 2]), weight=[1, 1, 2, 1], several=True).select(np.array([1, 2]))
    assert (found.causes, found.cause.tolist(), found.weight.tolist()) == ((1, 2), [0, 1], [1, 2])
    assert found.cause_events() == {1: 1, 2: 1}


def test_a_cause_without_an_event_that_counts_is_refused():
    with pytest.raises(InputError, match="no row with a weight has an event of cause 2"):
        outcome([0, 1, 2, 1], weight=[1, 1, 0, 1]).by_frequency()


def test_a_cause_is_found_by_number_or_text():
    assert [cause_number(cause, (2, 1)) for cause in (1, "1", 1.0, np.int64(1), 2)] == [1, 1, 1, 1, 0]
    with pytest.raises(InputError, match="there is no cause 'relaps'; did you mean 'relapse'"):
        cause_number("relaps", ("death", "relapse"))
    with pytest.raises(InputError, match="cause=1 does nothing: the model was fitted to one cause of events"):
        cause_number(1, ())


def test_a_model_of_several_causes_is_refused_where_one_is_known():
    require_one_cause((), "the report")
    with pytest.raises(InputError, match=r"the report knows models of one cause of events, and this one has 2 \(1,"):
        require_one_cause((1, "b"), "the report")


def test_the_events_of_one_cause_among_others():
    found = cause_flags(["Censored", "Relapse ", "death", "relapse"], "relapse", "event")
    assert found.event.tolist() == [False, True, True, True]
    assert found.own.tolist() == [False, True, False, True]
    assert cause_flags([True, False], 1, "event").own.tolist() == [True, False]
    assert cause_flags([0.0, 2.0], 2, "event").own.tolist() == [False, True]
    assert any_event([0, 1, 2], "event").tolist() == [False, True, True]
    with pytest.raises(InputError, match="no row of column 'event' has an event of cause 4; the causes in it are: 1"):
        cause_flags([0, 1, 2], 4, "event")
