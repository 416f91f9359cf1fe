"""Statistical word alignment: IBM model 1, the HMM, and both directions together."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pydantic
import torch
from numpy.typing import NDArray
from pydantic import Field

from foveate.align.aer import METHODS, Method
from foveate.config import BaseConfig, FromConfig
from foveate.engine.links import Links
from foveate.errors import UserError

Words = Sequence[str]
Pair = tuple[Words, Words]  # source words, target words
Floats = NDArray[np.floating]
Ints = NDArray[np.int64]
NULL = 0  # the number of the empty source word e_0
STEM = 4  # words that share this many first letters may be cognates; shorter ones must be equal
FLOOR = 1e-12  # t(f | e) of words that never occurred together in training


@dataclass(frozen=True)
class PairGroup:
    """B pairs of S source and T target words: their indices (B,), and the numbers of their words.

    ``source`` is (B, S + 1), NULL first; ``target`` is (B, T).
    """

    pairs: Ints
    source: Ints
    target: Ints

    def keys(self, width: int) -> Ints:
        """Return one number for each pair of words (f_j, e_i): (B, T, S + 1)."""
        return self.source[:, None, :] * width + self.target[:, :, None]


class WordIds:
    """The numbers of words: source words from 1 (0 is NULL), target words from 0.

    Words that did not occur in training share the last number.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        sources = dict.fromkeys(word for source, _ in pairs for word in source)
        targets = dict.fromkeys(word for _, target in pairs for word in target)
        self.source = {word: number for number, word in enumerate(sources, start=1)}
        self.target = {word: number for number, word in enumerate(targets)}
        self.width = len(self.target) + 1

    def groups(self, pairs: Sequence[Pair]) -> list[PairGroup]:
        """Group pairs of equal lengths, so that arrays need no padding; leave out empty pairs."""
        of_lengths: dict[tuple[int, int], list[int]] = {}
        for index, (source, target) in enumerate(pairs):
            if source and target:
                of_lengths.setdefault((len(source), len(target)), []).append(index)
        groups, unknown = [], (len(self.source) + 1, len(self.target))
        for _, chosen in sorted(of_lengths.items()):
            sources = [[self.source.get(w, unknown[0]) for w in pairs[i][0]] for i in chosen]
            targets = [[self.target.get(w, unknown[1]) for w in pairs[i][1]] for i in chosen]
            null_first = np.pad(np.array(sources, dtype=np.int64), ((0, 0), (1, 0)))
            groups.append(
                PairGroup(np.array(chosen), null_first, np.array(targets, dtype=np.int64))
            )
        return groups


class Lexicon:
    """t(f | e) for all words that occur together in some pair: N entries, sorted by their keys."""

    def __init__(self, keys: Ints, width: int) -> None:
        self.keys, self.width = keys, width
        self.source = keys // width
        self.probability: Floats = np.append(1 / np.bincount(self.source)[self.source], FLOOR)

    def places(self, group: PairGroup) -> Ints:
        """Return the entries of the words of a group in the table; N for those it lacks."""
        keys = group.keys(self.width)
        places = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, len(self.keys))

    def alike(self, numbers: WordIds) -> NDArray[np.bool_]:
        """Return whether the words of each entry begin alike: names, numbers, cognates (N,)."""
        known: dict[str, int] = {}  # the number of each word's first letters
        source, target = (
            np.array([known.setdefault(word[:STEM].lower(), len(known)) for word in side])
            for side in (["", *numbers.source], numbers.target)  # NULL is like no word
        )
        return source[self.source] == target[self.keys % self.width]

    def learn(self, counts: Floats, concentration: float, extra: Floats | None = None) -> None:
        """Set t(f | e) = c(f, e) / Σ_f' c(f', e); with a Dirichlet prior its variational mean.

        exp ψ(c(f, e) + α) / exp ψ(Σ_f' c(f', e) + α V), which takes from rare words what they would
        otherwise collect (Riley & Gildea, 2012); α = 0 is maximum likelihood. ``extra`` is added to
        α of each entry (N,).
        """
        counts = counts + (0.0 if extra is None else extra)
        totals = np.bincount(self.source, counts)
        if concentration:
            sums = counts + concentration, totals + concentration * (self.width - 1)
            upper, lower = (torch.from_numpy(each).digamma().exp().numpy() for each in sums)
        else:
            upper, lower = counts, np.maximum(totals, np.finfo(float).tiny)
        self.probability = np.append(np.maximum(upper / lower[self.source], FLOOR), FLOOR)


class Aligner(FromConfig):
    """Learns word translations from pairs by expectation maximisation, and links their words.

        p(f, a | e) = Π_j p(a_j | …) · t(f_j | e_{a_j}),   a_j = 0 for NULL (Brown et al., 1993)

    The kinds differ in p(a_j | …), the distribution of the source word of target word j.
    """

    class Config(BaseConfig, family="aligner"):
        """``lowercase``: words are compared without their case."""

        lowercase: bool = True  # whether words are compared in small letters

    config: Config

    @abstractmethod
    def train(self, pairs: Sequence[Pair]) -> list[float]:
        """Learn from pairs of lists of words; return log p(f | e) before each iteration.

        It rises. Raises `UserError` if no pair has words on both sides.
        """

    @abstractmethod
    def align(self, pairs: Sequence[Pair]) -> list[Links]:
        """Return the links of each pair, trained on or not; none if a side is empty."""

    def ready(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Return the pairs with their words in the form in which they are compared."""
        if not self.config.lowercase:
            return list(pairs)
        return [([w.lower() for w in s], [w.lower() for w in t]) for s, t in pairs]


@dataclass(frozen=True)
class Expectation:
    """The result of the E step for a group of B pairs of equal lengths.

    ``posterior`` (B, T, S + 1) is p(a_j = i | f, e), ``log_likelihood`` Σ log p(f | e), ``moves``
    the sums from which the aligner re-estimates p(a_j | …).
    """

    posterior: Floats
    log_likelihood: float
    moves: Floats


class WordAligner(Aligner):
    """An aligner that gives each target word one source word or NULL, trained by EM."""

    class Config(Aligner.Config):
        """α of the Dirichlet prior of t, higher for cognates (Al-Onaizan et al., 1999)."""

        iterations: int = Field(5, ge=0)  # passes of expectation maximisation over the pairs
        concentration: float = Field(0.0, ge=0)
        """Of the Dirichlet prior of variational Bayes; 0: maximum likelihood."""
        cognates: float = Field(0.0, ge=0)
        """Added to the concentration for words that begin alike."""

    config: Config
    first: "WordAligner | None" = None  # the simpler model whose t this one starts from
    numbers: WordIds
    lexicon: Lexicon

    def train(self, pairs: Sequence[Pair]) -> list[float]:
        return em([self], [EMTraining(self.ready(pairs))])

    def align(self, pairs: Sequence[Pair]) -> list[Links]:
        links: list[Links] = [set() for _ in pairs]
        for group in self.numbers.groups(self.ready(pairs)):
            for index, row in zip(group.pairs, self.best(self.emissions(group)), strict=True):
                links[index] = {(int(i) - 1, j) for j, i in enumerate(row) if i}
        return links

    def posterior(self, group: PairGroup) -> Floats:
        """Return p(a_j = i | f, e) for a group: (B, T, S + 1)."""
        return self.expect(self.emissions(group)).posterior

    def emissions(self, group: PairGroup) -> Floats:
        """Return t(f_j | e_i): (B, T, S + 1)."""
        return self.lexicon.probability[self.lexicon.places(group)]

    @abstractmethod
    def expect(self, emissions: Floats) -> Expectation:
        """Run the E step for B pairs of equal lengths, from t(f_j | e_i) (B, T, S + 1)."""

    @abstractmethod
    def learn(self, moves: Iterable[Floats]) -> None:
        """Run the M step of p(a_j | …), from the ``moves`` of every group."""

    @abstractmethod
    def best(self, emissions: Floats) -> Ints:
        """Return the best alignment a (B, T), 0 for NULL."""


class EMTraining:
    """A corpus being trained on: its groups, and their words' entries in the lexicon."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.numbers = WordIds(pairs)
        self.groups = self.numbers.groups(pairs)
        if not self.groups:
            raise UserError("no pair has words on both sides: nothing to align in SOURCE")
        keys = [group.keys(self.numbers.width).ravel() for group in self.groups]
        self.lexicon = Lexicon(np.unique(np.concatenate(keys)), self.numbers.width)
        self.alike = self.lexicon.alike(self.numbers)
        self.places = [self.lexicon.places(group) for group in self.groups]

    def expect(self, model: WordAligner) -> list[Expectation]:
        """Run the E step of every group."""
        return [model.expect(self.lexicon.probability[places]) for places in self.places]

    def learn(
        self, model: WordAligner, expectations: Sequence[Expectation], posteriors: Sequence[Floats]
    ) -> None:
        """Run the M step, with c(f, e) the sums of ``posteriors``."""
        places = np.concatenate([each.ravel() for each in self.places])
        counted = np.concatenate([each.ravel() for each in posteriors])
        counts = np.bincount(places, counted, minlength=len(self.lexicon.keys))
        extra = model.config.cognates * self.alike if model.config.cognates else None
        self.lexicon.learn(counts.astype(np.float64), model.config.concentration, extra)
        model.learn(e.moves for e in expectations)


def em(models: Sequence[WordAligner], corpora: Sequence[EMTraining]) -> list[float]:
    """Run EM, after that of the simpler models; return the log-likelihood before each iteration.

    Two models, of the two directions, count what both agree on.
    """
    if first := [model.first for model in models if model.first is not None]:
        em(first, corpora)
    for model, corpus in zip(models, corpora, strict=True):
        model.numbers, model.lexicon = corpus.numbers, corpus.lexicon
    return [em_step(models, corpora) for _ in range(models[0].config.iterations)]


def em_step(models: Sequence[WordAligner], corpora: Sequence[EMTraining]) -> float:
    """Run one iteration of EM; return log p(f | e) under the parameters before it."""
    expectations = [c.expect(m) for c, m in zip(corpora, models, strict=True)]
    posteriors = [[e.posterior for e in own] for own in expectations]
    if len(models) == 2:
        there, back = posteriors
        posteriors = [agreed_groups(there, back), agreed_groups(back, there)]
    for model, corpus, own, counted in zip(models, corpora, expectations, posteriors, strict=True):
        corpus.learn(model, own, counted)
    return sum(e.log_likelihood for own in expectations for e in own)


class Model1(WordAligner, kind="ibm1"):
    """IBM Model 1: every source word and NULL equally, q = 1 / (S + 1) (Brown et al., 1993).

    p(a_j = i | f, e) = t(f_j | e_i) / Σ_i' t(f_j | e_i')
    """

    def expect(self, emissions: Floats) -> Expectation:
        joint = emissions / emissions.shape[2]
        total = joint.sum(axis=2, keepdims=True)
        joint /= total
        return Expectation(joint, float(np.log(total).sum()), joint.sum(axis=0))

    def best(self, emissions: Floats) -> Ints:
        return self.expect(emissions).posterior.argmax(axis=2)

    def learn(self, moves: Iterable[Floats]) -> None:
        """Do nothing: q is fixed."""


class HMM(WordAligner):
    """Alignments are a Markov chain over positions; jumps of equal width are equally likely.

    p(a_j = i | a_{j−1} = i') = (1 − p₀) c(i − i') / Σ_k c(k − i')   (Vogel et al., 1996)
    p(a_j = NULL)            = p₀, and i' stays the last position   (Och & Ney, 2003)
    """

    class Config(WordAligner.Config, kind="hmm"):
        """``null_probability`` is p₀; jumps longer than ``longest_jump`` count as the longest."""

        model1_iterations: int = Field(5, ge=0)  # passes of IBM model 1 that come first
        null_probability: float = Field(0.2, gt=0, lt=1)
        """Probability that a word is linked to no word."""
        longest_jump: int = Field(30, gt=0)  # words; longer jumps count as this long

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        priors = config.model_dump(include={"lowercase", "concentration", "cognates"})
        first = priors | {"iterations": config.model1_iterations}
        self.first = Model1(Model1.Config.model_validate(first))
        self.jumps: Floats = np.ones(2 * config.longest_jump + 1)  # c(d) at d + longest_jump

    def _widths(self, source: int) -> Ints:
        """Return the index in c of jumps from position i' (0: start) to word i: (S + 1, S)."""
        longest = self.config.longest_jump
        width = np.arange(1, source + 1)[None] - np.arange(source + 1)[:, None]
        return width.clip(-longest, longest) + longest

    def transitions(self, source: int) -> Floats:
        """Return (1 − p₀) c(i − i') / Σ_k c(k − i'): (S + 1, S + 1), from i' (0: start) to i."""
        odds = self.jumps[self._widths(source)]
        odds = (1 - self.config.null_probability) * odds / odds.sum(axis=1, keepdims=True)
        return np.pad(odds, ((0, 0), (1, 0)))

    def expect(self, emissions: Floats) -> Expectation:
        """Run forward and backward: α_j(i) is for the position i last linked, by word j or not."""
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

    def learn(self, moves: Iterable[Floats]) -> None:
        """Set c(d) ← n(d) / Σ_i' n(i') / Σ_k c(k − i'), over positions i' from which d is possible.

        The sum in p's denominator depends on S and i', so c has no closed form; this step raises
        the likelihood (Hunter, 2004, for choices from sets) and is repeated a few times.
        """
        of_source: dict[int, Floats] = {}
        for counts in moves:
            source = len(counts) - 1
            of_source[source] = of_source.get(source, 0) + counts[:, 1:]
        observed = np.zeros_like(self.jumps)
        for source, counts in of_source.items():
            observed += np.bincount(self._widths(source).ravel(), counts.ravel(), len(observed))
        for _ in range(5):
            expected = np.zeros_like(self.jumps)
            for source, counts in of_source.items():
                widths = self._widths(source)
                rate = counts.sum(axis=1) / self.jumps[widths].sum(axis=1)
                rates = np.broadcast_to(rate[:, None], widths.shape)
                expected += np.bincount(widths.ravel(), rates.ravel(), len(expected))
            possible = expected > 0
            self.jumps[possible] = np.maximum(observed[possible] / expected[possible], 1e-9)
            self.jumps /= self.jumps[possible].mean()

    def best(self, emissions: Floats) -> Ints:
        """Return the chain of the highest probability (B, T), by Viterbi."""
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


class Both(Aligner):
    """Two aligners, from the source's words to the target's and back."""

    class Config(Aligner.Config):
        """``aligner`` is what is trained in each direction."""

        aligner: Aligner.Config = HMM.Config()  # the model that is trained in each direction

        @pydantic.model_validator(mode="after")
        def _not_contradicted(self) -> Self:
            if self.aligner.lowercase not in (True, self.lowercase):
                raise UserError(f"set lowercase for {self.kind}, not for its aligner")
            return self

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        aligner = config.aligner.model_copy(update={"lowercase": config.lowercase})
        self.forward, self.backward = aligner.build(), aligner.build()


class Symmetrized(Both):
    """Both directions trained apart, their links joined (Och & Ney, 2003)."""

    class Config(Both.Config, kind="symmetrised"):
        """``method`` joins the links of the two directions."""

        method: Method = "grow-diag-final-and"
        """How the links of two directions are joined: intersection, union, grow-diag, …."""

    config: Config

    def train(self, pairs: Sequence[Pair]) -> list[float]:
        forward, backward = self.forward.train(pairs), self.backward.train(reverse(pairs))
        return [f + b for f, b in zip(forward, backward, strict=True)]

    def align(self, pairs: Sequence[Pair]) -> list[Links]:
        back, join = self.backward.align(reverse(pairs)), METHODS[self.config.method]
        return [
            join(forward, {(s, t) for t, s in backward})
            for forward, backward in zip(self.forward.align(pairs), back, strict=True)
        ]


class AgreementAligner(Both):
    """Both directions trained to agree: q(i, j) = p(a_j = i | f, e) p(b_i = j | f, e) is what
    both count, and a link is where √q is above a threshold (Liang, Taskar & Klein, 2006).
    """

    class Config(Both.Config, kind="agreement"):
        """``threshold`` of √q: higher for precision, lower for recall."""

        aligner: WordAligner.Config = HMM.Config()  # the model that is trained in each direction
        threshold: float = Field(0.3, gt=0, lt=1)
        """Least √(p · q) of a link, p and q from both directions."""

    config: Config

    def train(self, pairs: Sequence[Pair]) -> list[float]:
        """Return the sum of both log-likelihoods, which agreement need not raise at every step."""
        ready = self.ready(pairs)
        corpora = EMTraining(ready), EMTraining(reverse(ready))
        return em((self.forward, self.backward), corpora)

    def align(self, pairs: Sequence[Pair]) -> list[Links]:
        ready = self.ready(pairs)
        links: list[Links] = [set() for _ in pairs]
        numbers = self.forward.numbers, self.backward.numbers
        groups = numbers[1].groups(reverse(ready))
        backward = {(g.source.shape[1] - 1, g.target.shape[1]): g for g in groups}
        for group in numbers[0].groups(ready):
            there = self.forward.posterior(group)
            back = self.backward.posterior(backward[there.shape[1], there.shape[2] - 1])
            sure = agreed(there, back)[:, :, 1:] > self.config.threshold**2
            for pair, target, source in np.argwhere(sure):
                links[group.pairs[pair]].add((int(source), int(target)))
        return links


def reverse(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs in the opposite direction."""
    return [(target, source) for source, target in pairs]


def agreed(there: Floats, back: Floats) -> Floats:
    """Return q (B, T, S + 1) from posteriors (B, T, S + 1) and (B, S, T + 1), NULL's unchanged."""
    both = there.copy()
    both[:, :, 1:] *= back[:, :, 1:].transpose(0, 2, 1)
    return both


def agreed_groups(own: Sequence[Floats], others: Sequence[Floats]) -> list[Floats]:
    """Return `agreed` for each group; the other direction has its two lengths swapped."""
    of_lengths = {other.shape[1:]: other for other in others}
    return [agreed(each, of_lengths[each.shape[2] - 1, each.shape[1] + 1]) for each in own]
