import pytest
import torch

from neuralsurv.model.contrasts import cause_contrasts


@pytest.mark.parametrize("causes", [2, 3, 5])
def test_all_causes_are_treated_alike(causes):
    c = cause_contrasts(causes)
    assert c.shape == (causes, causes - 1)
    expected = causes / (causes - 1) * (torch.eye(causes, dtype=torch.float64) - 1 / causes)
    assert torch.allclose(c @ c.T, expected, atol=1e-14)
    assert torch.allclose(torch.diag(c @ c.T), torch.ones(causes, dtype=torch.float64))


def test_one_cause_has_no_contrast():
    assert cause_contrasts(1).shape == (1, 0)
