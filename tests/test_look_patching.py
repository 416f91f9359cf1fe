"""States of one text in the run on another: nothing, everything, and equal to hooks by hand."""

from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foveate.config import ConfigError
from foveate.look.perturbations import Answers, margin, restored, shared, streams
from foveate.look.relevance import Embedded
from foveate.look.views import find
from foveate.look.views.options import Question
from foveate.models.language_model import LanguageModel
from foveate.models.recurrent import RecurrentDecoder
from foveate.nn.context import probed
from foveate.nn.spec import Tokens
from foveate.run import Run
from inside_toys import language, language_model, recurrent, transformer, translating
from small_runs import invoked
from tolerances import MODEL, near

A, B = torch.tensor([4, 9, 6]), torch.tensor([5, 9, 11])
FIRST, SECOND = torch.tensor([7, 8]), torch.tensor([10])


def state_alone() -> LanguageModel:
    """A recurrent language model of one cell that predicts from its state alone."""
    decoder = RecurrentDecoder.Config(embedding_size=8, hidden_size=8, readout="state")
    return LanguageModel.Config(decoder=decoder).build(Tokens(20)).eval()


MODELS: dict[str, Any] = {
    "transformer": transformer,
    "recurrent": partial(recurrent, bidirectional=True),
    "language": lambda: language_model(num_layers=2),
    "state": state_alone,
}


def pair(kind: str) -> tuple[Answers, Answers]:
    """The two answers to text A, and those to B."""
    model, writes = MODELS[kind](), kind in ("language", "state")

    def answers(text: Tensor) -> Answers:
        if writes:
            first, second = (language(model, torch.cat((text, a))) for a in (FIRST, SECOND))
        else:
            first, second = (translating(model, text, a) for a in (FIRST, SECOND))
        return first, second

    return answers(A), answers(B)


@pytest.mark.parametrize("kind", MODELS)
def test_all_positions_of_the_input_give_exactly_the_other_answer(kind: str) -> None:
    ours, theirs = pair(kind)
    assert len(shared(ours)) == 4  # three words and the start, or the end
    for stream in streams(ours[0].model)[: 3 if kind == "transformer" else 1]:
        calls = stream.recorded(theirs[1])
        assert margin(ours, partial(stream.patched, calls, range(4))) == margin(theirs)
    assert margin(ours) != margin(theirs)


@pytest.mark.parametrize("kind", ["transformer", "language"])
def test_it_is_what_a_hook_by_hand_gives(kind: str) -> None:
    ours, theirs = pair(kind)
    model: Any = ours[0].model
    layer = (model.encoder if kind == "transformer" else model.decoder).layers[0]
    seen: list[Tensor] = []
    with torch.inference_mode(), layer.register_forward_hook(lambda *c: seen.append(c[-1])):
        theirs[0].run()

    def put(module: Any, args: Any, output: Tensor) -> Tensor:
        return torch.cat((output[:, :2], seen[0][:, 2:3], output[:, 3:]), dim=1)

    low, high = margin(ours), margin(theirs)
    with layer.register_forward_hook(put):
        moved = margin(ours)
    whole = restored(ours, theirs)
    assert whole.shape == (3, 4)
    assert whole[1, 2] == pytest.approx((moved - low) / (high - low), abs=1e-6)
    same = 1 if kind == "transformer" else 2  # of the word that both texts have
    assert whole[0, same] == pytest.approx(0, abs=1e-6)


def by_hand(ours: Answers, theirs: Answers, cell: Any, step: int) -> float:
    """The margin where a step of a cell of four steps returns the other text's state."""
    states: list[Any] = []
    with torch.inference_mode(), cell.register_forward_hook(lambda *c: states.append(c[-1])):
        theirs[0].run()
    own, calls = cell.forward, count()
    cell.forward = lambda *args: states[step] if next(calls) % 4 == step else own(*args)
    with probed(cell, lambda *stage: None):
        moved = margin(ours)
    del cell.forward
    return moved


def test_a_state_of_a_cell_is_what_later_steps_continue_from() -> None:
    ours, theirs = pair("recurrent")
    whole, low, high = restored(ours, theirs), margin(ours), margin(theirs)
    own = streams(ours[0].model)
    assert [s.name for s in own] == ["input", "encoder cell 0", "encoder cell 0, backwards"]
    for row, position, step in ((1, 0, 0), (1, 2, 2), (2, 0, 3), (2, 2, 1)):
        moved = by_hand(ours, theirs, own[row].module, step)
        assert whole[row, position] == pytest.approx((moved - low) / (high - low), abs=1e-5)
        assert abs(whole[row, position]) > 1e-3


def test_after_the_text_the_state_of_a_cell_is_all_there_is() -> None:
    whole = restored(*pair("state"))
    assert whole[-1, -1] == pytest.approx(1, abs=1e-4)
    assert whole[-1, 0] == pytest.approx(0, abs=1e-4)  # before the texts differ


def asked(run: Run, **fields: str) -> Any:
    drawn: Any = find("patching").draw([run], Question(**fields))  # type: ignore[arg-type]
    assert drawn.caption.startswith("0: log p")
    return drawn.sheets[0]


def test_the_view_of_a_translator_and_of_a_classifier(runs: dict[str, Run]) -> None:
    answers = {"target": "le chien court", "foil": "le chat court"}
    drawn = asked(runs["transformer"], text="the dog runs", instead="the cat runs", **answers)
    assert drawn.columns == ["the", "dog → cat", "runs", "</s>"]
    values = drawn.values.array
    assert values[0].tolist() == pytest.approx([0, 1, 0, 0], abs=1e-5)
    assert abs(values[-1].sum()) > 0
    labels = runs["classifier"].task.label_names
    drawn = asked(
        runs["classifier"], text="the dog runs", instead="the cat runs",
        target=labels[0], foil=labels[1],
    )  # fmt: skip
    assert np.isfinite(drawn.values.array).all()


def test_what_cannot_be_exchanged_says_why(runs: dict[str, Run]) -> None:
    with pytest.raises(ConfigError, match="reads 4 tokens of one text and 3 of the other"):
        asked(runs["transformer"], text="the dog runs", instead="a dog", target="a", foil="b")
    with pytest.raises(ConfigError, match="give --target and --not"):
        asked(runs["language"], text="the dog", instead="the cat")
    with pytest.raises(ConfigError, match="--not is the answer to another text"):
        asked(runs["transformer"], text="the dog", foil="le chat")
    with pytest.raises(ConfigError, match="nothing to restore"):
        asked(runs["transformer"], text="the dog", instead="the dog", target="a", foil="b")
    words = ["look", "patching", runs["transformer"].path, "--text", "the dog runs"]
    more = ["--instead", "the cat runs", "--target", "le chien court", "--not", "le chat court"]
    assert "dog → cat" in invoked(*words, *more).output


@pytest.mark.parametrize("name", ["transformer", "rnn", "language", "classifier"])
def test_without_another_text_words_are_put_into_the_run_on_unknown_words(runs, name: str) -> None:
    forced = runs[name].forced("the dog runs")
    embedded = Embedded.of(forced)
    ours, theirs = (embedded.without(),), (forced,)
    first, side = streams(runs[name].model)[0], next(iter(embedded.vectors))
    places = range(embedded.vectors[side].shape[1])
    whole = margin(ours, partial(first.patched, first.recorded(forced), places))
    assert whole == near(forced.scores().sum(), terms=MODEL)
    values = asked(runs[name], text="the dog runs").values.array
    lone = embedded.blank[side].clone()
    lone[:, 1] = embedded.vectors[side][:, 1]
    with torch.no_grad():
        moved = float(embedded.scores({side: lone}).sum())
    low, high = margin(ours), margin(theirs)
    assert values[0, 1] == pytest.approx((moved - low) / (high - low), abs=1e-4)
