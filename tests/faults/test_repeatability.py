"""Same seed, same result: in this process, within the tolerances that the page of the documentation states."""

import json
import pickle
from functools import cache

import joblib
import numpy as np
import pytest
from sklearn.base import clone

from faults.proof_commands import command
from small_cohort import quick_default, quick_model, small_cohort

repeatability, of = command("repeatability"), command("repeatability_cases")
MODELS = {"default": quick_default, "paper": quick_model}
TIMES = [0.2, 0.7, 1.5, 4.0]


@cache
def model(name):
    cohort = small_cohort()
    return MODELS[name]().fit(cohort.x, cohort.y)


def within(name, way, other):
    base = of.numbers_of(model(name), small_cohort().x)
    found = of.difference(base, other) | {"size": float(abs(base["elbo"][0]))}
    assert repeatability.holds(found, repeatability.TOLERANCES[way]), found


@pytest.mark.parametrize("way", of.ASKING)
@pytest.mark.parametrize("name", MODELS)
def test_ways_to_ask(name, way):
    within(name, way, of.ASKING[way](model(name), small_cohort().x))


@pytest.mark.parametrize("name", MODELS)
def test_pickled_cloned_and_in_threads(name):
    cohort = small_cohort()
    within(name, "pickled", of.numbers_of(pickle.loads(pickle.dumps(model(name))), cohort.x))
    fits = joblib.Parallel(2, backend="threading")(
        joblib.delayed(clone(model(name)).fit)(cohort.x, cohort.y) for _ in range(2)
    )
    for fitted in fits:
        within(name, "in a joblib thread", of.numbers_of(fitted, cohort.x))
    shuffled = np.random.default_rng(0).permutation(len(cohort.x))
    again = MODELS[name]().fit(cohort.x.iloc[shuffled], cohort.y[shuffled])
    within(name, "rows in another order", of.numbers_of(again, cohort.x))


def test_another_seed_is_told_apart():
    cohort = small_cohort()
    other = quick_default(random_state=1).fit(cohort.x, cohort.y)
    with pytest.raises(AssertionError):
        within("default", "people one by one", of.numbers_of(other, cohort.x))


def test_promises_are_judged():
    kept = {"mean": 0.0, "bands": 1e-12, "elbo": 1e-9, "size": 100.0}
    assert repeatability.holds(kept, 1e-10)
    assert not repeatability.holds(kept, 0.0)
    assert not repeatability.holds(kept | {"mean": 1e-3}, 1e-10)
    record = {"cases": {"default": {"another run": kept, "people one by one": kept}}}
    assert len(repeatability.broken(record)) == 1
    assert "default, another run" in repeatability.broken(record)[0]
    assert repeatability.tolerance("stream", "rows in another order") is None
    stream = {"cases": {"stream": {"rows in another order": kept | {"mean": 1.0}}}}
    assert repeatability.broken(stream) == []


@pytest.mark.skipif(not repeatability.STORE.exists(), reason="the run is not stored yet")
def test_the_stored_run_kept_every_promise_and_made_the_page():
    record = json.loads(repeatability.STORE.read_text(encoding="utf-8").splitlines()[-1])
    assert repeatability.broken(record) == []
    assert list(record["cases"]) == list(of.CASES)
    for ways in record["cases"].values():
        assert set(repeatability.PROCESSES) - {"first run"} <= ways.keys()
    assert repeatability.PAGE.read_text(encoding="utf-8") == repeatability.page(record)
