"""Source and target in one sequence: what is joined, what is predicted, and that it learns."""

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch

from foveate.config import ConfigError
from foveate.data.text import TextData
from foveate.data.tokenizer import BOS, EOS, WordTokenizer
from foveate.decode.beam import Beam
from foveate.decode.engine import SearchRequest
from foveate.decode.sample import Sample
from foveate.decode.search import Greedy
from foveate.models.language_model import LanguageModel
from foveate.models.transformer import TransformerDecoder
from foveate.run import RunEngine, answering
from foveate.run.passes import forced
from foveate.tasks.base import Task
from foveate.tasks.objectives import CrossEntropy
from foveate.tasks.prefix_translation import PrefixTranslation, join
from task_tools import fit
from tolerances import close

PAIRS = {
    "the small dog runs": "le petit chien court",
    "a woman drinks": "une femme boit",
    "the red house is old": "la maison rouge est vieille",
    "yes": "oui bien sûr",
}
SIZES: dict[str, Any] = {"hidden_size": 32, "num_heads": 2, "num_layers": 2, "ffn_size": 32}


@pytest.fixture(scope="module")
def learnt() -> tuple[PrefixTranslation, Any]:
    """A model that has learnt the pairs by heart."""
    folder = Path(mkdtemp())
    text = "".join(f"{source}\t{target}\n" for source, target in PAIRS.items())
    for split in ("train", "valid"):
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")
    config = PrefixTranslation.Config(
        source=str(folder / "{split}.tsv"), tokenizer=WordTokenizer.Config(min_frequency=1)
    )
    task: PrefixTranslation = config.build(TextData())
    task.prepare(folder, 1)
    torch.manual_seed(0)
    decoder = TransformerDecoder.Config(**SIZES, dropout=0.0)
    model: Any = task.build(LanguageModel.Config(decoder=decoder))
    objective = CrossEntropy.Config(label_smoothing=0.0).build()
    fit(model, lambda _: task.loss(model, task.batch("train", range(len(PAIRS))), objective), 60)
    return task, model


def test_a_pair_is_one_sequence_of_which_the_target_counts() -> None:
    batch = join([[5, 6], [7]], [[8], [9, 10]])
    assert batch.inputs.tolist() == [[BOS, 5, 6, EOS, 8], [BOS, 7, EOS, 9, 10]]
    expected = batch.targets.flatten()[batch.counted].tolist()
    assert expected == [8, EOS, 9, 10, EOS]
    longer = join([[5, 6], [7]], [[8], []])
    assert longer.targets.flatten()[longer.counted].tolist() == [8, EOS, EOS]


def test_what_it_has_read_it_says_again(learnt: tuple[PrefixTranslation, Any]) -> None:
    task, model = learnt
    for search in (Greedy.Config(), Beam.Config(beam_size=3), Sample.Config(top_k=1)):
        request = SearchRequest(search.build(), batch_tokens=16)
        answers = answering.answer(task, RunEngine(task, model), [*PAIRS, ""], request)
        assert [str(answer) for answer in answers[:-1]] == list(PAIRS.values())
        assert answers[-1].outputs == []
    measures = task.measure(model, "valid", Greedy.Config().build())
    assert measures.figures["loss"] < 0.2 and measures.figures["bleu"] > 90


def test_forced_scores_are_the_searchs(learnt: tuple[PrefixTranslation, Any]) -> None:
    task, model = learnt
    engine, request = RunEngine(task, model), SearchRequest(Greedy.Config().build())
    answers = answering.answer(task, engine, list(PAIRS), request)
    sources = task.source_tokenizer.encode_ids(list(PAIRS))
    pairs = [(s, a.outputs[0].ids) for s, a in zip(sources, answers, strict=True)]
    for log_p, answer in zip(task.force(model, pairs), answers, strict=True):
        assert len(log_p) == len(answer.outputs[0].ids) + 1
        assert sum(log_p) == pytest.approx(answer.outputs[0].log_probability, abs=0.02)


def test_rows_are_what_comes_next(learnt: tuple[PrefixTranslation, Any]) -> None:
    task, model = learnt
    record = forced(task, model, "a woman drinks").record()
    name = next(iter(record.maps))
    words = ["a", "woman", "drinks", "</s>", "une", "femme", "boit"]
    assert record.axes(name) == ([*words, "</s>"], ["<s>", *words])
    close(record.drawn(name).sum(axis=2), 1)
    assert not np.triu(record.drawn(name)[0], 1).any()


def test_two_vocabularies_are_refused() -> None:
    with pytest.raises(ConfigError, match="leave joint = true"):
        Task.Config.parse({"kind": "prefix_translation", "source": "a.tsv", "joint": False})
