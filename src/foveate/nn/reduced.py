"""What several maps read, in the numbers of their products."""

from __future__ import annotations

import torch
from torch import Tensor


def reduced(x: Tensor) -> Tensor:
    """X in the type of the products under autocast; itself elsewhere.

    Autocast turns what each map reads into its type by itself; maps that read what was turned
    before share that, and their gradients are summed before they are turned back.
    """
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x
