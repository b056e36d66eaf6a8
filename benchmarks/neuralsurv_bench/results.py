"""Look up stored results by method, cohort and metric, and sum them up over folds."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from neuralsurv_bench.experiments import distinct_variants
from neuralsurv_bench.methods.interface import Method, Variant
from neuralsurv_bench.store import Record


@dataclass(frozen=True)
class Metric:
    """A metric as the tables show it.

    Attributes
    ----------
    name : str
        Its name in the store and in `published.json`.
    title : str
        Its name in a table.
    higher_is_better : bool or None
        Which way is up; None where there is no best, as with a p-value.
    """

    name: str
    title: str
    higher_is_better: bool | None


CONCORDANCE = Metric("c_index", "C-index ↑", True)
BRIER = Metric("ibs", "IPCW IBS ↓", False)
D_CALIBRATION = Metric("d_calibration_p", "D-calibration p", None)
KM_CALIBRATION = Metric("km_calibration", "KM-calibration ↓", False)
LIKELIHOOD = Metric("log_likelihood", "log-likelihood ↑", True)
# Level at which a method counts as not D-calibrated.
REJECTED_BELOW = 0.05


@dataclass(frozen=True)
class Summary:
    """A metric over folds.

    Attributes
    ----------
    values : tuple of float
        One for each fold that has it.
    failed : int
        Folds in which the method failed.
    """

    values: tuple[float, ...]
    failed: int

    @property
    def mean(self) -> float | None:
        """The mean, or None without any value or with a failed fold: a mean over the easy folds is not a result."""
        return statistics.fmean(self.values) if self.values and not self.failed else None

    def complete_mean(self, folds: int) -> float | None:
        """Return the mean if there is a value for every fold; only then is it comparable with others."""
        return self.mean if len(self.values) == folds else None

    def text(self, metric: Metric, folds: int) -> str:
        """Return mean and standard deviation over folds, and how many folds there are if not all."""
        if self.failed:
            return f"failed ({self.failed} of {self.failed + len(self.values)})"
        if self.mean is None:
            return "–"
        spread = f" ± {statistics.stdev(self.values):.3f}" if len(self.values) > 1 else ""
        sign = "" if metric.higher_is_better is not None else _verdict(self.mean)
        some = f" ({len(self.values)} of {folds})" if len(self.values) < folds else ""
        return f"{self.mean:.3f}{spread}{sign}{some}"


def published_text(value: float | None, metric: Metric) -> str:
    """Return a printed figure as the tables show it."""
    if value is None:
        return "–"
    return f"{value:.3f}{_verdict(value) if metric.higher_is_better is None else ''}"


def difference_text(value: float | None, digits: int = 3) -> str:
    """Return a signed difference, with a minus of the width of a plus."""
    # Adding 0 turns a rounded −0 into 0.
    return "–" if value is None else f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def _verdict(p_value: float) -> str:
    return " ✓" if p_value >= REJECTED_BELOW else " ×"


class Results:
    """The records of one experiment, by method.

    Parameters
    ----------
    records : iterable of Record
        The records.
    methods : mapping of str to Method
        The methods there are; others in the store are left alone.
    """

    def __init__(self, records: Iterable[Record], methods: Mapping[str, Method]) -> None:
        self._methods = methods
        self._records: dict[tuple[str, str, str, str], list[Record]] = defaultdict(list)
        for record in records:
            key = record.key
            self._records[key.cohort, key.setting, key.method, key.variant].append(record)

    def methods(self) -> list[Method]:
        """Return the methods that have a record, in the order of the registry."""
        names = {name for _, _, name, _ in self._records}
        return [method for method in self._methods.values() if method.name in names]

    def any(self, cohort: str, setting: str = "") -> bool:
        """Return whether there is any record of a cohort and setting."""
        return any((found, where) == (cohort, setting) for found, where, _, _ in self._records)

    def of(self, method: Method, variant: Variant, cohort: str, setting: str = "") -> list[Record]:
        """Return the records of a method; where its variants are the same thing, one of them stands for both."""
        distinct = distinct_variants(method)
        stored = variant if variant in distinct or variant not in method.variants else distinct[0]
        return self._records.get((cohort, setting, method.name, stored), [])

    def summary(
        self,
        method: Method,
        variant: Variant,
        metric: Metric,
        cohort: str,
        setting: str = "",
        *,
        definition: str = "paper",
    ) -> Summary:
        """Return a metric of a method over the folds."""
        records = self.of(method, variant, cohort, setting)
        values = [record.scores.get(definition, {}).get(metric.name) for record in records]
        return Summary(
            tuple(float(value) for value in values if value is not None),
            sum(record.status == "failed" for record in records),
        )
