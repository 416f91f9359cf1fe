"""Language modelling end to end at a small size: blocks, measures, evaluation."""

from __future__ import annotations

import gzip
import math
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch

from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.corpus import Text, read_text, read_text_split
from foveate.data.text import TextData
from foveate.data.tokenizer import EOS, Character, Symbol, Tokenizer
from foveate.decode.beam import Greedy
from foveate.engine.base import SearchRequest
from foveate.models.classic import WindowDecoder
from foveate.models.language_model import LanguageModel
from foveate.models.recurrent import RecurrentDecoder
from foveate.models.transformer import TransformerDecoder
from foveate.nn.recurrent import LSTMCell
from foveate.run import Run, RunConfig, load
from foveate.tasks.language import Language
from foveate.tasks.objectives import CrossEntropy
from foveate.train.config import TrainConfig
from foveate.training import train
from tolerances import MODEL, close, near

WORDS = ["the cat sat on the mat .", "the dog sat on the log .", "a cat saw a dog ."]
SMALL = {"dropout": 0.0}
DECODERS: dict[str, Any] = {
    "transformer": TransformerDecoder.Config(
        hidden_size=16, num_heads=2, num_layers=1, ffn_size=32, dropout=0.0
    ),
    "lstm": RecurrentDecoder.Config(
        cell=LSTMCell.Config(), embedding_size=16, hidden_size=16, readout="state", dropout=0.0
    ),
    "window": WindowDecoder.Config(order=4, embedding_size=16, hidden_size=32, dropout=0.0),
}
each_decoder = pytest.mark.parametrize("name", DECODERS)


@cache
def folder() -> Path:
    """A text of 90 lines, cut and in files."""
    made = Path(mkdtemp())
    lines = WORDS * 30
    (made / "all.txt").write_text("\n".join(lines) + "\n")
    for split, part in (("train", lines[:60]), ("valid", lines[60:75]), ("test", lines[75:])):
        with gzip.open(made / f"{split}.txt.gz", "wt") as file:
            file.write("\n".join(part) + "\n")
    return made


def task(tokenizer: Tokenizer.Config | None = None, **fields: Any) -> Language:
    config = Language.Config(
        text=fields.pop("text", str(folder() / "{split}.txt")),
        tokenizer=tokenizer or Symbol.Config(),
        **({"block_length": 8} | fields),
    )
    made: Language = config.build(TextData())
    made.prepare(Path(mkdtemp()), 1)
    return made


def model_of(task: Language, name: str) -> LanguageModel:
    torch.manual_seed(0)
    model = task.build(LanguageModel.Config(decoder=DECODERS[name]))
    assert isinstance(model, LanguageModel)
    return model.eval()


# ------------------------------------------------------------------------------ data


def test_a_file_is_cut_by_shares_of_its_characters() -> None:
    path = str(folder() / "all.txt")
    text = read_text(Path(path), TextData())
    whole = "\n".join(text.lines) + "\n"
    assert text.characters == len(whole)
    parts = [
        read_text_split(path, (0.7, 0.2, 0.1), s, TextData()) for s in ("train", "valid", "test")
    ]
    joined = ["\n".join(part.lines) + "\n" * part.ended for part in parts]
    assert "".join(joined) == whole
    assert [len(j) for j in joined] == [part.characters for part in parts]
    assert len(joined[0]) == int(0.7 * len(whole))


def test_a_split_of_nothing_is_refused() -> None:
    with pytest.raises(DataError, match=r"has nothing for test: task\.shares"):
        read_text_split(str(folder() / "all.txt"), (0.9, 0.1, 0.0), "test", TextData())


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    with pytest.raises(DataError, match=r"bad\.txt:2: not UTF-8.*on_bad_line"):
        read_text(tmp_path / "bad.txt", TextData())
    assert read_text(tmp_path / "bad.txt", TextData(on_bad_line="skip")).lines == ["fine", "\ufffd"]


def test_a_stream_is_the_lines_and_their_ends() -> None:
    made = task()
    stream = made.examples("test")
    assert len(stream) == sum(len(line.split()) + 1 for line in WORDS) * 5
    assert (stream.ids == EOS).sum() == 15
    assert made.text_of(stream.ids[:8].tolist()) == WORDS[0] + "\n"
    assert (stream.ids[stream.starts[1:] - 1] == EOS).all()
    shares = (0.701, 0.299, 0.0)  # within a word
    made = task(Character.Config(), text=str(folder() / "all.txt"), shares=shares)
    cut = made.examples("train")
    assert len(cut) == cut.text.characters and cut.ids[-1] != EOS


@pytest.mark.parametrize("context", [0, 3])
def test_an_epoch_predicts_each_token_at_most_once_whatever_the_turn(context: int) -> None:
    made = task(context=context)
    ids, count = made.examples("train").ids, len(made.lengths("train"))
    assert count == len(ids) // 8
    seen = []
    for noise in (0, 1, 2):
        batch = made.batch("train", range(count), noise)
        assert batch.shape == (count, context + 9)
        assert torch.equal(batch, made.batch("train", range(count), noise))
        assert torch.equal(batch[1:, : context + 1], batch[:-1, 8:])  # context is what came before
        seen.append(batch[:, context + 1 :].flatten().tolist())
    assert seen[0] != seen[1] or seen[1] != seen[2]
    for flat in seen:  # the ring turned
        twice = ids.tolist() * 2
        assert any(twice[t : t + len(flat)] == flat for t in range(8))


def test_a_text_shorter_than_a_block_is_refused() -> None:
    made = task(block_length=4000)
    with pytest.raises(DataError, match=r"no block of 4000; lower task\.block_length"):
        made.lengths("train")


def test_what_was_read_is_said() -> None:
    output = task(context=3).describe_data()
    assert output[0].startswith("train: 60 lines, ") and "0 % unknown" in output[0]
    assert output[-2].endswith("blocks of 8 tokens, each after 3 of context")
    assert output[-1] == "vocabulary: 14 symbol pieces"


# ------------------------------------------------------------------------------ measures


@torch.no_grad()
@each_decoder
def test_log_probabilities_are_those_of_one_token_after_another(name: str) -> None:
    """With a state over the whole text; in windows each token sees at least half a block."""
    made = task()
    model, ids = model_of(made, name), made.examples("test").ids[:41]
    result = made.log_probabilities(model, ids, batch_tokens=24)
    assert len(result) == len(ids)
    text = torch.tensor([[EOS, *ids]])
    for place in range(len(ids)):
        end = place + 1
        if made.reach(model) is None or place < 8:
            start = 0
        else:  # windows of 8 end at 8, 12, 16, …, and at the end of the text
            start = min(-(-end // 4) * 4, len(ids)) - 8
            assert end - start > 4
        logits = model(text[:, start:end])[0, -1]
        expected = float(logits.log_softmax(dim=0)[ids[place]])
        assert result[place] == near(expected, terms=MODEL)


@torch.no_grad()
def test_a_state_is_carried_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    from foveate.tasks import language

    made = task()
    model, ids = model_of(made, "lstm"), made.examples("test").ids
    whole = made.log_probabilities(model, ids)
    monkeypatch.setattr(language, "CHUNK", 7)
    close(made.log_probabilities(model, ids), whole)


def test_figures_are_in_their_units() -> None:
    made = task()
    model = model_of(made, "lstm")
    with torch.no_grad():
        model.output.weight.zero_()  # every token as probable as any other
    result = made.evaluate(
        made.engine(model), made.examples("test"), SearchRequest(Greedy.Config().build())
    )
    vocabulary, tokens = made.tokenizer.vocab_size, result.figures["tokens"]
    assert result.figures["loss"] == pytest.approx(math.log(vocabulary))
    assert result.figures["perplexity"] == pytest.approx(vocabulary)
    characters = sum(len(line) + 1 for line in WORDS) * 5
    bits = tokens * math.log2(vocabulary) / characters
    assert result.figures["bits_per_character"] == pytest.approx(bits)
    first = -(len(WORDS[0].split()) + 1) * math.log(vocabulary)
    assert [float(result.outputs[0]), len(result.outputs)] == [near(first, terms=MODEL), 15]
    assert "state carried" in result.signatures["loss"]
    assert made.better("perplexity") == -1


def test_the_loss_counts_the_block_and_not_its_context() -> None:
    made = task(context=3)
    model = model_of(made, "window").requires_grad_(False)
    objective = CrossEntropy.Config(label_smoothing=0.0).build()
    batch = made.batch("train", [0, 1, 2])
    loss = made.loss(model, batch, objective)
    assert loss.count == 3 * 8
    log_p = model(batch[:, :-1])[:, 3:].log_softmax(dim=-1)
    expected = -log_p.gather(2, batch[:, 4:, None]).sum()
    assert float(loss.total) == near(float(expected), terms=MODEL)


# ------------------------------------------------------------------------------ a run


def config(name: str, **fields: Any) -> RunConfig:
    steps = {"max_steps": 40, "batch_tokens": 64, "precision": "fp32"} | fields
    return RunConfig(
        task=Language.Config(
            text=str(folder() / "{split}.txt"), tokenizer=Symbol.Config(), block_length=16
        ),
        model=LanguageModel.Config(decoder=DECODERS[name]),
        objective=CrossEntropy.Config(label_smoothing=0.0),
        train=TrainConfig.parse(
            {
                "optimizer": {"kind": "adamw", "lr": 0.02},
                "schedule": {"kind": "constant"},
                "validation": {"every": 20, "samples": 1},
                "save": {"every": 10},
                **steps,
            }
        ),
    )


@cache
def trained(name: str) -> Run:
    return train(config(name), folder=Path(mkdtemp()) / "run")


@each_decoder
def test_every_family_learns_the_text(name: str) -> None:
    result = trained(name).evaluate(split="test")
    assert result.figures["perplexity"] < 2.5  # a word is one of twelve; a few choices are free
    again = load(trained(name).path)
    assert again.evaluate(split="test").figures == result.figures


def test_a_run_that_stops_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    train(config("lstm", max_steps=10), folder=tmp_path / "run")
    resumed = train(config("lstm"), folder=tmp_path / "run", overrides=[])
    for name, weight in trained("lstm").model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name


def test_a_text_of_ones_own_is_evaluated(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("the cat sat on the mat .\n")
    run = trained("lstm")
    result = run.evaluate(files=[tmp_path / "own.txt"])
    assert result.figures["tokens"] == 8
    assert run.evaluate("the cat sat on the mat .\n").figures == result.figures
    with pytest.raises(DataError, match="one text, no pairs"):
        run.evaluate(files=[tmp_path / "own.txt"] * 2)


def test_a_language_model_does_not_translate() -> None:
    with pytest.raises(ConfigError, match="run of the task language: it cannot translate"):
        trained("lstm").translate(["a"])
    with pytest.raises(ConfigError, match="run of the task language: it cannot score"):
        trained("lstm").score([("a", "b")])


def test_text_may_end_without_an_end() -> None:
    assert Text(["ab", "c"], ended=False).characters == 4
    assert Text(["ab", ""]).cut(0, 3) == Text(["ab"])
    assert Text(["ab", "c"]).cut(1, 4) == Text(["b", "c"], ended=False)
