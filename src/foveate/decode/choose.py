"""The search that a request asks for: kind, beam size, prefix and wording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from foveate.config import ConfigError
from foveate.data.tokenizer import SPECIALS, UNK, Tokenizer
from foveate.decode.beam import Beam, LexicalBeam
from foveate.decode.constraints import Demand, Forbidden, Phrase, Pieces, Spelling
from foveate.decode.greedy import Greedy
from foveate.decode.search import Search


def with_beam(
    own: Search.Config, beam_size: int | None, length_penalty: float | None
) -> Search.Config:
    """The search as a beam of the given choices; itself where nothing is chosen.

    A beam of one without a penalty is greedy search, which has less to keep in order.
    Raises ``ConfigError`` for a length penalty where nothing is a beam.
    """
    asked = {"beam_size": beam_size, "length_penalty": length_penalty}
    choices = {name: value for name, value in asked.items() if value is not None}
    if not choices:
        return own
    if beam_size is None and not isinstance(own, Beam.Config):
        raise ConfigError(f"a search {own.kind} has no length_penalty; give a beam_size beside it")
    if beam_size == 1 and length_penalty is None and type(own) in (Beam.Config, Greedy.Config):
        return Greedy.Config.like(own)
    kind = type(own) if isinstance(own, Beam.Config) else Beam.Config
    return kind.like(own, **choices)


def another(own: Search.Config, kind: str | None, fields: dict[str, Any]) -> Search.Config:
    """The search with other fields; of another kind, it keeps what both kinds know.

    Raises ``ConfigError`` naming the nearest valid kind or key.
    """
    chosen = own if kind is None else Search.Config.parse(kind, ("decode",))
    return chosen.like(own, **fields)


# ----------------------------------------------------------------------------------------- wording
# What outputs are to say and not to say, as text: wanted terms with variants, banned phrases.

Term = Sequence[str]  # variants, any of which will do


@dataclass(frozen=True)
class Wording:
    """For each line the terms that its output must hold, and what no output may hold."""

    wanted: Sequence[Sequence[Term]] = ()
    banned: Sequence[str] = ()

    def on(self, search: Search, tokenizer: Tokenizer) -> Search:
        """The search that keeps to it. Raises ``ConfigError`` where it is no beam of one group."""
        if any(self.wanted):
            if type(search) is not Beam:
                kind = search.config.kind
                raise ConfigError(f"a search {kind} cannot force terms; use decode.kind=beam")
            sharing = LexicalBeam(search.config)
            vars(sharing).update(vars(search))  # beginnings, bans, listener: all that was asked
            pieces = _pieces(tokenizer)
            sharing.demands = [
                Demand(tuple(filter(None, (_phrase(t, tokenizer) for t in terms))), pieces)
                for terms in self.wanted
            ]
            search = sharing
        if self.banned:
            search = search.forbidding([Banned(self.banned, tokenizer)])
        return search


def _phrase(term: Term, tokenizer: Tokenizer) -> Phrase:
    """The spellings of a term: each variant as it is and with a capital, behind words or a mark.

    Spellings that hold what is not in the vocabulary are left out; none is left of a term that
    no output can hold.
    """
    found: dict[Spelling, None] = {}
    for variant in term:
        for text in dict.fromkeys((variant, variant[:1].upper() + variant[1:])):
            for before, bare in (("a", False), ("l'", True)):
                blank = "" if bare else " "
                start = tokenizer.encode(before).ids
                ids = tokenizer.encode(before + blank + text).ids
                if ids[: len(start)] == start and len(ids) > len(start):
                    found[Spelling(tuple(ids[len(start) :]), bare)] = None
    return tuple(spelling for spelling in found if UNK not in spelling.ids)


@lru_cache(maxsize=8)
def _behind_a_word(tokenizer: Tokenizer) -> list[str]:
    """What each piece of a vocabulary writes behind a word; special ones nothing."""
    word = tokenizer.encode("a").ids[-1:]
    size = len(tokenizer.decode(word))
    return ["" if i < len(SPECIALS) else tokenizer.decode([*word, i])[size:]
            for i in range(tokenizer.vocab_size)]  # fmt: skip


def _pieces(tokenizer: Tokenizer) -> Pieces:
    """How each piece of a vocabulary stands to words."""
    texts = _behind_a_word(tokenizer)
    return Pieces([t[:1].isalnum() for t in texts], [t[-1:].isalnum() for t in texts])


class Banned:
    """No output holds any of some phrases as whole words, in whatever case."""

    def __init__(self, phrases: Sequence[str], tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.phrases = [" " + " ".join(p.casefold().split()) for p in phrases if p.strip()]
        self.longest = max(map(len, self.phrases), default=0)
        texts = [text.casefold() for text in _behind_a_word(tokenizer)]
        self.ending = [_ending(phrase, texts) for phrase in self.phrases]

    def forbidden(self, written: Int[Tensor, "N t"], end: int) -> Forbidden:
        """Each token with which a row would end in a banned phrase."""
        pairs = [
            (row, token)
            for row, ids in enumerate(written[:, -self.longest - 1 :].tolist())
            for token in self._completing(ids)
        ]
        found = torch.tensor(pairs, dtype=torch.long, device=written.device).view(-1, 2)
        return found[:, 0], found[:, 1]

    def _completing(self, recent: list[int]) -> set[int]:
        """The tokens that end a phrase behind these; most are ruled out without being decoded."""
        said, found = self.tokenizer.decode(recent).casefold(), set[int]()
        for phrase, ending in zip(self.phrases, self.ending, strict=True):
            begun = [n for n in range(2, len(phrase)) if said.endswith(phrase[1:n])]
            for token in {token for n in (1, *begun) for token in ending[n]}:
                text = " " + self.tokenizer.decode([*recent, token]).casefold()
                place = len(text) - len(phrase) + 1
                if text.endswith(phrase[1:]) and place > 0 and not text[place - 1].isalnum():
                    found.add(token)
        return found


def _ending(phrase: str, texts: Sequence[str]) -> list[list[int]]:
    """For each place of a phrase the tokens that end with what stands there and behind it."""
    last = [i for i, text in enumerate(texts) if text.endswith(phrase[-1])]
    rests = [phrase[n:].lstrip() for n in range(len(phrase))]
    return [[i for i in last if texts[i].endswith(rest)] for rest in rests]
