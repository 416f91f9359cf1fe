"""Outputs of every search are valid UTF-8, whatever the model makes likely."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from foveate.data.tokenizer import BPE, Byte, Character, Tokenizer, Unigram
from foveate.decode import beam as greedy
from foveate.decode.beam import Beam, Greedy
from foveate.decode.constraints import (
    REJECTED,
    WHOLE,
    ByteTable,
    MinLength,
    NoRepeat,
    automaton,
    byte_table,
)
from foveate.decode.search import Hypothesis, Search
from foveate.engine.base import SearchRequest
from laws.conftest import defaults
from laws.tables import END, START, Table, Tables, alike, limit, random_table
from variants import transformer, translator

TEXT = ["私は猫が好きです。", "Ein 🐈 schläft – für Łukasz.", "कखग 한국어 ไทย"] * 3
SEARCHES = defaults("search") | {"beam of 1": Beam.Config(beam_size=1)}
RULES = NoRepeat.Config(size=1), MinLength.Config(length=7)


@cache
def tokenizer(kind: str) -> Tokenizer:
    config = Byte.Config() if kind == "byte" else {"bpe": BPE, "unigram": Unigram}[kind].Config(
        vocab_size=300
    )  # fmt: skip
    made: Tokenizer = config.build()
    made.train(TEXT)
    return made


@cache
def tables(size: int, count: int = 2, ending: float = 1.0) -> list[Table]:
    return [cache(random_table(seed, size, ending)) for seed in range(count)]


def result(config: Search.Config, pieces: Tokenizer, ending: float = 1.0) -> list[list[Hypothesis]]:
    search, constraints = SearchRequest(config.build()).built(pieces)
    steps = Tables(tables(pieces.vocab_size, 2, ending))
    return search(steps, [1] * 2, START, END, None, constraints)


def broken(outputs: Sequence[Sequence[Hypothesis]], pieces: Tokenizer) -> list[str]:
    texts = [pieces.decode(h.ids) for of_source in outputs for h in of_source]
    return [text for text in texts if "\ufffd" in text]


def test_the_automaton_is_utf8() -> None:
    """It accepts what Python decodes: sequences of up to three bytes, and characters of four."""
    delta = automaton()
    some = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1,
            0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]  # fmt: skip
    for length in (1, 2, 3, 4):
        first = some if length < 4 else some[-6:]
        for sequence in itertools.product(first, *[some] * (length - 1)):
            state = WHOLE
            for byte in sequence:
                state = int(delta[state, byte])
            try:
                bytes(sequence).decode()
            except UnicodeDecodeError:
                assert state != WHOLE
            else:
                assert state == WHOLE
    assert (delta[REJECTED] == REJECTED).all()


@pytest.mark.parametrize("kind", ["byte", "bpe", "unigram"])
@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
def test_every_output_of_every_search_decodes(config: Search.Config, kind: str) -> None:
    pieces = tokenizer(kind)
    for length, ending, rules in itertools.product((1, 7), (1.0, 30.0), ((), RULES)):
        short = config.like(config, rules=rules, **limit(length))
        outputs = result(short, pieces, ending)
        assert all(outputs) and not broken(outputs, pieces)
    free = config.like(config, whole_characters=False, **limit(9))
    assert broken(result(free, pieces), pieces), "the mask has work to do"


def test_a_beam_of_one_is_greedy_and_log_p_is_the_models() -> None:
    pieces = tokenizer("bpe")
    item, other = (
        result(config.like(config, length_penalty=0.0) if config.kind == "beam" else config, pieces)
        for config in (Greedy.Config(**limit(9)), Beam.Config(beam_size=1, **limit(9)))
    )
    for left, right, table in zip(item, other, tables(pieces.vocab_size), strict=True):
        alike(left, right)
        (best,) = left
        ids = [*best.ids, END] if best.ended else best.ids
        p = torch.tensor([table(tuple(ids[:n]))[i] for n, i in enumerate(ids)])
        assert best.log_probability == pytest.approx(float(p.log().sum()), abs=1e-4)


class Entering(Tables):
    """Steps into which sources come while others are being decoded."""

    enters = True

    def __init__(self, tables: Sequence[Table]) -> None:
        super().__init__(tables)
        self.all, self.fresh = list(tables), [True] * len(tables)

    def step(self, ids: Tensor) -> Tensor:
        rows = zip(self.written, ids.tolist(), self.fresh, strict=True)
        self.written = [prefix if new else (*prefix, token) for prefix, token, new in rows]
        self.fresh = [False] * len(ids)
        both = zip(self.sources, self.written, strict=True)
        return torch.tensor([table(prefix) for table, prefix in both]).log()

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        self.fresh = [self.fresh[row] for row in rows.tolist()]

    def enter(self, sources: Tensor) -> None:
        self.sources += [self.all[source] for source in sources.tolist()]
        self.written += [()] * len(sources)
        self.fresh += [True] * len(sources)


def test_sources_that_enter_later_are_whole_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, many = tokenizer("byte"), tables(260, 12, 20.0)
    search, constraints = SearchRequest(Greedy.Config(**limit(2, 1.0)).build()).built(pieces)
    lengths = [n % 5 for n in range(12)]
    apart = search(Tables(many), lengths, START, END, None, constraints)
    monkeypatch.setattr(greedy, "ROOM", 3)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    together = search(Entering(many), lengths, START, END, None, constraints)
    assert not broken(together, pieces)
    for item, other in zip(together, apart, strict=True):
        alike(item, other)


def test_terms_and_beginnings_come_among_whole_characters() -> None:
    pieces = tokenizer("byte")
    beam = Beam.Config(beam_size=4, **limit(24)).build()
    request = SearchRequest(beam, pieces.encode_ids(["für", "好"]), [[("猫",)]] * 2)
    search, constraints = request.built(pieces)
    outputs = search(Tables(tables(260, 2)), [1, 1], START, END, None, constraints)
    assert not broken(outputs, pieces)
    for of_source, begun in zip(outputs, ("für", "好"), strict=True):
        texts = [pieces.decode(h.ids) for h in of_source]
        assert any("猫" in text for text in texts) and all(t.startswith(begun) for t in texts)


def test_of_some_tokens_only_what_they_can_finish() -> None:
    """A shortlist without any continuation byte leaves no lead byte either."""
    pieces = tokenizer("byte")
    table = byte_table(pieces)
    assert table is not None
    ascii_and_leads = torch.tensor([*range(4), *(4 + b for b in (65, 66, 0xC3, 0xE3, 0xF0))])
    some = table.of(ascii_and_leads)
    assert some.always.tolist() == [6, 7, 8]
    with_one = table.of(torch.cat((ascii_and_leads, torch.tensor([4 + 0x81]))))
    assert with_one.always.tolist() == [8, 9]  # F0 needs 90 or more; 81 begins nothing
    assert torch.equal(table.of(torch.arange(260)).barred, table.barred)


def test_pieces_that_are_whole_need_no_table() -> None:
    characters = Character.Config().build()
    characters.train(TEXT)
    assert byte_table(characters) is None
    assert isinstance(byte_table(tokenizer("bpe")), ByteTable)


@pytest.mark.parametrize("kind", ["byte", "unigram"])
def test_a_run_that_has_learnt_nothing_still_writes_characters(kind: str, tmp_path: Path) -> None:
    run = transformer(translator(tmp_path, kind), seed=3)
    lines = ["the dog runs", "a girl eats", "Ünknown ☃"]
    for beam_size in (1, 4):
        assert not any("\ufffd" in str(t) for t in run.translate(lines, beam_size=beam_size))
    free = run.decoding(whole_characters=False)
    assert any("\ufffd" in str(t) for t in free.translate(lines, beam_size=1))
