"""The answers of a run: texts, labels, continuations, captions; as text, as JSON and drawn.

Drawings are imported when they are made, so that a text is answered without PyTorch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from foveate.data.tokenizer import EOS, TextSides, Tokenizer
from foveate.decode.engine import Engine, Hypothesis, SearchRequest, best, check_finite
from foveate.engine.links import Head, Links
from foveate.errors import UserError

if TYPE_CHECKING:
    from foveate.decode.engine import Example, Ids, SearchChoice, Stop
    from foveate.look.draw.drawings import Drawing
    from foveate.look.draw.maps import AttentionView
    from foveate.look.draw.texts import Word
    from foveate.look.records import AttentionRecord, Units

STAYED = "left in the source language: the translation lost what is protected, or is empty"
Term = Sequence[str]  # variants, any of which meets it
Picture = int | str | Path  # of the test data by its number, or a file


class OutputRules(TypedDict, total=False):
    """Constraints on the outputs of `Translator.translate`."""

    prefix: str | Sequence[str] | None
    required: Sequence[Sequence[Term]]
    banned: Sequence[str]
    stop: Stop | None


class TranslateOptions(OutputRules, total=False):
    """The keyword arguments of `Translator.translate`."""

    beam_size: int | None
    num_hypotheses: int
    length_penalty: float | None
    batch_tokens: int | None
    to: str | None


class ModelEngine(Engine):
    """An engine of a trained model, which also links words and shows attention if it can."""

    @property
    def aligns(self) -> bool:
        """True if word links can be read from its attention."""
        return False

    def links(self, pairs: Sequence[tuple[str, str | list[int]]], head: Head | None) -> list[Links]:
        """Return word links of pairs by a head, else the run's own; a target is a text or ids."""
        raise self.cannot("link words")

    def explain(self, source: Example, target: str | Ids | None, units: Units) -> AttentionRecord:
        """Return the record of all attention as a target was produced."""
        raise self.cannot("show attention")


class Answer(ABC):
    """A task's output for one input; ``str`` of it is its text.

    ``cut`` counts tokens of the input that were left out because it was too long.
    """

    cut: int = 0

    @abstractmethod
    def json(self) -> dict[str, object]:
        """Return the input and the answer with its figures, as plain values."""

    def drawing(self) -> Drawing:
        """Return the answer as a drawing: by default its words."""
        from foveate.look.draw.texts import Word, WordsDrawing

        return WordsDrawing(words=[Word(text=word) for word in str(self).split()])


@dataclass(frozen=True)
class TextAnswer(Answer):
    """The answer to one line, best hypothesis first; an empty line has the hypothesis "".

    ``scores`` are what the search compared (for a beam log p / lp), ``outputs`` its hypotheses with
    their ids; ``cut`` counts source tokens that were left out because the line was longer than the
    run allows. ``read`` is what the model read, if that is not the line: with a language's tag.
    """

    source: str
    hypotheses: list[str]
    scores: list[float]
    cut: int = 0
    outputs: list[Hypothesis] = field(default_factory=list, repr=False)
    explains: ModelEngine | None = field(default=None, repr=False, compare=False)
    read: str = field(default="", repr=False, compare=False)

    def to(self, line: str) -> TextAnswer:
        """Return the answer to a user's line, from which the source was made."""
        return replace(self, source=line, read=self.source)

    def __str__(self) -> str:
        return self.hypotheses[0]

    def json(self) -> dict[str, object]:
        return {n: getattr(self, n) for n in ("source", "hypotheses", "scores", "cut")}

    def drawing(self) -> Drawing:
        """Return the map of the best hypothesis."""
        return self.attention

    def record(self, i: int = 0, units: Units = "auto") -> AttentionRecord:
        """Return what the model attended to as it produced hypothesis i, by layer and head.

        ``units`` are those of `Run.explain`. Takes one forced pass over (source, hypothesis).
        Raises ``IndexError`` for a hypothesis that does not exist.
        """
        if not self.outputs or self.explains is None:
            raise IndexError("an empty line has no hypothesis to explain")
        return self.explains.explain(self.read or self.source, self.outputs[i].ids, units)

    @property
    def attention(self) -> AttentionView:
        """The map of the best hypothesis: last layer, mean of the heads."""
        from foveate.look.draw.maps import attention

        return attention(self.record())

    def alignment(self, i: int = 0) -> list[tuple[int, int]]:
        """Return word links (source, target) from 0: each target word's most attended one.

        They come from the head that the run has saved (``foveate align RUN … --save``), else from
        the last layer, mean of the heads; none if the model has no attention to the source. A
        language tag is not a word.
        """
        if not self.outputs or self.explains is None:
            return []
        pair = self.read or self.source, self.outputs[i].ids
        return sorted(self.explains.links([pair], None)[0])

    def _repr_mimebundle_(self, **kwargs: object) -> object:
        return self.attention._repr_mimebundle_(**kwargs)


@dataclass(frozen=True)
class LabelAnswer(Answer):
    """The answer to one example: the most probable label, and p of every label by its name.

    ``source`` is what was labelled: a line of text, or an image by its file or number. An empty
    line has the label "" and no probabilities; ``cut`` counts tokens that were left out because the
    line was longer than the run allows.
    """

    source: Picture
    label: str
    probabilities: dict[str, float]
    cut: int = 0
    explains: ModelEngine | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.label

    def json(self) -> dict[str, object]:
        label = self.label or None
        source = self.source if isinstance(self.source, int) else str(self.source)
        return {"source": source, "label": label, "probabilities": self.probabilities}

    def drawing(self) -> Drawing:
        """Return p of every label as bars."""
        from foveate.look.draw.charts import bar_chart

        p = list(self.probabilities.values())
        return bar_chart(list(self.probabilities), {"p": np.array(p)}, up="p", title=self.label)

    def record(self, units: Units = "auto") -> AttentionRecord:
        """Return what the model attended to as it read the source, by layer and head.

        ``units`` are those of `Run.explain`. Raises ``IndexError`` without a label to explain.
        """
        if not self.probabilities or self.explains is None:
            raise IndexError("an empty line has no label to explain")
        return self.explains.explain(self.source, self.label, units)


def probabilities_of(log_p: NDArray[np.float32], names: Sequence[str]) -> dict[str, float]:
    """Return p of each label (C,), the most probable first. Raises `NoOutputError` for NaN."""
    check_finite(log_p, "no label")
    return {names[i]: float(np.exp(log_p[i])) for i in np.argsort(-log_p, kind="stable")}


@dataclass(frozen=True)
class Continuation(Answer):
    """A prompt and its continuation.

    ``log_probability`` is Σ log p of the new tokens under the model, before any filters, among the
    tokens that a text can contain.
    """

    prompt: str
    text: str
    log_probability: float

    def __str__(self) -> str:
        return self.prompt + self.text

    def json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class CaptionAnswer(Answer):
    """The caption of an image and its score; ``ids`` are its tokens."""

    name: str
    caption: str
    score: float
    ids: list[int]

    def __str__(self) -> str:
        return self.caption

    def json(self) -> dict[str, object]:
        return {"name": self.name, "caption": self.caption, "score": self.score}


@dataclass(frozen=True)
class FilledText(Answer):
    """A text in which some tokens were hidden and predicted.

    ``words`` are its tokens, or the predictions for hidden ones, with the value 1 if right and 0 if
    wrong.
    """

    source: str
    text: str
    words: list[Word] = field(repr=False)
    cut: int = 0

    def __str__(self) -> str:
        return self.text

    def json(self) -> dict[str, object]:
        hidden = [word.value for word in self.words if word.value is not None]
        right = int(sum(hidden))
        return {"source": self.source, "text": self.text, "hidden": len(hidden), "right": right}

    def drawing(self) -> Drawing:
        """Return the tokens, coloured by whether their prediction is right."""
        from foveate.look.draw.texts import WordsDrawing

        title = "{right} of {hidden} hidden tokens guessed right".format(**self.json())
        return WordsDrawing(title=title, words=self.words, legend="right or wrong")


@dataclass(frozen=True)
class PairScore:
    """log p(target | source), and that of each token, including the end."""

    log_probability: float
    tokens: list[str]
    token_log_probabilities: list[float]


T = TypeVar("T")


def several(inputs: Sequence[T], verb: str) -> Sequence[T]:
    """Return the inputs. Raises ``TypeError`` for a single text instead of a list."""
    if isinstance(inputs, str):
        raise TypeError(f"{verb} takes a list of lines; write {verb}([text])")
    return inputs


BATCH_TOKENS = 8192


class Translator(ABC):
    """A model from text to text: `foveate.run.Run`, or `foveate.engine.packed.PackedModel`."""

    path: Path

    @property
    @abstractmethod
    def engine(self) -> ModelEngine:
        """The engine that searches, scores, links and explains."""

    @abstractmethod
    def sides(self, verb: str) -> TextSides:
        """Return its texts. Raises ``ConfigError`` if the model cannot do what the verb says."""

    @abstractmethod
    def search(
        self,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        num_hypotheses: int = 1,
    ) -> SearchChoice:
        """Return its own search, or a beam of the given choices, wide enough for the hypotheses."""

    @abstractmethod
    def _continuing(
        self, max_length: int, beam_size: int | None, choices: Mapping[str, object]
    ) -> tuple[Tokenizer, SearchChoice]:
        """Return the tokenizer of a language model, and the search for continuations."""

    @property
    def languages(self) -> Sequence[str]:
        """The languages that it translates into, if it knows several by their tags."""
        return self.sides("translate").languages

    @property
    def aligns(self) -> bool:
        """True if word links can be read from its attention."""
        return self.engine.aligns

    def translate(
        self,
        lines: Sequence[str],
        beam_size: int | None = None,
        num_hypotheses: int = 1,
        length_penalty: float | None = None,
        batch_tokens: int | None = None,
        to: str | None = None,
        **rules: Unpack[OutputRules],
    ) -> list[TextAnswer]:
        """Translate each line; as many answers as lines, in their order; empty lines stay empty.

        ``beam_size`` 1 is greedy; ``batch_tokens`` bounds source tokens × beams of a batch, padding
        included. Lines longer than ``data.max_length`` tokens are cut, and say so in ``cut``.
        ``to`` names the language, where the run knows several. ``prefix`` is how the outputs begin:
        one text for all, or one for each line ("" for none); scores count it like the rest.
        ``required`` are the terms that the output of each line must hold, each a list of variants,
        and ``banned`` phrases that no output may hold. Raises `SearchStopped` once ``stop()``,
        which is asked every few positions, is true.
        """
        if unknown := rules.keys() - OutputRules.__annotations__.keys():
            raise TypeError(f"translate has no option {min(unknown)!r}")
        sides, lines = self.sides("translate"), several(lines, "translate")
        prefix = rules.get("prefix")
        addressed, writes = sides.addressed(lines, to), sides.target_tokenizer
        request = SearchRequest(
            self.search(beam_size, length_penalty, num_hypotheses),
            () if prefix is None else writes.beginnings(prefix, len(lines)),
            rules.get("required", ()),
            rules.get("banned", ()),
            batch_tokens or BATCH_TOKENS,
            num=num_hypotheses,
            stop=rules.get("stop"),
        )
        answers = translated(sides, self.engine, addressed, request)
        return [answer.to(line) for answer, line in zip(answers, lines, strict=True)]

    def score(self, pairs: Sequence[tuple[str, str]], to: str | None = None) -> list[PairScore]:
        """Return log p(target | source) of pairs, and of each target token, the end included.

        ``to`` names the language of the targets, where the run knows several. Raises
        `NoOutputError` if a log p is not finite.
        """
        sides = self.sides("score")
        lines = sides.addressed([source for source, _ in pairs], to)
        pairs = [(line, target) for line, (_, target) in zip(lines, pairs, strict=True)]
        sources, targets = sides.encode_pairs(pairs)
        writes, scores = sides.target_tokenizer, list[PairScore]()
        every = self.engine.score(list(zip(sources, targets, strict=True)))
        for begins, log_p in zip(writes.begun(lines), every, strict=False):
            log_p[: len(begins)] = [0.0] * len(begins)
        for ids, log_p in zip(targets, every, strict=True):
            check_finite(log_p, "no score")
            tokens = [*(writes.decode([i]) for i in ids), "</s>"]
            scores.append(PairScore(sum(log_p), tokens, log_p))
        return scores

    def links(
        self,
        pairs: Sequence[tuple[str, str | list[int]]],
        head: Head | None = None,
        to: str | None = None,
    ) -> list[Links]:
        """Return word links of pairs by a head, else its own; a target is a text or ids.

        ``to`` is that of `score`; the tag that it puts before a source is not a word.
        """
        lines = self.sides("align").addressed([line for line, _ in pairs], to)
        read = [(source, target) for source, (_, target) in zip(lines, pairs, strict=True)]
        return self.engine.links(read, head)

    def generate(
        self,
        prompts: Sequence[str] = ("",),
        max_length: int = 200,
        num: int = 1,
        whole_lines: bool = False,
        beam_size: int | None = None,
        listen: Callable[[str], None] | None = None,
        **choices: object,
    ) -> list[Continuation]:
        """``num`` continuations of each prompt, of at most ``max_length`` tokens.

        ``choices`` are fields of the search "sample": temperature, top_k, top_p, min_p,
        repetition_penalty, seed; the run's own where it has them. With ``beam_size`` the most
        probable text is looked for instead (1 is greedy). The run's rules hold for both.
        ``whole_lines`` ends a text with its line; ``listen`` is called with the text so far.
        """
        tokenizer, search = self._continuing(max_length, beam_size, choices)
        if whole_lines and tokenizer.text_ends[0] != EOS:
            raise UserError("this model has no token that ends a line; leave out --whole-lines")
        request = SearchRequest(search, end=EOS if whole_lines else None, num=1)
        return continued(tokenizer, self.engine, several(prompts, "generate"), request, num, listen)

    def explain(
        self, source: Example, target: str | Ids | None = None, units: Units = "auto"
    ) -> AttentionRecord:
        """Return what each layer and head attended to while the target (or answer) was produced.

        What source and target are is up to the task: lines of text, a picture, a series. Rows and
        columns of a text are its "tokens" or its "words"; with "auto" tokens for character, byte
        and symbol tokenizers and for scripts without blanks between words, else words.
        """
        return self.engine.explain(source, target, units)

    def token_counts(self, lines: Sequence[str], target: bool = False) -> list[int]:
        """Return how many tokens sources, or targets, have."""
        sides = self.sides("translate")
        tokenizer = sides.target_tokenizer if target else sides.source_tokenizer
        return list(map(len, tokenizer.encode_ids(lines)))


def translated(
    sides: TextSides, engine: ModelEngine, lines: Sequence[str], request: SearchRequest
) -> list[TextAnswer]:
    """Return the outputs for each line, in their order; an empty line has the output "".

    Longer lines than the model reads are cut, and their answers say by how many tokens.
    """
    limit, ids = min(sides.max_length, engine.room.source), sides.read_ids(lines)
    request = replace(request, prefixes=sides.target_tokenizer.begun(lines, request.prefixes))
    answers = list[TextAnswer]()
    every = engine.outputs([each[:limit] for each in ids], request)
    for line, each, outputs in zip(lines, ids, every, strict=True):
        shown = outputs or [best(outputs)]
        texts = [sides.target_tokenizer.decode(output.ids) for output in shown]
        scores, cut = [output.score for output in shown], max(0, len(each) - limit)
        answers.append(TextAnswer(line, texts, scores, cut, outputs, engine))
    return answers


def continued(
    tokenizer: Tokenizer,
    engine: ModelEngine,
    prompts: Sequence[str],
    request: SearchRequest,
    num: int = 1,
    listen: Callable[[str], None] | None = None,
) -> list[Continuation]:
    """Return ``num`` continuations of each prompt, one prompt after the other.

    ``listen`` gets the text so far at each position, of a single prompt that is continued once.
    """
    ids = [tokenizer.encode_lines(prompt) for prompt in prompts for _ in range(num)]
    if listen is None:
        outputs = engine.outputs(ids, request)
    else:
        added = partial(tokenizer.added, ids[0])
        outputs = engine.heard(ids[0], request, lambda output: listen(added(output)))
    return [
        Continuation(prompts[n // num], tokenizer.added(ids[n], best.ids), best.log_probability)
        for n, (best, *_) in enumerate(outputs)
    ]
