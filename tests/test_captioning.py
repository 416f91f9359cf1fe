"""Captioning: figures, what its loss adds, answers, and maps over the picture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foveate.data.image import Album, ImageFiles
from foveate.data.text import TextData
from foveate.data.tokenizer import PAD, UNK, WordTokenizer
from foveate.decode.beam import Beam
from foveate.decode.constraints import MinLength
from foveate.decode.engine import SearchRequest
from foveate.decode.search import Greedy
from foveate.errors import UserError
from foveate.look.draw.pictures import over_picture
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder
from foveate.models.vision import ConvolutionalEncoder
from foveate.nn.normalizers import HardChoice, Sampled, choices
from foveate.run import RunEngine, answering
from foveate.run.evaluation import evaluate, examples
from foveate.run.passes import forced
from foveate.tasks.attention_losses import (
    Reinforce,
    advantage,
    doubly_stochastic,
    drawn_by_position,
    watched,
)
from foveate.tasks.captioning import Captioning, nearest_captions
from foveate.tasks.objectives import CrossEntropy
from pictures import write_squares
from task_tools import model_of
from tolerances import MODEL, close, near


def config(**attention: Any) -> EncoderDecoder.Config:
    return EncoderDecoder.Config(
        encoder=ConvolutionalEncoder.Config(channels=(6, 8), hidden_size=12, dropout=0.0),
        decoder=RecurrentDecoder.Config(
            embedding_size=10, hidden_size=12, dropout=0.0,
            attention=RecurrentAttention(**attention),
        ),
    )  # fmt: skip


def made(folder: Path, **fields: Any) -> Captioning:
    names = {"files": str(folder / "pictures"), "table": str(folder / "table.tsv")}
    pictures = ImageFiles.Config(**names, size=16)
    task: Captioning = Captioning.Config(
        pictures=pictures, tokenizer=WordTokenizer.Config(min_frequency=1), **fields
    ).build(TextData())
    task.prepare(folder, seed=0)
    return task


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Captioning:
    return made(write_squares(tmp_path_factory.mktemp("captions")))


@pytest.fixture
def model(task: Captioning) -> Any:
    return model_of(task, config())


def test_the_nearest_picture_lends_its_caption() -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (3, 3, 20, 20)).astype(np.uint8)
    known = Album(pixels, ["a", "b", "c"], [["one", "x"], ["two"], ["three"]])
    darker = (pixels[[2, 0]] * 0.8).astype(np.uint8)
    requested = Album(darker, ["d", "e"], [["?"], ["?"]])
    assert nearest_captions(known, requested) == ["three", "one"]


def test_looking_everywhere_once_costs_nothing() -> None:
    even = torch.full((1, 1, 4, 4), 0.25)
    real = torch.ones(1, 4, dtype=torch.bool)
    assert float(doubly_stochastic([[even]], real)) == pytest.approx(0)
    item = torch.zeros(1, 1, 4, 4)
    item[..., 0] = 1  # four looks at one place: (1 − 4)² + 3 · 1²
    assert float(doubly_stochastic([list(item.split(1, dim=2))], real)) == pytest.approx(12)
    real[:, 2:] = False  # two looks there: (1 − 2)² + 3
    assert float(doubly_stochastic([[item], [item]], real)) == pytest.approx(4)


def test_watching_keeps_the_graph_and_the_tap_that_was_there(task: Captioning, model: Any) -> None:
    batch, seen_before = task.batch("train", [0, 1]), []

    def silent(weights: Tensor) -> Tensor:
        seen_before.append(weights)
        return torch.zeros_like(weights)

    attention = model.decoder.cross_attention
    for tap in (silent, None):
        attention.tap = tap
        with watched([attention]) as weights:
            model.decode(batch.inputs, model.encode(batch.source))
        assert attention.tap is tap
        assert torch.cat(weights[0], dim=2).any() == (tap is None)
    assert len(seen_before) == batch.inputs.shape[1]
    doubly_stochastic(weights, batch.targets != PAD).backward()
    assert bool(attention.query.weight.grad.any())


def test_the_regulariser_is_added_once_a_picture(tmp_path: Path) -> None:
    task = made(write_squares(tmp_path), doubly_stochastic=2.0)
    model: Any = task.build(config())
    plain = CrossEntropy.Config(label_smoothing=0.0).build()
    loss, *parts = (task.loss(model, task.batch("train", n), plain) for n in ([0, 3], [0], [3]))
    total, regulariser = float(loss.total.detach()), 2 * float(loss.logged["places"])
    assert total - float(loss.logged["nll"]) == near(regulariser, terms=MODEL)
    assert sum(float(part.total.detach()) for part in parts) == near(total, terms=MODEL)


def test_a_draw_is_credited_with_what_comes_after_it_and_draws_of_layers_are_summed() -> None:
    drawn, expected = torch.tensor([[-1.0, -2.0, -9.0]]), torch.tensor([[-1.5, -1.0, -1.0]])
    real = torch.tensor([[True, True, False]])
    assert advantage(drawn, expected, real).T.tolist() == [[-0.5, -1.0, 0.0]]
    step = [HardChoice(torch.tensor([[float(t)]])) for t in range(3)]
    assert [float(c.log_probability) for c in drawn_by_position(step, 3)] == [0, 1, 2]
    layers = [HardChoice(torch.tensor([[1.0, 2.0]])), HardChoice(torch.tensor([[10.0, 20.0]]))]
    assert [float(c.log_probability) for c in drawn_by_position(layers, 2)] == [11, 22]


def test_hard_attention_draws_in_training_alone(task: Captioning) -> None:
    torch.manual_seed(0)
    model: Any = task.build(config(normalizer=Sampled.Config()))
    batch = task.batch("train", range(6))
    with choices(model) as drawn, watched([model.decoder.cross_attention]) as weights:
        model.decode(batch.inputs, model.encode(batch.source))
    assert len(drawn) == batch.inputs.shape[1]
    largest = torch.cat(weights[0], dim=2).amax(dim=-1)
    assert 0.2 < float((largest == 1).float().mean()) < 0.8
    objective = Reinforce.Config().build()
    task.loss(model, batch, objective).total.backward()
    assert bool(model.decoder.cross_attention.score.weight.grad.any())
    search = Greedy.Config().build()
    same = [task.measure(model.eval(), "valid", search).figures for _ in range(2)]
    assert same[0] == same[1]


def test_unknown_words_are_not_said(task: Captioning) -> None:
    model: Any = task.build(config().model_copy(update={"tie": "none"})).eval()
    with torch.no_grad():
        model.output.weight.zero_()  # all words are equally good
    rules = (MinLength.Config(),)  # and so the end may come first
    for chosen in (Greedy.Config(rules=rules), Beam.Config(beam_size=3, rules=rules)):
        request = SearchRequest(chosen.build())
        (answer,) = answering.answer(task, RunEngine(task, model), [0], request)
        assert answer.ids and UNK not in answer.ids
        assert np.isfinite(answer.score)
    assert task.text_of(task.prefix_ids("A green ")) == "A green"
    with pytest.raises(UserError, match="not in the target vocabulary"):
        task.prefix_ids("a zebra")


def test_maps_have_words_and_cells(task: Captioning, model: Any) -> None:
    record = forced(task, model, 1, "A green square on grey .").record()
    rows, columns = record.axes("decoder.cross_attention")
    assert rows == ["A", "green", "square", "on", "grey", ".", "</s>"]
    assert columns == [f"{row},{column}" for row in range(4) for column in range(4)]
    assert record.title == "green.png → A green square on grey."
    close(record.select("cross_attention").sum(axis=1), 1)
    view = over_picture(record, task.shown(1)[0])
    assert view.arrays()["weights"].shape == (7, 4, 4)


def test_evaluation_has_a_figure_without_a_model_beside_it(task: Captioning, model: Any) -> None:
    engine, request = RunEngine(task, model), SearchRequest(Greedy.Config().build())
    result = evaluate(task, engine, examples(task, "test"), request)
    assert result.figures["bleu_of_nearest_picture"] == pytest.approx(100), "train is test here"
    assert len(result.outputs) == 3
    assert "case:lc" in result.signatures["bleu"]
