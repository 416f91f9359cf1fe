"""What is learnt is seen: looking is tested by truth, not by the fact that it draws."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from foveate.data.text import TextData
from foveate.data.tokenizer import BOS, EOS, WordTokenizer
from foveate.decode.beam import Beam
from foveate.decode.constraints import DecodingBatch
from foveate.decode.engine import SearchRequest
from foveate.decode.search import Greedy, Search
from foveate.look.hooks import capture
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from foveate.nn.spec import Tokens
from foveate.run import RunEngine
from foveate.tasks.base import Loss
from foveate.tasks.objectives import CrossEntropy
from foveate.tasks.translation import Translation
from laws.conftest import RECURRENT, TRANSFORMER, changed
from task_tools import fit

VOCABULARY, LENGTH = 14, 5
OBJECTIVE = CrossEntropy.Config(label_smoothing=0.0).build()


def transformer(**fields: Any) -> EncoderDecoder.Config:
    sizes = {"hidden_size": 48, "num_heads": 2, "num_layers": 1, "ffn_size": 96} | fields
    encoder, decoder = (changed(part, **sizes) for part in TRANSFORMER)
    return EncoderDecoder.Config(encoder=encoder, decoder=decoder)


def recurrent(size: int = 32, **fields: Any) -> EncoderDecoder.Config:
    sizes = {"embedding_size": size, "hidden_size": size, "dropout": 0.2}
    encoder, decoder = (changed(part, **sizes) for part in RECURRENT)
    return EncoderDecoder.Config(encoder=encoder, decoder=changed(decoder, **fields))


def words(rows: int, length: int) -> Tensor:
    """Sequences of tokens that are all different, so that there is one right place to look at."""
    return torch.rand(rows, VOCABULARY - 4).argsort(dim=1)[:, :length] + 4


def learn(
    model: EncoderDecoder,
    backwards: bool,
    steps: int,
    rate: float,
    shortest: int = 2,
    longest: int = LENGTH + 1,
) -> None:
    """Adam over fresh random pairs; the rate rises for 20 steps and then falls to zero."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / 20, 1 - step / steps)
        source = words(64, int(torch.randint(shortest, longest + 1, ())))
        loss = loss_of(model, source, source.flip(1) if backwards else source)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()


def loss_of(model: EncoderDecoder, source: Tensor, target: Tensor) -> Loss:
    read = torch.nn.functional.pad(target, (1, 0), value=BOS)
    expected = torch.nn.functional.pad(target, (0, 1), value=EOS)
    memory = model.encode(torch.nn.functional.pad(source, (0, 1), value=EOS))
    hidden = model.decode(read, memory).flatten(0, 1)
    return OBJECTIVE(hidden, model.output.weight, expected.flatten())


@torch.no_grad()
def share_right(model: EncoderDecoder, backwards: bool, length: int = LENGTH) -> float:
    """The share of fresh sequences that greedy search copies, or turns round, exactly."""
    source = words(64, length)
    memory = model.encode(torch.nn.functional.pad(source, (0, 1), value=EOS))
    batch = DecodingBatch(range(64), DecoderSteps(model, memory), [length] * 64)
    result = Greedy.Config().build()(batch, BOS, EOS)
    expected = (source.flip(1) if backwards else source).tolist()
    return sum(h[0].ids == w for h, w in zip(result, expected, strict=True)) / 64


def share_seen(model: EncoderDecoder, backwards: bool) -> float:
    """How often the best head looks most at the very token that is being written."""
    looks = weights(model, backwards).argmax(dim=-1) == written(backwards)
    return float(looks.float().mean(dim=(0, 2)).max())


def written(backwards: bool) -> Tensor:
    """The place in the source of each token that is written: (T,)."""
    places = torch.arange(LENGTH)
    return places.flip(0) if backwards else places


@torch.no_grad()
def weights(model: EncoderDecoder, backwards: bool) -> Tensor:
    """What each head of the cross-attention gives to the source for each token: (B, H, T, S)."""
    source = words(64, LENGTH)
    with capture(model, lambda name: name.endswith("cross_attention")) as maps:
        loss_of(model, source, source.flip(1) if backwards else source)
    (result,) = maps.values()
    return result[:, :, :LENGTH, :]


@pytest.mark.scale
def test_a_transformer_attends_where_it_copies_from() -> None:
    model = transformer().build(Tokens(VOCABULARY), Tokens(VOCABULARY))
    learn(model, backwards=False, steps=300, rate=5e-3)
    assert share_right(model, backwards=False) > 0.85
    assert share_seen(model, backwards=False) > 0.7


@pytest.mark.slow
def test_rnnsearch_attends_where_it_copies_from_in_reverse() -> None:
    model = recurrent().build(Tokens(VOCABULARY), Tokens(VOCABULARY))
    learn(model, backwards=True, steps=200, rate=1e-2)
    assert share_right(model, backwards=True) > 0.85
    assert share_seen(model, backwards=True) > 0.8


@pytest.mark.scale
def test_a_single_vector_carries_a_short_sequence() -> None:
    model = recurrent(64, attention=None).build(Tokens(VOCABULARY), Tokens(VOCABULARY))
    learn(model, backwards=True, steps=300, rate=1e-2, longest=3)
    assert share_right(model, backwards=True, length=3) > 0.8


PAIRS = {
    "The grey cat sleeps on the warm stove.": "Le chat gris dort sur le poêle chaud.",
    "Two boats cross the river at dawn.": "Deux bateaux traversent la rivière à l'aube.",
    "My sister doesn't like cold soup.": "Ma sœur n'aime pas la soupe froide.",
    "Where did you put the green umbrella?": "Où as-tu mis le parapluie vert ?",
    "The baker opens his shop early.": "Le boulanger ouvre sa boutique de bonne heure.",
    "Nobody answered the old telephone.": "Personne n'a répondu au vieux téléphone.",
    "We painted the door of the barn red.": "Nous avons peint la porte de la grange en rouge.",
    "She reads a long letter from her aunt.": "Elle lit une longue lettre de sa tante.",
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Translation:
    folder: Path = tmp_path_factory.mktemp("eight")
    (folder / "train.en").write_text("\n".join(PAIRS) + "\n", encoding="utf-8")
    (folder / "train.fr").write_text("\n".join(PAIRS.values()) + "\n", encoding="utf-8")
    files = {"source": str(folder / "{split}.en"), "target": str(folder / "{split}.fr")}
    config = Translation.Config(**files, tokenizer=WordTokenizer.Config(min_frequency=1))
    built: Translation = config.build(TextData())
    built.prepare(folder, seed=0)
    return built


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(transformer(), id="transformer"),
        pytest.param(recurrent(), id="rnnsearch", marks=pytest.mark.scale),
        pytest.param(recurrent(attention=None), id="no attention", marks=pytest.mark.scale),
    ],
)
def test_translation_overfits_eight_sentences(task, config) -> None:
    model = task.build(config)
    assert isinstance(model, EncoderDecoder)
    objective = CrossEntropy.Config().build()
    fit(model, lambda _: task.loss(model, task.batch("train", range(8)), objective), 100)
    searches: list[Search.Config] = [Greedy.Config(), Beam.Config()]
    sources = task.source_tokenizer.encode_ids(list(PAIRS))
    for search in searches:
        result = RunEngine(task, model).outputs(sources, SearchRequest(search.build()))
        outputs = [task.target_tokenizer.decode(hypotheses[0].ids) for hypotheses in result]
        known = task.target_tokenizer.encode_ids(list(PAIRS.values()))
        assert outputs == [task.target_tokenizer.decode(ids) for ids in known]
    measures = task.measure(model, "train", Greedy.Config().build())
    assert measures.figures["bleu"] > 90
    assert measures.figures["loss"] < 0.2
