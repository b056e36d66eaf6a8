"""The summary: every section with the numbers of the fit, warnings, and HTML that is safe to show."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from neuralsurv import NeuralSurv
from neuralsurv.errors import ConvergenceWarning, QuadratureWarning
from neuralsurv.estimator.summary import Summary, summarise
from small_cohort import quick_default, quick_model, small_cohort

COHORT = small_cohort()


@pytest.fixture(scope="module")
def fitted() -> NeuralSurv:
    arm = np.resize(["drug", "placebo", "surgery"], 40)
    entry = np.where(np.arange(40) < 7, COHORT.time / 2, 0)
    return quick_model(rho=1.25, hidden=(4, 3), starts=2).fit(COHORT.x.assign(arm=arm), COHORT.y, entry=entry)


def lines(model: NeuralSurv) -> dict[str, str]:
    """Return name and value of every line of the text."""
    pairs = [re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in str(model.summary()).splitlines()]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def test_every_section_has_its_numbers(fitted: NeuralSurv) -> None:
    text = str(fitted.summary())
    assert [line for line in text.splitlines() if line and not line.startswith(" ")] == [
        "Data",
        "Model",
        "Fit",
        "Posterior",
        "Warnings",
    ]
    found, phi = fitted.diagnostics_, fitted.posterior_.phi
    low, high = phi.interval(0.9)
    first, second = found.mode_objectives
    assert lines(fitted) == {
        "rows": "40",
        "events": "24 (60%)",
        "rows with late entry": "7",
        "covariates": "3 (5 after encoding)",
        "last training time": f"{COHORT.time.max():g}",
        "estimator": "PaperNeuralSurv",
        "network": "4-3 tanh",
        # (1 + 5 inputs and a bias) · 4 + (4 and a bias) · 3 + (3 and a bias)
        "weights": str(7 * 4 + 5 * 3 + 4),
        "rho": "1.25",
        "mode, objective of each start": f"{first:.2f}, {second:.2f}",
        "variational sweeps": f"{found.sweeps} (converged)",
        "ELBO": f"{fitted.elbo_[-1]:.3f}",
        "phi, mean [90% interval]": f"{phi.mean:.3f} [{low:.3f}, {high:.3f}] in scaled time",
        "latent points": f"{found.latent_points:.1f} ({found.latent_share:.0%} of all points)",
        "k-hat of importance weights": f"{found.importance['k_hat']:.2f}",
    }
    # Mean field is too narrow here, and the summary says so although no warning was raised.
    assert found.importance["k_hat"] > 0.7
    assert found.messages == ()
    assert text.endswith(f"Warnings\n  - {found.trust}")


def test_it_prints_as_it_shows(fitted: NeuralSurv, capsys: pytest.CaptureFixture[str]) -> None:
    print(fitted.summary())
    assert capsys.readouterr().out == repr(fitted.summary()) + "\n"


def test_a_linear_network_has_no_activation() -> None:
    assert lines(quick_model(hidden=()).fit(COHORT.x, COHORT.y))["network"] == "linear"


@pytest.mark.parametrize(
    ("scales", "named"),
    [
        ({"covariates": 0.5, "neighbourhoods": 0.049, "bumps": 0.051, "changes of curves": 0.01}, [1, 3]),
        ({"covariates": 0.051, "curves": 2.0}, []),
    ],
)
def test_parts_of_the_default_model_that_are_next_to_nothing_are_named(
    scales: dict[str, float], named: list[int]
) -> None:
    fitted = quick_default(hidden=None, average=False).fit(COHORT.x, COHORT.y).fitted_
    changed = replace(fitted, diagnostics=replace(fitted.diagnostics, scales=scales))
    rows = {name: (section, value) for section, name, value in summarise(changed, "NeuralSurv").rows}
    words = ", ".join(list(scales)[k] for k in named) or "none"
    assert rows["switched off by the evidence"] == ("Posterior", words)


def test_warnings_are_shown() -> None:
    model = quick_model(quadrature="trapezoid", quadrature_points=5, max_sweeps=2)
    with pytest.warns(ConvergenceWarning), pytest.warns(QuadratureWarning):
        model.fit(COHORT.x, COHORT.y)
    assert len(model.diagnostics_.messages) == 2
    text, page = str(model.summary()), model.summary()._repr_html_()
    for message in model.diagnostics_.messages:
        assert f"\n  - {message}" in text
    # One more for the mean field, which is known to be too narrow.
    assert page.count("<li>") == 3
    assert "leaves out" in page
    assert lines(model)["variational sweeps"] == "2 (not converged)"


class Cells(HTMLParser):
    """Collects the rows of a table, and complains about a tag that is not closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.seen.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.tags.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in ("th", "td"):
            self.rows[-1][-1] += data


def test_the_page_has_the_same_rows(fitted: NeuralSurv) -> None:
    page = Cells()
    page.feed(fitted.summary()._repr_html_())
    assert page.tags == []
    assert [(row[1], row[2]) for row in page.rows] == list(lines(fitted).items())
    assert [row[0] for row in page.rows if row[0]] == ["Data", "Model", "Fit", "Posterior"]
    assert "<li>the variational posterior is far from the exact one" in fitted.summary()._repr_html_()


def test_the_page_escapes_what_it_shows() -> None:
    nasty = "<script>alert('x')</script> & \"more\""
    summary = Summary(((f"section {nasty}", f"name {nasty}", f"value {nasty}"),), (f"warning {nasty}",))
    shown = summary._repr_html_()
    assert "<script>" not in shown
    page = Cells()
    page.feed(shown)
    assert page.seen == {"table", "tr", "th", "td", "p", "ul", "li"}
    assert page.rows == [[f"section {nasty}", f"name {nasty}", f"value {nasty}"]]
    assert "warning &lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; &quot;more&quot;" in shown
    assert nasty in str(summary)
