r"""Pólya–Gamma and marked-Poisson augmentation: moments, intensity, and the bound they give.

Notation as in the paper: :math:`m` and :math:`s = \sqrt{m^2 + v}` are the mean and the root mean square of
:math:`g` under the Gaussian factor, :math:`\ell = \mathrm{E}[\log\phi]`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus


def polya_gamma_mean(c: Tensor) -> Tensor:
    r"""Return :math:`\mathrm{E}[\omega]` of :math:`\mathrm{PG}(1, c)`, :math:`\tanh(c/2)/(2c)` (eq. A4).

    The limit 1/4 is taken at 0, through the series :math:`1/4 - c^2/48` where the quotient would lose digits.
    """
    small = c.abs() < 1e-3
    safe = torch.where(small, torch.ones_like(c), c)
    return torch.where(small, 0.25 - c**2 / 48, torch.tanh(safe / 2) / (2 * safe))


def log_thinning(m: Tensor, s: Tensor) -> Tensor:
    r"""Return the log of :math:`\sigma(s)\,e^{-(m+s)/2}`, the bound's stand-in for :math:`\sigma(-g)`.

    It is exact, :math:`\log\sigma(-m)`, where the variance of :math:`g` is zero and :math:`s = |m|`.
    """
    return -softplus(-s) - (m + s) / 2


def latent_intensity(c: Tensor, m: Tensor, s: Tensor, mean_log_phi: float) -> Tensor:
    r"""Return the mass of latent points at each node (appendix G.2).

    :math:`\lambda_p = c_p\,e^{\ell}\,\sigma(s_p)\,e^{-(m_p+s_p)/2}`.

    Parameters
    ----------
    c : Tensor of shape (Q,)
        Baseline mass of each node: row weight times quadrature weight over Z.
    m, s : Tensor of shape (Q,)
        Mean and root mean square of g.
    mean_log_phi : float
        :math:`\mathrm{E}[\log\phi]`, or :math:`\log\phi` where phi is a point.
    """
    return c * torch.exp(mean_log_phi + log_thinning(m, s))


def log_sigmoid_bound(m: Tensor, s: Tensor) -> Tensor:
    r"""Return the lower bound of :math:`\mathrm{E}[\log\sigma(g)]`, :math:`(m-s)/2 - \mathrm{softplus}(-s)`."""
    return (m - s) / 2 - softplus(-s)
