"""Phrases that no output may hold, and the tokens that would complete one."""

from __future__ import annotations

from collections.abc import Sequence

from foveate.data.tokenizer import SPECIALS, Tokenizer


class BannedPhrases:
    """Phrases as whole words, in whatever case."""

    def __init__(self, phrases: Sequence[str], tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.phrases = [" " + " ".join(p.casefold().split()) for p in phrases if p.strip()]
        self.longest = max(map(len, self.phrases), default=0)
        texts = [text.casefold() for text in after_a_word(tokenizer)]
        self.ending = [_ending(phrase, texts) for phrase in self.phrases]

    def completing(self, recent: Sequence[int]) -> set[int]:
        """The tokens that complete a phrase after ``recent``; most are excluded undecoded."""
        text, tokens = self.tokenizer.decode(recent).casefold(), set[int]()
        for phrase, ending in zip(self.phrases, self.ending, strict=True):
            begun = [n for n in range(2, len(phrase)) if text.endswith(phrase[1:n])]
            for token in {token for n in (1, *begun) for token in ending[n]}:
                longer = " " + self.tokenizer.decode([*recent, token]).casefold()
                place = len(longer) - len(phrase) + 1
                if longer.endswith(phrase[1:]) and place > 0 and not longer[place - 1].isalnum():
                    tokens.add(token)
        return tokens


def after_a_word(tokenizer: Tokenizer) -> list[str]:
    """The text that each piece of a vocabulary adds after a word; special ones none."""
    word = tokenizer.encode("a").ids[-1:]
    size = len(tokenizer.decode(word))
    return ["" if i < len(SPECIALS) else tokenizer.decode([*word, i])[size:]
            for i in range(tokenizer.vocab_size)]  # fmt: skip


def _ending(phrase: str, texts: Sequence[str]) -> list[list[int]]:
    """For each position of a phrase the tokens that end with the phrase from there on."""
    last = [i for i, text in enumerate(texts) if text.endswith(phrase[-1])]
    rests = [phrase[n:].lstrip() for n in range(len(phrase))]
    return [[i for i in last if texts[i].endswith(rest)] for rest in rests]
