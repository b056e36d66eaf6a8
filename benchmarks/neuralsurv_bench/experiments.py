"""The experiments and the jobs that each of them is made of, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from neuralsurv.errors import InputError
from neuralsurv_bench import cohorts, published
from neuralsurv_bench.methods import neuralsurv_default, neuralsurv_paper
from neuralsurv_bench.methods.interface import Method, Variant
from neuralsurv_bench.protocol import FOLDS
from neuralsurv_bench.store import Key

# Subsamples 0 to 8 were seen with earlier versions of the default preset, 100 to 102 are there for choosing.
SUBSAMPLES = range(20, 40)
# Times are measured this often, the methods taking turns; the tables show the median.
REPETITIONS = 3
# The cohort and the fold whose running time the paper reports.
RUNTIME_COHORT = "COLON"
SYNTHETIC = "synthetic"
# Where the paper preset is furthest from the published figures, and one cohort where it is close.
EXPLAINED_COHORTS = ("SUPPORT", "SAC3", "VLC", "WHAS", "COLON")
# Subsamples for choosing; the repeated experiment has others.
CHOOSING_SUBSAMPLES = (100, 101, 102)
# The cohorts whose every row is used.
FULL_COHORTS = ("METABRIC", "GBSG", "SUPPORT")

_CENTRAL_ROWS = 125
_ABLATION_ROWS = 250
_DEFAULT_HIDDEN = (16, 16)
# From the cheapest to the dearest, so that a run that is cut short has done most of its jobs.
_FAMILIES_BY_COST = ("classical", "ours", "deep")

Methods = Mapping[str, Method]


@dataclass(frozen=True)
class Job:
    """One fit of one method, with all that a worker needs to do it.

    Attributes
    ----------
    key : Key
        The name under which its result is stored.
    rows : int
        Rows of the subsample; in the synthetic experiment, training rows.
    hidden : tuple of int
        Hidden layers of methods that have a network and leave its size to the experiment.
    phi_prior : tuple of float or None
        Shape and rate of the prior of phi, where the experiment varies it.
    change : str
        What the experiment changes of a preset of ours.
    """

    key: Key
    rows: int = _CENTRAL_ROWS
    hidden: tuple[int, ...] = _DEFAULT_HIDDEN
    phi_prior: tuple[float, float] | None = None
    change: str = ""


@dataclass(frozen=True)
class Experiment:
    """An experiment.

    Attributes
    ----------
    name : str
        Its name on the command line and in the store.
    title : str
        What it is, in words.
    jobs : callable
        From the methods to its jobs, in the order in which they are run.
    alone : bool
        Whether its jobs must run one after the other in one process, because their time is the result.
    leaves_out_slow : bool
        Whether methods that are marked as slow are left out unless they are asked for by name.
    """

    name: str
    title: str
    jobs: Callable[[Sequence[Method]], Iterator[Job]]
    alone: bool = False
    leaves_out_slow: bool = False


def layers_text(hidden: Sequence[int]) -> str:
    """Return hidden layers in the words of `published.json`: "16", "6-6"."""
    return "-".join(map(str, hidden))


def size_setting(rows: int | str) -> str:
    """Return the setting of a job that is about the number of rows."""
    return f"N={rows}"


def layers_setting(rows: int | str, layers: str) -> str:
    """Return the setting of a job of the runtime experiment that trains a network."""
    return f"N={rows}, layers {layers}"


def prior_setting(prior: str) -> str:
    """Return the setting of a job with another prior, written shape-rate."""
    return f"prior {prior}"


def distinct_variants(method: Method) -> tuple[Variant, ...]:
    """Return the variants that differ: where both are described by the same sentence, the fair one stands for both."""
    sentences = method.variants
    if "fair" in sentences and "as-published" in sentences and sentences["fair"] == sentences["as-published"]:
        return ("fair",)
    return tuple(sentences)


def _of_families(methods: Sequence[Method], *families: str) -> list[Method]:
    chosen = [method for method in methods if method.family in families]
    return sorted(chosen, key=lambda method: _FAMILIES_BY_COST.index(method.family))


def _round_robin(
    experiment: str,
    methods: Sequence[Method],
    names: Sequence[str],
    rows: int,
    *,
    seeds: Sequence[int] = (0,),
    variants: Sequence[Variant] | None = None,
) -> Iterator[Job]:
    """Go round all methods and cohorts with one fold, then with the next: a run that is cut short is balanced."""
    for slow in (False, True):
        for seed in seeds:
            for fold in range(FOLDS):
                for method in methods:
                    wanted = [v for v in distinct_variants(method) if variants is None or v in variants]
                    for variant in wanted if method.slow is slow else ():
                        for cohort in names:
                            yield Job(Key(experiment, cohort, "", fold, method.name, variant, seed), rows)


def _central(methods: Sequence[Method]) -> Iterator[Job]:
    return _round_robin("central", _of_families(methods, "ours", "deep"), cohorts.NAMES, _CENTRAL_ROWS)


def _classical(methods: Sequence[Method]) -> Iterator[Job]:
    return _round_robin("classical", _of_families(methods, "classical"), cohorts.NAMES, _CENTRAL_ROWS)


def _ablation(methods: Sequence[Method]) -> Iterator[Job]:
    everything = _of_families(methods, *_FAMILIES_BY_COST)
    return _round_robin("ablation", everything, published.columns("ablation"), _ABLATION_ROWS)


def _repeated(methods: Sequence[Method]) -> Iterator[Job]:
    everything = _of_families(methods, *_FAMILIES_BY_COST)
    return _round_robin("repeated", everything, cohorts.NAMES, _CENTRAL_ROWS, seeds=SUBSAMPLES, variants=("fair",))


def _synthetic(methods: Sequence[Method]) -> Iterator[Job]:
    for method in _of_families(methods, *_FAMILIES_BY_COST):
        for variant in distinct_variants(method):
            for size in published.columns("synthetic"):
                yield Job(Key("synthetic", SYNTHETIC, size_setting(size), 0, method.name, variant, 0), int(size))


def _prior(methods: Sequence[Method]) -> Iterator[Job]:
    names = [method.name for method in methods]
    for fold in range(FOLDS):
        for method, hidden in zip(neuralsurv_paper.METHODS, neuralsurv_paper.LAYERS, strict=True):
            for prior in published.rows("prior") if method.name in names else ():
                shape, rate = map(float, prior.split("-"))
                for cohort in published.columns("prior"):
                    key = Key("prior", cohort, prior_setting(prior), fold, method.name, "fair", 0)
                    yield Job(key, _CENTRAL_ROWS, hidden, (shape, rate))


def _explain(methods: Sequence[Method]) -> Iterator[Job]:
    names = [method.name for method in methods]
    for fold in range(FOLDS):
        for method, hidden in zip(neuralsurv_paper.METHODS, neuralsurv_paper.LAYERS, strict=True):
            for change in neuralsurv_paper.changes_for(hidden) if method.name in names else ():
                for cohort in EXPLAINED_COHORTS:
                    yield Job(
                        Key("explain", cohort, change, fold, method.name, "fair", 0),
                        _CENTRAL_ROWS,
                        hidden,
                        change=change,
                    )


def _ingredients(methods: Sequence[Method]) -> Iterator[Job]:
    wanted = any(method.name == neuralsurv_default.NAME for method in methods)
    for subsample in CHOOSING_SUBSAMPLES if wanted else ():
        for change in neuralsurv_default.CHANGES:
            for fold in range(FOLDS):
                for cohort in cohorts.NAMES:
                    key = Key("ingredients", cohort, change, fold, neuralsurv_default.NAME, "fair", subsample)
                    yield Job(key, _CENTRAL_ROWS, change=change)


def _full(methods: Sequence[Method]) -> Iterator[Job]:
    for fold in range(FOLDS):
        for method in _of_families(methods, *_FAMILIES_BY_COST):
            for cohort in FULL_COHORTS:
                yield Job(Key("full", cohort, "", fold, method.name, "fair", 0))


def _runtime(methods: Sequence[Method]) -> Iterator[Job]:
    # The paper preset stands in once, with the layers that the experiment asks for, and not once for each size.
    papers = {method.name for method in neuralsurv_paper.METHODS}
    others = [method for method in methods if method.name not in papers]
    ours = [neuralsurv_paper.paper_method(None)] if len(others) < len(methods) else []
    timed = _of_families([*ours, *others], *_FAMILIES_BY_COST)
    sizes = [(size, layers) for size in published.columns("runtime_minutes") for layers in _published_layers()]
    for repetition in range(REPETITIONS):
        for size, layers in sizes:
            for method in timed:
                if method.family != "classical":
                    setting = layers_setting(size, layers)
                elif layers == _published_layers()[0]:
                    setting = size_setting(size)
                else:
                    continue
                for variant in distinct_variants(method):
                    key = Key("runtime", RUNTIME_COHORT, setting, 0, method.name, variant, repetition)
                    yield Job(key, int(size), tuple(map(int, layers.split("-"))))


def _published_layers() -> tuple[str, ...]:
    return published.metrics("runtime_minutes")


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("classical", "classical methods on the paper's folds", _classical),
        Experiment("synthetic", "two log-normal groups with known truth", _synthetic),
        Experiment("central", "deep methods and ours on the paper's folds", _central),
        Experiment("prior", "the paper preset with three priors of phi", _prior),
        Experiment("explain", "the paper preset with one change at a time", _explain),
        Experiment("ablation", "the paper's folds with 250 rows", _ablation),
        Experiment("runtime", "seconds per fit, with alternating methods", _runtime, alone=True),
        Experiment("ingredients", "the default preset with one change at a time", _ingredients),
        Experiment("full", "all rows of three cohorts", _full, leaves_out_slow=True),
        Experiment("repeated", "many subsamples of every cohort", _repeated, leaves_out_slow=True),
    )
}


def jobs_of(
    experiment: Experiment,
    methods: Methods,
    *,
    only_cohorts: Sequence[str] = (),
    only_methods: Sequence[str] = (),
) -> list[Job]:
    """Return the jobs of an experiment, in the order in which they are run.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    methods : mapping of str to Method
        The methods there are.
    only_cohorts, only_methods : sequence of str
        Leave out all but these; empty for all. A slow method that is named here is never left out.
    """
    for name in only_methods:
        if name not in methods:
            raise InputError(f"there is no method {name!r}; the {len(methods)} there are: {', '.join(methods)}.")
    known = (*cohorts.NAMES, SYNTHETIC)
    for name in only_cohorts:
        if name not in known:
            raise InputError(f"there is no cohort {name!r}; the {len(known)} there are: {', '.join(known)}.")
    chosen = [
        method
        for method in methods.values()
        if (method.name in only_methods if only_methods else not (method.slow and experiment.leaves_out_slow))
    ]
    return [job for job in experiment.jobs(chosen) if not only_cohorts or job.key.cohort in only_cohorts]
