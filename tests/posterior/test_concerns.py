"""The kind of a warning is kept beside its words, and decides its class, for every way to fit."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import neuralsurv
from neuralsurv import errors
from neuralsurv.errors import NeuralSurvWarning, StorageError
from neuralsurv.files.format import read, write
from neuralsurv.inference.default.fit import DefaultFit
from neuralsurv.inference.stream.fit import StreamedModes
from neuralsurv.posterior.concerns import WARNINGS, Concern, concern_fields
from small_cohort import quick_default, quick_model, small_cohort

COHORT = small_cohort()
NAMES = {"time": "years", "event": "died"}
SHORT = {"chains": 2, "warmup": 4, "thin": 1}


def raised(work):
    """Return the kinds that the fit keeps, and name and place of each Python warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = work()
    found = model.diagnostics_
    assert tuple(str(item.message) for item in caught) == found.messages
    assert {item.filename for item in caught} == {__file__}
    assert [item.category for item in caught] == [WARNINGS[kind] for kind in found.kinds]
    return dict(zip(found.kinds, (item.category for item in caught), strict=True))


def few(cohort):
    return cohort.event & (np.cumsum(cohort.event) < 5)


@pytest.mark.parametrize(
    ("kind", "category", "work"),
    [
        ("few events", errors.FewEventsWarning, lambda: quick_default().fit(COHORT.x, (COHORT.time, few(COHORT)))),
        ("ceiling", errors.CeilingWarning, lambda: quick_default(headroom=1.5).fit(COHORT.x, COHORT.y)),
        ("sweeps", errors.ConvergenceWarning, lambda: quick_model(max_sweeps=2).fit(COHORT.x, COHORT.y)),
        (
            "quadrature",
            errors.QuadratureWarning,
            lambda: quick_model(quadrature="trapezoid", quadrature_points=5).fit(COHORT.x, COHORT.y),
        ),
        ("chains", errors.ConvergenceWarning, lambda: quick_default(draws=12).fit_exact(COHORT.x, COHORT.y, **SHORT)),
        (
            "few events",
            errors.FewEventsWarning,
            lambda: quick_default().fit_stream([COHORT.frame().assign(died=few(COHORT))], **NAMES, training_passes=0),
        ),
        (
            "sweeps",
            errors.ConvergenceWarning,
            lambda: quick_default(max_sweeps=1).fit_stream([COHORT.frame()], **NAMES, training_passes=0),
        ),
    ],
)
def test_the_class_of_a_warning_is_that_of_its_kind(kind, category, work):
    assert raised(work)[kind] is category


def test_the_words_do_not_decide(monkeypatch):
    found = concern_fields([Concern("mode", "nothing has collapsed on the trapezoid")])
    diagnose = DefaultFit.diagnose
    monkeypatch.setattr(DefaultFit, "diagnose", lambda fit: replace(diagnose(fit), **found))
    assert raised(lambda: quick_default().fit(COHORT.x, COHORT.y)) == {"mode": errors.ConvergenceWarning}
    diagnose_stream = StreamedModes.diagnose
    monkeypatch.setattr(StreamedModes, "diagnose", lambda fit: replace(diagnose_stream(fit), **found))
    streamed = raised(lambda: quick_default().fit_stream([COHORT.frame()], **NAMES, training_passes=0))
    assert streamed == {"mode": errors.ConvergenceWarning}


def test_every_class_of_warning_has_a_kind():
    own = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, NeuralSurvWarning)}
    # Those of a suspicious value and of several causes are about the table, not about the fit.
    assert set(WARNINGS.values()) == own - {errors.MissingCodeWarning, errors.CausesWarning}


@pytest.fixture(scope="module")
def warned(tmp_path_factory):
    path = tmp_path_factory.mktemp("warned") / "m"
    with pytest.warns(errors.CeilingWarning):
        model = quick_default(headroom=1.5).fit(COHORT.x, COHORT.y)
    model.save(path)
    return model, path


def altered(path, place, **diagnostics):
    """Write the file anew with other diagnostics; what is None is left out."""
    header, tensors = read(path)
    changed = {**header["diagnostics"], **diagnostics}
    header["diagnostics"] = {name: value for name, value in changed.items() if value is not None}
    write(place, header, tensors)
    return place


def test_a_file_keeps_the_kinds(warned):
    model, path = warned
    assert neuralsurv.load(path).diagnostics_ == model.diagnostics_
    assert neuralsurv.load(path).diagnostics_.kinds == ("ceiling",)


def test_a_file_from_before_there_were_kinds_opens(warned, tmp_path):
    model, path = warned
    again = neuralsurv.load(altered(path, tmp_path / "old", kinds=None)).diagnostics_
    assert again.messages == model.diagnostics_.messages
    assert again.kinds == ("other",)
    with pytest.warns(NeuralSurvWarning) as caught:
        again.warn(stacklevel=1)
    assert caught[0].category is NeuralSurvWarning


@pytest.mark.parametrize("kinds", [["ceiling", "mode"], ["surprise"]])
def test_a_file_with_kinds_that_cannot_be_is_refused(warned, tmp_path, kinds):
    with pytest.raises(StorageError, match="its warnings are not of a kind that is known"):
        neuralsurv.load(altered(warned[1], tmp_path / "forged", kinds=kinds))
