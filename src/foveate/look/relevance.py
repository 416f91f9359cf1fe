"""Rollout, gradients over time, relevance by five methods: how inputs reach the outputs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from foveate.config import ConfigError
from foveate.look.foreign import ForeignAttention
from foveate.look.hooks import ForcedPass, HookPoint, calls_of, hook_points, tapped, tensors_in
from foveate.look.perturbations import output_of, stems_of
from foveate.look.records import AttentionRecord, Maps, block_of

Figures = NDArray[np.float64]
Rows = dict[str, Figures]  # by side: (N, S), what each of S inputs adds to each of N scores
TINY = 1e-12
POINTS = 50  # on the path of integrated gradients

ROLLOUT = (
    "rollout: mean of the heads, half of each layer its residual, multiplied from the first layer "
    "up (Abnar & Zuidema, 2020)"
)


def mixed(weights: NDArray[np.float32], residual: float = 0.5) -> Figures:
    """Return (1 − r) A + r I of a self-attention, (H, T, T) to (T, T); A averages the heads."""
    mean: Figures = weights.mean(axis=0, dtype=np.float64)
    return (1 - residual) * mean + residual * np.eye(len(mean))


def rolled(maps: Maps, residual: float = 0.5) -> dict[str, NDArray[np.float32]]:
    """Return R_l = ((1 − r) A_l + r I) R_{l−1}, R_0 = I, of self-attention; A_l averages the heads.

    r is the share of the ``residual``. Cross-attention attends to outputs of the encoder: A_l R,
    with R the encoder's last. Shapes: (H, T, S) to (1, T, S), under the same names. An attention
    whose name ends in neither ``self_attention`` nor ``cross_attention`` counts as self-attention
    if it has as many queries as keys. Raises ``ConfigError`` if layers of a side differ in length.
    """
    products: dict[str, NDArray[np.float32]] = {}
    last: dict[str, Figures] = {}  # by the side of the model
    for name, weights in maps.items():
        mean: Figures = weights.mean(axis=0, dtype=np.float64)
        block = block_of(name)
        side = "encoder" if block.startswith("encoder") else "decoder"
        square = mean.shape[0] == mean.shape[1]
        if block.endswith("self_attention") or (square and not block.endswith("cross_attention")):
            if not square or (side in last and len(last[side]) != len(mean)):
                raise ConfigError(
                    f"{name}: rollout multiplies layers with as many queries as keys, the same in "
                    f"all; this map is {mean.shape[0]} × {mean.shape[1]}"
                )
            mean = last[side] = mixed(weights, residual) @ last.get(side, np.eye(len(mean)))
        else:
            mean = mean @ last.get("encoder", np.eye(mean.shape[1]))
        products[name] = mean[None].astype(np.float32)
    return products


def rollout(of: ForcedPass | AttentionRecord) -> AttentionRecord:
    """Return how much of each input each position holds after each layer, with words as labels.

    Computed by `rolled`. A record may hold the captured maps of any model, of all its layers.
    """
    if isinstance(of, AttentionRecord):
        return replace(of, maps=rolled(of.maps), notes=[*of.notes, ROLLOUT])
    return of.labelled(rolled(of.maps()), ROLLOUT)


# The gradient's norm against distance in time: how far back a model can learn.
#
#     g_k = mean over positions t and draws of v of ‖∂(v · h_t) / ∂e_{t−k}‖,   v ~ N(0, I / D)
#
# In a recurrent network this is a product of k Jacobians, which vanishes or explodes with k
# (Bengio, Simard & Frasconi, 1994; Hochreiter, 1991); in attention it is one step, whatever k.

DRAWS = 4  # directions v


def derivatives(scores: Iterable[Tensor], inputs: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Yield the gradients of each score by every input."""
    for score in scores:
        yield torch.autograd.grad(
            score, inputs, retain_graph=True, allow_unused=True, materialize_grads=True
        )


def influence(run: Callable[[], Tensor], stem: nn.Module, draws: int = DRAWS) -> Figures:
    """Return the norms ‖∂(v · h_t) / ∂e_s‖ of every output t and input s: (T, S), root mean square.

    ``run`` makes the model read one sequence and returns its outputs h, (1, T, D); ``stem`` is the
    module that produces the embeddings e, (1, S, D), meanwhile. 0 if t does not depend on s.
    Directions are drawn from a generator of their own, so the same model gives the same numbers.
    """
    random = torch.Generator().manual_seed(0)
    inputs: list[Tensor] = []

    def track(module: nn.Module, args: object, embedded: Tensor) -> None:
        inputs.append(embedded.requires_grad_())

    with torch.enable_grad(), stem.register_forward_hook(track):
        outputs = run()[0]
    squares = torch.zeros(len(outputs), inputs[0].shape[1], dtype=torch.float64)
    for t, output in enumerate(outputs):
        drawn = (torch.randn(output.shape, generator=random) for _ in range(draws))
        products = (output @ (v / output.shape[0] ** 0.5).to(output) for v in drawn)
        for (gradient,) in derivatives(products, inputs[:1]):
            squares[t] += gradient[0].double().square().sum(dim=-1).cpu() / draws
    return squares.sqrt().numpy()


def by_distance(norms: Figures) -> Figures:
    """Return g_k for k = 0 … T − 1: the mean of the norms (T, S) along each diagonal t − s = k."""
    return np.array([norms.diagonal(-k).mean() for k in range(norms.shape[0])])


# Why this word: what each input adds to the score of each output, by five methods.
#
# Attention × gradient, layer by layer (Chefer et al., 2021).


@dataclass
class Relevance:
    """The relevance of inputs to positions, by the rules of Chefer et al. (2021), layer by layer.

    Ā = E_h[(∇A ⊙ A)⁺]. Self-attention: R += Ā R, and for a decoder R_source += Ā R_source.
    Cross-attention: R_source += R̂_tᵀ Ā R̂_s, where R̂ is I + (R − I) with rows that sum to 1.
    """

    encoder: Figures | None = None  # (S, S)
    decoder: Figures | None = None  # (T, T)
    source: Figures | None = None  # (T, S)

    def add(self, name: str, weights: Figures) -> None:
        """Add one more attention, Ā (T, S), in the order of the model."""
        queries, keys = map(np.eye, weights.shape)
        encoder = keys if self.encoder is None else self.encoder
        decoder = queries if self.decoder is None else self.decoder
        if not name.endswith("self_attention"):
            change = _evened(decoder).T @ weights @ _evened(encoder)
            self.source = change if self.source is None else self.source + change
        elif name.startswith("encoder"):
            self.encoder = encoder + weights @ encoder
        else:
            self.decoder = decoder + weights @ decoder
            if self.source is not None:
                self.source = self.source + weights @ self.source


def by_attention(forced: ForcedPass) -> Rows:
    """Return the relevance of the inputs by Chefer et al. (2021); rows sum to 1.

    The relevance of a position to itself through the residual is left out.
    """
    rows: dict[str, list[Figures]] = {}
    for t, of in enumerate(_gathered(forced)):
        if of.decoder is not None:
            own = of.decoder - np.eye(len(of.decoder))
            rows.setdefault("decoder", []).append(own[forced.first + t])
        if of.source is not None:
            rows.setdefault("encoder", []).append(of.source[t])
        elif of.encoder is not None:
            own = _scored(forced, of.encoder - np.eye(len(of.encoder)))
            rows.setdefault("encoder", []).append(own[t])
    whole = {side: np.stack(each) for side, each in rows.items()}
    return {side: x / np.maximum(x.sum(axis=-1, keepdims=True), TINY) for side, x in whole.items()}


def _scored(forced: ForcedPass, whole: Figures) -> Figures:
    """Return the rows (N, S) of a matrix (T, S) from which an encoder's scores are predicted."""
    if forced.first:  # a token at each position, after the start
        return whole[forced.first : forced.first + len(forced.produced)]
    row: Figures = whole.mean(axis=0) if forced.answer_at is None else whole[forced.answer_at]
    return row[None]


def _gathered(forced: ForcedPass) -> Iterator[Relevance]:
    """Yield the relevance of the inputs to each score, in order.

    Ā = E_h[(∇A ⊙ A)⁺], (T, S), of several calls of one attention are joined along the queries.
    """
    attentions = hook_points(forced.model)
    names: list[str] = []
    calls: list[Tensor] = []

    def tap(name: str, weights: Tensor) -> Tensor:
        names.append(name)
        calls.append(weights if weights.requires_grad else weights.detach().requires_grad_())
        return calls[-1]

    taps = {name: partial(tap, name) for name in attentions}
    with torch.enable_grad(), tapped(taps, attentions):
        scores = forced.run()
    if not calls:
        raise ConfigError(
            "this model has no attention, so relevance by it cannot be computed: choose --method"
        )
    for gradients in derivatives(scores, calls):
        parts: dict[str, list[Tensor]] = {}
        for name, weights, gradient in zip(names, calls, gradients, strict=True):
            positive = (gradient * weights).detach()[forced.row].clamp(min=0)
            parts.setdefault(name, []).append(positive.double().mean(dim=0))
        of = Relevance()
        for name in (name for name in attentions if name in parts):
            of.add(name, torch.cat(parts[name]).cpu().numpy())
        yield of


def _evened(relevances: Figures) -> Figures:
    """Return I + (R − I) with rows that sum to 1."""
    eye = np.eye(len(relevances))
    rest = relevances - eye
    return eye + rest / np.maximum(rest.sum(axis=-1, keepdims=True), TINY)


# Methods that change the vectors of the inputs, in place of those of unknown words.


@dataclass(frozen=True)
class Embedded:
    """The vectors (1, S, D) that the stem of each side gives a model, and others in their place.

    ``blank`` are those of the same example with an unknown word in place of each word; start and
    end stay. Vectors of pictures become 0.
    """

    forced: ForcedPass
    stems: Mapping[str, nn.Module]
    vectors: Mapping[str, Tensor]
    blank: Mapping[str, Tensor]

    @classmethod
    def of(cls, forced: ForcedPass) -> Self:
        """Return the vectors of an example. Raises ``ConfigError`` unless each stem runs once."""
        stems = stems_of(forced.model)
        with torch.no_grad(), calls_of(*stems.values()) as calls:
            forced.run()
        if not stems or len(calls) != len(stems):
            raise ConfigError("this method needs a model that embeds each input once")
        called = {call.module: call for call in calls}
        vectors, blank = {}, {}
        for side, stem in stems.items():
            [read], vectors[side] = called[stem].read, called[stem].output
            words = not read.is_floating_point()
            with torch.no_grad():
                blank[side] = stem(forced.blank(read)) if words else 0 * vectors[side]
        return cls(forced, stems, vectors, blank)

    def scores(self, vectors: Mapping[str, Tensor]) -> Tensor:
        """Return the scores (N,) of other vectors."""
        with ExitStack() as stack:
            for side, own in vectors.items():
                hook = partial(lambda own, *call: own, own)
                register = self.stems[side].register_forward_hook
                stack.enter_context(register(hook, prepend=True))  # before a patch
            return self.forced.run()

    def without(self) -> ForcedPass:
        """Return the pass with unknown words on the first side, the source if there is one."""
        blank = dict([next(iter(self.blank.items()))])
        return replace(self.forced, run=lambda: self.scores(blank))

    def words(self, side: str) -> list[int]:
        """Return the positions that are not blank already."""
        return (self.vectors[side] != self.blank[side])[0].any(dim=-1).nonzero()[:, 0].tolist()

    @torch.no_grad()
    def deleted(self, side: str, positions: Sequence[int]) -> Figures:
        """Return the scores without the words at some positions."""
        vectors = self.vectors[side].clone()
        vectors[:, positions] = self.blank[side][:, positions]
        return self.scores({side: vectors}).double().cpu().numpy()

    def along(self, start: Mapping[str, Tensor], points: Iterable[tuple[float, float]]) -> Rows:
        """Return Σ_α w_α (x − x′) · ∂score(x′ + α (x − x′)) / ∂x for pairs α, w; x′: start."""
        rows: Rows = {}
        for alpha, weight in points:
            inputs = {
                side: torch.lerp(start[side], own, alpha).detach().requires_grad_()
                for side, own in self.vectors.items()
            }
            with torch.enable_grad():
                scores = self.scores(inputs)
            parts = zip(*derivatives(scores, [*inputs.values()]), strict=True)
            for (side, own), part in zip(self.vectors.items(), parts, strict=True):
                sums = ((own - start[side]) * torch.cat(part)).sum(dim=-1).detach().double()
                rows[side] = rows.get(side, 0) + weight * sums.cpu().numpy()
        return rows


def by_gradient(forced: ForcedPass) -> Rows:
    """Return x · ∂score/∂x of each vector x (Shrikumar et al., 2016)."""
    embedded = Embedded.of(forced)
    zeros = {side: torch.zeros_like(own) for side, own in embedded.vectors.items()}
    return embedded.along(zeros, [(1.0, 1.0)])


def by_integration(forced: ForcedPass) -> Rows:
    """Return (x − x′) · ∫ ∂score(x′ + α (x − x′)) / ∂x dα of each vector x.

    By Sundararajan et al. (2017). x′ is blank; the integral over α from 0 to 1 is Gauss–Legendre's
    sum. All parts of a score sum to score(x) − score(x′), which is their completeness.
    """
    embedded, (places, weights) = Embedded.of(forced), np.polynomial.legendre.leggauss(POINTS)
    return embedded.along(embedded.blank, zip((1 + places) / 2, weights / 2, strict=True))


def incompleteness(forced: ForcedPass, rows: Rows) -> float:
    """Return the largest difference of a row's sum, over all sides, from score(x) − score(x′)."""
    embedded = Embedded.of(forced)
    with torch.no_grad():
        without = embedded.scores(embedded.blank).double().cpu().numpy()
    sums = sum(own.sum(axis=-1) for own in rows.values())
    return float(np.abs(sums - (forced.scores() - without)).max())


def by_occlusion(forced: ForcedPass) -> Rows:
    """Return what each score loses without each word (Zeiler & Fergus, 2014; Li et al., 2016)."""
    embedded, whole, rows = Embedded.of(forced), forced.scores(), Rows()
    for side, vectors in embedded.vectors.items():
        rows[side] = np.zeros((len(whole), vectors.shape[1]))
        for position in embedded.words(side):
            rows[side][:, position] = whole - embedded.deleted(side, [position])
    return rows


# How much each layer's output turns if a value is 0, layers multiplied (Mohebbi et al., 2023).


@torch.no_grad()
def mixing_of(forced: ForcedPass) -> dict[str, NDArray[np.float32]]:
    """Return the context mixing of each attention, (1, T, S), rows summing to 1.

    C_ts is the cosine distance of a layer's output at t from that with the value of s set to 0 in
    this layer alone. Raises ``ConfigError`` for a model without layers of attention.
    """
    points = hook_points(forced.model)
    layers = {n: own for n, point in points.items() if (own := layer_of(forced.model, point))}
    if not layers:
        raise ConfigError("value zeroing compares layers of attention: this model has none")
    with calls_of(*set(layers.values())) as calls:
        forced.run()
    called, maps, zeroed = {call.module: call for call in calls}, forced.maps(), {}
    for name, layer in layers.items():
        call, turns = called[layer], list[Tensor]()
        for s in range(maps[name].shape[-1]):
            without = partial(torch.index_fill, dim=-1, index=torch.tensor([s]), value=0)
            with tapped({name: without}, points):
                after = next(tensors_in(call.module(*call.args, **call.named)))
            turns.append(1 - cosine_similarity(after.double(), call.gave[0].double(), dim=-1))
        mixing = torch.stack(turns, dim=-1)[[forced.row]].clamp(min=0)
        mixed = mixing / mixing.sum(dim=-1, keepdim=True).clamp(min=TINY)
        zeroed[name] = mixed.float().cpu().numpy()
    return zeroed


def layer_of(model: nn.Module, point: HookPoint) -> nn.Module | None:
    """Return the outermost layer that contains an attention, None outside of lists of layers."""
    attention = point.module if isinstance(point, ForeignAttention) else point
    lists = (part for part in model.modules() if isinstance(part, nn.ModuleList))
    return next((each for part in lists for each in part if attention in [*each.modules()]), None)


def by_values(forced: ForcedPass) -> Rows:
    """Return the context mixing of value zeroing, multiplied from the first layer up."""
    last = {block_of(n): w[0].astype(float) for n, w in rolled(mixing_of(forced), 0.0).items()}
    if "decoder" not in forced.read:
        return {"encoder": _scored(forced, last["encoder.self_attention"])}
    scored = slice(forced.first, forced.first + len(forced.produced))
    blocks = {"encoder": "decoder.cross_attention", "decoder": "decoder.self_attention"}
    return {side: last[block][scored] for side, block in blocks.items() if block in last}


METHODS: Mapping[str, tuple[Callable[[ForcedPass], Rows], str]] = {  # and what it is
    "attention": (
        by_attention,
        "relevance: weights that a gradient of the answer calls for, (∇A ⊙ A)⁺, added up through "
        "the layers; rows sum to 1 (Chefer et al., 2021)",
    ),
    "gradient": (by_gradient, "gradient × input, x · ∂ log p / ∂x (Shrikumar et al., 2016)"),
    "integrated": (by_integration, "integrated gradients from unknown words (Sundararajan, 2017)"),
    "occlusion": (by_occlusion, "log p lost if a word is unknown (Zeiler & Fergus, 2014)"),
    "values": (by_values, "value zeroing, layers multiplied; rows sum to 1 (Mohebbi et al., 2023)"),
}


def relevance(forced: ForcedPass, method: str = "attention") -> AttentionRecord:
    """Return how relevant each input is to each output, with words on its axes, by one of METHODS.

    For a target, ``decoder.cross_attention`` holds the relevance of source words, and
    ``decoder.self_attention`` that of the words written before; for a label, ``relevance`` is one
    row. Raises ``ConfigError`` for a forecast, and for a model that lacks what the method changes.
    """
    if forced.score_name == "forecast":
        raise ConfigError("relevance needs an output with a probability, which a forecast lacks")
    compute, note = METHODS[method]
    note += f"; of {forced.score_name}" * (forced.score_name != "log p")
    rows, maps = compute(forced), {}
    if method == "integrated":
        gap = incompleteness(forced, rows)
        note += f"; complete: sums are log p − log p of unknown words within {gap:.2g}"
    for side, own in rows.items():
        crosses = side == "encoder" and "decoder" in forced.read
        square = side == "decoder" or (forced.first > 0 and not crosses)
        kind = f"{side}.self_attention" if square else "relevance"
        first = forced.first if square else 0
        whole = np.zeros((own.shape[1] if square else len(own), own.shape[1]), np.float32)
        whole[first : first + len(own)] = own
        maps["decoder.cross_attention" if crosses else kind] = whole[None]
    return forced.labelled(maps, note)


def contrasted(forced: ForcedPass, word: str) -> ForcedPass:
    """Return the pass with log p − log p of another word at each position (Yin & Neubig, 2022).

    The word counts by its first token; it may be another label. Raises ``ConfigError`` if the
    model does not score all words by one output layer.
    """
    output = output_of(forced.model)
    if output is None or forced.number is None:
        raise ConfigError("--not needs a model that scores all words (or labels) by one layer")
    foil = forced.number(word)

    def run() -> Tensor:
        with calls_of(output) as calls:
            scores = forced.run()
        return scores - forced.scored(calls[-1].output).log_softmax(dim=-1)[:, foil]

    return replace(forced, run=run, score_name=f"log p − log p({word})")


RANDOM = "random order"
ORDERS = 10  # random ones


def faithfulness(forced: ForcedPass, seed: int = 0) -> dict[str, Figures]:
    """Return the mean score with 0, 1, … words deleted, the most relevant first, by each method.

    The words are the source's, or those that a decoder without one reads. `RANDOM` is the mean of
    random orders; methods that the model lacks are left out. A faithful order loses much at once.
    """
    embedded, curves = Embedded.of(forced), dict[str, Figures]()
    side, generator = next(iter(embedded.vectors)), np.random.default_rng(seed)
    words = np.array(embedded.words(side), int)

    def curve(order: NDArray[np.int_]) -> Figures:
        counts = range(len(order) + 1)
        return np.array([embedded.deleted(side, order[:n].tolist()).mean() for n in counts])

    curves[RANDOM] = np.mean([curve(generator.permutation(words)) for _ in range(ORDERS)], axis=0)
    for name, (compute, _) in METHODS.items():
        with suppress(ConfigError):
            rows = compute(forced)
            if side in rows:
                worth = rows[side].sum(axis=0)[words]
                curves[name] = curve(words[np.argsort(-worth, kind="stable")])
    return curves


def area(curves: Mapping[str, Figures], name: str) -> float:
    """Return the mean difference of a curve from that of random orders; positive if faithful."""
    return float((curves[RANDOM] - curves[name]).mean())
