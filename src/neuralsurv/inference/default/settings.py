"""Settings of the default model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuralsurv.arguments import flag, layer_widths, positive_number, whole_number
from neuralsurv.errors import InputError


@dataclass(frozen=True)
class Ablation:
    """Parts of the default model that only an ablation study changes; users cannot.

    Attributes
    ----------
    bumps : int
        Bumps of the time basis; 0 for a trend in log time alone.
    linear : bool
        Whether there is a linear path beside the network.
    varying : bool
        Whether the effect of a covariate may change with log time.
    pairs : bool
        Whether there are products of two covariates; with 64 covariates or more there are none.
    per_covariate : bool
        Whether every covariate of the linear path has a scale of its own.
    relinearise : int
        How often, at most, the network is linearised again at the posterior mean; each must raise the score.
    curves : bool
        Whether there are curved effects of single covariates.
    early : bool
        Whether effects may differ at early times.
    curvature : {"exact", "fisher", "polya-gamma"}
        Curvature of a point: minus the expected second derivative, the information of the point process, or that of
        the bound that the paper uses.
    hyper_priors : bool
        Whether the scales of the prior have hyper-priors; without them the ELBO alone decides.
    """

    bumps: int = 6
    linear: bool = True
    varying: bool = True
    pairs: bool = True
    per_covariate: bool = False
    relinearise: int = 0
    curves: bool = True
    early: bool = True
    curvature: str = "exact"
    hyper_priors: bool = True


@dataclass(frozen=True)
class DefaultSettings:
    """The settings of the default model.

    Every field but the last two is a parameter of :class:`neuralsurv.NeuralSurv` and described there.

    Attributes
    ----------
    random_network : bool
        Whether a fit in memory has a network drawn at random, as `hidden` or `activation` ask for, in place of curves
        and neighbourhoods, whose units are placed by the rows.
    ablation : Ablation
        Parts that only an ablation study changes.
    """

    hidden: tuple[int, ...] = (64,)
    activation: str = "silu"
    neighbourhoods: int = 400
    headroom: float = 100.0
    quadrature_points: int = 12
    average: bool = True
    tolerance: float = 1e-3
    max_sweeps: int = 100
    random_network: bool = False
    ablation: Ablation = Ablation()

    @classmethod
    def of(cls, *, hidden: object, activation: object, neighbourhoods: object, **others: object) -> DefaultSettings:
        """Return checked settings; hidden layers that are given (not None) take the place of curves and neighbourhoods.

        Examples
        --------
        >>> from neuralsurv.inference.default.settings import DefaultSettings
        >>> DefaultSettings.of(hidden=[8], activation=None, neighbourhoods=None).random_network
        True
        """
        layout = {"hidden": hidden, "activation": activation, "neighbourhoods": neighbourhoods}
        given = {name: value for name, value in layout.items() if value is not None}
        random = hidden is not None or activation is not None
        if random and neighbourhoods is not None:
            raise InputError(
                f"neighbourhoods={neighbourhoods!r} does nothing beside hidden or activation, which ask for a network "
                "in place of neighbourhoods and curves; leave one of them out."
            )
        return cls(**given, random_network=random, **others).checked()  # type: ignore[arg-type]

    def checked(self) -> DefaultSettings:
        """Return the settings with every value checked and converted to its type."""
        headroom = positive_number("headroom", self.headroom)
        if headroom <= 1:
            raise InputError(f"headroom={headroom:g} must exceed 1: the ceiling of the hazard lies above its average.")
        return replace(
            self,
            hidden=layer_widths(self.hidden),
            neighbourhoods=whole_number("neighbourhoods", self.neighbourhoods, least=0),
            headroom=headroom,
            quadrature_points=whole_number("quadrature_points", self.quadrature_points, least=2),
            average=flag("average", self.average),
            tolerance=positive_number("tolerance", self.tolerance),
            max_sweeps=whole_number("max_sweeps", self.max_sweeps),
        )
