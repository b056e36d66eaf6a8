import numpy as np
import pandas as pd
import pytest

from neuralsurv.errors import InputError
from neuralsurv.prediction.changing_covariates import path_survival
from posteriors import covariates, small_predictor


def path(entry, time, subject, seed: int = 3):
    """Return the covariates, subjects and ends of some episodes."""
    return covariates(len(entry), seed), np.array(subject), np.array(entry, dtype=float), np.array(time, dtype=float)


def test_a_path_without_changes_is_conditional_survival():
    predictor = small_predictor(rho=0.6)
    X = covariates(1)
    episodes = pd.concat([X] * 3)
    times = [1, 4, 10, 25]
    found = path_survival(
        predictor, episodes, times, ["p"] * 3, np.array([3.0, 10.0, 12.0]), np.array([10.0, 12.0, 25.0])
    ).draws
    expected = predictor.conditional_survival(X, times, 3.0).draws
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert (found[:, :, 0] == 1).all()


def test_a_path_adds_up_the_hazards_of_its_episodes():
    predictor = small_predictor()
    X, subject, entry, time = path([0, 5, 12], [5, 12, 30], ["p"] * 3)
    found = path_survival(predictor, X, [20, 3, 12], subject, entry, time).draws[:, 0]
    rows = [predictor.cumulative_hazard(X.iloc[[k]], [3, 5, 12, 20]).draws[:, 0] for k in range(3)]
    at_3 = rows[0][:, 0]
    at_12 = rows[0][:, 1] + rows[1][:, 2] - rows[1][:, 1]
    at_20 = at_12 + rows[2][:, 3] - rows[2][:, 2]
    np.testing.assert_allclose(found, np.exp(-np.stack([at_20, at_3, at_12], axis=1)), rtol=1e-6)


def test_paths_of_several_subjects_with_rows_in_any_order():
    predictor = small_predictor()
    X, subject, entry, time = path([5, 0, 0, 9], [30, 5, 9, 25], ["b", "b", "a", "a"])
    both = path_survival(predictor, X, [2, 8, 20], subject, entry, time)
    assert both.index.tolist() == ["b", "a"]
    assert both.index.name == "id"
    assert both.columns.tolist() == [2, 8, 20]
    for place, name in enumerate(("b", "a")):
        own = np.flatnonzero(subject == name)
        alone = path_survival(predictor, X.iloc[own], [2, 8, 20], subject[own], entry[own], time[own])
        np.testing.assert_allclose(both.draws[:, place], alone.draws[:, 0], rtol=1e-12)
    shuffled = [2, 0, 3, 1]
    again = path_survival(predictor, X.iloc[shuffled], [2, 8, 20], subject[shuffled], entry[shuffled], time[shuffled])
    np.testing.assert_allclose(again.mean.loc[["b", "a"]], both.mean, rtol=1e-12)


def test_a_path_beyond_the_training_range_is_marked():
    X, subject, entry, time = path([0], [60], ["p"])
    prediction = path_survival(small_predictor(), X, [50, 40], subject, entry, time)
    assert prediction.extrapolated.tolist() == [True, False]
    assert prediction.to_frame().columns[0] == "id"


def test_a_path_with_a_gap():
    X, subject, entry, time = path([0, 6, 0], [5, 12, 20], ["p", "p", "q"])
    with pytest.raises(InputError, match=r"the path of subject 'p' has a gap after time 5; its episodes must follow"):
        path_survival(small_predictor(), X, [1], subject, entry, time)


def test_a_path_that_ends_too_early():
    X, subject, entry, time = path([0, 0], [20, 12], ["p", "q"])
    with pytest.raises(InputError, match=r"times go up to 15, but the path of subject 'q' ends at 12; extend its last"):
        path_survival(small_predictor(), X, [1, 15], subject, entry, time)


def test_a_path_with_overlapping_episodes():
    X, subject, entry, time = path([0, 4], [5, 12], ["p", "p"])
    with pytest.raises(InputError, match=r"subject 'p' has overlapping episodes"):
        path_survival(small_predictor(), X, [1], subject, entry, time)
