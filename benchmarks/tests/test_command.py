import re
import sys
from concurrent.futures.process import BrokenProcessPool
from types import SimpleNamespace

import numpy as np
import pytest

from neuralsurv_bench import runner
from neuralsurv_bench.command import main
from neuralsurv_bench.experiments import EXPERIMENTS
from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.store import Store


class Exponential:
    def __init__(self, scale):
        self.scale = scale

    def survival(self, x, times):
        return np.tile(np.exp(-times / self.scale), (len(x), 1))

    def risk(self, x):
        return None


def fit_mean(split, settings):
    return Exponential(split.train.time.mean())


def fit_double(split, settings):
    return Exponential(2 * split.train.time.mean())


def fit_broken(split, settings):
    raise RuntimeError("broken on purpose")


def fit_interrupted(split, settings):
    raise KeyboardInterrupt


FAKES = {
    "mean": Method("mean", "classical", fit_mean),
    "double": Method("double", "classical", fit_double),
    "triple": Method("triple", "ours", fit_double, slow=True),
    "broken": Method("broken", "deep", fit_broken),
    "interrupted": Method("interrupted", "deep", fit_interrupted),
}


@pytest.fixture(autouse=True)
def fake_registry(monkeypatch):
    monkeypatch.setitem(sys.modules, "neuralsurv_bench.methods.registry", SimpleNamespace(METHODS=FAKES))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


def run(path, *words):
    return main(["run", *words, "--store", str(path)])


def test_run_stores_and_a_second_run_goes_on(path, capsys):
    assert run(path, "classical", "--cohort", "GBSG", "--method", "mean") == 0
    assert "classical: 5 finished, 0 failed, 0 were there before, 0 left" in capsys.readouterr().out
    assert run(path, "classical", "--cohort", "GBSG", "--jobs", "1") == 0
    assert "classical: 5 finished, 0 failed, 5 were there before, 0 left" in capsys.readouterr().out
    with Store(path) as store:
        assert {(record.key.method, record.status) for record in store.records()} == {
            ("mean", "finished"),
            ("double", "finished"),
        }


def test_failed_jobs_are_counted_and_retried_when_asked_for(path, capsys):
    words = ("central", "--cohort", "VLC", "--method", "broken")
    assert run(path, *words) == 0
    assert "central: 0 finished, 5 failed" in capsys.readouterr().out
    run(path, *words)
    assert "central: 0 finished, 0 failed, 5 were there before" in capsys.readouterr().out
    run(path, *words, "--retry-failed")
    assert "central: 0 finished, 5 failed, 0 were there before" in capsys.readouterr().out


def test_no_time_no_jobs(path, capsys):
    run(path, "classical", "--cohort", "GBSG", "--limit-minutes", "0")
    assert "classical: 0 finished, 0 failed, 0 were there before, 10 left" in capsys.readouterr().out


def test_all_runs_every_experiment(path, capsys):
    run(path, "all", "--limit-minutes", "0")
    said = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert sorted(said) == sorted(EXPERIMENTS)


def test_an_unknown_name_is_said_in_a_sentence(path, capsys):
    assert run(path, "central", "--method", "nobody") == 2
    assert capsys.readouterr().err.startswith("neuralsurv-bench: there is no method 'nobody'; the 5 there are: ")


def test_an_unknown_experiment_is_refused_by_the_parser(path, capsys):
    with pytest.raises(SystemExit):
        run(path, "peripheral")
    assert "invalid choice: 'peripheral'" in capsys.readouterr().err


def test_an_interruption_keeps_what_is_done(path, capsys):
    run(path, "classical", "--cohort", "GBSG", "--method", "mean")
    assert run(path, "central", "--method", "interrupted") == 130
    assert "stopped; start again to go on where it was" in capsys.readouterr().err
    with Store(path) as store:
        assert len(store.stored()) == 5


def test_a_killed_worker_is_explained(path, capsys, monkeypatch):
    def broken(*arguments, **options):
        raise BrokenProcessPool("a process was terminated abruptly")

    monkeypatch.setattr(runner, "run", broken)
    assert run(path, "classical") == 1
    assert "a worker was killed, perhaps for want of memory" in capsys.readouterr().err


def test_status_counts_what_is_done_and_left(path, capsys):
    run(path, "classical", "--cohort", "GBSG", "--method", "mean")
    run(path, "central", "--cohort", "GBSG", "--method", "broken")
    capsys.readouterr()
    assert main(["status", "--store", str(path)]) == 0
    cells = [re.findall(r"\w+", line) for line in capsys.readouterr().out.splitlines()]
    rows = {line[0]: list(map(int, line[1:])) for line in cells if len(line) == 4 and line[1].isdigit()}
    # Two classical methods and two deep ones with one of ours, on 8 cohorts and 5 folds.
    assert rows["classical"] == [5, 0, 75]
    assert rows["central"] == [0, 5, 115]
    assert set(rows) == set(EXPERIMENTS)


def test_tables_and_figures_are_written_and_named(path, tmp_path, capsys):
    for words in (("classical", "--cohort", "GBSG"), ("synthetic", "--method", "mean", "--method", "triple")):
        run(path, *words)
    capsys.readouterr()
    assert main(["tables", "--store", str(path), "--out", str(tmp_path / "tables")]) == 0
    assert {line.rsplit("/", 1)[-1] for line in capsys.readouterr().out.splitlines()} == {
        "classical.md",
        "classical.tex",
        "synthetic.md",
        "synthetic.tex",
    }
    assert "| mean |" in (tmp_path / "tables" / "classical.md").read_text(encoding="utf-8")
    assert main(["figures", "--store", str(path), "--out", str(tmp_path / "figures")]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "figures" / "synthetic.png")]
