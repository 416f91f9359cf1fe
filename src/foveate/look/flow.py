"""How input flows into output: rollout, relevance, gradients over time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.hooks import ForcedPass, hook_points, tapped
from foveate.look.records import AttentionRecord, Maps, block_of

Figures = NDArray[np.float64]
TINY = 1e-12

ROLLOUT = (
    "rollout: mean of the heads, half of each layer its residual, multiplied from the first layer "
    "up (Abnar & Zuidema, 2020)"
)
RELEVANCE = (
    "relevance: weights that a gradient of the answer calls for, (∇A ⊙ A)⁺, added up through the "
    "layers; rows sum to 1 (Chefer et al., 2021)"
)


def rolled(maps: Maps) -> dict[str, NDArray[np.float32]]:
    """Return R_l = (½ A_l + ½ I) R_{l−1}, R_0 = I, for each self-attention; A_l averages the heads.

    Cross-attention attends to outputs of the encoder: A_l R, with R the encoder's last. Shapes: (H,
    T, S) to (1, T, S), under the same names. An attention whose name ends in neither
    ``self_attention`` nor ``cross_attention`` counts as self-attention if it has as many queries as
    keys. Raises ``ConfigError`` if the layers of a side differ in length.
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
            mixed = (mean + np.eye(len(mean))) / 2
            last[side] = mixed @ last[side] if side in last else mixed
            products[name] = last[side][None].astype(np.float32)
        else:
            seen = last.get("encoder")
            products[name] = (mean if seen is None else mean @ seen)[None].astype(np.float32)
    return products


def rollout(of: ForcedPass | AttentionRecord) -> AttentionRecord:
    """Return how much of each input each position holds after each layer, with words as labels.

    Computed by `rolled`. A record may hold the captured maps of any model, of all its layers.
    """
    if isinstance(of, AttentionRecord):
        return replace(of, maps=rolled(of.maps), notes=[*of.notes, ROLLOUT])
    return of.labelled(rolled(of.maps()), ROLLOUT)


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


def relevance(forced: ForcedPass) -> AttentionRecord:
    """Return how relevant each input is to each output, with words on its axes; rows sum to 1.

    For a target, ``decoder.cross_attention`` holds the relevance of source words, and
    ``decoder.self_attention`` that of the words written before; for a label, ``relevance`` is one
    row. The relevance of a position to itself through the residual is left out. Takes one backward
    pass per score. Raises ``ConfigError`` for a forecast, and for a model without attention.
    """
    if forced.score_name != "log p":
        raise ConfigError("relevance needs an output with a probability, which a forecast lacks")
    matrices: dict[str, Figures] = {}
    for t, gathered in enumerate(_gathered(forced)):
        for name, (place, rows) in _answered(forced, gathered, t).items():
            whole = matrices.setdefault(name, np.zeros_like(rows))
            whole[place] = rows[place] / max(rows[place].sum(), TINY)
    maps = {name: whole[None].astype(np.float32) for name, whole in matrices.items()}
    return forced.labelled(maps, RELEVANCE)


def _answered(forced: ForcedPass, of: Relevance, t: int) -> dict[str, tuple[int, Figures]]:
    """Return, by map name, the row that score t was read from and the matrix it belongs to."""
    rows_of: dict[str, tuple[int, Figures]] = {}
    if of.decoder is not None:
        rows_of["decoder.self_attention"] = forced.first + t, of.decoder - np.eye(len(of.decoder))
    if of.source is not None:
        name = "decoder.cross_attention" if "decoder" in forced.read else "relevance"
        rows_of[name] = t, of.source
    if rows_of or of.encoder is None:
        return rows_of
    own = of.encoder - np.eye(len(of.encoder))
    if forced.first:  # a token at each position, after the start
        return {"encoder.self_attention": (forced.first + t, own)}
    row = own.mean(axis=0) if forced.answer_at is None else own[forced.answer_at]
    return {"relevance": (0, row[None])}


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
        raise ConfigError("this model has no attention, so relevance cannot be computed")
    for score in scores:
        gradients = torch.autograd.grad(
            score, calls, retain_graph=True, allow_unused=True, materialize_grads=True
        )
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


# The gradient's norm against distance in time: how far back a model can learn.
#
#     g_k = mean over positions t and draws of v of ‖∂(v · h_t) / ∂e_{t−k}‖,   v ~ N(0, I / D)
#
# In a recurrent network this is a product of k Jacobians, which vanishes or explodes with k
# (Bengio, Simard & Frasconi, 1994; Hochreiter, 1991); in attention it is one step, whatever k.

DRAWS = 4  # directions v


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
        for _ in range(draws):
            v = torch.randn(output.shape, generator=random) / output.shape[0] ** 0.5
            product = output @ v.to(output)
            gradient = torch.autograd.grad(
                product, inputs[:1], retain_graph=True, allow_unused=True, materialize_grads=True
            )[0][0]
            squares[t] += gradient.double().square().sum(dim=-1).cpu() / draws
    norms: Figures = squares.sqrt().numpy()
    return norms


def by_distance(norms: Figures) -> Figures:
    """Return g_k for k = 0 … T − 1: the mean of the norms (T, S) along each diagonal t − s = k."""
    return np.array([norms.diagonal(-k).mean() for k in range(norms.shape[0])])
