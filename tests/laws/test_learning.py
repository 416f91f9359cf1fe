"""What is learnt is seen: looking is tested by truth, not by the fact that it draws.

Whole models attend where they copy from; and every score and every position learns to attend along
the diagonal to copy, or against it, in one attention and nothing else: all queries are the same
vector, so that only places tell them apart, and only attending to the right token can write it.
"""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foveate.data.text import TextData
from foveate.data.tokenizer import BOS, EOS, WordTokenizer
from foveate.decode.beam import Beam
from foveate.decode.constraints import DecodingBatch
from foveate.decode.engine import SearchRequest
from foveate.decode.search import Greedy
from foveate.look.hooks import capture
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from foveate.nn.attention import Attention
from foveate.nn.positions import NoPosition, Position
from foveate.nn.scores import Dot, Score
from foveate.nn.spec import Tokens
from foveate.run import RunEngine
from foveate.tasks.base import Loss
from foveate.tasks.objectives import CrossEntropy
from foveate.tasks.translation import Translation
from laws.conftest import RECURRENT, changed, defaults, transformers, weights_of
from small_runs import SUBJECTS, VERBS, write_data
from task_tools import fit

VOCABULARY, LENGTH = 14, 5
OBJECTIVE = CrossEntropy.Config(label_smoothing=0.0).build()


def transformer() -> EncoderDecoder.Config:
    encoder, decoder = transformers(hidden_size=48, num_heads=2, ffn_size=96, num_layers=1)
    return EncoderDecoder.Config(encoder=encoder, decoder=decoder)


def recurrent(size: int = 32, **fields: Any) -> EncoderDecoder.Config:
    sizes = {"embedding_size": size, "hidden_size": size, "dropout": 0.2}
    encoder, decoder = (changed(part, **sizes) for part in RECURRENT)
    return EncoderDecoder.Config(encoder=encoder, decoder=changed(decoder, **fields))


def words(rows: int, length: int) -> Tensor:
    """Sequences of tokens that are all different, so that there is one right place to look at."""
    return torch.rand(rows, VOCABULARY - 4).argsort(dim=1)[:, :length] + 4


def learn(model: EncoderDecoder, backwards: bool, steps: int, rate: float) -> None:
    """Adam over fresh random pairs; the rate rises for 20 steps and then falls to zero."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / 20, 1 - step / steps)
        source = words(64, int(torch.randint(2, LENGTH + 2, ())))
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
def share_right(model: EncoderDecoder, backwards: bool) -> float:
    """The share of fresh sequences that greedy search copies, or turns round, exactly."""
    source = words(64, LENGTH)
    memory = model.encode(torch.nn.functional.pad(source, (0, 1), value=EOS))
    batch = DecodingBatch(range(64), DecoderSteps(model, memory), [LENGTH] * 64)
    result = Greedy.Config().build()(batch, BOS, EOS)
    expected = (source.flip(1) if backwards else source).tolist()
    return sum(h[0].ids == w for h, w in zip(result, expected, strict=True)) / 64


@torch.no_grad()
def share_seen(model: EncoderDecoder, backwards: bool) -> float:
    """How often the best head looks most at the very token that is being written."""
    source = words(64, LENGTH)
    with capture(model, lambda name: name.endswith("cross_attention")) as maps:
        loss_of(model, source, source.flip(1) if backwards else source)
    (weights,) = maps.values()  # (B, H, T, S)
    return share(weights[:, :, :LENGTH].argmax(dim=-1), backwards)


@pytest.mark.parametrize(
    ("config", "backwards", "how", "least"),
    [
        pytest.param(transformer(), False, (300, 5e-3), 0.7, marks=pytest.mark.scale),
        pytest.param(recurrent(), True, (200, 1e-2), 0.8, marks=pytest.mark.slow),
    ],
    ids=["transformer", "rnnsearch"],
)
def test_a_model_attends_where_it_copies_from(config, backwards, how, least) -> None:
    model = config.build(Tokens(VOCABULARY), Tokens(VOCABULARY))
    learn(model, backwards, *how)
    assert share_right(model, backwards) > 0.85
    assert share_seen(model, backwards) > least


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Translation:
    folder: Path = tmp_path_factory.mktemp("pairs")
    write_data(folder)
    tokenizer = WordTokenizer.Config(min_frequency=1)
    config = Translation.Config(source=str(folder / "pairs.{split}.tsv"), tokenizer=tokenizer)
    built: Translation = config.build(TextData())
    built.prepare(folder, seed=0)
    return built


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(transformer(), id="transformer"),
        pytest.param(recurrent(), id="rnnsearch", marks=pytest.mark.scale),
        pytest.param(recurrent(64, attention=None), id="no attention", marks=pytest.mark.scale),
    ],
)
def test_translation_overfits_twenty_sentences(task, config) -> None:
    model = task.build(config)
    objective = CrossEntropy.Config().build()
    fit(model, lambda _: task.loss(model, task.batch("train", range(20)), objective), 200)
    pairs = itertools.product(SUBJECTS.items(), VERBS.items())
    texts = {f"{s} {v}": f"{t} {w}" for (s, t), (v, w) in pairs}
    sources = task.source_tokenizer.encode_ids(list(texts))
    known = task.target_tokenizer.encode_ids(list(texts.values()))
    for search in (Greedy.Config(), Beam.Config()):
        result = RunEngine(task, model).outputs(sources, SearchRequest(search.build()))
        assert [hypotheses[0].ids for hypotheses in result] == known
    assert task.measure(model, "train", Greedy.Config().build()).figures["loss"] < 0.2


WORDS, HEAD_SIZE = 12, 16
ABSOLUTE = {"sinusoidal", "concatenated", "learned"}  # the others say how far, not where
SCORES, POSITIONS = defaults("score"), defaults("position")
# ALiBi's steepest slope is 2^(−8/H): one head hardly has any. Others learn with one.
HEADS, HEAD_SIZES = {"alibi": 8}, {"alibi": 4}
STEPS = {"additive": 300}  # a sum inside a tanh tells places apart later than a product
CAN = [
    (score, position)
    for score in SCORES
    for position in POSITIONS
    if position not in ("none", "t5_causal")  # which takes all later places for one
    and (score in ("scaled_dot", "additive") or position in ("sinusoidal", "rope"))
]
QUICK = {("scaled_dot", "sinusoidal"), ("additive", "sinusoidal"), ("cosine", "rope")}
MARKS = {pair: () if pair in QUICK else pytest.mark.scale for pair in CAN}


class Looker(nn.Module):
    """p(y_t) = softmax(E A(q + PE(t), E x + PE))."""

    def __init__(self, score: Score.Config, position: Position.Config) -> None:
        super().__init__()
        kind = position.kind or ""
        heads = HEADS.get(kind, 1)
        size = heads * HEAD_SIZES.get(kind, HEAD_SIZE)
        self.words = nn.Embedding(WORDS, size)
        with torch.no_grad():
            self.words.weight.mul_(0.3)  # no louder than the places
        self.query = nn.Parameter(torch.randn(size))
        self.position = position.build(size, heads)
        self.attention: Attention = Attention.Config(score=score, num_heads=heads).build(size)

    def inputs(self, x: Tensor) -> tuple[Any, ...]:
        at = torch.arange(x.shape[1])
        query = self.position.embed(self.query.expand(*x.shape, -1), at)
        memory = self.position.embed(self.words(x), at)
        return query, memory, None, None, self.position

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(*self.inputs(x)) @ self.words.weight.T


def places_looked_at(
    score: Score.Config, position: Position.Config, backwards: bool, steps: int
) -> Tensor:
    """Where each query looks most, in fresh sequences after learning: (B, H, T)."""
    torch.manual_seed(0)
    if "max_length" in type(score).model_fields:
        score = changed(score, max_length=LENGTH)
    model = Looker(score, position)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        x = torch.randint(WORDS, (32, LENGTH))
        expected = x.flip(1) if backwards else x
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), expected.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = 0.02 * min(1, (step + 1) / 10, 2 - 2 * step / steps)
        optimizer.step()
    fresh = torch.randint(WORDS, (48, LENGTH))
    return weights_of(model.attention, *model.inputs(fresh)).argmax(dim=-1)


def share(views: Tensor, backwards: bool) -> float:
    """How often the best head looks at the right place."""
    expected = torch.arange(LENGTH)
    right = views == (expected.flip(0) if backwards else expected)
    return float(right.float().mean(dim=(0, 2)).max())


@pytest.mark.parametrize(("score", "position"), [pytest.param(*p, marks=MARKS[p]) for p in CAN])
def test_what_is_learnt_is_the_diagonal(score: str, position: str) -> None:
    """Reversed where a place is known, else copied."""
    steps, backwards = STEPS.get(score, 150), position in ABSOLUTE
    views = places_looked_at(SCORES[score], POSITIONS[position], backwards, steps)
    assert share(views, backwards) > 0.9


@pytest.mark.parametrize("backwards", [False, True], ids=["copy", "reverse"])
def test_without_position_there_is_nothing_to_learn(backwards: bool) -> None:
    views = places_looked_at(Dot.Config(), NoPosition.Config(), backwards, steps=60)
    assert share(views, backwards) < 0.5
