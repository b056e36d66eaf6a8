import numpy as np
import pandas as pd
import pytest

from neuralsurv.cli.evaluation.comparison import Fold, fold_tables, make_folds
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError


def outcome(n=60, events=20):
    return Outcome.from_arrays(np.arange(1, n + 1), np.arange(n) < events)


def test_folds_cover_the_cohort_and_share_the_events():
    cohort = outcome()
    folds = make_folds(cohort, None, 5, 2, seed=0)
    assert [(fold.repeat, fold.number) for fold in folds] == [(r, k) for r in (1, 2) for k in range(1, 6)]
    for repeat in (1, 2):
        tested = np.concatenate([fold.test for fold in folds if fold.repeat == repeat])
        assert sorted(tested) == list(range(60))
    for fold in folds:
        assert not set(fold.train) & set(fold.test)
        assert cohort.event[fold.test].sum() == 4
    assert (folds[0].test != folds[5].test).any()
    assert (folds[0].test == make_folds(cohort, None, 5, 1, seed=0)[0].test).all()


def test_subjects_stay_together():
    subject = np.repeat([f"s{k}" for k in range(20)], 3)
    for fold in make_folds(outcome(), subject, 4, 3, seed=1):
        assert not set(subject[fold.train]) & set(subject[fold.test])


@pytest.mark.parametrize(
    ("cohort", "subject", "folds", "message"),
    [
        (outcome(), None, 1, "1 fold and 1 repeat cannot be run; use at least 2 folds"),
        (outcome(events=3), None, 5, "only 3 rows have an event, too few for 5 folds; use --folds with a smaller"),
        (outcome(events=58), None, 5, "only 2 rows have no event, too few for 5 folds"),
        (outcome(), np.repeat(np.arange(15), 4), 6, "only 5 subjects have an event, too few for 6 folds"),
        (outcome(), np.where(np.arange(60) < 2, np.nan, 1.0), 2, "the id is missing in 2 rows; fill it in"),
    ],
)
def test_folds_that_cannot_be_made(cohort, subject, folds, message):
    with pytest.raises(InputError, match=message):
        make_folds(cohort, subject, folds, 1, seed=0)


def test_a_fold_without_an_event(monkeypatch):
    rows = np.arange(60)
    monkeypatch.setattr(
        "sklearn.model_selection.StratifiedGroupKFold.split",
        lambda self, X, y, groups: iter([(rows[20:], rows[:20]), (rows[:20], rows[20:])]),
    )
    with pytest.raises(InputError, match="fold 1 of 2 has no event, because subjects stay together; use fewer"):
        make_folds(outcome(), np.arange(60), 2, 1, seed=0)


def test_all_events_is_fine():
    assert len(make_folds(outcome(20, 20), None, 4, 1, seed=0)) == 4


def test_tables_of_a_fold():
    frame = pd.DataFrame(
        {
            "age": [1.0, 2.0, 4.0, np.nan],
            "gap": [1.0, np.nan, 3.0, np.nan],
            "arm": ["a", "b", "b", "c"],
            "flat": [1, 1, 1, 2],
            "dose": [1, 2, 3, 4],
        }
    )
    train, test, changed = fold_tables(frame, Fold(1, 1, np.array([0, 1, 2]), np.array([3])))
    assert list(train.columns) == list(test.columns) == ["age", "gap", "arm", "dose"]
    assert test["age"].tolist() == [2.0]
    assert test["gap"].isna().all()
    assert test["arm"].tolist() == ["b"]
    assert changed == {"age": 1, "arm": 1}
    assert frame["age"].isna()[3], "the table itself must stay as it is"


def test_no_covariate_left():
    frame = pd.DataFrame({"flat": [1, 1, 2]})
    with pytest.raises(InputError, match="no covariate varies in the training rows of fold 1; use fewer --folds"):
        fold_tables(frame, Fold(1, 1, np.array([0, 1]), np.array([2])))
