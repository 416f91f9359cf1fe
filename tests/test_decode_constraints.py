"""What outputs must hold and must not: whole characters, phrases, banned words."""

import itertools
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foveate.config import ConfigError
from foveate.data.tokenizer import Character, Tokenizer
from foveate.decode.beam import Beam
from foveate.decode.constraints import (
    REJECTED,
    WHOLE,
    Constraints,
    DecodingBatch,
    MinLength,
    NoRepeat,
    RequiredPhrases,
    byte_table,
)
from foveate.decode.constraints import START as START_STATE
from foveate.decode.engine import Hypothesis, SearchRequest, automaton
from foveate.decode.lexical_beam import LexicalBeam
from foveate.decode.phrases import BannedPhrases, Phrase, Spelling, WordPieces
from foveate.decode.search import Greedy, Search
from foveate.documents.memory import Assistance, Glossary
from foveate.engine.packed import load as load_packed
from foveate.measure.laws.searches import END, START, Table, Tables, random_table
from foveate.run import Run
from foveate.run.training import train
from foveate.tasks.engine import built
from laws.conftest import defaults
from laws.tables import alike, limit
from small_runs import CONFIGS, config_file, made
from tolerances import MODEL, near
from variants import TOKENIZERS, transformer, translator

TEXT = ["私は猫が好きです。", "Ein 🐈 schläft – für Łukasz.", "कखग 한국어 ไทย"] * 3
SEARCHES = defaults("search") | {"beam of 1": Beam.Config(beam_size=1)}
RULES = NoRepeat.Config(size=1), MinLength.Config(length=7)


@cache
def tokenizer(kind: str) -> Tokenizer:
    size = {} if kind == "byte" else {"vocab_size": 300}
    made: Tokenizer = Tokenizer.Config.parse({"kind": kind} | size).build()
    made.train(TEXT)
    return made


@cache
def tables(size: int, count: int = 2, ending: float = 1.0) -> list[Table]:
    return [cache(random_table(seed, size, ending)) for seed in range(count)]


def result(config: Search.Config, pieces: Tokenizer, ending: float = 1.0) -> list[list[Hypothesis]]:
    search, constraints = built(SearchRequest(config.build()), pieces)
    steps = Tables(tables(pieces.vocab_size, 2, ending))
    return search(DecodingBatch(range(2), steps, [1] * 2), START, END, constraints)


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
            valid = bytes(sequence).decode(errors="ignore").encode() == bytes(sequence)
            assert (state == WHOLE) == valid
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


def test_terms_and_beginnings_come_among_whole_characters() -> None:
    pieces = tokenizer("byte")
    beam = Beam.Config(beam_size=4, **limit(24)).build()
    request = SearchRequest(beam, pieces.encode_ids(["für", "好"]), [[("猫",)]] * 2)
    search, constraints = built(request, pieces)
    batch = DecodingBatch(range(2), Tables(tables(260, 2)), [1, 1])
    outputs = search(batch, START, END, constraints)
    assert not broken(outputs, pieces)
    for of_source, begun in zip(outputs, ("für", "好"), strict=True):
        texts = [pieces.decode(h.ids) for h in of_source]
        assert any("猫" in text for text in texts) and all(t.startswith(begun) for t in texts)


def test_a_shortlist_allows_only_characters_it_can_finish() -> None:
    """A shortlist without any continuation byte leaves no lead byte either."""
    table = byte_table(tokenizer("byte"))
    ascii_and_leads = torch.tensor([*range(4), *(4 + b for b in (65, 66, 0xC3, 0xE3, 0xF0))])
    assert table.of(ascii_and_leads).always.tolist() == [6, 7, 8]
    with_one = table.of(torch.cat((ascii_and_leads, torch.tensor([4 + 0x81]))))
    assert with_one.always.tolist() == [8, 9]  # F0 needs 90 or more; 81 begins nothing
    assert torch.equal(table.of(torch.arange(260)).barred, table.barred)


def test_pieces_that_are_whole_need_no_table() -> None:
    characters = Character.Config().build()
    characters.train(TEXT)
    assert byte_table(characters) is None and byte_table(tokenizer("bpe")) is not None


@pytest.mark.parametrize("kind", ["byte", "unigram"])
def test_a_run_that_has_learnt_nothing_still_writes_characters(kind: str, tmp_path: Path) -> None:
    run = transformer(translator(tmp_path, kind), seed=3)
    lines = ["the dog runs", "a girl eats", "Ünknown ☃"]
    for beam_size in (1, 4):
        assert not any("\ufffd" in str(t) for t in run.translate(lines, beam_size=beam_size))
    free = run.decoding(whole_characters=False)
    assert any("\ufffd" in str(t) for t in free.translate(lines, beam_size=1))


# ---- Phrases that outputs must hold, and must not: proved on a model that writes at random
START_ID, SIZE = 2, 12


class Random:
    """A model whose next token depends on the last one alone; ids from 4 on are its words."""

    device = torch.device("cpu")

    def __init__(self, seed: int) -> None:
        self.table = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(seed)) * 3
        self.table[:, :3] = -torch.inf

    def step(self, ids: Tensor) -> Tensor:
        return self.table[ids].clone()

    def reorder(self, rows: Tensor) -> None: ...

    def select(self, sources: Tensor) -> None: ...


def searched(seed: int, demands: Sequence[RequiredPhrases], kind: type = LexicalBeam) -> list[Any]:
    search = kind(Beam.Config.parse({"beam_size": 5, "max_ratio": 0.0, "max_extra": 25}))
    batch = DecodingBatch(range(len(demands)), Random(seed), [3] * len(demands))
    return search(batch, START_ID, END, Constraints(required=demands))


def demand(*phrases: Sequence[Sequence[int]], goes_on: Sequence[int] = ()) -> RequiredPhrases:
    made: list[Phrase] = [tuple(Spelling(tuple(ids)) for ids in phrase) for phrase in phrases]
    flags = [i in goes_on for i in range(SIZE)]
    return RequiredPhrases(tuple(made), WordPieces(flags, [False] * SIZE))


ids = st.integers(4, SIZE - 1)
spellings = st.lists(ids, min_size=1, max_size=3)
phrases = st.lists(st.lists(spellings, min_size=1, max_size=2), max_size=3)


def within(phrase: Sequence[int], output: Sequence[int]) -> bool:
    n = len(phrase)
    return any(list(output[i : i + n]) == list(phrase) for i in range(len(output) - n + 1))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9999), st.lists(phrases, min_size=1, max_size=3))
def test_what_ends_holds_its_phrases(seed: int, reference: list[list[list[list[int]]]]) -> None:
    result = searched(seed, [demand(*item) for item in reference])
    for outputs, requested in zip(result, reference, strict=True):
        assert outputs
        for output in (each for each in outputs if each.ended):
            assert all(any(within(s, output.ids) for s in phrase) for phrase in requested)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 9999))
def test_without_phrases_it_is_a_beam(seed: int) -> None:
    free = searched(seed, [demand(), demand()], kind=Beam)
    assert searched(seed, [demand(), demand()]) == free
    beside = searched(seed, [demand(), demand([[7, 8]])])
    assert beside[0] == free[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9999), ids, ids)
def test_the_score_is_the_models(seed: int, first: int, second: int) -> None:
    best = searched(seed, [demand([[first, second]])])[0][0]
    log_p = Random(seed).table.log_softmax(dim=1)
    path = [START_ID, *best.ids, *([END] if best.ended else [])]
    total = sum(float(log_p[a, b]) for a, b in itertools.pairwise(path))
    assert best.log_probability == near(total, terms=MODEL)


def test_a_word_that_goes_on_is_not_the_phrase_and_a_bare_spelling_stands_behind_no_word() -> None:
    item = demand([[5]], goes_on=[6])
    state = item.after(item.after(START_STATE, 4), 5)
    assert item.done(state) and item.progress(state) == 1
    assert [item.done(item.after(state, token)) for token in (6, 7)] == [False, True]
    bare: Phrase = (Spelling((5,), bare=True),)
    item = RequiredPhrases((bare,), WordPieces([False] * SIZE, [i == 4 for i in range(SIZE)]))
    behind = item.after(START_STATE, 4)
    assert (item.next_tokens(START_STATE, 6), item.next_tokens(behind, 6)) == ({5}, set())
    assert not item.done(item.after(behind, 5))


def test_a_phrase_begins_where_a_word_does_and_is_written_to_its_end() -> None:
    item = demand([[5, 6, 7]], goes_on=[6, 7, 8])
    assert item.next_tokens(START_STATE, 4) == {5}
    assert not item.next_tokens(START_STATE, 8), "the model continues a word"
    assert not item.next_tokens(START_STATE, None), "the model ends the text"
    begun, chosen = item.after(START_STATE, 5, forced=True), item.after(START_STATE, 5)
    assert (begun.committed, chosen.committed) == (1, 0), "the model's own choice binds nobody"
    assert item.next_tokens(begun, 4) == {6} == item.next_tokens(chosen, 8)
    written = item.after(item.after(begun, 6), 7)
    assert written.committed == 3 and written.closed and item.done(written)
    assert not item.after(written, 4).committed


# Letters of which the phrases below are spelt, for the tokenizers; too long to be trained on.
CAPITALS = "the\tTNIM OUEA HP i" + 60 * " le" + "\n"


@pytest.fixture(scope="module")
def translators(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Translators of small letters that also know some capitals, one for each tokenizer."""
    folder, runs = tmp_path_factory.mktemp("terms"), dict[str, Run]()
    made(folder, [])
    train_file = folder / "pairs.train.tsv"
    train_file.write_text(CAPITALS + train_file.read_text("utf-8") * 2, "utf-8")
    for kind in ("byte", "bpe", "unigram", "character", "word"):
        config = config_file(folder, CONFIGS["transformer"], 60)
        changed = [f"task.tokenizer={TOKENIZERS[kind]}", "data.max_length=40"]
        runs[kind] = train(config, changed, folder=folder / f"run-{kind}")
    return runs


@pytest.mark.parametrize("kind", ["byte", "bpe", "unigram", "character", "word"])
@pytest.mark.parametrize("engine", ["torch", "packed"])
def test_a_phrase_is_written_once_as_a_whole_word(translators, kind, engine, monkeypatch) -> None:
    """The models write small letters: what else is a capital is a part of a phrase, left alone."""
    run, tried = translators[kind], 0
    if engine == "torch":
        monkeypatch.setattr("foveate.run.compiled", lambda model: None)
    own = load_packed(run.path / "packed.safetensors") if engine == "packed" else run
    lines = ["the dog runs", "a cat sleeps", "the dog sings"]
    for phrase in ("TNIM", "OUEA") if kind == "word" else ("MINET", "iPHONE", "TOUTOU", "M"):
        for answer in own.translate(lines, 4, 4, required=[[[phrase]]] * len(lines)):
            if answer.outputs[0].ended:
                tried += 1
                words = re.findall(r"\w+", str(answer))
                assert words.count(phrase) == 1, (phrase, str(answer))
                rest = "".join(words).replace(phrase, "")
                assert rest == rest.lower(), (phrase, str(answer))
    assert tried >= 6


def test_a_term_that_no_output_can_hold_is_left_out(longer_run: Run) -> None:
    run = longer_run
    free = str(run.translate(["the dog runs"])[0])
    with pytest.warns(UserWarning, match="not in the target vocabulary, so not required: 'zzz'$"):
        assert str(run.translate(["the dog runs"], required=[[["zzz"], ["chien"]]])[0]) == free
    with pytest.raises(ConfigError, match=r"cannot force terms; use decode\.kind=beam"):
        run.decoding("greedy").translate(["a cat"], required=[[["chat"]]])


def test_a_term_that_is_required_and_banned_is_refused() -> None:
    glossary = Glossary({"dog": ("chien", "petit chien")})
    for forced, banned, terms in (("chat",), ["Chat"], None), ((), ["CHIEN"], glossary):
        with pytest.raises(ConfigError, match="is required and banned; remove one"):
            Assistance(terms, forced, banned)
    Assistance(glossary, (), ["petit"]), Assistance(None, ("chaton",), ["chat"])


@pytest.mark.parametrize("kind", ["bpe", "byte"])
def test_pieces_are_decoded_once_for_all_requests(kind: str, monkeypatch) -> None:
    own = tokenizer(kind)
    BannedPhrases(["chat"], own)
    monkeypatch.setattr(type(own), "decode", lambda *_: pytest.fail("decoded again"))
    assert BannedPhrases(["chien"], own).phrases == ["chien"]
