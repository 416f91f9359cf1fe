"""Laws of search, tested on models that are tables of probabilities."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from foveate.config import Config
from foveate.decode.constraints import DecodingBatch
from foveate.decode.engine import Hypothesis
from foveate.decode.search import Search, result_of
from foveate.measure.laws.trial import ANY, Trial, law, meaning_of, number, require

START, A, B, C, END = 9, 0, 1, 2, 3
NAMES = "ABC"
FAMILIES = ("search",)
Prefix = tuple[int, ...]
Table = Callable[[Prefix], Sequence[float]]


class Tables:
    """A batch of sources, each with a table p(next | written): `Steps` with nothing learned.

    A ``vocabulary`` is a subset of the tokens, which are numbered by their index in it.
    """

    device = torch.device("cpu")

    def __init__(self, tables: Sequence[Table], vocabulary: Tensor | None = None) -> None:
        self.sources, self.vocabulary = list(tables), vocabulary
        self.written: list[Prefix] = [()] * len(tables)
        self.begun = False

    def step(self, ids: Tensor) -> Tensor:
        assert len(ids) == len(self.written), "a row for each hypothesis"
        if self.begun:
            tokens = ids if self.vocabulary is None else self.vocabulary[ids]
            rows = zip(self.written, tokens.tolist(), strict=True)
            self.written = [(*prefix, token) for prefix, token in rows]
        else:
            assert set(ids.tolist()) == {START}
        self.begun = True
        each = len(ids) // len(self.sources)
        result = [self.sources[i // each](prefix) for i, prefix in enumerate(self.written)]
        logits = torch.tensor(result).log() + 0.7  # they may have any offset
        return logits if self.vocabulary is None else logits[:, self.vocabulary]

    def reorder(self, rows: Tensor) -> None:
        self.written = [self.written[row] for row in rows.tolist()]

    def select(self, sources: Tensor) -> None:
        self.sources = [self.sources[source] for source in sources.tolist()]


def random_table(seed: int, vocabulary: int = 4, ending: float = 1.0) -> Table:
    """Return a random table; ``ending`` scales the probability of the end."""

    def table(prefix: Prefix) -> Sequence[float]:
        generator = torch.Generator().manual_seed(hash((seed, prefix)) % 2**31)
        probabilities: list[float] = torch.rand(vocabulary, generator=generator).add(0.01).tolist()
        probabilities[END] *= ending
        return [p / sum(probabilities) for p in probabilities]

    return table


def log_p(table: Table, output: Prefix) -> float:
    """Return Σ log p of the tokens of an output, including its end if it has one."""
    return sum(math.log(table(output[:t])[token]) for t, token in enumerate(output))


def _find(
    trial: Trial, config: Config, tables: Sequence[Table], rows: Sequence[int] | None = None
) -> list[list[Hypothesis]]:
    limits = {"max_ratio": 0.0, "max_extra": trial.sizes.length}
    search: Search = config.model_copy(update=limits).build()
    lengths, places = [trial.sizes.rows] * len(tables), rows or range(len(tables))
    return search(DecodingBatch(places, Tables(tables), lengths), START, END)


def _tables(trial: Trial) -> list[Table]:
    return [random_table(trial.sizes.seed + 10 * n) for n in range(trial.sizes.rows)]


def _spell(output: Prefix) -> str:
    return " ".join([*NAMES, "end"][token] for token in output) or "nothing"


def _tokens(hypothesis: Hypothesis) -> Prefix:
    return (*hypothesis.ids, *[END] * hypothesis.ended)


def _shown(table: Table, hypotheses: Sequence[Hypothesis]) -> dict[str, Tensor | str]:
    """Return the table behind the first outputs, and the outputs."""
    prefixes: set[Prefix] = {tuple(h.ids[:t]) for h in hypotheses[:2] for t in range(3)} | {()}
    rows = [
        f"after {_spell(prefix):<10}" + "  ".join(
            f"{name} {number(p)}" for name, p in zip([*NAMES, "end"], table(prefix), strict=True)
        )
        for prefix in sorted(prefixes, key=lambda prefix: (len(prefix), prefix))
    ]  # fmt: skip
    lines = [f"{_spell(_tokens(h))}: log p {number(h.log_probability)}" for h in hypotheses]
    return {"p(next | written)": "\n".join(rows), "came out": "\n".join(lines) or "nothing"}


@law("an output has its log p, and outputs stand best first", "search")
def scores_outputs(trial: Trial) -> None:
    """Check that scores are Σ_t log p(y_t | y_<t), with the end, and decrease."""
    tables = _tables(trial)
    for table, hypotheses in zip(tables, _find(trial, trial.config, tables), strict=True):
        shown = _shown(table, hypotheses)
        for hypothesis in hypotheses:
            output = _tokens(hypothesis)
            expected, value = log_p(table, output), hypothesis.log_probability
            why = f"the log-probability of {_spell(output)} is {number(value)}, but its tokens' "
            why += f"log p sum to {number(expected)}"
            require(abs(value - expected) <= 1e-3, why, shown)
        scores = [h.score for h in hypotheses]
        best_first = scores == sorted(scores, reverse=True)
        require(best_first, "the outputs do not stand best first", shown)


@law("every source has an output, none with an end inside or past the limit", "search")
def keeps_limits(trial: Trial) -> None:
    """Check the limit of ``max_extra`` tokens, the end included."""
    tables, limit = _tables(trial), trial.sizes.length
    for table, hypotheses in zip(tables, _find(trial, trial.config, tables), strict=True):
        shown = _shown(table, hypotheses)
        require(hypotheses, "a source has no output", shown)
        for hypothesis in hypotheses:
            output = _tokens(hypothesis)
            over = END in hypothesis.ids
            require(not over, f"{_spell(output)} goes on after its end", shown)
            fits = len(output) == limit or (hypothesis.ended and len(output) < limit)
            why = f"{_spell(output)} has {len(output)} tokens; the limit is {limit}"
            require(fits, why, shown)


@law("sources of a batch do not change each other", "search")
def searches_apart(trial: Trial) -> None:
    """Check that each source has the same outputs alone, under its own number."""
    tables = _tables(trial)
    together = _find(trial, trial.config, tables)
    for n, table in enumerate(tables):
        (alone,) = _find(trial, trial.config, [table], [n])
        same = [h.ids for h in together[n]] == [h.ids for h in alone]
        outputs = "\n".join(_spell(_tokens(h)) for h in alone)
        shown = _shown(table, together[n]) | {"alone": outputs}
        require(same, f"source {n} has another output beside others than alone", shown)


@law("it gives what the search gives that it reimplements", "search", of=ANY)
def equals_search(trial: Trial) -> None:
    """Compare the outputs and their order."""
    assert trial.reference is not None
    tables, name = _tables(trial), trial.reference.kind
    results = (_find(trial, config, tables) for config in (trial.config, trial.reference))
    for table, own, other in zip(tables, *results, strict=True):
        expected = _shown(table, other)["came out"]
        why = f"other outputs than '{name}': {meaning_of(trial.reference)}"
        shown = _shown(table, own) | {f"'{name}' gives": expected}
        require([_tokens(h) for h in own] == [_tokens(h) for h in other], why, shown)


@law("outputs are the same followed and not, with and without a shortlist", "search")
def follows_search(trial: Trial) -> None:
    """Check with a shortlist of every token whose p is not 0, under other numbers."""
    left_out, vocabulary = END + 1, torch.tensor([A, B, C, END, END + 2])

    def without(table: Table) -> Table:
        def some(prefix: Prefix) -> list[float]:
            p = [0.0 if token == left_out else v for token, v in enumerate(table(prefix))]
            return [value / sum(p) for value in p]

        return some

    limits = {"max_ratio": 0.0, "max_extra": trial.sizes.length}
    search: Search = trial.config.model_copy(update=limits).build()
    count = trial.sizes.rows
    tables = [without(random_table(trial.sizes.seed + 10 * n, END + 3)) for n in range(count)]

    def batch(short: bool) -> DecodingBatch:
        few = vocabulary if short else None
        return DecodingBatch(range(count), Tables(tables, few), [count] * count, few)

    expected = search(batch(False), START, END)
    others = {
        "followed": result_of(search.positions(batch(False), START, END)),
        "with a shortlist": search(batch(True), START, END),
        "with a shortlist, followed": result_of(search.positions(batch(True), START, END)),
    }
    for how, outputs in others.items():
        for own, other in zip(expected, outputs, strict=True):
            alone, tokens = ([_tokens(h) for h in each] for each in (own, other))
            why = f"other outputs {how}: {tokens}"
            require(alone == tokens, why, {"alone": str(alone)})
