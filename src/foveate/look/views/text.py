"""Views of what a model writes: probabilities, the n best, the beam, scores by length."""

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

import foveate.look.views.examples as needs
from foveate.config import ConfigError
from foveate.data.tokenizer import EOS, SPECIALS, UNK, Tokenizer
from foveate.decode.beam import Beam
from foveate.decode.constraints import Next
from foveate.decode.engine import SearchRequest
from foveate.decode.search import Followed, Search
from foveate.decode.watch import Alternatives, PartialHypothesis, Watch, alternatives
from foveate.engine.answers import Picture
from foveate.look.draw.charts import PanelGrid, line_chart
from foveate.look.draw.colors import Hue
from foveate.look.draw.lanes import LanesDrawing, Node, lanes
from foveate.look.draw.parts import Cell, visible
from foveate.look.draw.scene import BESIDE, HIGH, WIDE, SceneDrawing, SceneMaker
from foveate.look.draw.terminal import wrap
from foveate.look.draw.texts import Choice, TableDrawing, Word, WordsDrawing, total_of
from foveate.look.hooks import calls_of
from foveate.look.views import view
from foveate.look.views.examples import decoder_of, described, example_of, ready, text_of
from foveate.run import Run
from foveate.tasks.abilities import NEAR, Generates
from foveate.tasks.language import Language
from foveate.tasks.metrics import BleuTokenizer, References, interval, tokenizer_for
from foveate.tasks.text import TextToText

MOST_ADDED = 40  # tokens that a language model adds in a drawing
LEAST = 0.02  # of the answer's p, below which a prefix is not drawn
WIDTH = 4  # beams in a drawing, if neither run nor question gives a number
Texts = Sequence[str]
ENDS = (10, 20, 30, 40, 50)  # words; the last group has all longer texts
MOST_ROWS = 24  # beginnings of a growing source
FEWEST = 5  # sentences in a group; fewer are too few for a figure


# The search of a text-generating run, position by position: each partial hypothesis as text.
#
# Each `foveate.decode.search.SearchPosition` is recorded by a `foveate.decode.watch.Watch`; how
# tokens become text is up to the task (`foveate.tasks.abilities.Generates`).


@dataclass(frozen=True)
class Output:
    """An output with its tokens, including its end."""

    ids: list[int]
    text: str
    log_p: float
    score: float
    ended: bool
    path: list[PartialHypothesis]


class Watched:
    """A search of one source, position by position, as text; it can be read while it runs.

    For each token the ``top_k`` most probable ones are stored.
    """

    def __init__(self, run: Run, top_k: int = 8) -> None:
        """Raise ``ConfigError`` if the task of the run does not generate text."""
        self.run, self.task = run, run.need(Generates, "write text")
        self.watch, self.outputs = Watch(top_k), list[Output]()

    def positions(
        self, source: Picture | None, search: Search, prefix: Sequence[int] = ()
    ) -> Iterator[list[PartialHypothesis]]:
        """Yield the partial hypotheses at each position, best first.

        Afterwards ``outputs`` are those of the search, best first without duplicates; they begin
        with the ids of the ``prefix``, after the opening of the source (`Tokenizer.begun`).
        """
        begins = self.task.output_tokenizer.begun([source], [list(prefix)] if prefix else ())
        request = SearchRequest(search, begins)
        followed = Followed(self.run.engine.positions(self.task.encode([source])[0], request))
        for position in followed:
            yield self.watch.read(position)
        (hypotheses,) = followed.outputs
        paths = {tuple(h.ids): (self.watch.find(h.ids, EOS), h.score) for h in reversed(hypotheses)}
        ordered = [paths.pop(tuple(h.ids), ([], 0.0)) for h in hypotheses]
        self.outputs = [self.output(path, score) for path, score in ordered if path]

    def write(
        self, source: Picture | None, search: Search, prefix: Sequence[int] = ()
    ) -> list[Output]:
        """Run the search and return its outputs."""
        for _ in self.positions(source, search, prefix):
            pass
        return self.outputs

    def output(self, path: list[PartialHypothesis], score: float | None = None) -> Output:
        """Return the output of a path."""
        ids = [partial.token for partial in path]
        last, ended = path[-1], ids[-1] == EOS and EOS in self.task.silent
        ids = ids[:-1] if ended else ids
        value = last.score if score is None else score
        return Output(ids, self.task.text_of(ids), last.log_p, value, ended, path)

    def before(self, partial: PartialHypothesis) -> list[int]:
        """Return the ids before the last token of a partial hypothesis."""
        return [step.token for step in self.watch.path(partial)[:-1]]

    def name(self, partial: PartialHypothesis) -> str:
        """Return what the last token of a partial hypothesis adds to those before it."""
        return self.task.token_text(self.before(partial)[-NEAR:], partial.token)

    def instead(self, partial: PartialHypothesis) -> tuple[Alternatives, list[str]]:
        """Return the alternatives to the last token of a partial hypothesis, and their texts."""
        before, others = self.before(partial)[-NEAR:], self.watch.instead(partial)
        return others, [self.task.token_text(before, token) for token in others.tokens]

    def node(self, partial: PartialHypothesis) -> Node:
        """Return a partial hypothesis in the form in which it is drawn."""
        shared = Node.model_fields.keys() - {"text"}
        return Node(text=self.name(partial), **{each: getattr(partial, each) for each in shared})

    def lanes(
        self, best: Output | None = None, title: str = "", greedy: Sequence[Node] = ()
    ) -> LanesDrawing:
        """Draw the beam at each position, with the paths of an output and of greedy search."""
        columns = [[self.node(partial) for partial in column] for column in self.watch.positions]
        path = [partial.id for partial in best.path] if best else []
        return lanes(columns, path, title, greedy)


@view(needs.writes, silence=True)
def beam(
    run: Run, text: str | None = None, image: str | None = None, beam_size: int | None = None
) -> LanesDrawing:
    """Draw the partial hypotheses of every step of a beam search, and the path of greedy search.

    Raises `ConfigError` if the search gives no output.
    """
    width = beam_size or run.config.decode.tree().get("beam_size", WIDTH)
    limits = {"max_extra": MOST_ADDED} if isinstance(run.task, Language) else {}
    watched, example, own = Watched(run), example_of(run, text, image), run.config.decode
    alone, search_config = Watched(run), partial(watched.task.search_config, own, "beam")
    search: Search = search_config(beam_size=width, **limits).build()
    outputs = watched.write(example, search)
    if not outputs:
        raise ConfigError(f"{run.folder} gave no answer to {example!r}")
    greedy = alone.write(example, search_config(beam_size=1, **limits).build())[:1]
    path = [alone.node(each) for output in greedy for each in output.path]
    drawn, divided = watched.lanes(outputs[0], outputs[0].text, path), ""
    if isinstance(search, Beam) and search.config.length_penalty:
        offset, alpha = search.config.length_offset, search.config.length_penalty
        divided = f" ÷ (({offset:g} + n) / {offset + 1:g})^{alpha:g} for n tokens"
    known, least = {*drawn.best, *drawn.greedy}, outputs[0].log_p + math.log(LEAST)
    steps = [[n for n in step if n.id in known or n.log_p > least] for step in drawn.steps]
    return drawn.model_copy(update={"scored": f"log p{divided}", "steps": steps})


@view(needs.translates, silence=True)
def nbest(
    run: Run, text: str | None = None, num: int = 5, beam_size: int | None = None
) -> TableDrawing:
    """Draw the n best outputs for a text, with scores, lengths and differences to the first."""
    text, width = text_of(run, text), max(num, beam_size or 0)
    answer = run.translate([text], beam_size=width, num_hypotheses=num)[0]
    best = answer.hypotheses[0].split()
    rows: list[list[Cell]] = []
    for output, hypothesis in zip(answer.hypotheses, answer.outputs, strict=True):
        other = ", ".join(differences(best, output.split()))
        figures = hypothesis.score, hypothesis.log_probability, len(hypothesis.ids)
        rows.append([len(rows) + 1, *figures, output, other])
    names = ["rank", "score", "log p", "tokens", "output", "against the first"]
    caption = f"beam of {width}; the score is log p divided by the length penalty"
    return TableDrawing(title=text, caption=caption, columns=names, rows=rows)


def differences(before: Texts, after: Texts) -> Iterator[str]:
    """Yield the edits from ``before`` to ``after``: ``a → b``, ``−a``, ``+b``, in order."""
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        old, new = " ".join(before[a:b]), " ".join(after[c:d])
        if kind != "equal":
            yield f"{old} → {new}" if old and new else f"−{old}" if old else f"+{new}"


# p(y_t = k | y_<t, x) for every k and t; the entropy H_t = −Σ_k p log p measures how open it was.


def texts_of(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterator[tuple[str, bool]]:
    """Yield each token as in the text, and whether a space precedes it."""
    text, spans = tokenizer.decode(ids), tokenizer.spans(ids)
    for i, (start, end) in zip(ids, spans, strict=True):
        piece = text[start:end]
        before = text[max(0, start - 1) : start]
        spaced = not piece or piece.startswith(" ") or before in ("", " ")
        yield visible(piece.strip(" ") or piece or token_name(tokenizer, i)), spaced


def token_name(tokenizer: Tokenizer, i: int) -> str:
    """Return a token alone: its text, or its name if it has none, such as ``</s>``."""
    return tokenizer.decode([i]) or tokenizer.pieces[i].replace("Ġ", " ")


def forced(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None
) -> tuple[list[int], Tensor, Tokenizer]:
    """Return the ids (T) of target or answer, with the end, log p (T, V) there, and the tokenizer.

    For a language model, the target is part of the text that is read.
    """
    prepared, decoder = ready(run, text, target, image), decoder_of(run.model)
    assert decoder is not None
    with calls_of(decoder) as calls:
        prepared.scores()
    read, memory, *_ = calls[-1].args
    with torch.inference_mode():
        log_p = run.model.predict(read, memory)[0].float().log_softmax(dim=-1).cpu()
    tokenizer = run.need(Generates, "write text").output_tokenizer
    return [*read[0, 1:].tolist(), EOS], log_p, tokenizer


@view(needs.explains, needs.forced_to_text, silence=True)
def probabilities(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None,
    top: int = 5,
) -> WordsDrawing:  # fmt: skip
    """Draw p of each token, with the most probable alternatives."""
    ids, every, tokenizer = forced(run, text, target, image)
    log_p = [float(every[t, i]) for t, i in enumerate(ids)]
    others_at = alternatives(Next(every, torch.zeros(len(log_p), 1)), top)
    words, texts = [], texts_of(tokenizer, ids)
    for chance, (label, space), others in zip(log_p, texts, others_at, strict=True):
        choices = [
            Choice(text=visible(token_name(tokenizer, k)), p=math.exp(other))
            for k, other in zip(others.tokens, others.log_p, strict=True)
        ]
        rest = Choice(text="any other", p=max(0.0, 1 - sum(choice.p for choice in choices)))
        choices += [rest] * (len(choices) < len(tokenizer.pieces))
        note = f"entropy {others.entropy:.1f} nats"
        p = math.exp(chance)
        words.append(Word(text=label, value=p, space=space, note=note, alternatives=choices))
    return WordsDrawing(
        title=tokenizer.decode(ids), words=words,
        legend="p of each token, entropy of the distribution, and the most probable tokens",
        caption=f"total log p: {sum(log_p):.2f} nats", total=total_of(log_p),
        condition="x" * hasattr(run.model, "encode"),
    )  # fmt: skip


def by_length(
    systems: Mapping[str, tuple[Texts, Texts, References]],
    tokenizers: Mapping[str, BleuTokenizer | None] | None = None,
) -> PanelGrid:
    """Draw the figures of systems, each (sources, outputs, references), by groups of lengths.

    ``tokenizers`` of BLEU are by system; without one, all its references decide. The bands
    are bootstrap intervals. Raises `ConfigError` if texts of a system differ in number.
    """
    starts = [1, *(end + 1 for end in ENDS)]
    names = [*(f"{a}–{b}" for a, b in zip(starts, ENDS, strict=False)), f"over {ENDS[-1]}"]
    counts, panels = np.zeros(len(ENDS) + 1, int), []
    for title, metric in (("BLEU", "bleu"), ("chrF", "chrf")):
        lines, bands = {}, {}
        for system, (sources, outputs, references) in systems.items():
            if not len(sources) == len(outputs) == len(references):
                sizes = f"{len(sources)} sources, {len(outputs)} outputs"
                raise ConfigError(f"{system}: {sizes}, {len(references)} references; give as many")
            groups = grouped(sources)
            counts = np.maximum(counts, [len(group) for group in groups])
            cut = (tokenizers or {}).get(system) or tokenizer_for(references)
            scores = np.array([scored(metric, outputs, references, group, cut) for group in groups])
            lines[system], bands[system] = scores[:, 0], (scores[:, 1], scores[:, 2])
        some = counts > 0
        labels = [f"{n} (n={c})" for n, c, s in zip(names, counts, some, strict=True) if s]
        panels.append(
            line_chart(
                np.arange(1.0, 1 + len(labels)), {n: line[some] for n, line in lines.items()},
                "source words", title, labels=labels,
                bands={n: (low[some], high[some]) for n, (low, high) in bands.items()},
                caption="bands: 95 % bootstrap intervals over sentences",
            ).model_copy(update={"joined": len(labels) > 2})
        )  # fmt: skip
    return PanelGrid(panels=panels, title="Scores by source length")


@view(needs.translates)
def growing(
    runs: Sequence[Run], text: str | None = None, target: str | None = None, split: str = "test"
) -> TableDrawing | SceneDrawing:
    """Draw outputs for ever longer beginnings of one source, a row for each.

    Brackets are around words that are not in the reference of the whole source, in its order.
    Several runs give their outputs for the whole source, drawn word by word. The reference is
    ``target``, or that of the text in the split; without a text it is the longest source of at most
    24 words. Raises `ConfigError` for a text without one.
    """
    source, reference = referenced(runs[0], text, target, split)
    words, expected = source.split(), _words(reference)
    tokenizer = runs[0].need(TextToText, "read a text").tokenizers[0]
    pieces = [tokenizer.name(i).lstrip("▁") for i in tokenizer.encode(source).ids]
    read = " ".join(pieces).replace(" .", ".").split()
    known = {"source": words} | ({"read as": read} if SPECIALS[UNK] in read else {})
    known["reference"] = expected
    if len(runs) > 1:
        outputs = [_words(str(run.translate([source])[0])) for run in runs]
        return compared(known, zip(described(runs), outputs, strict=True))
    ends = np.unique(np.linspace(1, len(words), min(MOST_ROWS, len(words))).round().astype(int))
    beginnings = [" ".join(words[:end]) for end in ends]
    rows: list[list[Cell]] = [[name, " ".join(each), ""] for name, each in known.items()]
    for end, answer in zip(ends, runs[0].translate(beginnings), strict=True):
        output = _words(str(answer))
        right = f"{sum(in_order(output, expected)):.0f} of {len(expected)}"
        rows.append([f"… {words[end - 1]}", bracketed(output, expected), right])
    return TableDrawing(
        title=source, rows=rows, columns=["", "text", "right words"],
        caption="Marked: not in the reference. A word is right if it is there, in its order.",
    )  # fmt: skip


def compared(known: Mapping[str, Texts], written: Iterable[tuple[str, Texts]]) -> SceneDrawing:
    """Draw outputs below the known texts, word by word; orange ones are not in the reference."""
    outputs, reference = [*written], known["reference"]
    made, rows = SceneMaker(), [*known.items(), *outputs]
    sizes = [[17.0 * len(word) + 40 for word in words] for _, words in rows]
    pitch, scale = HIGH / len(rows), (WIDE - BESIDE) / max(map(sum, sizes))
    for number, (name, words) in enumerate(rows):
        right, titles = [True] * len(words), wrap([name], 14)
        if number >= len(known):
            right = [*map(bool, in_order(words, reference))]
            titles.append(f"{sum(right)} of {len(reference)} right")
        y, starts = pitch * (number + 0.5), BESIDE + scale * np.cumsum([0, *sizes[number]])
        made.label(f"text {number}", "", (0, y - 48, BESIDE - 20, 96), texts=titles)
        for k, (word, good) in enumerate(zip(words, right, strict=True)):
            box = starts[k], y - 20, starts[k + 1] - starts[k] - 12, 40
            hue = Hue.KEY if word == SPECIALS[UNK] else Hue.LAYER if good else Hue.GRADIENT
            made.node(f"text {number} word {k}", word, box, hue=hue, level=0.25)
    return made.drawing(" ".join(known["source"]), caption="Orange: not in the reference.")


def _words(text: str) -> list[str]:
    """Return the words of a text, where a question mark is one, as in French."""
    return text.replace("?", " ?").replace("'", "’").split()


def bracketed(output: Texts, reference: Texts) -> str:
    """Return a text with brackets around the words that are not in the reference, in order."""
    pairs = zip(output, in_order(output, reference), strict=True)
    return " ".join(word if right else f"[{word}]" for word, right in pairs).replace("] [", " ")


def referenced(run: Run, text: str | None, target: str | None, split: str) -> tuple[str, str]:
    """Return a source and its reference, see `growing`."""
    if text is not None and target is not None:
        return text, target
    corpus = run.need(TextToText, "give pairs of texts").corpus(split)
    pairs = dict(zip(corpus.sources, corpus.targets, strict=True))
    if text is None:
        text = max((s for s in pairs if len(s.split()) <= MOST_ROWS), key=len, default=None)
    if text is None or text not in pairs:
        missing = "beginning of the source" if text is None else f"source {text!r}"
        raise ConfigError(f"{split} has no {missing}: give --text and its translation as --target")
    return text, pairs[text]


def in_order(output: Texts, reference: Texts) -> list[float]:
    """Return 1 for each output word that matches a word of the reference, in its order, else 0."""
    right = [0.0] * len(output)
    before, after = ([word.rstrip(".") for word in words] for words in (output, reference))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for start, _, length in matcher.get_matching_blocks():
        right[start : start + length] = [1.0] * length
    return right


def grouped(sources: Texts) -> list[list[int]]:
    """Return the sentences in each group, by the number of words between spaces."""
    number = np.searchsorted(ENDS, [len(source.split()) for source in sources])
    return [np.flatnonzero(number == group).tolist() for group in range(len(ENDS) + 1)]


def scored(
    metric: str,
    outputs: Texts,
    references: References,
    group: Sequence[int],
    bleu_tokenizer: BleuTokenizer | None = None,
) -> tuple[float, float, float]:
    """Return the figure of some sentences and the ends of its interval; NaN for too few."""
    if len(group) < FEWEST:
        return np.nan, np.nan, np.nan
    some = [outputs[i] for i in group], [references[i] for i in group]
    return interval(metric, *some, bleu_tokenizer=bleu_tokenizer)
