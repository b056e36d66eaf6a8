"""SAC3 with 100,000 rows: a streamed fit beside CoxTime and PCHazard, on the same rows and the same test set.

    python benchmarks/large/sac3.py ours --split 2   # or CoxTime, PCHazard, Kaplan-Meier; one line of JSON each
    python benchmarks/large/sac3.py "ours, 3 modes"  # the posterior around three modes
    python benchmarks/large/sac3.py table            # writes docs/benchmarks/sac3.md from the latest line of each

Of the 100,000 rows 5,000 are for testing; each method is given the other 95,000. CoxTime and PCHazard stop by 3,000 of
them (patience 10 epochs, at most 100; the rest as in the benchmark's fair variants); ours needs none. Curves are
predicted at 128 times and carried to the times of the scores with a constant hazard in between.

SAC3 is simulated, so that calibration can be measured without the noise of events: at nine times the test rows are
put into twenty groups by the probability that a method predicts, and the mean prediction of a group is compared with
its mean true probability.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE / "sac3.jsonl"
TABLE = HERE.parents[1] / "docs" / "benchmarks" / "sac3.md"
METHODS = ("ours", "CoxTime", "PCHazard", "Kaplan-Meier")
# Three times the work, on some of the splits: not among the methods that are compared.
SEVERAL = "ours, 3 modes"
TEST_ROWS = 5_000
STOP_ROWS = 3_000
SEED = 20_261_116
SPLITS = tuple(range(1, 15))
CALIBRATION_GROUPS = 20
EPOCHS, PATIENCE = 100, 10
HIDDEN = (64, 64)
DIRECTIONS = 100
TRAINING_PASSES = 60
_SAID = {
    "calibration_error": ".4f",
    "distance_from_truth": ".4f",
    "ibs": ".4f",
    "log_likelihood": ".3f",
    "coverage_90": ".2f",
    "width_90": ".3f",
    "fit_cpu_seconds": ".0f",
}


def split(number: int, rows: int | None) -> tuple[Any, np.ndarray]:
    """Return the rows to learn from (fewer for a trial) and to test on, standardised, and the latter as they are."""
    from neuralsurv_bench.cohorts.sac3 import sac3
    from neuralsurv_bench.methods.interface import Rows, Split

    cohort = sac3()
    order = np.random.default_rng([SEED, number]).permutation(len(cohort))
    test, train = order[:TEST_ROWS], order[TEST_ROWS:][:rows]
    x = cohort.frame.to_numpy(np.float64)
    center, scale = x[train].mean(0), x[train].std(0)

    def taken(which: np.ndarray) -> Rows:
        return Rows((x[which] - center) / scale, cohort.time[which], cohort.event[which])

    return Split(taken(train), taken(order[:0]), taken(test), tuple(cohort.frame.columns)), x[test]


def prediction_times(parts: Any) -> np.ndarray:
    """Return 0 and 128 times: quantiles of the training times, and the last of train and test."""
    last = max(parts.train.time.max(), parts.test.time.max())
    return np.unique([0.0, *np.quantile(parts.train.time, np.linspace(0.004, 1, 127)), last])


def calibration_times(parts: Any) -> np.ndarray:
    """Return the deciles of the training times."""
    return np.quantile(parts.train.time, np.linspace(0.1, 0.9, 9))


def constant_hazard(known: np.ndarray, survival: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Carry curves from the times where they are known to others."""
    with np.errstate(divide="ignore"):
        cumulative = np.minimum(-np.log(survival), 700.0)
    return np.exp(-np.array([np.interp(times, known, row) for row in cumulative]))


def against_truth(predicted: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """Return how far predictions are from the truth, in groups of like predictions and person by person.

    A group's mean truth is that of a sample of people: the variance of that mean is taken off, or else a method that
    tells people apart badly, whose groups are mixed, would look less calibrated than it is.
    """
    squares = []
    for k in range(true.shape[1]):
        for group in np.array_split(np.argsort(predicted[:, k], kind="stable"), CALIBRATION_GROUPS):
            gaps = predicted[group, k] - true[group, k]
            squares.append(gaps.mean() ** 2 - gaps.var(ddof=1) / len(gaps))
    return {
        "calibration_error": float(np.sqrt(max(np.mean(squares), 0.0))),
        "distance_from_truth": float(np.abs(predicted - true).mean()),
    }


def ours(
    parts: Any, times: np.ndarray, true: np.ndarray, given: argparse.Namespace
) -> tuple[np.ndarray, dict[str, Any]]:
    """Fit by streams, predict, and count how often the band holds the truth."""
    import pandas as pd

    from neuralsurv import NeuralSurv

    table = pd.DataFrame(parts.train.x, columns=list(parts.columns))
    table = table.assign(time=parts.train.time, event=parts.train.event)
    began = time.perf_counter(), time.process_time()
    model = NeuralSurv(hidden=HIDDEN, random_state=0, draws=100, verbose=True)
    options = {"training_passes": given.training_passes, "method": given.method, "directions": DIRECTIONS}
    options["modes"] = 3 if given.what == SEVERAL else 1
    model.fit_stream([table], time="time", event="event", **options)
    seconds = {"fit_seconds": time.perf_counter() - began[0], "fit_cpu_seconds": time.process_time() - began[1]}
    people = pd.DataFrame(parts.test.x, columns=list(parts.columns))
    curves = model.predict_survival(people, times).mean.to_numpy()
    band = model.predict_survival(people, calibration_times(parts)).interval(0.9)
    held = (band.lower.to_numpy() <= true) & (true <= band.upper.to_numpy())
    width = (band.upper - band.lower).to_numpy()
    found = model.diagnostics_
    about = {"rank": found.rank, "weights": model.posterior_.network.size, "scales": found.scales}
    about |= {"coverage_90": float(held.mean()), "width_90": float(width.mean())}
    return curves, {**seconds, **about, "warnings": list(found.messages)}


def rival(name: str, parts: Any, times: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Fit a method of the benchmark and predict."""
    from neuralsurv_bench.methods import registry
    from neuralsurv_bench.methods.interface import Rows, Settings

    method = registry.collect(("coxtime", "pchazard", "kaplan_meier"))[name]
    if name != "Kaplan-Meier":
        rows = parts.train
        cut = [
            Rows(rows.x[part], rows.time[part], rows.event[part]) for part in (slice(STOP_ROWS, None), slice(STOP_ROWS))
        ]
        parts = replace(parts, train=cut[0], validation=cut[1])
    options = {} if name == "Kaplan-Meier" else {"epochs": EPOCHS, "patience": PATIENCE}
    began = time.perf_counter(), time.process_time()
    fitted = method.fit(parts, Settings("fair", HIDDEN, 0), **options)
    seconds = {"fit_seconds": time.perf_counter() - began[0], "fit_cpu_seconds": time.process_time() - began[1]}
    return fitted.survival(parts.test.x, times), seconds


def run(given: argparse.Namespace) -> dict[str, Any]:
    """Fit one method and score it."""
    from neuralsurv_bench import scores
    from neuralsurv_bench.cohorts.sac3 import true_survival

    parts, x = split(given.split, given.rows)
    times, middle = prediction_times(parts), calibration_times(parts)
    true = true_survival(x, middle)
    if given.what in ("ours", SEVERAL):
        curves, about = ours(parts, times, true, given)
    else:
        curves, about = rival(given.what, parts, times)
    grid = scores.grid(parts)
    found = scores.our_scores(parts, constant_hazard(times, curves, grid), grid)
    shares = np.array(found["d_calibration_histogram"]) / len(parts.test)
    return {
        "method": given.what,
        "split": given.split,
        "date": datetime.now(UTC).date().isoformat(),
        "train_rows": len(parts.train),
        "test_rows": len(parts.test),
        **about,
        **{name: found[name] for name in ("c_index", "ibs", "d_calibration_p", "d_calibration_histogram")},
        "d_calibration_distance": float(np.abs(shares - 0.1).max()),
        "km_calibration": found["km_calibration"],
        "log_likelihood": found["log_likelihood"],
        **against_truth(constant_hazard(times, curves, middle), true),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
    }


def write_table() -> None:
    """Write the table from the latest full run of each method, of the splits on which all have been run."""
    latest: dict[tuple[str, int], dict[str, Any]] = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["train_rows"] == 95_000:
            latest[record["method"], record["split"]] = record
    splits = [number for number in SPLITS if all((name, number) in latest for name in METHODS)]
    # Seconds of another day may be those of another machine.
    timed = [number for number in splits if len({latest[name, number]["date"] for name in METHODS}) == 1]
    lines = [
        "| method | C-index | IBS | log-likelihood | calibration error | distance from the truth | D-calibration | "
        "KM-calibration, 10⁻⁵ | CPU s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name in METHODS:
        records = [latest[name, number] for number in splits]
        if records:
            columns = (
                spread(records, "c_index", ".4f"),
                spread(records, "ibs", ".4f"),
                spread(records, "log_likelihood", ".3f"),
                spread(records, "calibration_error", ".4f"),
                spread(records, "distance_from_truth", ".4f"),
                f"{sum(record['d_calibration_p'] > 0.05 for record in records)} of {len(records)}",
                spread(records, "km_calibration", ".1f", 1e5),
                spread([record for record in records if record["split"] in timed], "fit_cpu_seconds", ".0f"),
            )
            lines.append(f"| {_shown(name)} | " + " | ".join(columns) + " |")
    dates = sorted({record["date"] for record in latest.values()})
    TABLE.write_text(
        "# SAC3, 95,000 training and 5,000 test rows\n\nWritten by `python benchmarks/large/sac3.py table`; run on "
        f"{', '.join(dates)}, on two cores. Figures of {len(splits)} of the {len(SPLITS)} splits "
        "that were fixed beforehand. CoxTime and PCHazard have "
        f"{HIDDEN[0]}–{HIDDEN[1]} units, at most {EPOCHS} epochs and early stopping on {STOP_ROWS:,} of the rows; "
        f"ours has as many units, {TRAINING_PASSES} passes of feature learning, {DIRECTIONS} directions, and no early "
        "stopping. Each cell: the mean over the splits, and in brackets the lowest and the highest.\n\n"
        + "\n".join(lines)
        + f"\n\n*Calibration error*: at nine times (deciles of the training times) the test rows are divided into "
        f"{CALIBRATION_GROUPS} groups by their predicted probability; root mean square, over groups and times, of the "
        "difference between the mean prediction and the mean probability from which the rows were simulated, corrected "
        "for the finite size of the groups. *Distance from the truth*: the mean absolute difference per person. "
        "*D-calibration*: the number of splits on which the p-value for uniform probabilities of the test rows is "
        "above 0.05. *KM-calibration*: the "
        "squared distance of the mean curve from Kaplan–Meier's. Kaplan–Meier predicts the same for everybody, and is "
        "calibrated: calibration is only useful together with a small distance from the truth. *CPU s*: of splits "
        f"{', '.join(map(str, timed))}, on which all methods were run on one day.\n"
        + by_split(latest, splits)
        + comparison(latest, splits)
        + bands([latest["ours", number] for number in splits])
        + modes([latest[SEVERAL, number] for number in splits if (SEVERAL, number) in latest]),
        encoding="utf-8",
    )
    print(TABLE.read_text(encoding="utf-8"))


def _shown(name: str) -> str:
    return "NeuralSurv, streamed" if name == "ours" else name


def by_split(latest: dict[tuple[str, int], dict[str, Any]], splits: list[int]) -> str:
    """Return the table of the calibration errors of every split."""
    lines = ["", "| calibration error, split | " + " | ".join(map(str, splits)) + " |", "|---|" + "--:|" * len(splits)]
    for name in METHODS:
        cells = [format(latest[name, number]["calibration_error"], ".4f") for number in splits]
        lines.append(f"| {_shown(name)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def comparison(latest: dict[tuple[str, int], dict[str, Any]], splits: list[int]) -> str:
    """Return the sentences on how the calibration errors compare, split by split."""
    ours = np.array([latest["ours", number]["calibration_error"] for number in splits])
    said = f"\nCalibration error on average: ours {ours.mean():.4f}"
    for name in ("CoxTime", "PCHazard"):
        theirs = np.array([latest[name, number]["calibration_error"] for number in splits])
        away = theirs - ours
        error = away.std(ddof=1) / np.sqrt(len(away)) if len(away) > 1 else np.nan
        said += (
            f"; {name} {theirs.mean():.4f}, {away.mean():+.4f} ± {error:.4f} (standard error) from ours, which is "
            f"lower on {int((away > 0).sum())} of {len(away)} splits"
        )
    return said + ".\n"


def bands(records: list[dict[str, Any]]) -> str:
    """Return the sentence on our bands, which the rivals do not have."""
    return (
        f"\nOur 90 % bands hold the true probability in {spread(records, 'coverage_90', '.2f')} of the cases, at a "
        f"mean width of {spread(records, 'width_90', '.3f')}.\n"
    )


def modes(records: list[dict[str, Any]]) -> str:
    """Return the sentence on a posterior around three modes."""
    if not records:
        return ""
    where = ", ".join(str(record["split"]) for record in records)
    said = {name: several(records, name, form) for name, form in _SAID.items()}
    return (
        f"\nWith `modes=3`, on split {where}: calibration error {said['calibration_error']}; distance from the truth "
        f"{said['distance_from_truth']}; IBS {said['ibs']}; log-likelihood {said['log_likelihood']}; the bands hold "
        f"the true probability in {said['coverage_90']} of the cases, at a mean width of {said['width_90']}; "
        f"{said['fit_cpu_seconds']} CPU seconds.\n"
    )


def several(records: list[dict[str, Any]], name: str, form: str) -> str:
    """Return the figures of the splits, in their order."""
    return ", ".join(format(record[name], form) for record in records)


def spread(records: list[dict[str, Any]], name: str, form: str, factor: float = 1) -> str:
    """Return mean, lowest and highest of the figures of the splits."""
    if not records:
        return "–"
    values = [factor * record[name] for record in records]
    return f"{np.mean(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*METHODS, SEVERAL, "table"])
    parser.add_argument("--rows", type=int, help="training rows, for a trial; all 95,000 if not given")
    parser.add_argument("--split", type=int, default=SPLITS[0], choices=SPLITS)
    parser.add_argument("--method", default="mini-batch", help="of the streamed fit")
    parser.add_argument("--training-passes", type=int, default=TRAINING_PASSES, help="of the streamed fit")
    given = parser.parse_args()
    if given.what == "table":
        write_table()
        return
    record = run(given)
    print(json.dumps(record))
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
