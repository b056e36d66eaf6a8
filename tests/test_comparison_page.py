"""What docs/comparison.md says of other packages, held against the packages themselves."""

import inspect
import re
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "comparison.md").read_text(encoding="utf-8")


def arguments(function):
    return set(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", ["lifelines", "scikit-survival", "pycox", "torchsurv"])
def test_the_versions_are_those_that_were_checked(name):
    short = ".".join(version(name).split(".")[:2])
    assert f"{name} {short}" in PAGE


def test_the_table_has_one_cell_for_each_package():
    table = PAGE.split("## Side by side")[1].split("\n\n")[1]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
    assert widths == {7}


def test_lifelines():
    lifelines = pytest.importorskip("lifelines")
    table = pd.read_csv(DOCS / "data" / "veterans.csv")
    numbers = table[["days", "died", "age", "karnofsky"]]
    cox = lifelines.CoxPHFitter(penalizer=0.1).fit(numbers, "days", "died")
    # Late entry, weights, formulas; intervals of coefficients and none of a person's curve.
    assert {"entry_col", "weights_col", "formula"} <= arguments(lifelines.CoxPHFitter.fit)
    assert cox.confidence_intervals_.shape == (2, 2)
    assert not {"alpha", "level", "ci"} & arguments(cox.predict_survival_function)
    assert not hasattr(lifelines.CoxTimeVaryingFitter, "predict_survival_function")
    assert hasattr(lifelines.WeibullAFTFitter, "fit_interval_censoring")
    assert hasattr(lifelines, "AalenJohansenFitter")
    with pytest.raises(ValueError, match="could not convert string to float"):
        lifelines.CoxPHFitter().fit(table, "days", "died")
    with pytest.raises(TypeError, match="NaNs were detected"):
        lifelines.CoxPHFitter().fit(numbers.assign(age=numbers["age"].where(numbers["age"] > 40)), "days", "died")


def test_scikit_survival():
    ensemble = pytest.importorskip("sksurv.ensemble")
    from sksurv import linear_model, nonparametric

    assert "time_enter" in arguments(nonparametric.kaplan_meier_estimator)
    assert hasattr(nonparametric, "cumulative_incidence_competing_risks")
    assert ensemble.RandomSurvivalForest().__sklearn_tags__().input_tags.allow_nan
    assert not ensemble.GradientBoostingSurvivalAnalysis().__sklearn_tags__().input_tags.allow_nan
    for method in (ensemble.RandomSurvivalForest, ensemble.GradientBoostingSurvivalAnalysis):
        assert "sample_weight" in arguments(method.fit)
    assert "sample_weight" not in arguments(linear_model.CoxPHSurvivalAnalysis.fit)
    # Nothing that fits a model takes an entry time or a level.
    for method in (ensemble.RandomSurvivalForest, linear_model.CoxPHSurvivalAnalysis):
        assert not {"entry", "time_enter"} & arguments(method.fit)
        assert arguments(method.predict_survival_function) == {"self", "X", "return_array"}


def test_pycox():
    models = pytest.importorskip("pycox.models")
    methods = {"BCESurv", "CoxCC", "CoxPH", "CoxTime", "DeepHitSingle", "LogisticHazard", "MTLR", "PCHazard", "PMF"}
    assert methods | {"DeepHit"} == {name for name in dir(models) if name[0].isupper()}
    assert not {"weight", "sample_weight", "entry"} & arguments(models.CoxPH.fit)
    source = inspect.getsource(pytest.importorskip("pycox.evaluation.ipcw"))
    assert "scipy.integrate.simps(" in source


def test_torchsurv():
    cox = pytest.importorskip("torchsurv.loss.cox")
    from torchsurv.metrics.cindex import ConcordanceIndex

    assert {"confidence_interval", "p_value", "compare"} <= set(dir(ConcordanceIndex))
    assert "time-varying" in cox.neg_partial_log_likelihood.__doc__
    assert not {"weight", "entry"} & arguments(cox.neg_partial_log_likelihood)
