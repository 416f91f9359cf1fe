"""Alignments: error rates by hand, and IBM models that find what is known."""

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.align.aer import (
    METHODS,
    Gold,
    LinkCounts,
    agree,
    judge,
    rank_heads,
    read_gold,
)
from foveate.align.ibm import (
    HMM,
    NULL,
    AgreementAligner,
    Aligner,
    EMTraining,
    Model1,
    Pair,
    Symmetrized,
    agreed,
)
from foveate.config import kinds
from foveate.data.words import words
from foveate.engine.links import Links, link_lines, links, read_pharaoh, write_pharaoh
from foveate.kinds import load_kinds
from grammar.pairs import pairs

# ---- Statistical aligners against hands and brute force: IBM 1, HMM, both ways
load_kinds()
KINDS: dict[str, Any] = dict(kinds("aligner")["aligner"])
WORD = [Model1, HMM]
TOY: list[Pair] = [(["das", "Haus"], ["the", "house"]), (["Haus"], ["house"])]
BOOKS: list[Pair] = [(["das", "Haus"], ["the", "house"]), (["das", "Buch"], ["the", "book"])]
BOOKS.append((["ein", "Buch"], ["a", "book"]))
SYNTHETIC = pairs("train", 150)
CORPUS: list[Pair] = [(words(pair.source), words(pair.target)) for pair in SYNTHETIC]
GOLD = [Gold(set(pair.alignment), set(pair.alignment)) for pair in SYNTHETIC]


def table(model: Any, target: str, source: str | None) -> float:
    """t(target | source), NULL for none."""
    e = NULL if source is None else model.numbers.source[source]
    key = e * model.lexicon.width + model.numbers.target[target]
    return float(model.lexicon.probability[list(model.lexicon.keys).index(key)])


def test_model_1_by_hand() -> None:
    # uniform: t = 1/2. Pair 1 gives each source word 1/3 of each target word, pair 2 1/2 of
    # "house" to Haus and NULL; so c(house | Haus) = 1/3 + 1/2 and c(the | Haus) = 1/3
    model = Model1(Model1.Config(iterations=1, lowercase=False))
    assert model.train(TOY) == pytest.approx([np.log(1 / 8)])
    assert table(model, "house", "Haus") == pytest.approx(5 / 7)
    assert table(model, "the", "Haus") == pytest.approx(2 / 7)
    assert table(model, "the", "das") == pytest.approx(1 / 2)
    assert table(model, "the", None) == pytest.approx(2 / 7)
    # then "the" of pair 1 comes from das with (1/2) / (2/7 + 1/2 + 2/7)
    group = model.numbers.groups(TOY[:1])[0]
    assert model.posterior(group)[0, 0] == pytest.approx([4 / 15, 7 / 15, 4 / 15])


@pytest.mark.parametrize("name", KINDS)
def test_the_toy_of_the_house_and_the_book(name: str) -> None:
    aligner: Aligner = KINDS[name]().build()
    aligner.train(BOOKS)
    assert aligner.align(BOOKS) == [{(0, 0), (1, 1)}] * 3
    unseen: list[Pair] = [(["das", "Boot"], ["the", "boat"]), ([], ["a"]), (["ein"], [])]
    result = aligner.align(unseen)
    assert (0, 0) in result[0]
    assert result[1:] == [set(), set()]
    with pytest.raises(ValueError, match="no pair has words on both sides"):
        KINDS[name]().build().train([([], ["a"])])


@pytest.mark.parametrize("kind", WORD)
def test_the_likelihood_never_falls(kind: Any) -> None:
    model = kind(kind.Config(iterations=8, concentration=0.0))
    history = model.train(CORPUS)
    assert len(history) == 8
    assert history[-1] > history[0]
    assert all(after >= before - 1e-6 * abs(before) for before, after in pairwise(history))


@pytest.mark.parametrize("kind", WORD)
def test_expectations_against_every_alignment(kind: Any) -> None:
    """Likelihood, posteriors and the best alignment, by going through all 4³ of them."""
    model = kind(kind.Config(iterations=2))
    model.train(CORPUS[:50])
    emissions = np.random.default_rng(1).uniform(0.1, 1, (1, 3, 4))
    scores = {a: probability(model, emissions[0], a) for a in product(range(4), repeat=3)}
    result = model.expect(emissions)
    total = sum(scores.values())
    assert result.log_likelihood == pytest.approx(np.log(total))
    for j, i in product(range(3), range(4)):
        expected = sum(p for a, p in scores.items() if a[j] == i) / total
        assert result.posterior[0, j, i] == pytest.approx(expected)
    assert tuple(model.best(emissions)[0]) == max(scores, key=scores.__getitem__)


def probability(model: Any, emissions: Any, alignment: tuple[int, ...]) -> float:
    """p(f, a | e) as the equation says it."""
    result, place = 1.0, 0
    for j, i in enumerate(alignment):
        if not isinstance(model, HMM):
            moved = 1 / 4
        elif i == 0:
            moved = model.config.null_probability
        else:
            moved, place = model.transitions(3)[place, i], i
        result *= moved * emissions[j, i]
    return result


def test_transitions_are_distributions() -> None:
    hmm = HMM(HMM.Config())
    hmm.train(CORPUS[:50])
    assert hmm.transitions(5).sum(axis=1) == pytest.approx(np.full(6, 0.8))


def test_later_models_align_better() -> None:
    """On the embedded corpus, whose links are known."""
    rates = {}
    for kind in (Model1, HMM):
        model = kind(kind.Config())
        model.train(CORPUS)
        rates[kind] = judge(model.align(CORPUS), GOLD).aer
    joined = Symmetrized(Symmetrized.Config())
    joined.train(CORPUS)
    agreeing = AgreementAligner(AgreementAligner.Config())
    agreeing.train(CORPUS)
    assert rates[HMM] < rates[Model1]
    assert judge(joined.align(CORPUS), GOLD).aer < rates[HMM]
    assert judge(agreeing.align(CORPUS), GOLD).aer < rates[HMM]


def test_agreement_multiplies_posteriors_and_leaves_null() -> None:
    there = np.arange(6.0).reshape(1, 2, 3)  # T = 2, S = 2
    back = np.arange(10, 16.0).reshape(1, 2, 3)
    both = agreed(there, back)
    assert both[0, 0].tolist() == [0, 1 * 11, 2 * 14]
    assert both[0, 1].tolist() == [3, 4 * 12, 5 * 15]
    assert there[0, 0, 1] == 1


def test_a_prior_takes_from_rare_words_and_gives_to_cognates() -> None:
    corpus = EMTraining([(["nation"], ["nationale"]), (["dog"], ["chien"])])
    alike = dict(zip(corpus.lexicon.keys.tolist(), corpus.alike.tolist(), strict=True))
    nation = corpus.numbers.source["nation"] * corpus.numbers.width
    assert alike[nation + corpus.numbers.target["nationale"]]
    assert sum(alike.values()) == 1
    rare: list[Pair] = [(["the", "minister", "said"], ["le", "ministre", "dit"])]
    model = Model1(Model1.Config(concentration=0.01, cognates=1.0))
    model.train(rare)
    assert (1, 1) in model.align(rare)[0]
    assert table(model, "ministre", "minister") > table(model, "ministre", "said")


def test_case_is_folded_unless_it_is_not() -> None:
    capitals: list[Pair] = [(["DAS"], ["THE"])]
    folded = Model1(Model1.Config())
    folded.train(BOOKS)
    assert folded.align(capitals) == [{(0, 0)}]
    assert "das" in folded.numbers.source
    saved = Model1(Model1.Config(lowercase=False))
    saved.train([(["Das"], ["The"])])
    assert "Das" in saved.numbers.source


@pytest.mark.parametrize("kind", ["symmetrised", "agreement"])
def test_case_counts_in_both_directions_as_their_aligner_says(kind: str) -> None:
    words_of = {}
    for lowercase in (True, False):
        both = Aligner.Config.parse({"kind": kind, "lowercase": lowercase}).build()
        both.train([(["Das", "haus"], ["The", "house"])])
        words_of[lowercase] = set(both.forward.numbers.source) - {""}
    assert words_of == {True: {"das", "haus"}, False: {"Das", "haus"}}
    inner = {"kind": "hmm", "lowercase": False}
    with pytest.raises(ValueError, match=f"set lowercase for {kind}, not"):
        Aligner.Config.parse({"kind": kind, "aligner": inner})


# ---- Links from maps and in files, symmetrized, and judged by examples worked by hand
GOLD_ALIGN_AER = Gold({(0, 0), (1, 2)}, {(0, 0), (1, 2), (2, 1), (2, 2)})
FOUND = {(0, 0), (2, 1), (3, 3)}


def test_an_example_worked_by_hand() -> None:
    # A ∩ S = {0-0}; A ∩ P = {0-0, 2-1}; |A| = 3; |S| = 2
    counts = agree(FOUND, GOLD_ALIGN_AER)
    assert counts == LinkCounts(links=3, sure=2, correct_sure=1, correct_possible=2)
    assert counts.precision == pytest.approx(2 / 3)
    assert counts.recall == 1 / 2
    assert counts.aer == pytest.approx(1 - 3 / 5)


def test_a_corpus_is_a_sum_of_counts_not_a_mean_of_rates() -> None:
    perfect = Gold({(0, 0)}, {(0, 0)})
    expected = 1 - (3 + 2) / (5 + 2)
    assert judge([FOUND, {(0, 0)}], [GOLD_ALIGN_AER, perfect]).aer == pytest.approx(expected)
    assert judge([GOLD_ALIGN_AER.sure], [GOLD_ALIGN_AER]).aer == 0
    assert judge([{(9, 9)}], [GOLD_ALIGN_AER]).aer == 1
    assert judge([set()], [Gold(set(), set())]).aer == 0
    with pytest.raises(ValueError, match="2 alignments for 1 gold"):
        judge([set(), set()], [GOLD_ALIGN_AER])


def test_sure_links_count_as_possible_without_being_listed_twice() -> None:
    assert agree({(0, 0)}, Gold({(0, 0)}, set())).precision == 1


def test_gold_is_read(tmp_path: Path) -> None:
    path = tmp_path / "gold.txt"
    path.write_text("1-1 2p3\n\n4-1\n")
    first, empty, last = read_gold(path)
    assert first == Gold({(0, 0)}, {(0, 0), (1, 2)})
    assert empty == Gold(set(), set())
    assert last.sure == {(3, 0)}
    path.write_text("1-1\n1p1 0-2\n")
    said = list[str]()
    expected = [Gold({(1, 1)}, {(1, 1)}), Gold({(0, 2)}, {(0, 2), (1, 1)})]
    assert read_gold(path, said.append) == expected
    assert said == [f"gold links count words from 0 ({path}:2: 0-2)"]
    path.write_text("1-1\n1=2\n")
    with pytest.raises(ValueError, match=r"gold\.txt:2: '1=2' is not a link"):
        read_gold(path)


def test_the_hansards_are_read_whole(data_folder: Path) -> None:
    folder = data_folder / "alignment-gold"
    gold = read_gold(folder / "gold.txt")
    assert len(gold) == 447
    assert sum(len(g.sure) for g in gold) == 4038
    assert sum(len(g.possible - g.sure) for g in gold) == 13400
    sides = [(folder / name).read_text("utf-8").splitlines() for name in ("en.txt", "fr.txt")]
    for g, english, french in zip(gold, *sides, strict=True):
        assert all(i < len(english.split()) and j < len(french.split()) for i, j in g.possible)


def test_heads_are_ranked_over_the_corpus() -> None:
    copy, mirror = np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)[::-1]
    corpus = ({"a": np.stack([mirror, copy]), "b": np.stack([mirror])} for _ in range(2))
    straight = {(i, i) for i in range(3)}
    ranked = rank_heads(corpus, [Gold(straight, straight)] * 2)
    assert [(name, head) for name, head, _ in ranked] == [("a", 1), ("a", 0), ("b", 0)]
    assert ranked[0][2] == LinkCounts(6, 6, 6, 6)
    assert ranked[1][2].aer == pytest.approx(2 / 3)


MAP = np.array([[0.8, 0.1, 0.1], [0.2, 0.1, 0.7], [0.1, 0.1, 0.8], [0.34, 0.33, 0.33]])


def test_each_target_word_is_linked_to_what_it_looks_at_most() -> None:
    assert links(MAP) == {(0, 0), (2, 1), (2, 2), (0, 3)}


def test_skipped_and_unsure_rows_have_no_link() -> None:
    assert links(MAP, skip_columns=[2]) == {(0, 0), (0, 3)}
    assert links(np.zeros((2, 3))) == set()
    assert links(np.zeros((0, 3))) == links(np.zeros((3, 0))) == set()


@given(st.sets(st.tuples(st.integers(0, 99), st.integers(0, 99))))
def test_pharaoh_comes_back(results) -> None:
    assert read_pharaoh(write_pharaoh(results)) == results


def test_pharaoh_puts_the_source_first() -> None:
    assert write_pharaoh({(2, 1), (0, 0)}) == "0-0 2-1"


@pytest.mark.parametrize("line", ["0-0 1", "1--2", "a-1", "1-", "-1"])
def test_a_wrong_entry_is_named_with_its_place(line: str) -> None:
    with pytest.raises(ValueError, match=r"out\.align:3: .* is not a link"):
        read_pharaoh(line, "out.align:3")


FORWARD = {(0, 0), (1, 1), (2, 2), (5, 4)}
BACKWARD = {(0, 0), (1, 1), (2, 1), (4, 5)}
# both agree on 0-0 and 1-1. 2-1 and 2-2 stand beside 1-1 and what is added; 2-1 comes first and
# takes word 2, and 2-2 is added since target 2 is free. 5-4 and 4-5 touch nothing that is linked.
GROWN = {(0, 0), (1, 1), (2, 1), (2, 2)}
WANTED: dict[str, Links] = {
    "intersection": {(0, 0), (1, 1)},
    "union": FORWARD | BACKWARD,
    "grow-diag": GROWN,
    "grow-diag-final": GROWN | {(5, 4), (4, 5)},
    "grow-diag-final-and": GROWN | {(5, 4), (4, 5)},
}


@pytest.mark.parametrize("method", METHODS)
def test_an_example_by_hand(method: str) -> None:
    assert METHODS[method](FORWARD, BACKWARD) == WANTED[method]


def test_final_takes_links_with_one_free_word_and_final_and_only_with_two() -> None:
    forward, backward = {(0, 0), (0, 3)}, {(0, 0)}  # 0-3: source 0 is linked, target 3 is not
    assert METHODS["grow-diag"](forward, backward) == {(0, 0)}
    assert METHODS["grow-diag-final"](forward, backward) == {(0, 0), (0, 3)}
    assert METHODS["grow-diag-final-and"](forward, backward) == {(0, 0)}


def test_growing_stays_between_intersection_and_union() -> None:
    for name in METHODS:
        result = METHODS[name](FORWARD, BACKWARD)
        assert FORWARD & BACKWARD <= result <= FORWARD | BACKWARD
        assert METHODS[name](FORWARD, FORWARD) == FORWARD


@pytest.mark.parametrize("odd", "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
def test_lines_of_links_end_at_a_line_feed_alone(odd: str, tmp_path: Path) -> None:
    path = tmp_path / "links"
    path.write_bytes(f"0-0{odd} 1-1\n\n2-2{odd}\n".encode())
    lines = link_lines(path)
    assert [read_pharaoh(line) for line in lines] == [{(0, 0), (1, 1)}, set(), {(2, 2)}]
