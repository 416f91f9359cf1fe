"""How far two ways of computing the same may be apart: by dtype, size and magnitude.

A sum of n terms in floating point is off by about eps · √n · max |term|, in whatever order a
machine, a library or a number of threads adds it up (Higham, 2002, §4.2: the bound is eps · n, the
errors behave as a random walk). No tolerance comes from what one machine has shown. `SAFETY` covers
that several such sums follow one another; an error of 1e-3 is beyond every tolerance in fp32.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

ROW = 2**4  # terms: the weights of one row of a small map, probabilities of a small vocabulary
LAYER = 2**10  # products of matrices within a layer or two
MODEL = 2**14  # a whole model, its gradients, or sums of log p over a text
SAFETY = 8
HUGE = 1e30  # values that stand for infinity in masks


def rounding(terms: int = LAYER, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> float:
    """The tolerance of a sum of ``terms`` terms of magnitude ``scale`` computed in ``dtype``."""
    return float(SAFETY * torch.finfo(dtype).eps * terms**0.5 * scale)


def close(
    left: Any,
    right: Any,
    *,
    terms: int = LAYER,
    scale: float | None = None,
    dtype: torch.dtype | None = None,
    why: str | None = None,
) -> None:
    """Assert that two tensors, arrays or lists of them are equal up to `rounding`.

    ``scale`` is the magnitude of the summands; without it the largest value compared, at least 1.
    ``dtype`` is that of the arithmetic; without it float32, or a coarser one of the two. Values
    that are no floats must be equal; a number is compared with each value.
    """
    if isinstance(left, Sequence) and left and isinstance(left[0], Tensor):
        for item, other in zip(left, right, strict=True):
            close(item, other, terms=terms, scale=scale, dtype=dtype, why=why)
        return
    left, right = _tensor(left), _tensor(right)
    tolerance = _tolerance(left, right, terms, scale, dtype)
    if 0 in (left.ndim, right.ndim):
        left, right = torch.broadcast_tensors(left, right)
    how = {"atol": tolerance, "rtol": 0, "check_dtype": False, "check_device": False}
    torch.testing.assert_close(left, right, **how, msg=why)


def differ(left: Any, right: Any, *, terms: int = LAYER) -> bool:
    """Whether two tensors or arrays differ somewhere by more than rounding explains."""
    left, right = _tensor(left), _tensor(right)
    return not torch.allclose(left, right, atol=_tolerance(left, right, terms, None, None), rtol=0)


def near(value: Any, terms: int = LAYER, scale: float = 1.0) -> Any:
    """Equal to a value, or to each of several, up to `rounding`, relative where it is above 1."""
    return pytest.approx(value, rel=rounding(terms), abs=rounding(terms, scale))


def _tensor(values: Any) -> Tensor:
    return values.detach() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))


def _tolerance(
    left: Tensor, right: Tensor, terms: int, scale: float | None, dtype: torch.dtype | None
) -> float:
    kinds = [t.dtype for t in (left, right) if t.is_floating_point()]
    if not kinds:
        return 0.0
    if dtype is None:
        dtype = max([torch.float32, *kinds], key=lambda kind: torch.finfo(kind).eps)
    if scale is None:
        values = torch.cat([t.double().flatten().cpu() for t in (left, right)]).abs()
        scale = max([1.0, *values[values < HUGE].tolist()])
    return rounding(terms, scale, dtype)
