"""Ensembles of trained models: in searches, in forced scores, and which models go together."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from foveate.data.tokenizer import WordTokenizer
from foveate.decode.beam import Beam
from foveate.engine.base import SearchRequest
from foveate.engine.ensemble import Ensemble, check_pieces, steps_of, together
from foveate.models.encoder_decoder import Decoder
from foveate.models.language_model import LanguageModel
from foveate.spec import Tokens
from foveate.tasks.prefix_translation import PrefixTranslation
from test_translation import RECURRENT, TRANSFORMER, VALID, make, model_of, write
from tolerances import MODEL, near

SEARCH = Beam.Config(beam_size=3, max_extra=3).build()
SOURCES = [source for source, _ in VALID]


@pytest.fixture
def task(tmp_path: Path) -> Any:
    made = make(write(tmp_path))
    made.prepare(tmp_path, seed=0)
    return made


def test_a_model_with_itself_is_the_model(task: Any) -> None:
    model = model_of(task, TRANSFORMER).double()
    alone = task.answer(task.engine(model), SOURCES, SearchRequest(SEARCH))
    twice = task.answer(task.engine(Ensemble([model, model])), SOURCES, SearchRequest(SEARCH))
    assert [a.hypotheses for a in alone] == [a.hypotheses for a in twice]
    for item, other in zip(alone, twice, strict=True):
        expected = [h.log_probability for h in item.outputs]
        assert [h.log_probability for h in other.outputs] == near(expected)


def test_families_decode_together_and_their_score_is_the_forced_one(task: Any) -> None:
    """A Transformer and a recurrent network; p is the mean of theirs, token by token."""
    models = [model_of(task, TRANSFORMER), model_of(task, RECURRENT)]
    both = together([task.pieces()] * 2, models, ["a", "b"])
    ids = task.source_tokenizer.encode_ids(SOURCES)
    for source, answer in zip(
        ids, task.answer(task.engine(both), SOURCES, SearchRequest(SEARCH)), strict=True
    ):
        for item in answer.outputs:
            (log_p,) = task.force(both, [(source, item.ids)])
            each = [task.force(model, [(source, item.ids)])[0] for model in models]
            mean = [math.log(sum(map(math.exp, p)) / 2) for p in zip(*each, strict=True)]
            assert log_p == near(mean, terms=MODEL)
            expected = sum(log_p) if item.ended else sum(log_p[:-1])
            assert expected == near(item.log_probability, terms=MODEL)


def test_joined_models_decode_together(tmp_path: Path) -> None:
    write(tmp_path)
    task = PrefixTranslation.Config(
        source=str(tmp_path / "{split}.en"), target=str(tmp_path / "{split}.fr"),
        tokenizer=WordTokenizer.Config(min_frequency=1),
    ).build(make(tmp_path).data)  # fmt: skip
    task.prepare(tmp_path, seed=0)
    decoder: Decoder.Config = TRANSFORMER.decoder
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(task.build(LanguageModel.Config(decoder=decoder)).eval())
    both = Ensemble(models)
    ids = task.source_tokenizer.encode_ids(SOURCES)
    for source, answer in zip(
        ids, task.answer(task.engine(both), SOURCES, SearchRequest(SEARCH)), strict=True
    ):
        for item in answer.outputs:
            (log_p,) = task.force(both, [(source, item.ids)])
            expected = sum(log_p) if item.ended else sum(log_p[:-1])
            assert expected <= item.log_probability + 1e-3  # a search leaves out <pad> and <s>


def test_what_does_not_go_together_is_refused(task: Any) -> None:
    pair = model_of(task, RECURRENT)
    language = LanguageModel.Config(decoder=TRANSFORMER.decoder).build(
        Tokens(task.target_tokenizer.vocab_size)
    )
    with pytest.raises(ValueError, match="decode no text together"):
        Ensemble([pair, language])
    with pytest.raises(ValueError, match="look at a run by itself"):
        task.explain(Ensemble([pair, pair]), SOURCES[0], "L'eau")


def test_other_vocabularies_are_named_with_the_remedy() -> None:
    own = {"encoder": ["a", "b"], "decoder": ["c", "d"]}
    check_pieces(own, dict(own), ("x", "y"))
    with pytest.raises(ValueError, match=r"2 and 3 tokens in the decoder; give them one vocab"):
        check_pieces(own, own | {"decoder": ["c", "d", "e"]}, ("x", "y"))
    with pytest.raises(ValueError, match=r"x and y cannot .* token 1 is 'b' and 'z'"):
        check_pieces(own, own | {"encoder": ["a", "z"]}, ("x", "y"))


def test_one_model_needs_no_ensemble(task: Any) -> None:
    model = model_of(task, RECURRENT)
    assert steps_of(model, lambda item: item) is model
