"""Figures of text on cases that can be counted by hand, and minimum Bayes risk by them."""

import gzip
import html
import json
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import sentence_chrf

from copier import copier
from foveate.config import ConfigError
from foveate.decode.beam import Beam
from foveate.decode.constraints import MinLength
from foveate.decode.engine import Hypothesis
from foveate.decode.sample import Sample
from foveate.decode.search import Search
from foveate.errors import UserError
from foveate.measure.laws.searches import random_table
from foveate.run import load
from foveate.tasks import metrics
from foveate.tasks.metrics import (
    METRICS,
    MinimumBayesRisk,
    bleu,
    check_tokenizer,
    figures_of,
    interval,
    tokenizer_for,
)
from laws.tables import limit, search
from small_runs import invoked, made

# ------------------------------ Figures of text on cases that can be counted by hand
SEVERAL = [("R EH1 D", "R IY1 D"), ("K AE1 T",)]


def test_any_of_several_references_is_right_and_errors_are_edits() -> None:
    figures, _ = figures_of(["R IY1 D", "K AA1 T"], SEVERAL, ["exact_match", "wer", "per"])
    assert figures == {"exact_match": 50, "wer": 50, "per": pytest.approx(100 / 6)}
    figures, signatures = figures_of(["A B C D", "A", ""], ["A C D", "A B", "C D"], ["per"])
    assert figures["per"] == pytest.approx(100 * (1 + 1 + 2) / 7)
    assert signatures["per"].startswith("rapidfuzz:")


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_knows_the_perfect_and_takes_several_references(name: str) -> None:
    texts = ["a small dog runs in the snow", "two women look at the sea"]
    perfect, _ = METRICS[name](texts, texts)
    assert perfect == pytest.approx(0 if name in ("ter", "wer", "per") else 100)
    several = [("nothing of the kind", texts[0]), (texts[1],)]
    assert METRICS[name](texts, several)[0] == pytest.approx(perfect)
    wrong, _ = METRICS[name](["zebra", "zebra"], texts)
    assert wrong != pytest.approx(perfect)


JA = ["私は昨日、図書館で本を三冊借りました。", "この町には美しい川が流れています。"]
KO = ["나는 어제 도서관에서 책을 빌렸다.", "이 마을에는 아름다운 강이 흐른다."]
ZH, TH = ["我昨天在图书馆借了三本书。"], ["ฉันยืมหนังสือสามเล่มจากห้องสมุดเมื่อวานนี้"]
LATIN = ["Er las «東京» gern.", "Wörter"]


@pytest.mark.parametrize(
    ("references", "plain", "with_mecab"),
    [(JA, "char", "ja-mecab"), (KO, "char", "ko-mecab"), (ZH, "zh", "zh"), (TH, "char", "char"),
     (LATIN, "13a", "13a"), (["42 %", ""], "13a", "13a"), ([(JA[0], JA[1])], "char", "ja-mecab")],
)  # fmt: skip
def test_bleu_tokenizes_by_script(references, plain, with_mecab, monkeypatch) -> None:
    for installed, expected in ((False, plain), (True, with_mecab)):
        monkeypatch.setattr(metrics, "_installed", lambda _, yes=installed: yes)
        assert tokenizer_for(references) == expected
    monkeypatch.setattr(metrics, "_installed", lambda _: False)
    signature = bleu(["x"] * len(references), references)[1]
    assert f"tok:{plain}" in signature


def test_outputs_that_share_words_of_japanese_have_a_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_installed", lambda _: False)
    outputs = [text.replace("三", "二").replace("川", "海") for text in JA]
    assert bleu(outputs, JA)[0] > 50
    assert interval("bleu", outputs, JA)[0] == pytest.approx(bleu(outputs, JA)[0])
    with pytest.warns(UserWarning, match="no blanks.*13a.*--bleu-tokenizer"):
        figure, signature = bleu(outputs, JA, "13a")
    assert figure < 1 and "tok:13a" in signature
    with pytest.raises(ValueError, match=r"MeCab.*sacrebleu\[ja\]"):
        check_tokenizer("ja-mecab")
    with pytest.raises(ValueError, match="there are: 13a"):
        check_tokenizer("sushi")
    bleu(["Häuser"] * 9, ["Häusern"] * 9, "13a")  # inflection: nothing to warn of


def test_bleu_takes_the_best_of_several_references() -> None:
    outputs = ["a dog runs over the green grass", "two men play ball in the park"]
    references = [["nothing like it at all", outputs[0].upper()], [outputs[1]]]
    figure, signature = bleu(outputs, references, lowercase=True)
    assert figure == pytest.approx(100) and "case:lc" in signature
    assert bleu(outputs, references[::-1], lowercase=True)[0] < 10
    with pytest.raises(ValueError, match="2 outputs but 1 references"):
        bleu(outputs, references[:1])


@pytest.mark.skipif("FOVEATE_DATA" not in os.environ, reason="needs the data sets")
def test_japanese_of_flores() -> None:
    file = Path(os.environ["FOVEATE_DATA"]) / "flores-200-dev" / "dev.ja.gz"
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    figure, signature = bleu([line[: len(line) // 2] for line in lines], lines)
    assert figure > 10 and "tok:13a" not in signature


def test_a_run_is_evaluated_by_another_tokenizer(tmp_path: Path) -> None:
    run = copier(tmp_path)
    for further, expected in (([], "13a"), (["--bleu-tokenizer", "char"], "char")):
        result = invoked("evaluate", run.path, "--json", *further)
        assert f"tok:{expected}" in json.loads(result.stdout)["signatures"]["bleu"]
    with pytest.raises(ConfigError, match="bleu_tokenizer"):
        run.evaluate(bleu_tokenizer="sushi")
    assert run.task.config.bleu_tokenizer is None


@pytest.mark.skipif("FOVEATE_DATA" not in os.environ, reason="needs the data sets")
def test_bleu_of_papers_cuts_the_words_of_the_published_text() -> None:
    data = Path(os.environ["FOVEATE_DATA"])
    files = "multi30k/test_2016_flickr.fr.gz", "multi30k-tokenised/test2016.fr.gz"
    raw, tokens = (gzip.decompress((data / f).read_bytes()).decode().splitlines() for f in files)
    published = [html.unescape(line) for line in tokens]
    cut = metrics._lowercase_tokens(raw, "text")
    assert sum(a == b for a, b in zip(cut, published, strict=True)) == 996
    outputs = [line.replace("homme", "femme") for line in raw]
    of_raw, signature = metrics.bleu_papers(outputs, raw)
    assert "case:lc" in signature and signature.endswith("|words:text")
    same = [line.replace("homme", "femme") for line in published]
    of_tokens, signature = metrics.bleu_papers(same, published)
    assert signature.endswith("|words:blanks") and of_raw == pytest.approx(of_tokens, abs=0.02)
    words = [len(line.split()) for line in published]
    assert sum(words) == 13_988  # the length of the reference that is published


def test_tokens_are_compared_without_a_warning_that_they_are_tokens(caplog) -> None:
    value, _ = metrics.bleu_papers(["L'homme dort ."], ["l'homme dort."])
    assert value == pytest.approx(100)  # case and blanks before marks are no difference
    plain, _ = bleu(["L'homme dort ."], ["l'homme dort."])
    assert plain < 60
    texts = {"own": ["a dog runs ."] * 100, "other": ["a dog sleeps ."] * 100}
    figures = metrics.paired_figures(texts, ["a dog runs."] * 100, ["bleu_papers"])
    assert figures["bleu_papers"]["own"].value > figures["bleu_papers"]["other"].value
    assert not caplog.records


def test_a_run_is_evaluated_by_both_signatures_and_against_another(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = copier(tmp_path / "a"), copier(tmp_path / "b", "character")
    command = ["evaluate", first.path]
    further = [*command, "--signature", "both", "--against", second.path]
    tree = json.loads(invoked(*further, "--json").stdout)
    assert list(tree["figures"])[:2] == ["bleu", "bleu_papers"]
    assert "case:lc" in tree["signatures"]["bleu_papers"]
    own = second.evaluate(signature="both").figures
    assert tree["against"]["figures"]["bleu_papers"] == pytest.approx(own["bleu_papers"])
    assert set(tree["against"]["p"]) == {"bleu", "bleu_papers", "chrf", "exact_match"}
    assert all(0 < p <= 1 for p in tree["against"]["p"].values())
    text = invoked(*further).stdout
    assert "bleu_papers" in text and "p of the difference, by paired bootstrap" in text
    alone = json.loads(invoked(*command, "--signature", "papers", "--json").stdout)
    assert "bleu" not in alone["figures"] and alone["against"] is None
    with pytest.raises(UserError, match="there are: sacrebleu, papers, both"):
        first.evaluate(signature="moses")


# ---- Minimum Bayes risk: by hand, against sacreBLEU, and over draws and n-best lists
TEXTS = ["the dog runs", "a dog runs", "the dog ran", "cats", ""]


def text(ids: list[int]) -> str:
    return TEXTS[ids[0]]


def outputs(*which: int) -> list[Hypothesis]:
    return [Hypothesis([i], -1.0 - n, -1.0 - n) for n, i in enumerate(which)]


def risk(**fields: object) -> MinimumBayesRisk:
    return MinimumBayesRisk.Config.parse(fields).build()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=7))
def test_the_answer_is_the_argmax_of_the_mean_utility(which: list[int]) -> None:
    """Eikema & Aziz (2020) word for word: mean sentence chrF with all draws, repeats included."""
    scores = {y: [sentence_chrf(TEXTS[y], [TEXTS[other]]).score for other in which] for y in which}
    mean = {y: sum(each) / len(which) for y, each in scores.items()}
    decided = risk().decide(outputs(*which), text)
    assert [h.score for h in decided] == pytest.approx(sorted(mean.values(), reverse=True))
    for item in decided:
        assert item.score == pytest.approx(mean[item.ids[0]])
    assert len({text(h.ids) for h in decided}) == len(decided)


def test_the_most_probable_may_lose_to_the_most_alike() -> None:
    """By hand: "cats" was drawn most often, but two thirds of the draws are about a dog."""
    drawn = outputs(3, 3, 0, 1, 2)
    assert text(risk().decide(drawn, text)[0].ids) == "the dog runs"
    mode = risk(utility="exact_match").decide(drawn, text)
    assert text(mode[0].ids) == "cats" and mode[0].score == pytest.approx(40.0)
    decided = risk(utility="ter").decide(outputs(1, 0, 2), text)  # the fewest edits win
    assert text(decided[0].ids) == "the dog runs"
    assert decided[0].score == pytest.approx(-200 / 9) and decided[-1].score < decided[0].score
    made = risk(candidates={"kind": "beam"}, utility="exact_match")  # Kumar & Byrne (2004): by p
    result = [Hypothesis([i], math.log(p) - 9, 0.0) for i, p in ((3, 0.2), (0, 0.1), (4, 0.7))]
    decided = made.decide(result, text)
    assert [h.ids[0] for h in decided] == [4, 3, 0]
    assert [h.score for h in decided] == pytest.approx([70, 20, 10])


@pytest.mark.parametrize("candidates", [Sample.Config(num_samples=9, top_k=2), Beam.Config()])
def test_candidates_are_what_their_search_finds(candidates: Search.Config) -> None:
    tables = [random_table(1), random_table(2)]
    made = MinimumBayesRisk.Config(candidates=candidates, **limit(4))
    alone = candidates.model_copy(update=limit(4))
    assert search(made, tables) == search(alone, tables)
    assert made.build().width == alone.build().width


def test_limits_and_rules_are_said_once() -> None:
    with pytest.raises(ConfigError, match="say max_extra of the search itself"):
        Search.Config.parse({"kind": "minimum_bayes_risk", "candidates": {"max_extra": 3}})
    with pytest.raises(ConfigError, match=r"per.*given: 'chrof'"):
        risk(utility="chrof")
    rules = (MinLength.Config(length=3),)
    made = MinimumBayesRisk.Config(rules=rules, **limit(5))
    assert all(len(h.ids) >= 3 for h in search(made, [random_table(4)])[0])
    assert Search.Config.parse(made.tree()) == made


def test_more_hypotheses_need_more_candidates() -> None:
    config = MinimumBayesRisk.Config(candidates=Sample.Config(num_samples=4, seed=7))
    assert [config.giving(count).build().width for count in (1, 4)] == [4, 4]
    assert risk().decide([], text) == []
    assert config.giving(6).candidates == Sample.Config(num_samples=6, seed=7)


OVERFLOWING = ("transformer", "language", "classifier", "masked", "vit", "rnn", "forecaster")


@pytest.mark.parametrize("kind", OVERFLOWING)
@pytest.mark.parametrize("factor", [1e12, 1e30, float("nan")])
def test_an_evaluation_of_weights_that_overflow_is_finite_or_an_error(kind, factor, once) -> None:
    folder = once("overflowing", lambda place: (made(place, OVERFLOWING, steps=2), None)[1])
    run = load(folder / "runs" / kind)
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.mul_(factor)
    try:
        figures = run.evaluate(split="valid").figures
    except UserError as error:
        assert re.search("diverged|not finite|no numbers|NaN", str(error)), error
        return
    assert np.isfinite([*figures.values()]).all(), figures
