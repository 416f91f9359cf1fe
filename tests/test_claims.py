"""docs/claims.md: the verdicts that need no training, and that the page is what the JSON gives."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RECORD = json.loads((ROOT / "docs" / "results" / "claims.json").read_text("utf-8"))
VERDICTS = {row["name"]: row["verdict"] for row in RECORD["claims"]}


@pytest.fixture(scope="module")
def tool() -> Any:
    """benchmarks/claims.py, imported from its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("claims")


def test_every_claim_is_in_the_record_and_there_are_thirty_at_least(tool: Any) -> None:
    assert set(VERDICTS) == set(tool.CLAIMS)
    assert len(VERDICTS) >= 30
    assert all(row["criterion"] for row in RECORD["claims"])


def test_the_verdicts_are_those_of_the_record(tool: Any) -> None:
    decided = {row["name"]: row["verdict"] for row in tool.results()}
    assert decided == VERDICTS


def test_the_page_is_what_the_record_gives(tool: Any) -> None:
    assert (ROOT / "docs" / "claims.md").read_text("utf-8") == tool.page(RECORD)


def test_a_verdict_needs_its_criterion(tool: Any) -> None:
    assert tool.verdict(False, "it is so") == "does not hold here"
    assert tool.verdict(True, "it is so") == "holds only if it is so"
    assert tool.verdict(True) == "holds"


WORDS, ROWS, MODELS = "by_source_words", "rows", "models"
SLOPES = "chapters", "Length of the source", "Slope over length"
GAIN = {"before": [1.0, 2.0, 3.0], "after": [2.0, 3.0, 4.0], "gain": 1.0}
PAIR: dict[str, tuple[str, list[str | int], object, object]] = {  # file, key, and two values of it
    "long-sentences": ("multi30k-en-fr-rnnsearch", [WORDS, "over 20", "bleu"], 1.0, 48.0),
    "long-texts": ("lineage", [*SLOPES, "to"], [-6, 1, -1] * 2, [6, 1, -1] * 2),
    "transformer": ("multi30k-en-fr", ["test", "beam 5", "bleu"], 1.0, 90.0),
    "beam-bleu": ("multi30k-en-fr", ["test", "beam 5", "bleu"], 1.0, 90.0),
    "alignment": ("alignment", [ROWS, "ibm1", "aer"], 0.1, 0.9),
    "copy": ("learnt-attention", [MODELS, 0, "right"], 0.0, 0.9),
    "bias": ("learnt-attention", [MODELS, 14, "right"], 1.0, 0.5),  # T5's, copying
    "time": ("attention-length", ["kinds", "lstm", "exponent_time"], 1.0, 2.0),
    "quadratic-memory": ("attention-length", ["kinds", "full, explicit", "exponent_memory"], 1, 2),
    "int8": ("serving-presets", ["runs", "tiny", "int8", "bleu"], 50.0, 52.3),
    "shallow": ("serving-presets", ["runs", "shallow", "fp32", "bleu"], 1.0, 90.0),
    "order-sentiment": ("sst2-lstm", ["test", "accuracy"], 50.0, 99.0),
    "attention-sentiment": ("sst2-transformer", ["test", "accuracy"], 50.0, 99.0),
    "pretraining": ("sst2-finetuned", ["test", "accuracy"], 50.0, 99.0),
    "gpt-lstm": ("ptb-transformer", ["test", "perplexity"], 90.0, 110.0),
    "mamba": ("ptb-mamba", ["test", "perplexity"], 90.0, 110.0),
    "linear-forecast": ("etth1-linear", ["test", "mse"], 0.1, 0.9),
    "exposure": ("etth1-rnn", ["test", "teacher_forced_mse"], 0.1, 0.6),
    "hard": ("flickr8k-hard", ["test", "bleu"], 1.0, 90.0),
    "no-mask": ("no-mask", [ROWS, "without", "training_loss"], 0.05, 1.5),
    "bigger-data": ("scaling-curve", ["sizes", "16", "losses"], [[0.5] * 9] * 3, [[9.0] * 9] * 3),
    "bigger-time": ("scaling-curve", ["sizes", "256", "losses"], [[0.5] * 9] * 3, [[9.0] * 9] * 3),
    "label-smoothing": (
        "smoothing-averaging", [ROWS, "label smoothing"], GAIN | {"p": 0.01}, GAIN | {"p": 0.5}
    ),
    "averaging": (
        "smoothing-averaging", [ROWS, "averaging, 1/√step"], GAIN | {"p": 0.01}, GAIN | {"p": 0.5}
    ),
}  # fmt: skip


def test_every_claim_of_a_training_has_a_figure_that_decides(tool: Any) -> None:
    assert set(PAIR) == {name for name, claim in tool.CLAIMS.items() if claim.result}


@pytest.mark.parametrize("name", PAIR)
def test_another_figure_gives_another_verdict(tool: Any, name: str, monkeypatch) -> None:
    file, (*keys, last), *values = PAIR[name]
    read, verdicts = tool.read, set()
    for value in values:
        result = read(file)
        place = result
        for key in keys:
            place = place[key]
        place[last] = value
        with monkeypatch.context() as patch:
            patch.setattr(tool, "read", lambda asked: result if asked == file else read(asked))  # noqa: B023
            verdicts.add(tool.CLAIMS[name].measure()[1])
    assert len(verdicts) == 2


def test_claims_of_trainings_say_on_how_many_seeds_they_rest() -> None:
    assert all(row["sample"] for row in RECORD["claims"] if row["result"])
