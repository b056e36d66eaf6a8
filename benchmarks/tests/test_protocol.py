import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from scipy.stats import lognorm

from neuralsurv.errors import InputError
from neuralsurv_bench import cohorts, protocol, scores
from neuralsurv_bench.cohorts import Cohort
from neuralsurv_bench.methods.interface import Split

SMALL = [name for name in cohorts.NAMES if name != "SAC3"]
NAMES = [*SMALL, pytest.param("SAC3", marks=pytest.mark.slow)]

# Row numbers of the first five rows of the paper's subsample of 125.
FIRST_ROWS = {
    "COLON": [555, 1741, 297, 733, 910],
    "METABRIC": [1225, 111, 554, 526, 1313],
    "GBSG": [1656, 1412, 480, 617, 1075],
    "NWTCO": [2401, 798, 2382, 2066, 999],
    "WHAS": [361, 73, 374, 155, 104],
    "SUPPORT": [267, 1087, 8459, 3032, 222],
    "VLC": [105, 104, 12, 26, 123],
    "SAC3": [75721, 80184, 19864, 76699, 92991],
}
# CoxPH in the paper's tables of traditional methods: C-index, IBS, p of D-calibration, KM-calibration.
PUBLISHED_COX = {
    "COLON": (0.669, 0.192, 0.913, 0.006),
    "METABRIC": (0.653, 0.171, 0.846, 0.008),
    "GBSG": (0.694, 0.171, 0.950, 0.004),
    "NWTCO": (0.710, 0.136, 0.979, 0.003),
    "WHAS": (0.655, 0.207, 0.730, 0.017),
    "SUPPORT": (0.653, 0.225, 0.354, 0.010),
    "VLC": (0.697, 0.125, 0.597, 0.008),
    "SAC3": (0.569, 0.190, 0.357, 0.005),
}


def numbered(n: int, *, name: str = "VLC", group: np.ndarray | None = None) -> Cohort:
    """Return a cohort whose first time is 1, second 2 and so on: a row is known by its time."""
    columns = [*protocol._PAPER_STANDARDISED["VLC"], "flag"]
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(5, 3, (n, 4)), columns=columns).assign(flag=generator.integers(0, 2, n) * 1.0)
    return Cohort(name, frame, np.arange(1.0, n + 1), np.ones(n, dtype=bool), group)


def ridge_cox_scores(split: Split) -> scores.PaperScores:
    columns = list(split.columns)
    train = pd.DataFrame(split.train.x, columns=columns).assign(time=split.train.time, event=split.train.event)
    model = CoxPHFitter(penalizer=0.1).fit(train, "time", "event")
    times = scores.grid(split)
    survival = model.predict_survival_function(pd.DataFrame(split.test.x, columns=columns), times=times)
    return scores.paper_scores(split, survival.to_numpy().T, times)


# lifelines points out columns that hardly vary; the paper's folds have them.
@pytest.mark.filterwarnings("ignore::lifelines.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", NAMES)
def test_ridge_cox_on_the_papers_folds_has_the_published_scores(name):
    found = [ridge_cox_scores(split) for split in protocol.paper_splits(cohorts.load(name))]
    for metric, published in zip(
        ("c_index", "ibs", "d_calibration_p", "km_calibration"), PUBLISHED_COX[name], strict=True
    ):
        mean = np.mean([fold[metric] for fold in found])
        # The paper prints three decimals; a little more because a fold's rounding may differ between platforms.
        assert mean == pytest.approx(published, abs=0.0006), metric


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_folds_are_of_its_subsample(name):
    cohort = cohorts.load(name)
    sample = cohort.frame.sample(125, random_state=42).index.to_numpy()
    assert sample[:5].tolist() == FIRST_ROWS[name]
    splits = protocol.paper_splits(cohort)
    assert [(len(s.train), len(s.validation), len(s.test)) for s in splits] == [(80, 20, 25)] * 5
    for split in splits:
        together = np.concatenate([split.train.time, split.validation.time, split.test.time])
        np.testing.assert_array_equal(np.sort(together), np.sort(cohort.time[sample]))
    if name != "VLC":
        together = np.concatenate([split.test.time for split in splits])
        np.testing.assert_array_equal(np.sort(together), np.sort(cohort.time[sample]))


def test_rows_keep_their_covariates_time_and_event_together():
    cohort = cohorts.load("WHAS")
    split = protocol.paper_splits(cohort)[3]
    known = {
        (*row, time, event)
        for row, time, event in zip(cohort.frame[["chf", "gender"]].to_numpy(), cohort.time, cohort.event, strict=True)
    }
    columns = [split.columns.index(name) for name in ("chf", "gender")]
    for part in (split.train, split.validation, split.test):
        assert {
            (*row[columns], time, event) for row, time, event in zip(part.x, part.time, part.event, strict=True)
        } <= known


def test_the_ablation_has_250_rows():
    splits = protocol.paper_splits(cohorts.load("GBSG"), rows=250)
    assert [(len(s.train), len(s.validation), len(s.test)) for s in splits] == [(160, 40, 50)] * 5


def test_a_cohort_with_fewer_rows_than_asked_for_is_taken_whole():
    splits = protocol.paper_splits(cohorts.load("VLC"), rows=250)
    assert {len(s.train) + len(s.validation) + len(s.test) for s in splits} == {137}


@pytest.mark.parametrize("name", SMALL)
def test_the_paper_standardises_with_the_training_rows_and_leaves_categories_as_they_are(name):
    cohort = cohorts.load(name)
    few_values = {"x2", "x3", "x6"} if name == "SUPPORT" else {"x1"} if name == "GBSG" else {"stage"}
    for split in protocol.paper_splits(cohort):
        standardised = protocol._PAPER_STANDARDISED[name]
        count = len(standardised)
        assert split.columns[:count] == standardised
        assert set(split.columns) == set(cohort.frame)
        np.testing.assert_allclose(split.train.x[:, :count].mean(0), 0, atol=1e-12)
        np.testing.assert_allclose(split.train.x[:, :count].std(0), 1)
        assert np.abs(split.test.x[:, :count].mean(0)).min() > 1e-6
        for column, left in enumerate(split.columns[count:], start=count):
            assert len(cohort.frame[left].unique()) == 2 or left in few_values
            assert set(split.test.x[:, column]) <= set(cohort.frame[left])
        for varied in standardised:
            assert len(cohort.frame[varied].unique()) > 10


def test_late_test_rows_of_vlc_change_places_with_training_rows():
    with_swap = protocol.paper_splits(cohorts.load("VLC"))
    for split in with_swap:
        assert split.test.time.max() < split.train.time.max()
    # In the second fold two test rows, of 587 and 999 days, are late; they come last among the training rows.
    assert sorted(with_swap[1].train.time[-2:]) == [587, 999]
    tests = np.concatenate([split.test.time for split in with_swap])
    assert not {587, 999} & set(tests)


def test_a_swap_moves_as_few_rows_as_it_must():
    time = np.array([5.0, 3.0, 9.0, 4.0, 8.0, 2.0, 10.0])
    train, test = np.array([0, 1, 3, 4]), np.array([2, 5, 6])
    new_train, new_test = protocol._swapped_late_test_rows(time, train, test)
    # Row 4 has the last training time and may not leave; rows 2 and 6 are late.
    assert new_train[-2:].tolist() == [2, 6]
    assert new_test[0] == 5
    assert 4 in new_train
    assert sorted([*new_train, *new_test]) == list(range(7))
    assert (len(new_train), len(new_test)) == (4, 3)
    expected = pd.Series([0, 1, 3]).sample(2, random_state=42).tolist()
    assert new_test[1:].tolist() == expected


def test_a_test_row_at_the_last_training_time_counts_as_late():
    new_train, _ = protocol._swapped_late_test_rows(np.array([5.0, 1.0, 5.0]), np.array([0, 1]), np.array([2]))
    assert new_train.tolist() == [0, 2]


def test_without_late_test_rows_nothing_changes():
    train, test = np.array([0, 2]), np.array([1])
    new_train, new_test = protocol._swapped_late_test_rows(np.array([1.0, 2.0, 3.0]), train, test)
    assert (new_train.tolist(), new_test.tolist()) == ([0, 2], [1])


def test_only_vlc_is_swapped():
    late = [
        (split.test.time >= split.train.time.max()).sum()
        for name in ("COLON", "METABRIC", "NWTCO", "WHAS", "SUPPORT")
        for split in protocol.paper_splits(cohorts.load(name))
    ]
    assert sum(late) == 6


def test_an_unknown_cohort_has_no_folds_of_the_paper():
    with pytest.raises(InputError, match=r"no cohort 'LUNG', so it is not known which of its 4 covariates to standard"):
        protocol.paper_splits(numbered(200, name="LUNG"))


@pytest.mark.parametrize("subsample", [0, 1, 19])
def test_repeated_folds_are_another_subsample_cut_in_five(subsample):
    cohort = numbered(400)
    splits = protocol.repeated_splits(cohort, subsample)
    assert [(len(s.train), len(s.validation), len(s.test)) for s in splits] == [(100, 0, 25)] * 5
    tests = np.concatenate([split.test.time for split in splits])
    assert len(set(tests)) == 125
    for split in splits:
        assert set(split.train.time) | set(split.test.time) == set(tests)
        assert not set(split.train.time) & set(split.test.time)
    paper = np.concatenate([split.test.time for split in protocol.paper_splits(cohort)])
    assert set(tests) != set(paper)


def test_repeated_folds_are_seeded_by_cohort_and_subsample():
    def rows(cohort, subsample):
        return protocol.repeated_splits(cohort, subsample)[0].test.time.tolist()

    assert rows(numbered(400), 3) == rows(numbered(400), 3)
    assert rows(numbered(400), 3) != rows(numbered(400), 4)
    assert rows(numbered(400), 3) != rows(numbered(400, name="other"), 3)


def test_repeated_folds_standardise_all_covariates_with_the_training_rows():
    cohort = numbered(400)
    for split in protocol.repeated_splits(cohort, 0):
        assert split.columns == tuple(cohort.frame)
        np.testing.assert_allclose(split.train.x.mean(0), 0, atol=1e-12)
        np.testing.assert_allclose(split.train.x.std(0), 1)
        raw_train = cohort.frame.to_numpy()[split.train.time.astype(int) - 1]
        raw_test = cohort.frame.to_numpy()[split.test.time.astype(int) - 1]
        np.testing.assert_allclose(split.test.x, (raw_test - raw_train.mean(0)) / raw_train.std(0))


def test_a_covariate_that_is_constant_in_the_training_rows_is_only_centred():
    cohort = numbered(125)
    cohort.frame["flag"] = 0.0
    first = protocol.repeated_splits(cohort, 0)[0]
    cohort.frame.loc[int(first.test.time[0]) - 1, "flag"] = 1.0
    again = protocol.repeated_splits(cohort, 0)[0]
    assert set(again.train.x[:, 3]) == {0.0}
    assert again.test.x[0, 3] == 1.0


def test_patients_are_never_on_both_sides_of_a_repeated_fold():
    # 200 patients with two rows each; the first covariate tells the patient.
    patient = np.repeat(np.arange(200), 2)
    cohort = numbered(400, group=patient)
    cohort.frame.iloc[:, 0] = patient.astype(float)
    shared = 0
    for subsample in range(5):
        splits = protocol.repeated_splits(cohort, subsample)
        assert [(len(s.train), len(s.test)) for s in splits] == [(100, 25)] * 5
        tests = np.concatenate([split.test.time for split in splits])
        assert len(set(tests)) == 125
        for split in splits:
            train, test = ({int(time - 1) // 2 for time in part.time} for part in (split.train, split.test))
            assert not train & test
            shared += len(split.test) - len(test)
    assert shared > 0


def test_colon_has_100_training_rows_in_every_fold_although_patients_stay_together():
    colon = cohorts.load("COLON")
    for subsample in range(20):
        splits = protocol.repeated_splits(colon, subsample)
        assert [(len(s.train), len(s.test)) for s in splits] == [(100, 25)] * 5


def test_folds_by_patient_differ_from_one_subsample_to_the_next():
    cohort = numbered(125, group=np.arange(125) // 2)
    first, second = (protocol.repeated_splits(cohort, subsample)[0] for subsample in (0, 1))
    assert set(first.test.time) != set(second.test.time)


def test_a_subsample_larger_than_the_cohort_is_refused():
    with pytest.raises(InputError, match="VLC has 100 rows that are observed for some time; a subsample of 125 cannot"):
        protocol.repeated_splits(numbered(100), 0)


def test_a_row_of_time_zero_is_never_drawn():
    cohort = numbered(126)
    cohort.time[40] = 0.0
    for subsample in range(3):
        assert 0 not in np.concatenate([s.test.time for s in protocol.repeated_splits(cohort, subsample)])


def test_a_negative_subsample_is_refused():
    with pytest.raises(InputError, match="subsample=-1 is not the number of a subsample"):
        protocol.repeated_splits(numbered(200), -1)


@pytest.mark.parametrize("n", [25, 50, 100, 150])
def test_the_synthetic_experiment_has_its_rows_and_truth(n):
    experiment = protocol.synthetic(n)
    split = experiment.split
    assert (len(split.train), len(split.validation), len(split.test)) == (n, 100, 100)
    assert split.columns == ("x0", "x1", "x2", "x3")
    assert set(split.test.x[:, 0]) == {0, 1}
    times = np.array([0.0, 1.0, 20.0, 90.0])
    truth = experiment.truth(split.test.x, times)
    expected = {0.0: lognorm(0.8, scale=np.exp(3)).sf(times), 1.0: lognorm(1, scale=np.exp(3.5)).sf(times)}
    np.testing.assert_allclose(truth, [expected[group] for group in split.test.x[:, 0]])


def test_an_unknown_size_of_the_synthetic_experiment_is_refused():
    with pytest.raises(InputError, match="no training set of 75 rows; the 4 sizes there are: 25, 50, 100, 150"):
        protocol.synthetic(75)
