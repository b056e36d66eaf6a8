"""fit_stream as users call it: agreement with fit, files and batches, messages, and fits that are killed and go on."""

import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

import neuralsurv
from inference import streamed_worker
from neuralsurv import NeuralSurv
from neuralsurv.data.simulate import lognormal_cohort
from neuralsurv.data.stream import batches as stream
from neuralsurv.errors import CeilingWarning, ConvergenceWarning, InputError, MissingCodeWarning, NeuralSurvWarning
from neuralsurv.estimator import streaming
from neuralsurv.inference.stream import feature_learning as learning
from neuralsurv.inference.stream import fit as stream_fit
from neuralsurv.inference.stream import passes, streamed_problem
from neuralsurv.inference.stream.kept_directions import KEEP_ALL
from neuralsurv.inference.stream.processes import ProcessGroup
from small_cohort import quick_default, small_cohort

NAMES = {"time": "years", "event": "died"}
WORKER = Path(__file__).parents[1] / "inference" / "streamed_worker.py"


def batches(table, count=3):
    return [table.iloc[part] for part in np.array_split(np.arange(len(table)), count)]


@pytest.fixture(scope="module")
def cohort():
    return small_cohort(400)


@pytest.fixture(scope="module")
def streamed(cohort):
    return quick_default().fit_stream(batches(cohort.frame()), **NAMES)


def test_without_feature_learning_curves_are_those_of_fit(cohort):
    # fit averages over the scales of the prior, and searches them with a coarser tolerance.
    table = cohort.frame()
    ours = quick_default(draws=400).fit_stream(batches(table), **NAMES, method="exact", training_passes=0)
    theirs = quick_default(draws=400, average=False).fit(table, **NAMES)
    times = [0.2, 0.5, 1.0]
    one, other = (model.predict_survival(cohort.x, times) for model in (ours, theirs))
    width = (other.interval(0.9)[1] - other.interval(0.9)[0]).to_numpy()
    apart = np.abs(one.mean.to_numpy() - other.mean.to_numpy())
    assert apart.max() < 0.02
    # Not where nearly nobody survives, or nearly everybody: there 400 draws say little of the mean.
    known = width > 0.01
    assert known.mean() > 0.5
    assert (apart / width)[known].mean() < 0.1
    assert ours.elbo_[-1] >= theirs.elbo_[-1] - 0.05
    np.testing.assert_allclose(ours.encoding_.center, theirs.encoding_.center, rtol=1e-12)
    assert ours.time_scale_ == theirs.time_scale_
    np.testing.assert_array_equal(ours.unique_times_, theirs.unique_times_)
    assert ours.training_ == theirs.training_


def test_a_streamed_model_predicts_is_saved_and_tells_what_it_is(cohort, streamed, tmp_path):
    assert streamed.columns_ == NAMES
    assert streamed.feature_names_in_.tolist() == ["age", "dose"]
    assert streamed.score(cohort.x, cohort.y) > 0.6
    streamed.save(tmp_path / "m")
    again = neuralsurv.load(tmp_path / "m")
    assert np.array_equal(again.predict(cohort.x), streamed.predict(cohort.x))
    assert "streamed" in streamed.diagnostics_.solver
    assert "converged" in str(streamed.summary())


def test_results_do_not_depend_on_how_the_rows_are_cut_into_batches_up_to_the_shuffling(cohort, tmp_path):
    # The same chunks from a file, a folder and one batch: the same bits.
    table = cohort.frame()
    table.to_parquet(tmp_path / "rows.parquet")
    models = [quick_default().fit_stream(data, **NAMES, training_passes=2) for data in (tmp_path, [table])]
    assert torch.equal(*(model.posterior_.theta.mean for model in models))


def test_features_that_are_learned_raise_the_evidence_where_effects_interact():
    random = np.random.default_rng(0)
    x = random.normal(size=(3000, 2))
    time = random.exponential(np.exp(-2 * np.sign(x[:, 0]) * np.sign(x[:, 1])))
    table = [{"a": x[:, 0], "b": x[:, 1], "years": np.minimum(time, 5), "died": time <= 5}]
    models = [
        quick_default(hidden=(12,), headroom=200.0).fit_stream(table, **NAMES, training_passes=passes, method="exact")
        for passes in (0, 40)
    ]
    assert models[1].elbo_[-1] > models[0].elbo_[-1] + 50


def test_mini_batches_end_close_to_the_sweeps(cohort):
    # Tolerance: a tenth of the width of the 90 % band, on average over people and times.
    table = small_cohort(3000).frame()
    exact, steps = (
        quick_default(draws=300).fit_stream([table], **NAMES, training_passes=5, method=method, **given)
        for method, given in {"exact": {}, "mini-batch": {"batch_size": 512, "passes": 8}}.items()
    )
    one, other = (model.predict_survival(cohort.x, [0.2, 0.5, 1.0]) for model in (exact, steps))
    width = (one.interval(0.9)[1] - one.interval(0.9)[0]).to_numpy()
    assert (np.abs(one.mean - other.mean).to_numpy() / width).mean() < 0.1


def test_a_fit_that_stops_early_warns(cohort):
    with pytest.warns(NeuralSurvWarning) as caught:
        quick_default(max_sweeps=1).fit_stream([cohort.frame()], **NAMES, training_passes=0, method="exact")
    said = {item.category: str(item.message) for item in caught}
    assert "the sweeps stopped after 1 before reaching their tolerance" in said[ConvergenceWarning]
    assert "the hazard comes close to its ceiling in" in said[CeilingWarning]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "both"}, "method='both' is not known; use one of auto, exact, mini-batch"),
        ({"shards": "mine"}, "shards='mine' is not known"),
        ({"passes": 0}, "passes=0 must be a whole number of at least 1"),
        ({"training_passes": -1}, "training_passes=-1 must be a whole number of at least 0"),
        ({"batch_size": 1.5}, "batch_size=1.5 must be a whole number"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds=-1 must be 0 or more"),
        ({"event": "dose"}, r"batch 0, chunk 0: column 'dose' must be 0/1"),
        ({"entry": "dat"}, "there is no column 'dat'"),
        ({"features": ["weight"]}, "there is no column 'weight'"),
    ],
)
def test_what_cannot_be_used_is_refused(cohort, given, message):
    with pytest.raises(InputError, match=message):
        quick_default().fit_stream([cohort.frame()], **{**NAMES, **given})


@pytest.mark.parametrize(
    ("parameter", "value"), [("average", False), ("neighbourhoods", 10), ("network", torch.nn.Linear(2, 1))]
)
def test_parameters_of_a_fit_in_memory_are_refused(cohort, parameter, value):
    message = f"{parameter}=.* is for fit, which holds all rows in memory, and does nothing in fit_stream"
    with pytest.raises(InputError, match=message):
        quick_default(**{parameter: value}).fit_stream([cohort.frame()], **NAMES)


@pytest.mark.parametrize(
    ("parameters", "given", "message"),
    [
        ({"max_sweeps": 7}, {"method": "mini-batch"}, "max_sweeps=7 is for sweeps over all rows"),
        ({}, {"method": "exact", "passes": 2}, "passes=2 is for steps on samples of the rows"),
        ({}, {"batch_size": 512}, "batch_size=512 is for steps on samples of the rows"),
        ({}, {"batch_size": 100}, "batch_size=100 must be a multiple of 256"),
        ({}, {"training_passes": 0, "training_batch_size": 256}, "training_batch_size=256 does nothing with"),
        ({}, {"checkpoint_seconds": 5}, "checkpoint_seconds=5 does nothing without checkpoint"),
    ],
)
def test_what_another_method_uses_is_refused(cohort, parameters, given, message):
    with pytest.raises(InputError, match=message):
        quick_default(**parameters).fit_stream([cohort.frame()], **NAMES, **given)


def test_wrong_draws_are_refused_before_a_row_is_read():
    def read():
        raise AssertionError

    with pytest.raises(InputError, match="draws=0"):
        quick_default(draws=0).fit_stream(read, **NAMES)


def test_entry_weight_and_chosen_features(cohort):
    table = cohort.frame().assign(late=0.5 * cohort.time, w=2.0)
    model = quick_default().fit_stream(
        [table],
        **NAMES,
        entry="late",
        sample_weight="w",
        features=["age"],
        training_passes=1,
        passes=40,
        method="mini-batch",
    )
    assert model.n_features_in_ == 1
    assert model.training_["truncated"] == len(table)
    assert model.training_["weighted_events"] == 2 * cohort.event.sum()


def test_a_process_that_is_killed_and_started_again_ends_with_the_same_bits(tmp_path, monkeypatch):
    cohort = lognormal_cohort(1500, noise=1, seed=2)
    cohort.x.assign(time=cohort.time, event=cohort.event).to_parquet(tmp_path / "rows.parquet")
    state = tmp_path / "state"
    command = [sys.executable, str(WORKER), str(tmp_path), "mini-batch", str(state), str(tmp_path / "never.npz")]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 300
    while not state.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    # Nothing is left of it but the checkpoint, and a part of the next if it was being written.
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".part"} == {"rows.parquet", "state"}
    monkeypatch.setattr(stream, "CHUNK_ROWS", streamed_worker.CHUNK_ROWS)
    again, whole = (
        streamed_worker.result(streamed_worker.fit(str(tmp_path), "mini-batch", where)) for where in (str(state), None)
    )
    assert all(np.array_equal(again[name], whole[name]) for name in whole)


def test_a_checkpoint_needs_a_seed(cohort, tmp_path):
    with pytest.raises(InputError, match=r"resumed from its checkpoint with the same seed: set random_state=0\."):
        quick_default(random_state=None).fit_stream([cohort.frame()], **NAMES, checkpoint=tmp_path / "state")


def test_a_checkpoint_of_other_rows_is_refused(cohort, tmp_path):
    file = tmp_path / "state"
    quick_default().fit_stream([cohort.frame()], **NAMES, training_passes=1, checkpoint=file)
    with pytest.raises(InputError, match=r"belongs to another fit: the number of rows is 400 there and 40 here"):
        quick_default().fit_stream([small_cohort().frame()], **NAMES, training_passes=1, checkpoint=file)
    finished = quick_default().fit_stream([cohort.frame()], **NAMES, training_passes=1, checkpoint=file)
    assert isinstance(finished, NeuralSurv)


def test_a_checkpoint_of_rows_that_are_scaled_otherwise_is_refused(cohort, tmp_path):
    file = tmp_path / "state"
    quick_default().fit_stream([cohort.frame()], **NAMES, training_passes=1, checkpoint=file)
    with pytest.raises(InputError, match=r"another fit: standardise is True there and False here"):
        quick_default(standardise=False).fit_stream([cohort.frame()], **NAMES, training_passes=1, checkpoint=file)


def test_a_checkpoint_of_the_same_rows_in_another_order_is_refused(cohort, tmp_path):
    # Half of a sweep may be in it already, and the other half would hold some of the same rows.
    file = tmp_path / "state"
    quick_default().fit_stream([cohort.frame()], **NAMES, training_passes=1, checkpoint=file)
    with pytest.raises(InputError, match=r"another fit: its rows come in another order\."):
        quick_default().fit_stream([cohort.frame()[::-1]], **NAMES, training_passes=1, checkpoint=file)


# ---------------------------------------------------------------------------------------- rows that do not stay


def once_and_then(*passes):
    """Return a function whose calls give the batches of one pass after another; the last stays."""
    left = list(passes)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (lambda table: [table[:-1]], "400 in the first pass, 399 in the {}"),
        (lambda table: [table, table[:1]], "400 in the first pass, 401 in the {}"),
        (lambda table: [], "400 in the first pass, 0 in the {}"),
        (lambda table: [table.assign(dose=table.dose + 1e-9)], "400 in the first pass, other values in the {}"),
        (lambda table: [table.assign(years=2 * table.years)], "400 in the first pass, other values in the {}"),
        (lambda table: [table.assign(dose="much")], "400 in the first pass, other values in the {}"),
        (lambda table: [table.assign(dose=np.nan)], "400 in the first pass, other values in the {}"),
        (lambda table: [table.drop(columns="dose")], "400 in the first pass, other values in the {}"),
        (lambda table: [table.assign(died=7)], "400 in the first pass, other values in the {}"),
    ],
)
@pytest.mark.parametrize("number", ["second", "third"])
def test_rows_that_change_between_two_passes_are_refused(cohort, later, message, number):
    table = cohort.frame()
    before = [[table]] * (1 if number == "second" else 2)
    with pytest.raises(InputError, match=message.format(number)):
        quick_default().fit_stream(once_and_then(*before, later(table)), **NAMES, training_passes=0)


def test_rows_that_come_in_another_order_each_time_are_no_others(cohort):
    table = cohort.frame()
    shuffled = once_and_then(*([table.sample(frac=1, random_state=k)] for k in range(3)))
    model = quick_default().fit_stream(shuffled, **NAMES, training_passes=0)
    assert model.training_["rows"] == 400


def test_a_file_that_is_replaced_between_two_passes_is_refused(cohort, tmp_path, monkeypatch):
    table, file = cohort.frame(), tmp_path / "rows.parquet"
    table.to_parquet(file)
    survey = passes.RowStream.survey

    def replaced(self):
        found = survey(self)
        table.assign(dose=table.dose[::-1].to_numpy()).to_parquet(file)
        return found

    monkeypatch.setattr(passes.RowStream, "survey", replaced)
    with pytest.raises(InputError, match="400 in the first pass, other values in the second"):
        quick_default().fit_stream(file, **NAMES, training_passes=0)


def test_a_function_that_returns_the_same_generator_is_told_to_return_a_fresh_one(cohort):
    generator = (part for part in batches(cohort.frame()))
    with pytest.raises(InputError, match=r"400 in the first pass, 0 in the second.*a list of batches, or a function"):
        quick_default().fit_stream(lambda: generator, **NAMES)


def test_what_is_wrong_with_the_rows_themselves_is_still_said(cohort, monkeypatch):
    # The rows are the same, so the trouble is what it says it is.
    monkeypatch.setattr(
        passes.MomentAccumulator, "add", lambda *_: (_ for _ in ()).throw(KeyError("a mistake of ours"))
    )
    with pytest.raises(KeyError, match="a mistake of ours"):
        quick_default().fit_stream([cohort.frame()], **NAMES)


@pytest.mark.parametrize("through", ["batches", "file"])
def test_a_column_of_lists_is_refused_by_name(cohort, tmp_path, through):
    table = cohort.frame()
    table["scan"] = [np.array([1.0, k]) for k in range(len(table))]
    table.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(
        InputError, match=r"column 'scan' holds a list or an array in each of its cells, of shape \(2,\)"
    ):
        quick_default().fit_stream([table] if through == "batches" else tmp_path, **NAMES)


# ----------------------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize(("worth", "threads"), [(2_000_000, {1}), (1, {2})])
@pytest.mark.parametrize("method", ["exact", "mini-batch"])
def test_small_streams_use_one_thread_in_every_stage(cohort, monkeypatch, method, worth, threads):
    seen = {}

    def watch(owner, name):
        work = getattr(owner, name)

        def watched(*args, **given):
            seen.setdefault(name, set()).add(torch.get_num_threads())
            return work(*args, **given)

        monkeypatch.setattr(owner, name, watched)

    monkeypatch.setattr("neuralsurv.inference.threads._WORTH_SEVERAL_THREADS", worth)
    watch(learning.Objective, "batch")
    watch(stream_fit, "choose_directions")
    watch(streamed_problem.StreamedProblem, "sums")
    watch(streamed_problem.StreamedProblem, "learned_posterior")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NeuralSurvWarning)
            quick_default().fit_stream([cohort.frame()], **NAMES, training_passes=1, method=method)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set.union(*seen.values()) == threads
    assert set(seen) == {"batch", "choose_directions", "sums", "learned_posterior"}


def test_the_directions_of_the_usual_network_are_chosen_with_one_thread(cohort, monkeypatch):
    seen = set()
    choose = stream_fit.choose_directions

    def watched(prior, *args, **given):
        seen.add((len(prior.unit) > KEEP_ALL, torch.get_num_threads()))
        return choose(prior, *args, **given)

    monkeypatch.setattr(stream_fit, "choose_directions", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        NeuralSurv(hidden=(64,), random_state=0).fit_stream([cohort.frame()], **NAMES, training_passes=0)
    finally:
        torch.set_num_threads(before)
    # With so many weights they are not all kept, so that directions are really chosen.
    assert seen == {(True, 1)}


def with_codes(cohort):
    """A table in which no single batch of three shows that 999 is a code, and a row without weight holds another."""
    place = np.arange(len(cohort.x))
    dose = np.where(place == 7, -9.0, np.where(np.isin(place, [3, 399]), 999.0, np.abs(cohort.x["dose"])))
    return cohort.frame().assign(dose=dose, weight=np.where(place == 7, 0.0, 1.0))


def test_codes_for_missing_values_are_warned_of_in_the_words_of_fit(cohort):
    table, roles = with_codes(cohort), {**NAMES, "sample_weight": "weight"}
    with pytest.warns(MissingCodeWarning) as of_stream:
        quick_default().fit_stream(batches(table), **roles, training_passes=0)
    with pytest.warns(MissingCodeWarning) as of_fit:
        quick_default().fit(table, **roles)
    told = [str(item.message) for item in of_stream if item.category is MissingCodeWarning]
    assert told == [str(item.message) for item in of_fit if item.category is MissingCodeWarning]
    assert len(told) == 1
    assert told[0].startswith("column 'dose' holds 999 in 2 rows, and ")
    assert of_stream[0].filename == __file__


@pytest.mark.parametrize(("rank", "told"), [(0, 1), (1, 0)])
def test_only_the_first_of_several_processes_warns_of_codes(cohort, monkeypatch, rank, told):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(streaming, "join_processes", lambda: nullcontext(ProcessGroup(rank)))
    monkeypatch.setattr(passes.RowStream, "pack", stop)
    roles = {**NAMES, "sample_weight": "weight", "shards": "own"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MissingCodeWarning)
        with pytest.raises(KeyboardInterrupt):
            quick_default().fit_stream([with_codes(cohort)], **roles)
    assert len(caught) == told
