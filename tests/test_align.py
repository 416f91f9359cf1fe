"""Alignments: error rates by hand, and IBM models that find what is known."""

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.align.aer import METHODS, Gold, LinkCounts, agree, choose, judge, read_gold
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
from foveate.engine.links import Head, Links, link_lines, read_links, read_pharaoh, write_pharaoh
from foveate.kinds import load_kinds
from grammar.pairs import pairs

load_kinds()
KINDS: dict[str, Any] = dict(kinds("aligner")["aligner"])
WORD = [Model1, HMM]
TOY: list[Pair] = [(["das", "Haus"], ["the", "house"]), (["Haus"], ["house"])]
BOOKS: list[Pair] = [(["das", "Haus"], ["the", "house"]), (["das", "Buch"], ["the", "book"])]
BOOKS.append((["ein", "Buch"], ["a", "book"]))
SYNTHETIC = pairs("train", 150)
CORPUS: list[Pair] = [(words(pair.source), words(pair.target)) for pair in SYNTHETIC]
GOLD = [Gold(set(pair.alignment), set(pair.alignment)) for pair in SYNTHETIC]


def trained(kind: Any, pairs: list[Pair], **fields: Any) -> Any:
    model = kind(kind.Config(**fields))
    model.train(pairs)
    return model


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
    assert len(history) == 8 and history[-1] > history[0]
    assert all(after >= before - 1e-6 * abs(before) for before, after in pairwise(history))


@pytest.mark.parametrize("kind", WORD)
def test_expectations_against_every_alignment(kind: Any) -> None:
    """Likelihood, posteriors and the best alignment, by going through all 4³ of them."""
    model = trained(kind, CORPUS[:50], iterations=2)
    emissions = np.random.default_rng(1).uniform(0.1, 1, (1, 3, 4))
    scores = {a: probability(model, emissions[0], a) for a in product(range(4), repeat=3)}
    result = model.expect(emissions)
    total = sum(scores.values())
    assert result.log_likelihood == pytest.approx(np.log(total))
    for j, i in product(range(3), range(4)):
        expected = sum(p for a, p in scores.items() if a[j] == i) / total
        assert result.posterior[0, j, i] == pytest.approx(expected)
    assert tuple(model.best(emissions)[0]) == max(scores, key=scores.__getitem__)
    if kind is HMM:
        assert model.transitions(5).sum(axis=1) == pytest.approx(np.full(6, 0.8))


def probability(model: Any, emissions: Any, alignment: tuple[int, ...]) -> float:
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


def test_later_models_align_better() -> None:
    kinds = Model1, HMM, Symmetrized, AgreementAligner
    first, hmm, *both = (judge(trained(kind, CORPUS).align(CORPUS), GOLD).aer for kind in kinds)
    assert max(both) < hmm < first


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
    model = trained(Model1, rare, concentration=0.01, cognates=1.0)
    assert (1, 1) in model.align(rare)[0]
    assert table(model, "ministre", "minister") > table(model, "ministre", "said")


def test_case_is_folded_unless_it_is_not() -> None:
    folded = trained(Model1, BOOKS)
    assert folded.align([(["DAS"], ["THE"])]) == [{(0, 0)}]
    assert "das" in folded.numbers.source
    assert "Das" in trained(Model1, [(["Das"], ["The"])], lowercase=False).numbers.source


@pytest.mark.parametrize("kind", ["symmetrised", "agreement"])
def test_case_counts_in_both_directions_as_their_aligner_says(kind: str) -> None:
    for lowercase, known in ((True, {"das", "haus"}), (False, {"Das", "haus"})):
        both = Aligner.Config.parse({"kind": kind, "lowercase": lowercase}).build()
        both.train([(["Das", "haus"], ["The", "house"])])
        assert set(both.forward.numbers.source) - {""} == known
    with pytest.raises(ValueError, match=f"set lowercase for {kind}, not"):
        Aligner.Config.parse({"kind": kind, "aligner": {"kind": "hmm", "lowercase": False}})


# ---- Links from maps and in files, symmetrized, and judged by examples worked by hand
GOLD_ALIGN_AER = Gold({(0, 0), (1, 2)}, {(0, 0), (1, 2), (2, 1), (2, 2)})
FOUND = {(0, 0), (2, 1), (3, 3)}


def test_an_example_worked_by_hand() -> None:
    # A ∩ S = {0-0}; A ∩ P = {0-0, 2-1}; |A| = 3; |S| = 2
    counts = agree(FOUND, GOLD_ALIGN_AER)
    assert counts == LinkCounts(links=3, sure=2, correct_sure=1, correct_possible=2)
    figures = counts.precision, counts.recall, counts.aer
    assert figures == pytest.approx((2 / 3, 1 / 2, 1 - 3 / 5))
    assert agree({(0, 0)}, Gold({(0, 0)}, set())).precision == 1  # sure links are possible


def test_a_corpus_is_a_sum_of_counts_not_a_mean_of_rates() -> None:
    perfect = Gold({(0, 0)}, {(0, 0)})
    expected = 1 - (3 + 2) / (5 + 2)
    assert judge([FOUND, {(0, 0)}], [GOLD_ALIGN_AER, perfect]).aer == pytest.approx(expected)
    assert judge([GOLD_ALIGN_AER.sure], [GOLD_ALIGN_AER]).aer == 0
    assert judge([{(9, 9)}], [GOLD_ALIGN_AER]).aer == 1
    assert judge([set()], [Gold(set(), set())]).aer == 0
    with pytest.raises(ValueError, match="2 alignments for 1 gold"):
        judge([set(), set()], [GOLD_ALIGN_AER])


def test_gold_is_read(tmp_path: Path) -> None:
    path = tmp_path / "gold.txt"
    path.write_text("1-1 2p3\n\n4-1\n")
    first, empty, last = read_gold(path)
    assert first == Gold({(0, 0)}, {(0, 0), (1, 2)}) and empty == Gold(set(), set())
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
    gold = read_gold(data_folder / "alignment-gold" / "gold.txt")
    counts = len(gold), sum(len(g.sure) for g in gold), sum(len(g.possible - g.sure) for g in gold)
    assert counts == (447, 4038, 13400)


MAP = np.array([[0.8, 0.1, 0.1], [0.2, 0.1, 0.7], [0.1, 0.1, 0.8], [0.34, 0.33, 0.33]])


def test_heads_are_ranked_over_the_corpus() -> None:
    copy = np.eye(3, 4, dtype=np.float32)  # the last column is the end of the source
    mirror = copy[::-1]
    corpus = ({"a": np.stack([mirror, copy]), "b": np.stack([mirror])} for _ in range(2))
    straight = {(i, i) for i in range(3)}
    first, *others = choose(corpus, [Gold(straight, straight)] * 2, "read")
    assert first == (Head(0, 1, "read"), LinkCounts(6, 6, 6, 6))
    assert [head for head, _ in others] == [Head(0, 0, "read"), Head(1, 0, "read")]
    assert others[0][1].aer == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="no attention to the source"):
        choose([{}], [Gold(straight, straight)])


def test_each_target_word_is_linked_to_what_it_looks_at_most() -> None:
    assert read_links(MAP) == {(0, 0), (0, 3)}  # what looks at the end, or at nothing, has none
    assert read_links(np.pad(MAP, ((0, 0), (0, 1)))) == {(0, 0), (2, 1), (2, 2), (0, 3)}
    assert read_links(np.zeros((2, 3))) == read_links(np.zeros((0, 3))) == set()


@given(st.sets(st.tuples(st.integers(0, 99), st.integers(0, 99))))
def test_pharaoh_comes_back(results) -> None:
    assert read_pharaoh(write_pharaoh(results)) == results
    assert write_pharaoh({(2, 1), (0, 0)}) == "0-0 2-1"  # the source first
    for line in ("0-0 1", "1--2", "a-1", "1-", "-1"):
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


def test_symmetrized_links_by_hand() -> None:
    assert {method: join(FORWARD, BACKWARD) for method, join in METHODS.items()} == WANTED
    forward, backward = {(0, 0), (0, 3)}, {(0, 0)}  # 0-3: source 0 is linked, target 3 is not
    assert METHODS["grow-diag"](forward, backward) == {(0, 0)}
    assert METHODS["grow-diag-final"](forward, backward) == {(0, 0), (0, 3)}  # one free word
    assert METHODS["grow-diag-final-and"](forward, backward) == {(0, 0)}  # two


@pytest.mark.parametrize("odd", "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
def test_lines_of_links_end_at_a_line_feed_alone(odd: str, tmp_path: Path) -> None:
    path = tmp_path / "links"
    path.write_bytes(f"0-0{odd} 1-1\n\n2-2{odd}\n".encode())
    lines = link_lines(path)
    assert [read_pharaoh(line) for line in lines] == [{(0, 0), (1, 1)}, set(), {(2, 2)}]
