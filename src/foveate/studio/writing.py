"""Texts written token by token, told as they come: translations, captions, texts that go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from foveate.config import ConfigError
from foveate.data.tokenizer import EOS
from foveate.decode.search import Beginning
from foveate.look.drawing import AnyDrawing
from foveate.run import Run
from foveate.studio.answers import Answerer, Say, shown, source_tokens
from foveate.studio.asking import Ask
from foveate.studio.pictures import opened
from foveate.studio.told import Alternative, BeamStep, Hypothesis, Start, TextDone, Token
from foveate.watching import Output, Watched, Writer, writer

WRITES = ("stream", "beam", "sample", "force")


class Writing(Answerer):
    """An answer of tokens: single outputs are told token by token, several as a beam."""

    gives, can = "text", WRITES

    def answer(self, run: Run, ask: Ask, say: Say) -> TextDone:
        write = writer(run)
        search = searched(write, ask)
        prefix = [*ask.prefix] or (write.begun(ask.beginning) if ask.beginning else [])
        self._check(write, prefix)
        watched = Watched(write, ask.top_k)
        watched.watch.told = self._telling(watched, search.build().width, say)
        with self.source(run, ask) as (source, drawings):
            found = watched.write(source, search.build(), prefix)
        hypotheses = [hypothesis(watched, one) for one in found[: ask.hypotheses]]
        return TextDone(hypotheses=hypotheses, drawings=drawings)

    @contextmanager
    def source(self, run: Run, ask: Ask) -> Iterator[tuple[Any, list[AnyDrawing]]]:
        """What the run reads, and what is drawn of it."""
        yield ask.text, []

    @staticmethod
    def _check(write: Writer, prefix: list[int]) -> None:
        size = write.tokenizer.vocab_size
        if wrong := [i for i in prefix if not 0 <= i < size]:
            raise ConfigError(f"prefix: no token has the id {wrong[0]}; ids end at {size - 1}")

    @staticmethod
    def _telling(watched: Watched, width: int, say: Say) -> Callable[[list[Beginning]], None]:
        def tokens(step: list[Beginning]) -> None:
            for one in step:
                say(token(watched, one, len(watched.watch.steps) - 1))

        def beam(step: list[Beginning]) -> None:
            if not step:
                return
            ended = [one for s in watched.watch.steps for one in s if one.state == "done"]
            alive = [one for one in step if one.state == "live"]
            best = max(ended + alive or step, key=lambda one: one.score)
            text = watched.output(watched.watch.path(best)).text
            nodes = [watched.node(one) for one in step]
            say(BeamStep(step=len(watched.watch.steps) - 1, nodes=nodes, best=best.id, text=text))

        return tokens if width == 1 else beam


class Translating(Writing):
    """A line for a line."""

    method = "answer"

    def start(self, run: Run, name: str, ask: Ask) -> Start:
        tokens = source_tokens(run.task.source_tokenizer, ask.text)
        cut = max(0, len(tokens) - run.task.data.max_length)
        return Start(run=name, source=tokens, prefix=ask.prefix, cut=cut)

    @contextmanager
    def source(self, run: Run, ask: Ask) -> Iterator[tuple[Any, list[AnyDrawing]]]:
        line = " ".join(ask.text.splitlines())
        yield run.task.addressed([line], ask.to)[0], []


class GoingOn(Writing):
    """A text that goes on."""

    method = "generate"

    def start(self, run: Run, name: str, ask: Ask) -> Start:
        tokens = source_tokens(run.task.tokenizer, ask.text)
        return Start(run=name, source=tokens, prefix=ask.prefix)


class Captions(Writing):
    """A sentence for a picture."""

    method, reads = "caption", "picture"

    @contextmanager
    def source(self, run: Run, ask: Ask) -> Iterator[tuple[Any, list[AnyDrawing]]]:
        with opened(ask.picture) as picture:
            yield picture, [shown(*run.task.shown(picture))]


def searched(write: Writer, ask: Ask) -> Any:
    """The config of the search that is asked for, wide enough for the outputs wanted."""
    return write.search(ask.search.kind, **ask.search.fields()).giving(ask.hypotheses)


def token(watched: Watched, one: Beginning, place: int, text: str | None = None) -> Token:
    """The last token of a beginning, at a place of its output."""
    found, names = watched.instead(one)
    pieces, special = watched.writer.tokenizer.pieces, one.token in watched.writer.silent
    name = watched.name(one)
    said = "\n" if one.token == EOS else name
    said = "" if special or said.endswith("\ufffd") else said
    return Token(
        i=place,
        id=one.token,
        text=said if text is None else text,
        piece=pieces[one.token],
        special=special,
        log_p=one.token_log_p,
        entropy=found.entropy,
        alternatives=[
            Alternative(id=i, text=text, p=math.exp(log_p))
            for i, text, log_p in zip(found.tokens, names, found.log_p, strict=True)
        ],
    )


def hypothesis(watched: Watched, output: Output) -> Hypothesis:
    """An output with its tokens, whose texts in a row are its text."""
    ids = [one.token for one in output.path]
    texts = watched.writer.parts(ids)
    tokens = [
        token(watched, one, place, text)
        for place, (one, text) in enumerate(zip(output.path, texts, strict=True))
    ]
    return Hypothesis(
        text=output.text,
        log_p=output.log_p,
        score=output.score,
        ended=output.ended,
        tokens=tokens,
        path=[one.id for one in output.path],
    )
