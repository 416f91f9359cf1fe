"""Our selective state space against the mixer of `transformers`' Mamba, with the same weights."""

import logging

import pytest
import torch

from foveate.nn.ssm import SelectiveStateSpace
from tolerances import close

pytest.importorskip("transformers", reason="parity needs the transformers library (extra: dev)")

SIZE, STATES, RANK = 12, 5, 3
NAMES = {
    "in_proj.weight": "input.weight", "conv1d.bias": "kernel_bias",
    "x_proj.weight": "select.weight", "dt_proj.weight": "step.weight", "dt_proj.bias": "step.bias",
    "A_log": "log_a", "D": "skip", "out_proj.weight": "output.weight",
}  # fmt: skip


@torch.no_grad()
def test_layer_equals_that_of_transformers() -> None:
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    logging.getLogger("transformers").setLevel(logging.ERROR)  # no fast kernels on this machine
    torch.manual_seed(0)
    config = MambaConfig(hidden_size=SIZE, state_size=STATES, time_step_rank=RANK, expand=2)
    theirs = MambaMixer(config, layer_idx=0).eval()
    ours = SelectiveStateSpace.Config(state_size=STATES, step_rank=RANK).build(SIZE)
    weights = {name: torch.randn_like(value) * 0.3 for name, value in theirs.named_parameters()}
    theirs.load_state_dict(weights)
    kernel = weights.pop("conv1d.weight").squeeze(1).T  # (E, 1, W) -> (W, E)
    named = {NAMES[name]: value for name, value in weights.items()}
    ours.load_state_dict(named | {"kernel": kernel})
    x = torch.randn(2, 11, SIZE)
    close(ours(x), theirs(x))
