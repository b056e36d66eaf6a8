"""What is measured: fits, rivals, a prediction, imports. Each returns its seconds and its peak memory."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

# (16, 16) units on this many covariates are 529 weights.
COVARIATES = 13
ROWS = (100, 1_000, 10_000, 100_000)
# Where curves of a fit to 100 rows are asked for.
SMALL_TIMES = [0.05 * k for k in range(1, 21)]
WIDTHS = {1_000: (22, 22), 10_000: (90, 90), 100_000: (307, 307), 1_000_000: (990, 990)}


def simulated(rows: int, seed: int = 0, columns: int = COVARIATES) -> tuple[Any, Any, Any]:
    """Return covariates, times and events of a cohort with an interaction and about a third of the rows censored."""
    import numpy as np

    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, columns))
    score = 0.8 * x[:, 0] - 0.5 * x[:, 1] * x[:, 2] + 0.3 * np.abs(x[:, 3])
    event_time = generator.weibull(1.3, rows) * np.exp(-score / 1.3)
    censoring = generator.exponential(2.0, rows)
    return x, np.minimum(event_time, censoring), event_time <= censoring


def estimator(preset: str) -> Any:
    """Return the class of a model by its name; it is imported in the process that is measured."""
    from neuralsurv import NeuralSurv, PaperNeuralSurv

    return {"default": NeuralSurv, "paper": PaperNeuralSurv}[preset]


def fit_colon(preset: str, **options: Any) -> dict[str, Any]:
    """Fit a model on the 80 training rows of COLON's first fold; median curves of the 25 test rows."""
    import numpy as np

    from neuralsurv_bench.cohorts import load
    from neuralsurv_bench.protocol import paper_splits

    split = paper_splits(load("COLON"))[0]
    times = np.sort(split.test.time)

    def work() -> dict[str, Any]:
        model = estimator(preset)(**options, standardise=False, random_state=0)
        model.fit(split.train.x, (split.train.time, split.train.event))
        model.predict_survival(split.test.x, times).median  # noqa: B018 - it is computed when asked for
        return described(model)

    return timed(work)


def fit_colon_deepsurv() -> dict[str, Any]:
    """Train DeepSurv on the same rows for the paper's 1,000 epochs; curves of the same test rows."""
    return rival("DeepSurv", "as-published", "COLON")


def fit_support(preset: str, **options: Any) -> dict[str, Any]:
    """Fit a model on all 8,873 rows of SUPPORT."""
    from neuralsurv_bench.cohorts import load

    cohort = load("SUPPORT")

    def work() -> dict[str, Any]:
        model = estimator(preset)(**options, random_state=0)
        model.fit(cohort.frame, (cohort.time, cohort.event))
        return described(model)

    return timed(work)


def fit_support_coxtime() -> dict[str, Any]:
    """Train CoxTime on all rows of SUPPORT with early stopping on a fifth of them."""
    return rival("CoxTime", "fair", "SUPPORT")


def rival(name: str, variant: Any, cohort_name: str) -> dict[str, Any]:
    """Fit a method of the benchmark: on the first paper fold of COLON, or on all rows of SUPPORT."""
    import numpy as np

    from neuralsurv_bench.cohorts import load
    from neuralsurv_bench.methods.interface import Rows, Settings, Split
    from neuralsurv_bench.methods.registry import METHODS
    from neuralsurv_bench.protocol import paper_splits

    cohort = load(cohort_name)
    if cohort_name == "COLON":
        split = paper_splits(cohort)[0]
    else:
        x = cohort.frame.to_numpy(dtype=np.float64)
        everybody = Rows((x - x.mean(0)) / x.std(0), cohort.time, cohort.event)
        nobody = Rows(x[:0], cohort.time[:0], cohort.event[:0])
        split = Split(everybody, nobody, nobody, tuple(cohort.frame.columns))

    def work() -> dict[str, Any]:
        fitted = METHODS[name].fit(split, Settings(variant=variant))
        if len(split.test):
            fitted.survival(split.test.x, np.sort(split.test.time))
        return {}

    return timed(work)


def fit_simulated(rows: int) -> dict[str, Any]:
    """Fit the default model on a simulated cohort."""
    x, duration, event = simulated(rows)
    model = estimator("default")(random_state=0)
    return timed(lambda: described(model.fit(x, (duration, event))))


def fit_simulated_forest(rows: int) -> dict[str, Any]:
    """Fit scikit-survival's forest of 500 trees on the same rows, on all cores."""
    from sksurv.ensemble import RandomSurvivalForest
    from sksurv.util import Surv

    x, duration, event = simulated(rows)
    forest = RandomSurvivalForest(500, n_jobs=-1, random_state=0)
    return timed(lambda: {"trees": len(forest.fit(x, Surv.from_arrays(event, duration)).estimators_)})


def fit_simulated_coxtime(rows: int) -> dict[str, Any]:
    """Train CoxTime on the same rows with early stopping on a fifth of them."""
    from neuralsurv_bench.methods.interface import Rows, Settings, Split
    from neuralsurv_bench.methods.registry import METHODS

    everybody = Rows(*simulated(rows))
    nobody = Rows(everybody.x[:0], everybody.time[:0], everybody.event[:0])
    split = Split(everybody, nobody, nobody, tuple(f"x{k}" for k in range(COVARIATES)))

    def work() -> dict[str, Any]:
        METHODS["CoxTime"].fit(split, Settings(variant="fair"))
        return {}

    return timed(work)


def fit_and_predict_small() -> dict[str, Any]:
    """Fit the default model on 100 rows and predict curves of 100 others, with bands."""
    x, duration, event = simulated(200)
    model_class = estimator("default")

    def work() -> dict[str, Any]:
        model = model_class(random_state=0).fit(x[:100], (duration[:100], event[:100]))
        return {"numbers": model.predict_survival(x[100:], SMALL_TIMES).to_frame().size}

    return timed(work)


def fit_and_predict_small_cox() -> dict[str, Any]:
    """Tune the penalty of lifelines' ridge Cox model by five inner folds on the same rows, fit it and predict."""
    import numpy as np
    import pandas as pd
    from lifelines import CoxPHFitter
    from lifelines.utils import k_fold_cross_validation

    x, duration, event = simulated(200)
    frame = pd.DataFrame(x).add_prefix("x").assign(time=duration, event=event.astype(int))

    def work() -> dict[str, Any]:
        models = [CoxPHFitter(penalizer=float(penalty)) for penalty in np.geomspace(0.003, 3, 7)]
        roles = {"duration_col": "time", "event_col": "event"}
        scores = k_fold_cross_validation(models, frame[:100], k=5, seed=0, scoring_method="log_likelihood", **roles)
        best = models[int(np.argmax([np.mean(score) for score in scores]))].fit(frame[:100], **roles)
        return {"numbers": best.predict_survival_function(frame[100:], times=SMALL_TIMES).size}

    return timed(work)


def fit_rows(rows: int) -> dict[str, Any]:
    """Fit 529 weights on a simulated cohort."""
    from neuralsurv import PaperNeuralSurv

    x, duration, event = simulated(rows)

    def work() -> dict[str, Any]:
        model = PaperNeuralSurv(hidden=(16, 16), quadrature="gauss-legendre", quadrature_points=8, random_state=0)
        return described(model.fit(x, (duration, event)))

    return timed(work)


def fit_weights(weights: int) -> dict[str, Any]:
    """Fit a network of about `weights` weights on 500 simulated rows."""
    from neuralsurv import PaperNeuralSurv

    x, duration, event = simulated(500)

    def work() -> dict[str, Any]:
        model = PaperNeuralSurv(
            hidden=WIDTHS[weights],
            quadrature="gauss-legendre",
            quadrature_points=8,
            starts=1,
            random_state=0,
        )
        return described(model.fit(x, (duration, event)))

    return timed(work)


def predict() -> dict[str, Any]:
    """Predict survival of 10,000 people at 100 times from 500 draws, and time the matrix product it contains."""
    import numpy as np
    import torch

    from neuralsurv import PaperNeuralSurv

    x, duration, event = simulated(300)
    model = PaperNeuralSurv(hidden=(16, 16), draws=500, max_sweeps=5, starts=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, (duration, event))
    people, _, _ = simulated(10_000, seed=1)
    times = np.linspace(0, duration.max(), 100)
    points = model.posterior_.points_per_person(torch.from_numpy(times / duration.max()))
    size = model.posterior_.network.size

    def work() -> dict[str, Any]:
        model.predict_survival(people, times).mean  # noqa: B018 - it is computed when asked for
        return {"points_per_person": points, "weights": size}

    found = timed(work)
    draws = torch.randn(500, size, dtype=torch.float64)
    block = max(1, 2**23 // (points * (size + 1500)))
    rows = torch.randn(block * points, size, dtype=torch.float64)
    draws @ rows.T
    start, processor = time.perf_counter(), time.process_time()
    for _ in range(20):
        draws @ rows.T
    found["product_seconds"] = (time.perf_counter() - start) / 20 * 10_000 / block
    found["product_processor_seconds"] = (time.process_time() - processor) / 20 * 10_000 / block
    return found


def metabric() -> tuple[Any, Any, Any]:
    """Return 1,268 training rows of METABRIC, their outcomes and the covariates of 635 others."""
    import numpy as np

    from neuralsurv_bench.cohorts import load

    cohort = load("METABRIC")
    order = np.random.default_rng(0).permutation(np.flatnonzero(cohort.time > 0))
    train, test = order[:1268], order[1268:1903]
    return cohort.frame.iloc[train], (cohort.time[train], cohort.event[train]), cohort.frame.iloc[test]


def predict_bands() -> dict[str, Any]:
    """Predict survival of 635 people at 120 times from 1,000 draws, with medians and intervals, after a fit."""
    import numpy as np

    from neuralsurv import NeuralSurv

    x, outcome, people = metabric()
    model = NeuralSurv(draws=1000, random_state=0).fit(x, outcome)
    times = np.linspace(0, outcome[0].max(), 120)
    start = time.process_time()
    model.predict_survival(people, times).mean  # noqa: B018 - it is computed when asked for
    mean = time.process_time() - start

    def work() -> dict[str, Any]:
        model.predict_survival(people, times).arrays()
        return {"mean_of_draws_processor_seconds": mean}

    return timed(work)


def predict_risk() -> dict[str, Any]:
    """Predict the risk of 10,000 people, after a fit to METABRIC."""
    from neuralsurv import NeuralSurv

    x, outcome, people = metabric()
    model = NeuralSurv(random_state=0).fit(x, outcome)
    many = people.sample(10_000, replace=True, random_state=0)
    return timed(lambda: {"people": len(model.predict(many))})


def predict_risk_forest(low_memory: bool) -> dict[str, Any]:
    """Predict the same with scikit-survival's forest of 500 trees."""
    from sksurv.ensemble import RandomSurvivalForest
    from sksurv.util import Surv

    x, (duration, event), people = metabric()
    forest = RandomSurvivalForest(500, low_memory=low_memory, n_jobs=-1, random_state=0)
    forest.fit(x.to_numpy(), Surv.from_arrays(event.astype(bool), duration))
    many = people.sample(10_000, replace=True, random_state=0).to_numpy()
    return timed(lambda: {"people": len(forest.predict(many))})


def command(name: str, rows: int, columns: int) -> dict[str, Any]:
    """Run ``neuralsurv evaluate`` or ``neuralsurv report`` on a table; imports count, the fit before a report not."""
    import tempfile
    from pathlib import Path

    import pandas as pd

    x, duration, event = simulated(rows, columns=columns)
    frame = pd.DataFrame(x.round(4), columns=[f"x{k}" for k in range(columns)])
    # Every third column is a category, and every sixth has gaps, as in tables from hospitals.
    for place in range(2, columns, 3):
        frame[f"x{place}"] = pd.cut(frame[f"x{place}"], [-9, -0.5, 0.5, 9], labels=["low", "middle", "high"])
    for place in range(0, columns, 6):
        frame[f"x{place}"] = frame[f"x{place}"].mask(frame.index % 10 == place % 10)
    frame = frame.assign(time=duration.round(5) + 1e-5, event=event.astype(int))
    outcome = ("--time", "time", "--event", "event")
    with tempfile.TemporaryDirectory() as folder:
        table, model, page = (str(Path(folder) / file) for file in ("rows.csv", "model.neuralsurv", "report.html"))
        frame.to_csv(table, index=False)
        program = (sys.executable, "-m", "neuralsurv")
        arguments = {"evaluate": ("evaluate", table, *outcome), "report": ("report", model, table, "--out", page)}
        if name == "report":
            subprocess.run([*program, "fit", table, *outcome, "--out", model], check=True, capture_output=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = timed(lambda: {"code": subprocess.run([*program, *arguments[name]], capture_output=True).returncode})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if found["code"]:
        raise RuntimeError(f"neuralsurv {name} failed with code {found['code']}")
    spent = sum(getattr(after, field) - getattr(before, field) for field in ("ru_utime", "ru_stime"))
    return {**found, "processor_seconds": spent, "peak_mib": after.ru_maxrss / 1024}


def import_seconds(what: str) -> float:
    """Return the median time of a fresh interpreter that imports something, less that of one that does nothing."""

    def once(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return median(once(what) for _ in range(7)) - median(once("pass") for _ in range(7))


def imports() -> dict[str, Any]:
    """Time the imports."""
    codes = {
        "torch": "import torch",
        "neuralsurv": "import neuralsurv",
        "NeuralSurv": "from neuralsurv import NeuralSurv",
        "torch, pandas and scikit-learn": "import torch, pandas, sklearn.base",
    }
    return {"seconds": {name: import_seconds(code) for name, code in codes.items()}}


def described(model: Any) -> dict[str, Any]:
    """Return what a reader wants to know of a fit."""
    found = model.diagnostics_
    return {
        "solver": found.solver,
        "rank": found.rank,
        "lost_information": found.lost_information,
        "sweeps": getattr(found, "sweeps", None),
        "coarse_sweeps": getattr(found, "coarse_sweeps", None),
        "converged": found.converged,
        "mode_converged": getattr(found, "mode_converged", None),
        "weights": model.posterior_.network.size,
    }


def timed(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the seconds and the peak memory of some work."""
    start, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        details = work()
    return {
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - processor,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **details,
    }


# The paper's model; with many rows, Gauss-Legendre nodes take the place of the trapezoid.
_PAPER: dict[str, Any] = {"hidden": (16, 16)}
_PAPER_LARGE = {**_PAPER, "quadrature": "gauss-legendre", "quadrature_points": 8}

CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "colon paper": lambda: fit_colon("paper", **_PAPER),
    "colon default": lambda: fit_colon("default"),
    "colon DeepSurv": fit_colon_deepsurv,
    "support paper": lambda: fit_support("paper", **_PAPER_LARGE),
    "support default": lambda: fit_support("default"),
    "support CoxTime": fit_support_coxtime,
    **{f"rows {n}": (lambda n=n: fit_rows(n)) for n in ROWS},
    **{f"weights {m}": (lambda m=m: fit_weights(m)) for m in WIDTHS},
    **{f"fit {n}": (lambda n=n: fit_simulated(n)) for n in (5_000, 50_000)},
    "fit 5000 forest": lambda: fit_simulated_forest(5_000),
    **{f"fit {n} CoxTime": (lambda n=n: fit_simulated_coxtime(n)) for n in (5_000, 50_000)},
    "small default": fit_and_predict_small,
    "small ridge Cox": fit_and_predict_small_cox,
    "predict": predict,
    "imports": imports,
    "bands": predict_bands,
    "risk": predict_risk,
    "risk forest": lambda: predict_risk_forest(low_memory=False),
    "risk forest, low memory": lambda: predict_risk_forest(low_memory=True),
    "report": lambda: command("report", 400, 18),
    "evaluate": lambda: command("evaluate", 400, 18),
    "wide report": lambda: command("report", 60, 80),
}
# Cases that are also run with an earlier source of the package, given by --rival-src.
AGAINST_EARLIER = ("bands", "risk", "report", "evaluate")
