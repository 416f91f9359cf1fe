"""Tolerances let another order of a sum pass, and no error of 1e-3."""

import pytest
import torch

from tolerances import LAYER, MODEL, ROW, close, differ, near


@pytest.mark.parametrize("terms", [ROW, LAYER, MODEL])
def test_rounding_passes_and_errors_do_not(terms: int) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(8, terms) / terms**0.5, torch.randn(terms, 8)
    whole = x @ y
    other = sum((x[:, i : i + 1] @ y[i : i + 1] for i in range(terms)), torch.zeros(8, 8))
    close(other, whole, terms=terms)
    assert not differ(other, whole, terms=terms)
    wrong = whole * (1 + 1e-3)
    with pytest.raises(AssertionError):
        close(wrong, whole, terms=terms)
    assert differ(wrong, whole, terms=terms)
    assert near(5.0, terms) != 5.0 * (1 + 1e-3)
