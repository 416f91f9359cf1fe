"""Claims of the lectures that need no training: each is computed with foveate's own kinds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from foveate.align.ibm import Model1
from foveate.look.relevance import by_distance
from foveate.look.views.demos.networks import (
    NARROW,
    SMALL,
    attends,
    bidirectional,
    decoder,
    encoder,
    ids,
    recurrent,
    residual,
    transformer,
)
from foveate.look.views.demos.text import next_p, probability, search
from foveate.measure.machine import counting
from foveate.models.classic import BagEncoder
from foveate.models.encoder_decoder import Decoder, EncoderDecoder
from foveate.models.mamba import MambaDecoder
from foveate.models.presets import PRESETS
from foveate.models.recurrent import RecurrentEncoder
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import DecoderState, Mask
from foveate.nn.efficient_attention import LinearAttention, LocalAttention, RandomFeatureAttention
from foveate.nn.linear import LayerNorm
from foveate.nn.loss import linear_cross_entropy
from foveate.nn.more_positions import ALiBi
from foveate.nn.native.kernels import without_kernels
from foveate.nn.normalizers import Hardmax, Sparsemax
from foveate.nn.positions import Rotary, Sinusoidal
from foveate.nn.recurrent import ElmanCell, LSTMCell
from foveate.nn.scores import CosineScore, Dot, Location, ScaledDot, Softmax
from foveate.nn.spec import Tokens
from foveate.train.optim import Noam

HOLDS, FAILS = "holds", "does not hold here"
Answer = tuple[str, str]  # the figure and the verdict
CLOSE = 1e-5  # of numbers in single precision


@dataclass(frozen=True)
class Claim:
    """A statement, who made it, what answers it, and from which result it is read, if any."""

    name: str
    statement: str
    source: str
    command: str
    measure: Callable[[], Answer]
    result: str = ""  # FILE: key of docs/results
    criterion: str = ""  # when it holds, from the docstring of `measure`
    sample: str = ""  # on what the verdict rests, of trainings
    after: bool = False  # whether the criterion was written when the figure was known


CLAIMS: dict[str, Claim] = {}
Measure = Callable[[], Answer]


def claim(
    name: str,
    statement: str,
    source: str,
    demo: str = "",
    result: str = "",
    training: str = "",
    sample: str = "",
    after: bool = False,
) -> Callable[[Measure], Measure]:
    """Register a function whose docstring is the criterion; ``demo`` is what draws it.

    ``training`` is that of benchmarks/claims_trained.py which writes the ``result``. A result that
    was there before its claim rests on one seed and has its criterion ``after`` it.
    """  # fmt: skip
    command = f"foveate demo {demo}" if demo else f"python benchmarks/claims.py --only {name}"
    if training:
        command = f"python benchmarks/claims_trained.py runs/claims --only {training}"
        result = f"{training}: {result}"
    elif result:
        sample, after = sample or "one seed", True

    def add(measure: Measure) -> Measure:
        criterion = " ".join((measure.__doc__ or "").split()).rstrip(".")
        CLAIMS[name] = Claim(
            name, statement, source, command, measure, result, criterion, sample, after
        )
        return measure

    return add


def verdict(holds: bool, condition: str = "") -> str:
    """``holds`` or, with a condition, ``holds only if`` it is met; otherwise that it does not."""
    return (f"holds only if {condition}" if condition else HOLDS) if holds else FAILS


def apart(x: Tensor, y: Tensor) -> float:
    """The largest difference of two tensors."""
    return float((x - y).detach().abs().max())


def random(*shape: int) -> Tensor:
    """Normal numbers, the same at every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def reordered(length: int) -> Tensor:
    """A permutation, the same at every call."""
    return torch.randperm(length, generator=torch.Generator().manual_seed(3))


def built(config: BaseAttention.Config, size: int = 32) -> BaseAttention:
    """Attention with the same weights at every call."""
    torch.manual_seed(1)
    return config.build(size).eval()


# ------------------------------------------------------------------------------ attention


@claim("equivariant",
       "Self-attention without positions is permutation-equivariant: A(PX) = P A(X).",
       "Lee et al., 2019", demo="permutation")  # fmt: skip
def equivariant() -> Answer:
    """Without a mask the difference is below 1e-5, with a causal mask above."""
    attention, x, order = (
        built(Attention.Config(num_heads=4)),
        random(1, 12, 32),
        reordered(12),
    )
    free = apart(attention(x[:, order]), attention(x)[:, order])
    causal = Mask(causal=True)
    masked = apart(attention(x[:, order], mask=causal), attention(x, mask=causal)[:, order])
    figure = f"largest difference {free:.0e} without a mask, {masked:.2f} with a causal mask"
    return figure, verdict(free < CLOSE < masked, "there is no causal mask")


@claim("positions", "Positions make the output depend on the order.", "Vaswani et al., 2017",
       demo="permutation")  # fmt: skip
def positions() -> Answer:
    """With sinusoids added the difference is above 0.01."""
    attention, x, order = (
        built(Attention.Config(num_heads=4)),
        random(1, 12, 32),
        reordered(12),
    )
    position = Sinusoidal(Sinusoidal.Config(), 32, 4)
    places = torch.arange(12)
    forth = attention(position.embed(x[:, order], places))
    difference = apart(forth, attention(position.embed(x, places))[:, order])
    return f"largest difference {difference:.2f}", verdict(difference > 0.01)


@claim("scaling", "Division by √d_k keeps the gradient of the softmax.", "Vaswani et al., 2017",
       after=True)  # fmt: skip
def scaling() -> Answer:
    """From d_k = 8 to 512 the mean norm of the Jacobian changes by less than 20 % with division,
    and falls below half without it.
    """
    norms = {}
    for kind in (Dot, ScaledDot):
        for size in (8, 512):
            query, keys = random(2, 1, 1, 256, size)
            p = kind(kind.Config(), 1, size)(query, keys)[0, 0].softmax(dim=-1)
            jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None]
            norms[kind, size] = float(jacobian.norm(dim=(1, 2)).mean())
    left = {kind: norms[kind, 512] / norms[kind, 8] for kind in (Dot, ScaledDot)}
    figure = f"‖∂α/∂score‖ at d_k = 512 is {left[ScaledDot]:.2f} of that at 8 with the division, "
    figure += f"{left[Dot]:.2f} without"
    return figure, verdict(abs(left[ScaledDot] - 1) < 0.2 and left[Dot] < 0.5)


@claim("variance", "q·k of independent entries with variance 1 has variance d_k.",
       "Vaswani et al., 2017")  # fmt: skip
def variance() -> Answer:
    """Within 10 % at d_k = 64 and 512."""
    found = {}
    for size in (64, 512):
        query, keys = random(2, 300, size).split(1)
        found[size] = float(Dot(Dot.Config(), 1, size)(query[None], keys[None]).var())
    figure = ", ".join(f"{value:.0f} at d_k = {size}" for size, value in found.items())
    return figure, verdict(all(abs(value / size - 1) < 0.1 for size, value in found.items()))


@claim("temperature", "Softmax with a small temperature is argmax.", "Jang et al., 2017",
       demo="normalizers --temperature 0.01", after=True)  # fmt: skip
def temperature() -> Answer:
    """At τ = 0.001 weights are within 1e-5 of hardmax where the best scores are 20 τ apart, and
    not where they are nearer.
    """
    scores = random(100, 8)
    best, second = scores.topk(2).values.unbind(dim=-1)
    clear = best - second > 0.02
    hard, soft = Hardmax.Config().build(), Softmax.Config(temperature=0.001).build()
    far, near = (apart(soft(rows), hard(rows)) for rows in (scores[clear], scores[~clear]))
    figure = f"largest difference from hardmax at τ = 0.001: {far:.0e} if the best scores are "
    figure += f"20 τ apart, {near:.2f} if closer"
    condition = "" if near < CLOSE else "the best scores are much further apart than τ"
    return figure, verdict(far < CLOSE, condition)


@claim("sparsemax", "Sparsemax gives weights that are exactly zero; softmax never does.",
       "Martins & Astudillo, 2016", demo="normalizers")  # fmt: skip
def sparsemax() -> Answer:
    """Some weights of sparsemax are 0, none of softmax, and both sum to 1."""
    scores = random(100, 8)
    sparse, soft = Sparsemax.Config().build()(scores), Softmax.Config().build()(scores)
    zeros, none = (float((weights == 0).float().mean()) for weights in (sparse, soft))
    sums = max(apart(weights.sum(dim=-1), torch.ones(100)) for weights in (sparse, soft))
    return f"{zeros:.0%} and {none:.0%} zeros", verdict(zeros > 0 == none and sums < CLOSE)


@claim("cosine", "A dot product grows with the length of a key; a cosine does not.",
       "Graves et al., 2014; Luong et al., 2015", demo="scores")  # fmt: skip
def cosine() -> Answer:
    """A key three times as long: the dot product is three times as large, the cosine the same."""
    query, key = random(2, 16).view(2, 1, 1, 1, 16)
    torch.manual_seed(1)
    ratios = [
        float(score(query, 3 * key) / score(query, key))
        for score in (Dot(Dot.Config(), 1, 16), CosineScore(CosineScore.Config(), 1, 16))
    ]
    figure = f"a key 3 times as long: {ratios[0]:.2f} and {ratios[1]:.2f} times the score"
    return figure, verdict(abs(ratios[0] - 3) < 1e-4 > abs(ratios[1] - 1))


@claim("location", "The location score reads no key.", "Luong et al., 2015", demo="scores")
def location() -> Answer:
    """Other keys give the same scores."""
    torch.manual_seed(1)
    score, query = Location(Location.Config(), 1, 16), random(1, 1, 3, 16)
    keys = random(1, 1, 5, 16)
    difference = apart(score(query, keys), score(query, -2 * keys))
    return f"largest difference {difference:.0f} between two sets of keys", verdict(difference == 0)


@claim("linear-values", "Self-attention without feed-forward layers is linear in the values.",
       "Vaswani et al., 2017", demo="quadratic")  # fmt: skip
@torch.no_grad()
def linear_values() -> Answer:
    """With fixed weights A(x + y) = A(x) + A(y) to 1e-5; with weights of the input it is not."""
    attention, (x, y) = built(Attention.Config(bias=False)), random(2, 1, 6, 32)
    memory = random(1, 6, 32)
    weights = random(6, 6).softmax(dim=-1)

    def fixed(values: Tensor) -> Tensor:
        return attention.output(weights @ attention.value(values))

    held = apart(fixed(x + y), fixed(x) + fixed(y))
    free = apart(attention(memory, x + y), attention(memory, x) + attention(memory, y))
    figure = f"A(x + y) − A(x) − A(y): {held:.0e} with α held, {free:.1f} if x also determines α"
    return figure, verdict(held < CLOSE < free, "the weights α are held fixed")


@claim("heads", "H heads of size d/H have as many parameters as one head of size d.",
       "Vaswani et al., 2017")  # fmt: skip
def heads() -> Answer:
    """The counts are equal for 1, 2, 4 and 8 heads."""
    counts = [
        sum(p.numel() for p in built(Attention.Config(num_heads=h), 512).parameters())
        for h in (1, 2, 4, 8)
    ]
    return f"{counts[0]:,} with 1 head, {counts[-1]:,} with 8", verdict(len(set(counts)) == 1)


@claim("mask", "Without a mask a step reads later inputs; with a causal mask it does not.",
       "Vaswani et al., 2017", demo="leak")  # fmt: skip
def mask() -> Answer:
    """The gradient of step 1 by later inputs is above 0 without a mask and 0 with it."""
    read, bert, gpt = ids(12), bidirectional(), transformer()
    norms = attends(bert, lambda: bert(read).values), attends(gpt, lambda: gpt(read, None))
    free, causal = (float(norm[0, 1:].sum() / norm[0].sum()) for norm in norms)
    figure = f"{free:.0%} of the gradient of step 1 comes from later inputs without it, "
    figure += f"{causal:.0%} with"
    return figure, verdict(free > 0 == causal)


@claim("one-pass", "Training computes all steps in one pass, with the same outputs as row by row.",
       "Vaswani et al., 2017", demo="parallel")  # fmt: skip
@torch.no_grad()
def one_pass() -> Answer:
    """The largest difference from generation with a cache is below 1e-5."""
    model, text, state = transformer(), ids(32), DecoderState()
    rows = torch.cat([model(text[:, t : t + 1], None, state) for t in range(32)], dim=1)
    difference = apart(model(text, None), rows)
    return f"largest difference {difference:.0e} over 32 steps", verdict(difference < CLOSE)


# ------------------------------------------------------------------------------ cheaper attention


@claim("local", "Local attention equals full attention if the window covers all keys.",
       "Beltagy et al., 2020")  # fmt: skip
@torch.no_grad()
def local() -> Answer:
    """Window 24 of 24 positions differs by less than 1e-5, window 4 by more."""
    x = random(1, 24, 32)
    full = built(Attention.Config(num_heads=4))(x)
    near, far = (
        apart(built(LocalAttention.Config(num_heads=4, window=w))(x), full) for w in (24, 4)
    )
    figure = f"24 positions: {near:.0e} with window 24, {far:.2f} with window 4"
    return figure, verdict(near < CLOSE < far)


@claim("local-reach", "L layers of local attention with window w reach L (w − 1) positions back.",
       "Beltagy et al., 2020", demo="reach")  # fmt: skip
def local_reach() -> Answer:
    """The farthest input with a gradient, for windows 3 and 5 and 2 layers; full reaches all."""
    farthest = {}
    for window in (3, 5, 0):
        kind = LocalAttention.Config(window=window) if window else Attention.Config()
        model = transformer(attention=kind)
        norm = attends(model, lambda model=model: model(ids(24), None))[-1]
        farthest[window] = 23 - int(np.flatnonzero(norm)[0])
    figure = (
        f"{farthest[3]} with w = 3, {farthest[5]} with w = 5, {farthest[0]} of 23 with all keys"
    )
    return figure, verdict(farthest == {3: 4, 5: 8, 0: 23})


@claim("performer", "More random features approximate the softmax better.",
       "Choromanski et al., 2021")  # fmt: skip
@torch.no_grad()
def performer() -> Answer:
    """The mean error over ten draws falls with each eight times as many features."""
    x, full, errors = random(1, 24, 32), built(Attention.Config(num_heads=4)), {}
    exact = full(x)
    for features in (16, 128, 1024):
        drawn = []
        for seed in range(10):
            torch.manual_seed(seed)
            other = RandomFeatureAttention.Config(num_heads=4, features=features).build(32)
            other.load_state_dict(full.state_dict(), strict=False)
            drawn.append(float((other(x) - exact).square().mean().sqrt()))
        errors[features] = float(np.mean(drawn))
    figure = "root mean square error " + ", ".join(f"{e:.3f} at R = {r}" for r, e in errors.items())
    return figure, verdict(all(more > less for more, less in pairwise(errors.values())))


@claim(
    "linear-rnn", "Causal linear attention is a recurrent network.", "Katharopoulos et al., 2020"
)
@torch.no_grad()
def linear_rnn() -> Answer:
    """All at once equals step by step with a state of constant size, to 1e-5."""
    attention, x = built(LinearAttention.Config(num_heads=4)), random(1, 24, 32)
    state, rows, sizes = DecoderState(), [], set()
    for t in range(24):
        rows.append(attention(x[:, t : t + 1], mask=Mask(causal=True), state=state))
        state.position += 1
        sizes.add(state.numbers)
    difference = apart(attention(x, mask=Mask(causal=True)), torch.cat(rows, dim=1))
    figure = (
        f"largest difference {difference:.0e}; the state holds {max(sizes)} numbers at each step"
    )
    return figure, verdict(difference < CLOSE and len(sizes) == 1)


def growth(run: Callable[[Tensor], object]) -> float:
    """How many times as many operations 512 positions take compared with 256."""
    totals = []
    for length in (256, 512):
        with torch.no_grad(), without_kernels(), counting() as operations:
            run(random(1, length, 32))
        totals.append(operations.get_total_flops())
    return totals[1] / totals[0]


@claim("cost",
       "Operations grow with n² in self-attention, with n in linear attention and in an RNN.",
       "Vaswani et al., 2017; Katharopoulos et al., 2020", demo="paths")  # fmt: skip
def cost() -> Answer:
    """Counted at n = 256 and 512, D = 32: above 3.5 times, and below 2.1 times."""
    full, linear = built(Attention.Config()), built(LinearAttention.Config())
    full.tap = lambda weights: None  # so that the products are not hidden in a kernel
    cell = ElmanCell(ElmanCell.Config(), 32, 32)
    ratios = [growth(full), growth(linear),
              growth(lambda x: cell.run(x, cell.start(x[:, 0])))]  # fmt: skip
    figure = "twice the positions: {:.2f}, {:.2f} and {:.2f} times the operations".format(*ratios)
    return figure, verdict(ratios[0] > 3.5 and max(ratios[1:]) < 2.1)


# ------------------------------------------------------------------------------ recurrence


def kept(model: Decoder, distance: int = 30) -> float:
    """The gradient's norm at a distance, by that at distance 0."""
    norms = by_distance(attends(model, lambda: model(ids(distance + 10), None)))
    return float(norms[distance] / norms[0])


@claim("elman", "The gradient of a simple recurrent network vanishes with distance.",
       "Bengio et al., 1994", demo="vanishing")  # fmt: skip
def elman() -> Answer:
    """At distance 30 less than 1/1,000 of it is left in an untrained network."""
    left = kept(recurrent("rnn"))
    return f"{left:.0e} at distance 30", verdict(left < 1e-3)


@claim("gru", "A GRU keeps the gradient over longer distances than a simple recurrent network.",
       "Cho et al., 2014", demo="vanishing")  # fmt: skip
def gru() -> Answer:
    """At distance 30 it keeps at least 10 times as much, both untrained."""
    left = {cell: kept(recurrent(cell)) for cell in ("rnn", "gru")}
    figure = f"{left['gru']:.0e} at distance 30, Elman's {left['rnn']:.0e}"
    return figure, verdict(left["gru"] > 10 * left["rnn"])


@claim("lstm", "An LSTM keeps the gradient.", "Hochreiter & Schmidhuber, 1997; Gers et al., 2000",
       demo="vanishing")  # fmt: skip
def lstm() -> Answer:
    """At distance 30 above 1 % is left with a forget bias of 3, and less with a bias of 0."""
    closed, opened = kept(recurrent("lstm", 0.0)), kept(recurrent("lstm", 3.0))
    figure = f"at distance 30 {opened:.2g} with forget bias 3, {closed:.0e} with 0"
    return figure, verdict(opened > 0.01 > closed, "its forget gate is open")


@claim("cell-100", "The cell of an LSTM keeps its content over 100 steps.",
       "Hochreiter & Schmidhuber, 1997; Gers et al., 2000")  # fmt: skip
@torch.no_grad()
def cell_100() -> Answer:
    """Of c = 1, the input gate closed, above half is left at forget bias 5 and below at 1."""
    left = {}
    for bias in (0.0, 1.0, 3.0, 5.0, 7.0):
        cell = LSTMCell(LSTMCell.Config(), 1, 1)
        for parameter in cell.parameters():
            parameter.zero_()
        cell.bias_ih[0], cell.bias_ih[1] = -20.0, bias
        hidden = torch.zeros(1, 1), torch.ones(1, 1)
        for _ in range(100):
            hidden = cell(cell.project(torch.zeros(1, 1)), hidden)
        left[bias] = float(hidden[1])
    figure = "remaining: " + ", ".join(f"{c:.2g} at bias {bias:g}" for bias, c in left.items())
    return figure, verdict(left[5.0] > 0.5 > left[1.0], "the bias of the forget gate is 5 or more")


@claim("one-step", "The gradient of a Transformer falls far less with distance than Elman's.",
       "Vaswani et al., 2017", demo="reach")  # fmt: skip
def one_step() -> Answer:
    """Between distance 5 and 30 it falls by less than 10 times; Elman's by more."""
    ratios = {}
    for name, model in (("Transformer", transformer()), ("Elman", recurrent("rnn"))):
        ratios[name] = kept(model, 5) / kept(model, 30)
    figure = "from distance 5 to 30 it falls {Transformer:.1f} times, Elman's {Elman:.0e} times"
    return figure.format(**ratios), verdict(ratios["Transformer"] < 10 < ratios["Elman"])


@claim("memory", "A recurrent network generates in constant memory; a cache of keys grows with n.",
       "Katharopoulos et al., 2020; Gu & Dao, 2023", demo="memory")  # fmt: skip
@torch.no_grad()
def memory() -> Answer:
    """From 32 to 128 tokens LSTM and Mamba store as much, a Transformer 4 times as much."""
    mamba = decoder(MambaDecoder.Config.parse({"num_layers": 2, **SMALL}))
    ratios = []
    for model in (recurrent("lstm"), mamba, transformer()):
        numbers = []
        for length in (32, 128):
            state = DecoderState()
            model(ids(length), None, state)
            numbers.append(state.numbers)
        ratios.append(numbers[1] / numbers[0])
    figure = "4 times the tokens: LSTM {:.1f}, Mamba {:.1f}, Transformer {:.1f} times".format(
        *ratios
    )
    return figure, verdict(ratios[0] == ratios[1] == 1 and abs(ratios[2] - 4) < 0.1)


@claim("bag", "A bag of words ignores the order; a recurrent network does not.",
       "Harris, 1954; Elman, 1990", demo="bag")  # fmt: skip
@torch.no_grad()
def bag() -> Answer:
    """A text and its reversal give one vector (to 1e-5) and two."""
    text = ids(12)
    found = []
    for config in (BagEncoder.Config.parse(NARROW), RecurrentEncoder.Config.parse(SMALL | NARROW)):
        model = encoder(config)
        found.append(apart(model(text).summary(), model(text.flip(1)).summary()))
    figure = f"largest difference {found[0]:.0e} and {found[1]:.2f}"
    return figure, verdict(found[0] < CLOSE < found[1])


# ------------------------------------------------------------------------------ positions


@claim("wavelengths", "The wavelengths of sinusoids go from 2π to 10,000 · 2π.",
       "Vaswani et al., 2017", demo="sinusoids")  # fmt: skip
def wavelengths() -> Answer:
    """The longest, 2π over the angle of one place, is within 5 % at D = 512, not at D = 64."""
    longest = {}
    for size in (64, 512):
        place = Sinusoidal(Sinusoidal.Config(), size, 1).encode(torch.tensor([1]), size)[0].double()
        angles = torch.atan2(place[::2], place[1::2])
        longest[size] = float(1 / angles[-1])
        first = float(1 / angles[0])
    ends = ", ".join(f"{wave:,.0f} · 2π at D = {size}" for size, wave in longest.items())
    near = longest[512] > 9_500 > longest[64] and abs(first - 1) < CLOSE
    return f"from {first:.3g} · 2π to {ends}", verdict(
        near, "D is large; otherwise the longest is shorter"
    )


@claim("shift", "PE(t + k) is a linear map of PE(t), the same for every t.", "Vaswani et al., 2017",
       demo="sinusoids")  # fmt: skip
def shift() -> Answer:
    """Rotations computed from PE(7) alone give PE(t + 7) for 400 positions to within 0.001."""
    waves = Sinusoidal(Sinusoidal.Config(), 32, 1).encode(torch.arange(407), 32)
    blocks = [torch.stack((torch.stack((cos, -sin)), torch.stack((sin, cos))))
              for sin, cos in waves[7].view(-1, 2)]  # fmt: skip
    error = apart(waves[:400] @ torch.block_diag(*blocks), waves[7:])
    return f"largest error {error:.0e} with one matrix for 400 positions", verdict(error < 1e-3)


@claim("rotary", "Scores of rotary positions depend only on the distance.", "Su et al., 2021",
       demo="rotary")  # fmt: skip
def rotary() -> Answer:
    """Both positions shifted by 500: to within 0.001; one position shifted: more than that."""
    turn, (q, k) = Rotary(Rotary.Config(), 64, 1), random(2, 1, 1, 1, 64)

    def score(t: int, s: int) -> float:
        return float((turn.rotate(q, torch.tensor([t])) * turn.rotate(k, torch.tensor([s]))).sum())

    both, one = abs(score(509, 502) - score(9, 2)), abs(score(509, 2) - score(9, 2))
    figure = f"the score changes by {both:.0e} with both positions shifted, {one:.1f} with one"
    return figure, verdict(both < 1e-3 < one)


@claim("alibi", "ALiBi lowers the score of a key in proportion to its distance.",
       "Press et al., 2022")  # fmt: skip
def alibi() -> Answer:
    """In each of 8 heads the bias falls by one amount a place."""
    bias = ALiBi(ALiBi.Config(), 64, 8).bias(torch.tensor([31]), torch.arange(32))
    assert bias is not None
    steps = bias[:, 0].diff(dim=-1)  # towards the query
    even = apart(steps, steps[:, :1].expand_as(steps))
    figure = f"per position {steps[0, 0]:.3g} in head 1, {steps[7, 0]:.3g} in head 8"
    return figure, verdict(bool((steps > 0).all()) and even < CLOSE)


# ------------------------------------------------------------------------------ training, words


@claim("base", "The base Transformer has 65 million parameters.", "Vaswani et al., 2017")
def base() -> Answer:
    """With 37,000 tokens shared by both sides the count is within 2 % of 65 million."""
    counts = {}
    for tie in ("all", "none"):
        with torch.device("meta"):
            model = EncoderDecoder(
                PRESETS["vaswani-base"].parse({"tie": tie}), Tokens(37_000), Tokens(37_000)
            )
        counts[tie] = sum(p.numel() for p in model.parameters()) / 1e6
    figure = (
        f"{counts['all']:.1f} M with one table of 37,000 tokens, {counts['none']:.1f} M with three"
    )
    near = abs(counts["all"] / 65 - 1) < 0.02 < abs(counts["none"] / 65 - 1)
    return figure, verdict(near, "embeddings and output are one matrix")


@claim("residual", "Residual connections carry the gradient to the first layers.",
       "He et al., 2016", demo="residual")  # fmt: skip
def residuals() -> Answer:
    """After 20 layers above 1 % is left with x + f(x), and below without the sum."""
    curves = {curve.name: curve.y for curve in residual().curves}
    summed, plain = (float(next(y for n, y in curves.items() if n.startswith(kind))[0])
                     for kind in ("residual", "plain"))  # fmt: skip
    figure = f"gradient of the first layer relative to the last: {summed:.2g}, without {plain:.0e}"
    return figure, verdict(summed > 0.01 > plain)


@claim("layer-norm", "Layer norm gives each vector mean 0 and variance 1.", "Ba et al., 2016")
def layer_norm() -> Answer:
    """To 0.001, for vectors of 64 numbers before γ and β are trained."""
    x = LayerNorm(LayerNorm.Config(), 64)(5 + 3 * random(50, 64)).detach()
    mean, spread = x.mean(dim=-1).abs().max(), x.var(dim=-1, correction=0)
    figure = f"largest mean {mean:.0e}, variances {spread.min():.4f} to {spread.max():.4f}"
    return figure, verdict(float(mean) < 1e-3 > apart(spread, torch.ones(50)))


@claim("noam", "The Noam rate peaks at the end of the warm-up, at 1/√(d · warm-up).",
       "Vaswani et al., 2017", demo="noam")  # fmt: skip
def noam() -> Answer:
    """The highest of 20,000 steps is step 4,000 and has that rate, for d = 512."""
    schedule = Noam(Noam.Config(hidden_size=512, warmup_steps=4000), 0.0)
    rates = [schedule.rate(step) for step in range(1, 20_001)]
    peak = int(np.argmax(rates)) + 1
    right = peak == 4000 and math.isclose(rates[peak - 1], (512 * 4000) ** -0.5)
    return f"step {peak:,}, rate {rates[peak - 1]:.5f}", verdict(right)


@claim("smoothing", "With label smoothing the loss is lowest at p = 1 − α + α/V, not at 1.",
       "Szegedy et al., 2016")  # fmt: skip
@torch.no_grad()
def smoothing() -> Answer:
    """The p of the least loss on a grid, for α = 0.1 and V = 10, is within 0.005."""
    grid = torch.arange(0.5, 0.999, 0.001)
    losses = []
    for p in grid:
        logits = torch.full((10,), float((1 - p) / 9)).index_fill(0, torch.tensor([0]), float(p))
        hidden, target = logits.log()[None], torch.tensor([0])
        losses.append(float(linear_cross_entropy(hidden, torch.eye(10), target, 0.1)[0]))
    best = float(grid[int(np.argmin(losses))])
    return f"p = {best:.3f}", verdict(abs(best - 0.91) < 0.005)


@claim("beam", "Greedy search finds 0.048, a beam of two finds 0.054.",
       "Zhang et al., 2023", demo="beam")  # fmt: skip
def beam() -> Answer:
    """The probabilities of the two outputs, in three decimals."""
    greedy, two = (probability(search(size, 0.0)[1]) for size in (1, 2))
    return f"{greedy:.3f} and {two:.3f}", verdict(
        (round(greedy, 3), round(two, 3)) == (0.048, 0.054)
    )


@claim("chain", "Products of conditional probabilities are a distribution over sequences.",
       "Shannon, 1951; Bengio et al., 2003", demo="chain")  # fmt: skip
def chain() -> Answer:
    """All outputs of up to 8 tokens of the table, ended or not, sum to 1 within 1e-9."""

    def total(prefix: tuple[int, ...], p: float) -> float:
        *others, stop = next_p(prefix)
        if len(prefix) == 8:
            return p
        return p * stop + sum(total((*prefix, i), p * q) for i, q in enumerate(others) if q)

    found = total((), 1.0)
    return f"the sum is {found:.9f}", verdict(abs(found - 1) < 1e-9)


@claim("em", "Each iteration of EM raises the likelihood of IBM Model 1.", "Brown et al., 1993",
       demo="em")  # fmt: skip
def em() -> Answer:
    """The log-likelihood never falls in 20 iterations on the three pairs of the demo."""
    pairs = [("the house", "das Haus"), ("the book", "das Buch"), ("a book", "ein Buch")]
    found = Model1(Model1.Config(iterations=20)).train([(s.split(), t.split()) for s, t in pairs])
    least = min(after - before for before, after in pairwise(found))
    figure = f"from {found[0]:.2f} to {found[-1]:.2f}, the smallest step {least:+.0e}"
    return figure, verdict(least >= 0)
