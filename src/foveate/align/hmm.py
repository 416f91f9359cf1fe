"""The hidden Markov alignment model: the next word's partner stands near the last one's.

p(a_j = i | a_{j−1} = i') = (1 − p₀) c(i − i') / Σ_k c(k − i')   (Vogel, Ney & Tillmann, 1996)
p(a_j = NULL)            = p₀, and the place i' is remembered   (Och & Ney, 2003)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from foveate.align.aligner import Expectation, Lengths, WordAligner
from foveate.align.bitext import Floats
from foveate.align.ibm import model1


class HMM(WordAligner):
    """Alignments are a Markov chain over places; jumps of equal width are equally likely."""

    class Config(WordAligner.Config, kind="hmm"):
        """``null_probability`` is p₀; jumps longer than ``longest_jump`` count as the longest."""

        model1_iterations: int = Field(5, ge=0)
        null_probability: float = Field(0.2, gt=0, lt=1)
        longest_jump: int = Field(30, gt=0)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.first = model1(config, config.model1_iterations)
        self.jumps: Floats = np.ones(2 * config.longest_jump + 1)  # c(d) at d + longest_jump

    def _widths(self, source: int) -> Any:
        """The index in c of the jump from place i' (0: the start) to word i of S: (S + 1, S)."""
        longest = self.config.longest_jump
        width = np.arange(1, source + 1)[None] - np.arange(source + 1)[:, None]
        return width.clip(-longest, longest) + longest

    def transitions(self, source: int) -> Floats:
        """(1 − p₀) c(i − i') / Σ_k c(k − i'): (S + 1, S + 1), from i' to i, 0 being the start."""
        odds = self.jumps[self._widths(source)]
        odds = (1 - self.config.null_probability) * odds / odds.sum(axis=1, keepdims=True)
        return np.pad(odds, ((0, 0), (1, 0)))

    def expect(self, emissions: Floats) -> Expectation:
        """Forward and backward: α_j(i) is of the place i last linked, whether or not by word j."""
        batch, steps, width = emissions.shape
        move, null = self.transitions(width - 1), self.config.null_probability
        nothing, words = emissions[:, :, :1] * null, emissions.copy()
        words[:, :, 0] = 0
        alpha = np.zeros((steps + 1, batch, width))
        alpha[0, :, 0] = 1
        linked = np.empty((steps, batch, width))
        scale = np.empty((steps, batch, 1))
        for j in range(steps):
            linked[j] = (alpha[j] @ move) * words[:, j]
            total = linked[j] + alpha[j] * nothing[:, j]
            scale[j] = total.sum(axis=1, keepdims=True)
            linked[j] /= scale[j]
            alpha[j + 1] = total / scale[j]
        beta = np.ones((batch, width))
        posterior = np.empty_like(emissions)
        moves = np.zeros((width, width))
        for j in reversed(range(steps)):
            posterior[:, j] = linked[j] * beta
            posterior[:, j, 0] = (alpha[j] * beta).sum(axis=1) * nothing[:, j, 0] / scale[j, :, 0]
            ahead = words[:, j] * beta / scale[j]
            moves += move * (alpha[j].T @ ahead)
            beta = beta * nothing[:, j] / scale[j] + ahead @ move.T
        return Expectation(posterior, float(np.log(scale).sum()), moves)

    def learn(self, moves: Mapping[Lengths, Floats]) -> None:
        """c(d) ← n(d) / Σ_i' n(i') / Σ_k c(k − i'), over the places i' from which d is possible.

        The sum in p's denominator depends on S and i', so c has no closed form; this step raises
        the likelihood (Hunter, 2004, for choices from sets) and is taken some times.
        """
        of_source: dict[int, Floats] = {}
        for (source, _), counts in moves.items():
            of_source[source] = of_source.get(source, 0) + counts[:, 1:]
        found = np.zeros_like(self.jumps)
        for source, counts in of_source.items():
            found += np.bincount(self._widths(source).ravel(), counts.ravel(), len(found))
        for _ in range(5):
            expected = np.zeros_like(self.jumps)
            for source, counts in of_source.items():
                widths = self._widths(source)
                rate = counts.sum(axis=1) / self.jumps[widths].sum(axis=1)
                rates = np.broadcast_to(rate[:, None], widths.shape)
                expected += np.bincount(widths.ravel(), rates.ravel(), len(expected))
            possible = expected > 0
            self.jumps[possible] = np.maximum(found[possible] / expected[possible], 1e-9)
            self.jumps /= self.jumps[possible].mean()

    def best(self, emissions: Floats) -> Any:
        """Viterbi: the chain of the highest probability (B, T)."""
        batch, steps, width = emissions.shape
        with np.errstate(divide="ignore"):
            move = np.log(self.transitions(width - 1))
            words = np.log(emissions)
        nothing = words[:, :, 0] + np.log(self.config.null_probability)
        score = np.full((batch, width), -np.inf)
        score[:, 0] = 0
        came, skipped = [], []
        for j in range(steps):
            each = score[:, :, None] + move
            came.append(each.argmax(axis=1))
            linked = each.max(axis=1) + words[:, j]
            stay = score + nothing[:, j, None]
            skipped.append(stay > linked)
            score = np.maximum(linked, stay)
        place, rows = score.argmax(axis=1), np.arange(batch)
        path = np.zeros((batch, steps), dtype=np.int64)
        for j in reversed(range(steps)):
            skip = skipped[j][rows, place]
            path[:, j] = np.where(skip, 0, place)
            place = np.where(skip, place, came[j][rows, place])
        return path
