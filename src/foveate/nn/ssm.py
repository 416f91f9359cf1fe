"""State space layers (Mamba) and the simpler simple recurrent unit (SSRU)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, FromConfig
from foveate.nn.context import DecoderState
from foveate.nn.linear import Linear, linear, single, to_autocast_dtype
from foveate.nn.native.kernels import fits, fits_either, library, overridden
from foveate.nn.native.layers import Convolve, Scan, apply

Scanned = tuple[Tensor, Tensor]  # h at every step (B, T, E, N), and after the last (B, E, N)


def scan_sequential(
    log_decay: Float[Tensor, "B T E N"],
    change: Float[Tensor, "B T E N"],
    start: Float[Tensor, "B E N"],
) -> Scanned:
    """Return h_t = exp(log_decay_t) h_{t−1} + change_t, computed step by step: the definition."""
    h, steps = start, []
    for decay, new in zip(log_decay.exp().unbind(1), change.unbind(1), strict=True):
        h = decay * h + new
        steps.append(h)
    return torch.stack(steps, dim=1), h


def scan_chunked(
    log_decay: Float[Tensor, "B T E N"],
    change: Float[Tensor, "B T E N"],
    start: Float[Tensor, "B E N"],
) -> Scanned:
    """Return the same in about 2√T steps: within all chunks at once, then from chunk to chunk.

    With h^c the states of a chunk that starts from zero and s^c the state before it, h_t = h^c_t +
    exp(Σ_{i ≤ t} log_decay_i) s^c, the sum being over the chunk. Decays are at most 1, so nothing
    is divided and nothing overflows.
    """
    batch, length, *sizes = change.shape
    size = math.isqrt(length - 1) + 1  # √T, rounded up
    beyond = -length % size  # steps that decay nothing and change nothing
    log_decay, change = (
        F.pad(part, (0, 0, 0, 0, 0, beyond)).unflatten(1, (-1, size)).flatten(0, 1)
        for part in (log_decay, change)
    )  # (B, T, E, N) -> (B·chunks, size, E, N)
    inside, last = scan_sequential(log_decay, change, torch.zeros_like(change[:, 0]))
    decay = log_decay.cumsum(dim=1).exp()
    before, h = [], start
    ends = zip(*(p.unflatten(0, (batch, -1)).unbind(1) for p in (decay[:, -1], last)), strict=True)
    for passed, end in ends:
        before.append(h)
        h = passed * h + end
    states = inside + decay * torch.stack(before, dim=1).flatten(0, 1)[:, None]
    return states.view(batch, -1, *sizes)[:, :length], h


class ScanInputs(NamedTuple):
    """The tensors of a selective scan that differ from step to step: δ, u, B, C and z."""

    step: Float[Tensor, "B T E"]
    u: Float[Tensor, "B T E"]
    into: Float[Tensor, "B T N"]
    out: Float[Tensor, "B T N"]
    gate: Float[Tensor, "B T E"]


def selective_scan(
    inputs: ScanInputs,
    a: Float[Tensor, "E N"],
    bias: Float[Tensor, "E"],
    skip: Float[Tensor, "E"],
    *,
    start: Float[Tensor, "B E N"] | None = None,
    keys: Bool[Tensor, "B T"] | None = None,
    backwards: bool = False,
) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B E N"] | None]:
    """Return y_t = (C_t · h_t + D u_t) SiLU(z_t), and with a ``start`` h_0 the last h.

    Δ_t = softplus(δ_t + b), h_t = exp(Δ_t A) h_{t−1} + Δ_t B_t u_t. Δ is 0 where ``keys`` is false;
    ``backwards`` begins with the last step. Native kernels never store all states, T E N numbers.
    """
    step, u, into, out, gate = inputs
    weights = [x for x in (a, bias, skip, start) if x is not None]
    alike = all(fits_either(x) and x.dtype == u.dtype for x in inputs)
    if library() is not None and alike and all(map(fits, weights)):
        rows = [None if x is None else x.contiguous() for x in (*inputs, start, keys)]
        y, last = Scan.apply(backwards, *rows, a, bias, skip)  # type: ignore[no-untyped-call]
        return y, last
    delta = F.softplus(single(step) + bias)
    delta = delta if keys is None else delta * keys[:, :, None]
    parts = delta, single(u), single(into), single(out)
    delta, inner, into, out = (part.flip(1) if backwards else part for part in parts)
    log_decay = delta[..., None] * a
    change = delta[..., None] * inner[..., None] * into[:, :, None]
    scan = scan_sequential if u.shape[1] == 1 else scan_chunked
    h = torch.zeros_like(change[:, 0]) if start is None else start
    states, last = scan(log_decay, change, h)
    y = (states @ out[..., None]).squeeze(-1)  # (B, T, E, N) · (B, T, N) -> (B, T, E)
    y = (y.flip(1) if backwards else y) + skip * single(u)
    return (y * F.silu(single(gate))).to(u.dtype), None if start is None else last


def convolve(
    x: Float[Tensor, "B T E"],
    kernel: Float[Tensor, "W E"],
    bias: Float[Tensor, "E"],
    keys: Bool[Tensor, "B T"] | None = None,
    backwards: bool = False,
) -> Float[Tensor, "B T E"]:
    """Return u_t = SiLU(b + Σ_i w_i x_{t−W+1+i}) for each channel.

    x is 0 before the first step and where ``keys`` is false; ``backwards`` begins with the last
    step.
    """
    if library() is not None and fits_either(x) and fits(kernel) and fits(bias):
        keys = None if keys is None else keys.contiguous()
        return apply(Convolve, backwards, x.contiguous(), keys, kernel, bias)
    x = x if keys is None else x * keys[:, :, None]
    x = F.pad((x.flip(1) if backwards else x).mT, (len(kernel) - 1, 0))
    u = F.silu(F.conv1d(x, kernel.mT[:, None].to(x.dtype), bias.to(x.dtype), groups=len(bias)).mT)
    return u.flip(1) if backwards else u


class SelectiveStateSpace(FromConfig, nn.Module):
    """[x̃; z] = W x; u = SiLU(conv(x̃)); [δ; B; C] = W_u u; Δ = softplus(W_δ δ + b);
    y = scan(Δ A, Δ B u)·C + D u; output = W_o (y ⊙ SiLU(z)) (Gu & Dao, 2023, figure 3).

    A < 0 is fixed in time; Δ, B and C are made from each input: a large Δ_t lets the input in and
    the past go, Δ_t = 0 leaves the state unchanged.
    """

    class Config(BaseConfig):
        """E = ``expand`` · D channels, each with ``state_size`` N numbers of memory."""

        state_size: int = Field(16, gt=0)  # size of the state of each channel
        expand: int = Field(2, gt=0)  # inner channels, as a multiple of the hidden size
        window: int = Field(4, gt=0)  # steps that the convolution sees
        step_rank: int | None = Field(None, gt=0)  # size of δ; D/16 where absent

    config: Config

    def __init__(self, config: Config, hidden_size: int) -> None:
        super().__init__(config)
        inner, states = config.expand * hidden_size, config.state_size
        rank = config.step_rank or math.ceil(hidden_size / 16)
        self.sizes = [rank, states, states]
        self.input = Linear(hidden_size, 2 * inner, bias=False)
        bound = config.window**-0.5
        self.kernel = nn.Parameter(torch.empty(config.window, inner).uniform_(-bound, bound))
        self.kernel_bias = nn.Parameter(torch.empty(inner).uniform_(-bound, bound))
        self.select = Linear(inner, sum(self.sizes), bias=False)
        self.step = Linear(rank, inner)
        self.log_a = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.output = Linear(inner, hidden_size, bias=False)
        self._start_steps()

    @torch.no_grad()
    def _start_steps(self) -> None:
        """Initialise Δ between 0.001 and 0.1, uniform in its logarithm."""
        nn.init.uniform_(self.step.weight, -(self.sizes[0] ** -0.5), self.sizes[0] ** -0.5)
        first = torch.empty_like(self.step.bias).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.step.bias.copy_(first + (-torch.expm1(-first)).log())  # softplus⁻¹

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        keys: Bool[Tensor, "B T"] | None = None,
        state: DecoderState | None = None,
        backwards: bool = False,
    ) -> Float[Tensor, "B T D"]:
        """Run the layer; ``keys`` is true at real steps, and padding does not change the state.

        ``backwards`` reads from the last step to the first. The ``state`` holds the last W − 1
        inputs of the convolution and h: a fixed size at every length.
        """
        x = to_autocast_dtype(x)
        if overridden(self.input, Linear, "forward"):
            inner, gate = self.input(x).chunk(2, dim=-1)
        else:
            inner, gate = (linear(x, weight) for weight in self.input.weight.chunk(2))
        h = None
        if state is None:
            u = convolve(inner, self.kernel, self.kernel_bias, keys, backwards)
        else:
            inner = inner if keys is None else inner * keys[:, :, None]
            window, h = state.current(self, lambda: self._start(inner))
            inner = torch.cat((window.to(inner.dtype), inner), dim=1)
            window, u = inner[:, x.shape[1] :], convolve(inner, self.kernel, self.kernel_bias)
            u = u[:, -x.shape[1] :]
        rank, into, out = self.select(u).split(self.sizes, dim=-1)
        own = overridden(self.step, Linear, "forward")  # the scan adds the bias
        step = self.step(rank) - self.step.bias if own else linear(rank, self.step.weight)
        inputs = ScanInputs(step, u, into, out, gate)
        weights = -self.log_a.exp(), self.step.bias, self.skip
        y, h = selective_scan(inputs, *weights, start=h, keys=keys, backwards=backwards)
        if state is not None and h is not None:
            state.replace(self, (window, h))
        return self.output(y)

    def _start(self, inner: Tensor) -> tuple[Tensor, Tensor]:
        """Return an empty window (B, W − 1, E) and h_0 = 0 (B, E, N)."""
        batch, _, channels = inner.shape
        window = inner.new_zeros(batch, self.config.window - 1, channels)
        h = single(inner.new_zeros(batch, channels, self.config.state_size))
        return window, h


class SSRU(nn.Module):
    """The simpler simple recurrent unit (Kim et al., 2019), a replacement for self-attention.

        f_t = σ(W_f x_t + b_f),   c_t = f_t ⊙ c_{t−1} + (1 − f_t) ⊙ W x_t,   o_t = max(0, c_t)

    Its state is one vector at any length, and no product depends on it: the products of a whole
    sequence are computed at once.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.forget = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size, bias=False)
        nn.init.xavier_uniform_(self.forget.weight)
        nn.init.xavier_uniform_(self.value.weight)
        nn.init.zeros_(self.forget.bias)

    def forward(
        self, x: Float[Tensor, "B T D"], state: DecoderState | None = None
    ) -> Float[Tensor, "B T D"]:
        forget = self.forget(x).sigmoid()
        change = (1 - forget) * self.value(x)
        state = DecoderState() if state is None else state
        (cell,) = state.current(self, lambda: (torch.zeros_like(change[:, 0]),))
        cells = []
        for gate, new in zip(forget.unbind(1), change.unbind(1), strict=True):
            cell = torch.addcmul(new, gate, cell)
            cells.append(cell)
        state.replace(self, (cell,))
        return torch.stack(cells, dim=1).relu()
