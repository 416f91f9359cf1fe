"""How attention flows through all layers, and how much of it mattered for what was said.

Lives here: `rollout` (Abnar & Zuidema, 2020), `relevance` (Chefer et al., 2021). Both are rules of
thumb for what goes on between layers, not what the model computes: values are left out of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.config import ConfigError
from foveate.look.forced import ForcedPass, Maps
from foveate.look.record import AttentionRecord
from foveate.look.seams import seams, tapped

Matrix = NDArray[np.float64]
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
    """R_l = (½ A_l + ½ I) R_{l−1}, R_0 = I, for each self-attention, A_l the mean of the heads.

    What cross-attention sees is what the encoder has mixed: A_l R, R the encoder's last. Shapes:
    (H, T, S) to (1, T, S), by the same names.
    """
    found: dict[str, NDArray[np.float32]] = {}
    last: dict[str, Matrix] = {}  # by the side of the model
    for name, weights in maps.items():
        mean: Matrix = weights.mean(axis=0, dtype=np.float64)
        side = "encoder" if name.startswith("encoder") else "decoder"
        if name.endswith("self_attention"):
            mixed = (mean + np.eye(len(mean))) / 2
            last[side] = mixed @ last[side] if side in last else mixed
            found[name] = last[side][None].astype(np.float32)
        else:
            seen = last.get("encoder")
            found[name] = (mean if seen is None else mean @ seen)[None].astype(np.float32)
    return found


def rollout(forced: ForcedPass) -> AttentionRecord:
    """What each place has of each input after each layer, by `rolled`, with words on its axes."""
    return forced.labelled(rolled(forced.maps()), ROLLOUT)


@dataclass
class Relevance:
    """The relevance of inputs to places, by the rules of Chefer et al. (2021), layer after layer.

    Ā = E_h[(∇A ⊙ A)⁺]. Self-attention: R += Ā R, and for a decoder R_source += Ā R_source.
    Cross-attention: R_source += R̂_tᵀ Ā R̂_s, where R̂ is I + (R − I) with rows that sum to 1.
    """

    encoder: Matrix | None = None  # (S, S)
    decoder: Matrix | None = None  # (T, T)
    source: Matrix | None = None  # (T, S)

    def add(self, name: str, weights: Matrix) -> None:
        """One attention more, Ā (T, S), in the order of the model."""
        if not name.endswith("self_attention"):
            rows = np.eye(len(weights)) if self.decoder is None else _evened(self.decoder)
            columns = np.eye(weights.shape[1]) if self.encoder is None else _evened(self.encoder)
            change = rows.T @ weights @ columns
            self.source = change if self.source is None else self.source + change
            return
        side = "encoder" if name.startswith("encoder") else "decoder"
        before = getattr(self, side)
        before = np.eye(len(weights)) if before is None else before
        setattr(self, side, before + weights @ before)
        if side == "decoder" and self.source is not None:
            self.source = self.source + weights @ self.source


def relevance(forced: ForcedPass) -> AttentionRecord:
    """What mattered for each thing that was said, with words on its axes; rows sum to 1.

    Of a target, ``decoder.cross_attention`` is its words over the source's, and
    ``decoder.self_attention`` over what was written before; of a label, ``relevance`` is one row.
    A place's relevance to itself that comes of the residual is left out. One backward pass for
    each score. Raises ``ConfigError`` for a forecast, and for a model without attention.
    """
    if forced.told != "log p":
        raise ConfigError("relevance is to what is said with a probability; a forecast has none")
    found: dict[str, Matrix] = {}
    for t, gathered in enumerate(_gathered(forced)):
        for name, (place, rows) in _answered(forced, gathered, t).items():
            whole = found.setdefault(name, np.zeros_like(rows))
            whole[place] = rows[place] / max(rows[place].sum(), TINY)
    maps = {name: whole[None].astype(np.float32) for name, whole in found.items()}
    return forced.labelled(maps, RELEVANCE)


def _answered(forced: ForcedPass, of: Relevance, t: int) -> dict[str, tuple[int, Matrix]]:
    """By the name of a map the row that score t was read from, and the matrix that it is of."""
    found: dict[str, tuple[int, Matrix]] = {}
    if of.decoder is not None:
        found["decoder.self_attention"] = forced.first + t, of.decoder - np.eye(len(of.decoder))
    if of.source is not None:
        name = "decoder.cross_attention" if "decoder" in forced.read else "relevance"
        found[name] = t, of.source
    if found or of.encoder is None:
        return found
    own = of.encoder - np.eye(len(of.encoder))
    if forced.first:  # a token at each place, behind the start
        return {"encoder.self_attention": (forced.first + t, own)}
    row = own.mean(axis=0) if forced.answer_at is None else own[forced.answer_at]
    return {"relevance": (0, row[None])}


def _gathered(forced: ForcedPass) -> Iterator[Relevance]:
    """What was relevant for each score, in their order."""
    found = seams(forced.model)
    calls: dict[str, list[Tensor]] = {}

    def tap(name: str) -> Callable[[Tensor], Tensor]:
        def see(weights: Tensor) -> Tensor:
            kept = weights if weights.requires_grad else weights.detach().requires_grad_()
            calls.setdefault(name, []).append(kept)
            return kept

        return see

    with torch.enable_grad(), tapped({name: tap(name) for name in found}, found):
        scores = forced.run()
    if not calls:
        raise ConfigError("this model has no attention, and so no relevance by attention")
    parts = [part for pieces in calls.values() for part in pieces]
    for score in scores:
        asked = torch.autograd.grad(score, parts, retain_graph=True, allow_unused=True)
        called = {id(part): grad for part, grad in zip(parts, asked, strict=True)}
        of = Relevance()
        for name in (name for name in found if name in calls):
            of.add(name, _called_for(calls[name], called, forced.row))
        yield of


def _called_for(calls: list[Tensor], grads: Mapping[int, Tensor | None], row: int) -> Matrix:
    """Ā = E_h[(∇A ⊙ A)⁺], (T, S), of the calls of one attention, joined along the queries."""
    parts = []
    for weights in calls:
        grad = grads[id(weights)]
        called = torch.zeros_like(weights) if grad is None else grad * weights
        parts.append(called.detach()[row].clamp(min=0).double().mean(dim=0))
    joined: Matrix = torch.cat(parts).cpu().numpy()
    return joined


def _evened(relevances: Matrix) -> Matrix:
    """I + (R − I) with rows that sum to 1."""
    eye = np.eye(len(relevances))
    rest = relevances - eye
    return eye + rest / np.maximum(rest.sum(axis=-1, keepdims=True), TINY)
