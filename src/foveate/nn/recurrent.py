"""Recurrent cells and stacks of them: one big product for the inputs, then step by step."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import zip_longest
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foveate.config import BaseConfig, FromConfig
from foveate.nn.context import Probed
from foveate.nn.linear import Dropout
from foveate.nn.native.kernels import overridden, transformed

Hidden = tuple[Tensor, ...]  # (h,) or (h, c), each (B, H)


class Cell(Probed, FromConfig, nn.Module):
    """One step of recurrence, h_t from x_t and h_{t−1}; weights named and laid out as torch's."""

    class Config(BaseConfig, family="cell"):
        """The kind of cell."""

    gates = 1  # blocks of rows in the weights
    states = 1  # tensors in a hidden state
    fed = ""  # the equation of a_t, if a decoder feeds one (`feed`)

    def __init__(self, config: Config, input_size: int, hidden_size: int) -> None:
        super().__init__(config)
        self.hidden_size = hidden_size
        rows, bound = self.gates * hidden_size, hidden_size**-0.5
        self.weight_ih = nn.Parameter(torch.empty(rows, input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(rows, hidden_size).uniform_(-bound, bound))
        self.bias_ih = nn.Parameter(torch.empty(rows).uniform_(-bound, bound))
        self.bias_hh = nn.Parameter(torch.empty(rows).uniform_(-bound, bound))

    def project(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B R"]:
        """Return W x + b for any number of steps at once."""
        return nn.functional.linear(self._stage("input", x), self.weight_ih, self.bias_ih)

    def feed(self, projected: Tensor, into: nn.Module, a: Tensor) -> Float[Tensor, "B R"]:
        """Return W x + b + C a, which a decoder with attention feeds into the cell."""
        return projected + into(self._stage("fed", a))

    def equations(self) -> dict[str, str]:
        return {"input": "x_t", "before": "h_{t−1}", "fed": self.fed}

    def _input(self, of: str = "") -> str:
        """Return the input's part of a sum, in the rows of one gate."""
        return f"W{of} x_t + b{of}" + f" + C{of} a_t" * bool(self.fed)

    def _sum(self, of: str = "") -> str:
        """Return the argument of a non-linearity of the cell, in the rows of one gate."""
        return f"{self._input(of)} + U{of} h_{{t−1}} + b′{of}"

    def start(self, x: Tensor) -> Hidden:
        """Return zeros for each row of x."""
        return tuple(x.new_zeros(len(x), self.hidden_size) for _ in range(self.states))

    def forward(self, projected: Float[Tensor, "B R"], hidden: Hidden) -> Hidden:
        """Return the next hidden state; its first part is the output."""
        raise NotImplementedError

    def run(
        self, x: Float[Tensor, "B T D"], hidden: Hidden
    ) -> tuple[Float[Tensor, "B T H"], Hidden]:
        """Return the outputs at every step of a sequence, and the last hidden state."""
        return Recurrence(self)(x, hidden=hidden)


NONLINEARITIES = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


class ElmanCell(Cell):
    """h_t = f(W x_t + b + U h_{t−1} + c) (Elman, 1990), f tanh, the logistic function as in his
    paper, or ReLU (Le et al., 2015).
    """

    differs = (
        'tanh by default; for the logistic function of Elman (1990), set activation = "sigmoid"; '
        "two biases, as in torch.nn.RNN"
    )

    class Config(Cell.Config, kind="rnn"):
        activation: Literal["tanh", "relu", "sigmoid"] = "tanh"  # the non-linearity f

    config: Config

    def equations(self) -> dict[str, str]:
        name = {"relu": "ReLU", "sigmoid": "σ"}.get(self.config.activation, "tanh")
        return super().equations() | {"sum": f"s = {self._sum()}", "state": f"h_t = {name}(s)"}

    def forward(self, projected: Float[Tensor, "B R"], hidden: Hidden) -> Hidden:
        back = nn.functional.linear(self._stage("before", hidden[0]), self.weight_hh, self.bias_hh)
        total = self._stage("sum", projected + back)
        return (self._stage("state", NONLINEARITIES[self.config.activation](total)),)


class GRUCell(Cell, kind="gru"):
    """r, z = sigmoid(…); n = tanh(W x + b + r ⊙ (U h + c)); h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}
    (Cho et al., 2014).
    """

    differs = (
        "the reset gate acts after the product, r ⊙ (U h + c), as in PyTorch; for the published "
        "U (r ⊙ h) (Cho et al., 2014), use gru_cho"
    )

    gates = 3
    candidate = "r ⊙ (U_n h_{t−1} + b′_n)"

    def equations(self) -> dict[str, str]:
        return super().equations() | {
            "reset gate": f"r = σ({self._sum('_r')})",
            "update gate": f"z = σ({self._sum('_z')})",
            "candidate": f"n = tanh({self._input('_n')} + {self.candidate})",
            "state": "h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}",
        }

    def forward(self, projected: Float[Tensor, "B R"], hidden: Hidden) -> Hidden:
        back = nn.functional.linear(self._stage("before", hidden[0]), self.weight_hh, self.bias_hh)
        size = 2 * self.hidden_size
        reset, update = (projected[:, :size] + back[:, :size]).sigmoid().chunk(2, dim=-1)
        self._stage("reset gate", reset)
        self._stage("update gate", update)  # near 1 the state does not change
        new = torch.addcmul(projected[:, size:], reset, back[:, size:]).tanh()
        self._stage("candidate", new)
        return (self._stage("state", torch.lerp(new, hidden[0].to(new.dtype), update)),)


class ChoGRUCell(GRUCell, kind="gru_cho"):
    """The GRU as Cho et al. (2014) print it: the reset gate acts before the product with U,
    n = tanh(W x + b + U (r ⊙ h) + c). `GRUCell` applies it after, which needs one product a step.
    """

    differs = "two biases for each gate and for the candidate; Cho et al. (2014) have none"

    candidate = "U_n (r ⊙ h_{t−1}) + b′_n"

    def forward(self, projected: Float[Tensor, "B R"], hidden: Hidden) -> Hidden:
        size, h = 2 * self.hidden_size, self._stage("before", hidden[0])
        back = nn.functional.linear(h, self.weight_hh[:size], self.bias_hh[:size])
        reset, update = (projected[:, :size] + back).sigmoid().chunk(2, dim=-1)
        self._stage("reset gate", reset)
        self._stage("update gate", update)
        candidate = nn.functional.linear(reset * h, self.weight_hh[size:], self.bias_hh[size:])
        new = self._stage("candidate", (projected[:, size:] + candidate).tanh())
        return (self._stage("state", torch.lerp(new, h.to(new.dtype), update)),)


class LSTMCell(Cell, kind="lstm"):
    """i, f, o = sigmoid(…); c̃ = tanh(…); c_t = f ⊙ c_{t−1} + i ⊙ c̃; h_t = o ⊙ tanh(c_t)
    (Hochreiter & Schmidhuber, 1997; forget gate: Gers et al., 2000).
    """

    differs = (
        "with a forget gate (Gers et al., 2000) and without peepholes; two biases per gate, as in "
        "torch.nn.LSTM"
    )

    gates = 4
    states = 2

    def equations(self) -> dict[str, str]:
        return super().equations() | {
            "cell before": "c_{t−1}",
            "input gate": f"i = σ({self._sum('_i')})",
            "forget gate": f"f = σ({self._sum('_f')})",
            "output gate": f"o = σ({self._sum('_o')})",
            "candidate": f"c̃ = tanh({self._sum('_c')})",
            "cell": "c_t = f ⊙ c_{t−1} + i ⊙ c̃",
            "state": "h_t = o ⊙ tanh(c_t)",
        }

    def forward(self, projected: Float[Tensor, "B R"], hidden: Hidden) -> Hidden:
        back = nn.functional.linear(self._stage("before", hidden[0]), self.weight_hh, self.bias_hh)
        size = self.hidden_size
        total = projected + back
        enter, forget = total[:, : 2 * size].sigmoid().chunk(2, dim=-1)
        candidate, leave = total[:, 2 * size : 3 * size].tanh(), total[:, 3 * size :].sigmoid()
        self._stage("cell before", hidden[1])
        self._stage("input gate", enter)
        self._stage("forget gate", forget)  # near 1, with the input gate near 0, the cell is kept
        self._stage("output gate", leave)
        self._stage("candidate", candidate)
        cell = torch.addcmul(enter * candidate, forget, hidden[1].to(total.dtype))
        return (self._stage("state", leave * cell.tanh()), self._stage("cell", cell))

    def run(
        self, x: Float[Tensor, "B T D"], hidden: Hidden
    ) -> tuple[Float[Tensor, "B T H"], Hidden]:
        """Compute the same steps by PyTorch's kernel, some three times as fast on a CPU in fp32.

        It joins the weight gradients of all steps in one product. In bf16 it is slower. With a
        probe, or if a derived class has another step, the cell runs step by step. A GPU's kernel
        joins the four weights at each call, and warns of that.
        """
        own = overridden(self, LSTMCell, "forward", "project")
        if self.probe is not None or own or transformed():
            return super().run(x, hidden)
        kind = self.weight_hh.dtype
        caught = warnings.catch_warnings() if x.is_cuda else nullcontext()
        with torch.autocast(x.device.type, enabled=False), caught:
            if x.is_cuda:
                warnings.filterwarnings("ignore", "RNN module weights")
            outputs, last, cell = torch.lstm(
                x.to(kind),
                [part.to(kind)[None].contiguous() for part in hidden],
                [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh],
                has_biases=True,
                num_layers=1,
                dropout=0.0,
                train=self.training,
                bidirectional=False,
                batch_first=True,
            )
        return outputs, (last[0], cell[0])


class Recurrence(nn.Module):
    """A cell over a sequence, forwards or backwards; padding does not change the state."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        keys: Bool[Tensor, "B T"] | None = None,
        hidden: Hidden | None = None,
        backwards: bool = False,
    ) -> tuple[Float[Tensor, "B T H"], Hidden]:
        """Return all outputs and the last hidden state; ``keys`` is true at real steps."""
        projected = self.cell.project(x)
        hidden = hidden or self.cell.start(projected)
        rows = projected.unbind(1)  # at once: indexing step by step costs T² in the backward pass
        steps = range(x.shape[1])
        outputs = []
        for t in reversed(steps) if backwards else steps:
            after = self.cell(rows[t], hidden)
            if keys is not None:
                real = keys[:, t, None]
                after = tuple(
                    torch.where(real, new, old.to(new.dtype))
                    for new, old in zip(after, hidden, strict=True)
                )
            hidden = after
            outputs.append(hidden[0])
        if backwards:
            outputs.reverse()
        return torch.stack(outputs, dim=1), hidden


class RecurrentStack(nn.Module):
    """L layers of recurrence, each over the outputs of the one below, in one or both directions."""

    def __init__(
        self,
        cell: Cell.Config,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        directions: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.output_size = hidden_size * directions
        sizes = [input_size] + [self.output_size] * (num_layers - 1)
        self.layers = nn.ModuleList(
            nn.ModuleList(Recurrence(cell.build(size, hidden_size)) for _ in range(directions))
            for size in sizes
        )
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        keys: Bool[Tensor, "B T"] | None = None,
        hidden: Sequence[Hidden | None] = (),
    ) -> tuple[Float[Tensor, "B T O"], list[Hidden]]:
        """Return the top layer's outputs, and each layer's last hidden state, directions joined.

        A stack of one direction may go on from the ``hidden`` states of its layers.
        """
        final: list[Hidden] = []
        for number, (layer, before) in enumerate(zip_longest(self.layers, hidden)):
            if number:
                x = self.dropout(x)
            directions = enumerate(cast(nn.ModuleList, layer))
            runs = [run(x, keys, before, direction == 1) for direction, run in directions]
            outputs, hiddens = zip(*runs, strict=True)
            x = torch.cat(outputs, dim=-1)
            final.append(tuple(torch.cat(parts, dim=-1) for parts in zip(*hiddens, strict=True)))
        return x, final
