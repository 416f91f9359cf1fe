"""Figures of text on cases that can be counted by hand."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from copier import copier
from foveate.cli import app
from foveate.config import ConfigError
from foveate.tasks import metrics
from foveate.tasks.metrics import (
    METRICS,
    bleu,
    check_tokenizer,
    figures_of,
    interval,
    tokenizer_for,
)

SEVERAL = [("R EH1 D", "R IY1 D"), ("K AE1 T",)]


def test_any_of_several_references_is_right() -> None:
    figures, _ = figures_of(["R IY1 D", "K AA1 T"], SEVERAL, ["exact_match", "wer", "per"])
    assert figures == {"exact_match": 50, "wer": 50, "per": pytest.approx(100 / 6)}


def test_phoneme_errors_are_insertions_deletions_and_substitutions() -> None:
    figures, signatures = figures_of(["A B C D", "A", ""], ["A C D", "A B", "C D"], ["per"])
    assert figures["per"] == pytest.approx(100 * (1 + 1 + 2) / 7)
    assert signatures["per"].startswith("rapidfuzz:")


def test_rouge_by_hand() -> None:
    outputs, references = ["the cats sat on the mat"], ["the cat sat"]
    figures, signatures = figures_of(outputs, references, ["rouge1", "rouge2", "rougeL"])
    f = {n: 2 * p * r / (p + r) for n, p, r in (("1", 3 / 6, 1.0), ("2", 2 / 5, 1.0))}
    assert figures == {
        "rouge1": pytest.approx(100 * f["1"]),
        "rouge2": pytest.approx(100 * f["2"]),
        "rougeL": pytest.approx(100 * f["1"]),
    }
    assert "rouge-score" in signatures["rougeL"]


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
def test_bleu_cuts_words_by_the_script_of_the_references(
    references: References, plain: str, with_mecab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        check_tokenizer("sushi")  # type: ignore[arg-type]


def test_single_words_are_no_sentences_without_blanks() -> None:
    bleu(["Häuser"] * 9, ["Häusern"] * 9, "13a")  # inflection: nothing to warn of


@pytest.mark.skipif("FOVEATE_DATA" not in os.environ, reason="needs the data sets")
def test_japanese_of_flores() -> None:
    file = Path(os.environ["FOVEATE_DATA"]) / "flores-200-dev" / "dev.ja.gz"
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    figure, signature = bleu([line[: len(line) // 2] for line in lines], lines)
    assert figure > 10 and "tok:13a" not in signature


def test_a_run_is_evaluated_by_another_tokenizer(tmp_path: Path) -> None:
    run = copier(tmp_path)
    command = ["evaluate", str(run.path), "--json"]
    for further, expected in (([], "13a"), (["--bleu-tokenizer", "char"], "char")):
        result = CliRunner().invoke(app, [*command, *further])
        assert f"tok:{expected}" in json.loads(result.stdout)["signatures"]["bleu"]
    with pytest.raises(ConfigError, match="bleu_tokenizer"):
        run.evaluate(bleu_tokenizer="sushi")  # type: ignore[arg-type]
    assert run.task.config.bleu_tokenizer is None
