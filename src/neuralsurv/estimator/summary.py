"""A fit in one table: data, choices, convergence, phi and rho, ELBO, warnings."""

from __future__ import annotations

import html
from dataclasses import dataclass

from neuralsurv.names import counted, listed, printable
from neuralsurv.posterior.fitted import Fitted

# A part of the default model with a smaller scale than this changes hazards by a few per cent at most.
_NEGLIGIBLE = 0.05
# Probabilities below this are not told apart.
_LEAST_PROBABILITY = 0.01
# Rare values that are listed by name.
_MOST_SHOWN = 8


@dataclass(frozen=True)
class Summary:
    """Rows of (section, name, value); prints as text and shows as a table in a notebook."""

    rows: tuple[tuple[str, str, str], ...]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        """Return the table as text."""
        width = max(len(name) for _, name, _ in self.rows)
        lines: list[str] = []
        section = ""
        for group, name, value in self.rows:
            if group != section:
                lines += ([""] if lines else []) + [group]
                section = group
            # A model file may come from an untrusted source.
            lines.append(f"  {printable(name):<{width}}  {printable(value)}")
        lines += ["", "Warnings"] + [f"  - {printable(text)}" for text in self.warnings or ("none",)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table as HTML."""
        cells, section = [], ""
        for group, name, value in self.rows:
            head = group if group != section else ""
            section = group
            cells.append(
                f"<tr><th scope='row'>{html.escape(head)}</th><td>{html.escape(name)}</td>"
                f"<td>{html.escape(value)}</td></tr>"
            )
        notes = "".join(f"<li>{html.escape(text)}</li>" for text in self.warnings)
        warnings = f"<p>Warnings</p><ul>{notes}</ul>" if notes else "<p>No warnings.</p>"
        return f"<table>{''.join(cells)}</table>{warnings}"


def summarise(fitted: Fitted, estimator: str) -> Summary:
    """Return the summary of a fitted model; `estimator` is the name of the class that was fitted."""
    found, posterior, encoding = fitted.diagnostics, fitted.posterior, fitted.encoding
    low, high = posterior.phi.interval(0.9)
    data = fitted.training
    state = "converged" if found.converged else "interrupted" if found.interrupted else "not converged"
    # Of exact draws it is the state of the chains.
    search = f" ({state})" if not found.sampling else ""
    rows = [
        ("Data", "rows", f"{data['rows']:,.0f}"),
        ("Data", "events", f"{data['events']:,.0f} ({data['events'] / data['rows']:.0%})"),
        ("Data", "rows with late entry", f"{data['truncated']:,.0f}"),
        ("Data", "covariates", f"{len(encoding.columns)} ({len(encoding.outputs)} after encoding)"),
        ("Data", "last training time", f"{fitted.time_scale:g}"),
        ("Model", "estimator", estimator),
        ("Model", "network", posterior.network.architecture),
        ("Model", "weights", f"{posterior.network.size:,}"),
        ("Model", "rho", f"{posterior.rho:g}"),
    ]
    if fitted.causes:
        events = ", ".join(f"{cause} ({count:,})" for cause, count in fitted.causes.items())
        rows.insert(2, ("Data", "causes of events", events))
    if encoding.standardise and encoding.rare_values:
        rare = listed(encoding.rare_values, _MOST_SHOWN)
        rows.insert(4 + bool(fitted.causes), ("Data", "too rare to learn from", rare))
    if posterior.network.bayesian_share:
        rows.append(("Model", "weights of the network", posterior.network.bayesian_share))
        if found.scales:
            rows.append(("Fit", "epochs of training", str(found.epochs)))
    if found.scales:
        rows += [
            ("Fit", "settings of the scales tried", f"{found.sweeps}{search}"),
            ("Fit", "ELBO and log hyper-prior", f"{fitted.trace[-1]:.3f}"),
            *(("Posterior", f"scale of the {name}", f"{scale:.3f}") for name, scale in found.scales.items()),
            ("Posterior", "switched off by the evidence", _turned_off(found.scales)),
            ("Posterior", "settings averaged over", str(found.settings)),
        ]
        if found.settings > 1:
            rows.append(("Posterior", "probability that no covariate matters", _probability(found.null_share)))
        if found.modes > 1:
            rows.append(("Posterior", "modes averaged over", str(found.modes)))
    else:
        objectives = ", ".join(f"{value:.2f}" for value in found.mode_objectives)
        phi = f"{posterior.phi.mean:.3f} [{low:.3f}, {high:.3f}] in scaled time"
        rows += [
            ("Fit", "mode, objective of each start", objectives),
            ("Fit", "variational sweeps", f"{found.sweeps}{search}"),
            ("Fit", "ELBO", f"{fitted.trace[-1]:.3f}"),
            ("Posterior", "phi, mean [90% interval]", phi),
            ("Posterior", "latent points", f"{found.latent_points:.1f} ({found.latent_share:.0%} of all points)"),
        ]
    if found.importance:
        rows.append(("Posterior", "k-hat of importance weights", f"{found.importance['k_hat']:.2f}"))
    if found.sampling:
        chains, draws = found.sampling["chains"], found.sampling["draws"]
        rows += [
            ("Chains", "exact draws", f"{chains * draws:,.0f} ({counted(chains, 'chain', form='.0f')})"),
            ("Chains", "state", state),
            ("Chains", "worst R-hat", f"{found.sampling['r_hat']:.3f}"),
            ("Chains", "fewest effective draws", f"{min(found.sampling['ess_bulk'], found.sampling['ess_tail']):,.0f}"),
        ]
    known = (found.trust,) if found.trust and found.trust not in found.messages else ()
    return Summary(tuple(rows), found.messages + known)


def _probability(share: float) -> str:
    return f"{share:.2f}" if share >= _LEAST_PROBABILITY else f"below {_LEAST_PROBABILITY}"


def _turned_off(scales: dict[str, float]) -> str:
    return ", ".join(name for name, scale in scales.items() if scale < _NEGLIGIBLE) or "none"
