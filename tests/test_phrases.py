"""Phrases that outputs may not, or must, hold: all characters that a tokenizer can write."""

import re
from collections.abc import Iterator
from unicodedata import normalize

import pytest

from foveate.config import ConfigError
from foveate.data.tokenizer import UNK, Tokenizer
from foveate.decode.phrases import BannedPhrases, phrase_of, word_pieces

ODD = "éÉßİıſ.,;!?…'’“”«»()-–—€½²_&<>/中文ひक़😀👩‍🚀e\u0301\u200b\u2028"
LINES = [
    "le chien court . un chat dort , et l' homme lit", "a b c é è ê «  déjà vu  » — 10 000 €",
    "l'été… “oui”, dit-il (à 8 h) !", " ".join(ODD), "(a) … x.y a.b. U.S.A. 'n' rock'n'roll",
]  # fmt: skip
KINDS = {
    "byte": {"kind": "byte"},
    "bpe": {"kind": "bpe", "vocab_size": 300, "min_frequency": 1},
    "large bpe": {"kind": "bpe", "vocab_size": 900, "min_frequency": 1},
    "unigram": {"kind": "unigram", "vocab_size": 330},
    "character": {"kind": "character"},
    "word": {"kind": "word", "min_frequency": 1},
    "symbol": {"kind": "symbol"},
}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    made: Tokenizer = Tokenizer.Config.parse(KINDS[request.param]).build()
    spelt = [f"x {each} y ({each})" for c in ODD for each in around(c)]
    made.train(LINES * 3 + (spelt if request.param in ("word", "symbol") else []))
    return made


def around(c: str) -> list[str]:
    return [c, f"a{c}", f"{c}b", f"{c}{c}", f"a {c}", f"{c} b", f"a{c}b"]


def phrases(tokenizer: Tokenizer) -> Iterator[str]:
    """Around all characters of the pieces that are not white space, and others."""
    known = "".join(piece.decode(errors="ignore") for piece in tokenizer.surfaces)
    for c in sorted({c for c in known + ODD if c.strip() and ord(c) > 32}):
        yield from around(c)


def holds(text: str, phrase: str) -> bool:
    """Whether a text holds a phrase in whatever case, its letters and digits not inside words."""
    words = re.escape(phrase.casefold())
    before = r"(?<![^\W_])" if phrase.casefold()[0].isalnum() else ""
    after = r"(?![^\W_])" if phrase.casefold()[-1].isalnum() else ""
    return re.search(before + words + after, text.casefold()) is not None


def test_a_banned_phrase_is_never_written(tokenizer: Tokenizer) -> None:
    """Some token of each text that holds it is forbidden, however it is cut into tokens."""
    tried = 0
    for phrase in phrases(tokenizer):
        ban = BannedPhrases([phrase.upper()], tokenizer)
        for text in (f"x {phrase} y", f"x {phrase}", f"({phrase}) y", f"x {phrase}… y"):
            ids = tokenizer.encode(text).ids
            written = tokenizer.decode(ids)
            if UNK in ids or not holds(written, ban.phrases[0]):
                continue
            tried += 1
            forbidden = [ids[t] in ban.completing(ids[:t]) for t in range(len(ids))]
            assert any(forbidden), (phrase, text)
            at = forbidden.index(True)  # what is long past decides nothing
            near = max(0, at - ban.longest - 1)
            assert ban.completing(ids[near:at]) == ban.completing(ids[:at])
    assert tried > 150


def test_what_is_forbidden_would_write_the_phrase(tokenizer: Tokenizer) -> None:
    for phrase in phrases(tokenizer):
        ban = BannedPhrases([phrase], tokenizer)
        for text in (f"x {phrase}y", f"x{phrase} y", "le chien court .", f"a {phrase[:-1]}"):
            ids = tokenizer.encode(text).ids
            for t in range(len(ids) + 1):
                before = tokenizer.decode(ids[:t])
                for token in sorted(ban.completing(ids[:t]))[:5]:
                    longer = tokenizer.decode([*ids[:t], token])
                    assert holds(longer, ban.phrases[0]), (phrase, before, longer)


def test_a_required_phrase_is_spelt_by_its_tokens(tokenizer: Tokenizer) -> None:
    """One that no tokens can write has no spelling; the others are written, capitalised or not."""
    for phrase in phrases(tokenizer):
        spellings = phrase_of([phrase], tokenizer)
        assert bool(spellings) or UNK in tokenizer.encode(f"a {phrase}").ids
        variants = [phrase, phrase[:1].upper() + phrase[1:]]
        for spelling in spellings:
            before = tokenizer.encode("l'" if spelling.bare else "a").ids
            text = tokenizer.decode([*before, *spelling.ids]).replace(" ", "")
            assert any(text.endswith(each.replace(" ", "")) for each in variants), (phrase, text)


def test_a_letter_of_several_tokens_continues_a_word(tokenizer: Tokenizer) -> None:
    pieces, start = word_pieces(tokenizer), tokenizer.encode("a").ids
    for letter in "aéßक":
        ids = tokenizer.encode(f"a{letter}").ids
        if UNK not in ids and ids[: len(start)] == start and len(ids) > len(start):
            assert pieces.goes_on[ids[len(start)]] and pieces.in_word[ids[-1]], letter
    for mark in ".—…中":  # what is written without blanks is no part of a word
        ids = tokenizer.encode(f"a{mark}").ids
        if UNK not in ids and ids[: len(start)] == start:
            assert not pieces.goes_on[ids[len(start)]], mark


@pytest.mark.parametrize("made", [BannedPhrases, phrase_of])
def test_a_string_is_not_taken_for_its_characters(made) -> None:
    tokenizer = Tokenizer.Config.parse(KINDS["byte"]).build()
    with pytest.raises(ConfigError, match="'gare' is a string: expected a list of strings"):
        made("gare", tokenizer)


@pytest.mark.parametrize("written", ["NFC", "NFD"])
@pytest.mark.parametrize("asked", ["NFC", "NFD"])
def test_a_ban_holds_for_composed_and_decomposed_characters(asked: str, written: str) -> None:
    tokenizer = Tokenizer.Config.parse(KINDS["byte"]).build()
    *begun, last = tokenizer.encode(normalize(written, "x déjà")).ids
    assert last in BannedPhrases([normalize(asked, "déjà")], tokenizer).completing(begun)
