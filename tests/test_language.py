"""Language modelling end to end at a small size: blocks, measures, evaluation, texts continued."""

import gzip
import io
import json
import math
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch

from foveate.cli.answers import RULE, prompts, write_texts
from foveate.cli.options import Tally
from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.corpus import read_text, read_text_split
from foveate.data.text import DAMAGED, TextData
from foveate.data.tokenizer import BPE, EOS, PAD, Byte, Character, Symbol, Tokenizer
from foveate.decode.beam import Beam
from foveate.decode.engine import SearchRequest
from foveate.decode.sample import Sample
from foveate.decode.search import Greedy
from foveate.engine.answers import continued
from foveate.errors import UserError
from foveate.models.classic import WindowDecoder
from foveate.models.language_model import LanguageModel, LanguageSteps
from foveate.models.recurrent import RecurrentDecoder
from foveate.models.transformer import TransformerDecoder
from foveate.nn.recurrent import LSTMCell
from foveate.run import Run, RunConfig, RunEngine, load
from foveate.run.evaluation import evaluate
from foveate.run.passes import forced
from foveate.run.training import train
from foveate.tasks.engine import EnsembleSteps
from foveate.tasks.language import LOGIT_ROWS, Language
from foveate.tasks.objectives import CrossEntropy
from foveate.train.config import TrainConfig
from small_runs import invoked
from tolerances import MODEL, close, near

# ---- Language modelling end to end at a small size: blocks, measures, evaluation
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
    return task.build(LanguageModel.Config(decoder=DECODERS[name])).eval()


def test_a_file_is_cut_by_shares_of_its_characters() -> None:
    path = str(folder() / "all.txt")
    text = read_text(Path(path), TextData())
    whole = "\n".join(text.lines) + "\n"
    assert text.characters == len(whole)
    each = ("train", "valid", "test")
    parts = [read_text_split(path, (0.7, 0.2, 0.1), split, TextData()) for split in each]
    joined = ["\n".join(part.lines) + "\n" * part.ended for part in parts]
    assert "".join(joined) == whole
    assert [len(j) for j in joined] == [part.characters for part in parts]
    assert len(joined[0]) == int(0.7 * len(whole))
    with pytest.raises(DataError, match=r"has nothing for test: task\.shares"):
        read_text_split(str(folder() / "all.txt"), (0.9, 0.1, 0.0), "test", TextData())


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    with pytest.raises(DataError, match=r"bad\.txt:2: not UTF-8.*on_bad_line"):
        read_text(tmp_path / "bad.txt", TextData())
    assert read_text(tmp_path / "bad.txt", TextData(on_bad_line="skip")).lines == ["fine", "\ufffd"]


def test_a_stream_is_the_lines_and_their_ends() -> None:
    made = task()
    stream = made.stream_of("test")
    assert len(stream) == sum(len(line.split()) + 1 for line in WORDS) * 5
    assert (stream.ids == EOS).sum() == 15
    assert made.text_of(stream.ids[:8].tolist()) == WORDS[0] + "\n"
    assert (stream.ids[stream.starts[1:] - 1] == EOS).all()
    shares = (0.701, 0.299, 0.0)  # within a word
    made = task(Character.Config(), text=str(folder() / "all.txt"), shares=shares)
    cut = made.stream_of("train")
    assert len(cut) == cut.text.characters and cut.ids[-1] != EOS


@pytest.mark.parametrize("context", [0, 3])
def test_an_epoch_predicts_each_token_at_most_once_whatever_the_turn(context: int) -> None:
    made = task(context=context)
    ids, count = made.stream_of("train").ids, len(made.lengths("train"))
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


def test_what_was_read_is_said() -> None:
    output = task(context=3).describe_data()
    assert output[0].startswith("train: 60 lines, ") and "0 % unknown" in output[0]
    assert output[-2].endswith("blocks of 8 tokens, each after 3 of context")
    assert output[-1] == "vocabulary: 14 symbol pieces"


@torch.no_grad()
@each_decoder
def test_log_probabilities_are_those_of_one_token_after_another(name: str, monkeypatch) -> None:
    """With a state over the whole text; in windows each token sees at least half a block."""
    made = task()
    monkeypatch.setattr("foveate.tasks.language.CHUNK", 7)  # a state is carried over chunks
    model, ids = model_of(made, name), made.stream_of("test").ids[:41]
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
        expected = float(model(text[:, start:end])[0, -1].log_softmax(dim=0)[ids[place]])
        assert result[place] == near(expected, terms=MODEL)


def test_figures_are_in_their_units() -> None:
    made = task()
    model = model_of(made, "lstm")
    with torch.no_grad():
        model.output.weight.zero_()  # every token as probable as any other
    request = SearchRequest(Greedy.Config().build())
    result = evaluate(made, RunEngine(made, model), made.stream_of("test"), request)
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
    batch = made.batch("train", [0, 1, 2])
    loss = made.loss(model, batch, CrossEntropy.Config(label_smoothing=0.0).build())
    assert loss.count == 3 * 8
    expected = -model(batch[:, :-1])[:, 3:].log_softmax(dim=-1).gather(2, batch[:, 4:, None]).sum()
    assert float(loss.total) == near(float(expected), terms=MODEL)


def config(name: str, **fields: Any) -> RunConfig:
    steps = {"max_steps": 40, "batch_tokens": 64, "precision": "fp32", "save": {"every": 10}}
    steps |= {"optimizer": {"kind": "adamw", "lr": 0.02}, "schedule": {"kind": "constant"}}
    text = str(folder() / "{split}.txt")
    return RunConfig(
        task=Language.Config(text=text, tokenizer=Symbol.Config(), block_length=16),
        model=LanguageModel.Config(decoder=DECODERS[name]),
        objective=CrossEntropy.Config(label_smoothing=0.0),
        train=TrainConfig.parse(steps | {"validation": {"every": 20, "samples": 1}} | fields),
    )


@cache
def trained(name: str) -> Run:
    return train(config(name), folder=Path(mkdtemp()) / "run")


@each_decoder
def test_every_family_learns_the_text(name: str) -> None:
    result = trained(name).evaluate(split="test")
    assert result.figures["perplexity"] < 2.5  # a word is one of twelve; a few choices are free
    assert load(trained(name).path).evaluate(split="test").figures == result.figures


def test_a_run_that_stops_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    for steps in (10, 40):
        resumed = train(config("lstm", max_steps=steps), folder=tmp_path / "run")
    whole = trained("lstm").model.state_dict()
    assert all(torch.equal(whole[name], own) for name, own in resumed.model.state_dict().items())


def test_a_text_of_ones_own_is_evaluated(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("the cat sat on the mat .\n")
    run = trained("lstm")
    result = run.evaluate(files=[tmp_path / "own.txt"])
    assert result.figures["tokens"] == 8
    assert run.evaluate("the cat sat on the mat .\n").figures == result.figures
    with pytest.raises(DataError, match="one text, not pairs"):
        run.evaluate(files=[tmp_path / "own.txt"] * 2)


# ---- Texts continued: prompts, searches, neighbours, the verb, and maps of what was seen
SHORT = {"max_ratio": 0.0, "max_extra": 12}
PROMPTS = ["the cat", "", "a dog saw", "the dog", "the mat .\nthe"]


@torch.no_grad()
@each_decoder
def test_steps_read_the_prompt_and_go_on_as_the_whole_text_does(name: str) -> None:
    model = model_of(task(), name)
    prompt, more = torch.tensor([[4, 5, 6], [7, 8, 9]]), torch.tensor([[6, 5], [4, 9]])
    steps = LanguageSteps(model, prompt, never=(PAD,))
    result = steps.step(torch.tensor([EOS, EOS]))
    assert bool(result[:, PAD].isneginf().all())
    steps.step(more[:, 0])
    steps.reorder(torch.tensor([1, 0, 1]))
    result = steps.step(more[[1, 0, 1], 1])
    rows = torch.tensor([1, 0, 1])
    expected = model(torch.cat((torch.full((3, 1), EOS), prompt[rows], more[rows]), dim=1))[:, -1]
    expected[:, PAD] = -torch.inf
    close(result, expected)


@torch.no_grad()
def test_past_its_reach_a_model_reads_the_last_half_anew() -> None:
    model = model_of(task(), "transformer")
    text = torch.randint(4, 14, (1, 11))
    steps = LanguageSteps(model, text[:, :0], reach=6)
    result = [steps.step(ids) for ids in text.T]
    begins = [0] * 6 + [4, 4, 4, 4, 8]  # the step at 6 reads tokens 4 to 6 as a beginning, …
    for place, begin in enumerate(begins):
        close(result[place], model(text[:, begin : place + 1])[:, -1])


@each_decoder
@pytest.mark.parametrize("kind", ["greedy", "beam", "sample"])
def test_every_search_goes_on_whatever_stands_beside(name: str, kind: str) -> None:
    made = task()
    configs: dict[str, Any] = {"greedy": Greedy, "beam": Beam, "sample": Sample}
    config, engine = configs[kind].Config.parse(SHORT), RunEngine(made, model_of(made, name))
    together = continued(made.tokenizer, engine, PROMPTS, SearchRequest(config.build()))
    assert [result.prompt for result in together] == PROMPTS
    alone = continued(made.tokenizer, engine, PROMPTS[:1], SearchRequest(config.build()))[0]
    assert alone.text == together[0].text
    assert alone.log_probability == near(together[0].log_probability, terms=MODEL)


@each_decoder
def test_an_ensemble_has_the_mean_of_p(name: str, tmp_path: Path) -> None:
    """Over a text and as it goes on; a run with itself is the run."""
    run = trained(name)
    other = train(config(name, max_steps=10), folder=tmp_path / "early")
    both, twice = (load(run.path, ensemble=[each]) for each in (other.path, run.path))
    ids = run.task.stream_of("test").ids
    each = [one.task.log_probabilities(one.model, ids) for one in (run, other, both, twice)]
    close(np.exp(each[2]), (np.exp(each[0]) + np.exp(each[1])) / 2)
    close(each[3], each[0])
    plain, mean = (one.evaluate(split="test").figures for one in (run, twice))
    assert mean == near(plain)
    first, second = (one.generate(["the"], max_length=8, beam_size=1)[0] for one in (run, twice))
    assert first.text == second.text
    assert first.log_probability == near(second.log_probability, terms=MODEL)
    others = config(name, max_steps=1).model_copy(update={"task": task(Character.Config()).config})
    with pytest.raises(UserError, match=r"they have .* tokens in the decoder"):
        load(run.path, ensemble=[train(others, folder=tmp_path / "other").path])


def test_each_member_of_an_ensemble_reads_as_it_does_alone() -> None:
    """An LSTM from the beginning of the text, a Transformer in windows; of more than one piece."""
    lstm, transformer = trained("lstm"), trained("transformer")
    both = load(lstm.path, ensemble=[transformer.path])
    ids = np.tile(lstm.task.stream_of("test").ids, 40)
    each = [one.task.log_probabilities(one.model, ids) for one in (lstm, transformer, both)]
    assert len(ids) > LOGIT_ROWS
    close(np.exp(each[2]), (np.exp(each[0]) + np.exp(each[1])) / 2)
    how = both.evaluate(split="test").signatures["loss"]
    assert how.startswith("one pass") and "; windows of 16 tokens" in how
    request = SearchRequest(Greedy.Config().build())
    (batch,) = both.task.decoding_batches(both.model, [ids[:4].tolist()], request)
    assert isinstance(batch.steps, EnsembleSteps)
    assert [member.reach for member in batch.steps.members] == [None, 16]


def test_the_log_probability_is_that_of_the_text() -> None:
    run = trained("lstm")
    result = run.generate(["a cat"], max_length=5, seed=3)[0]
    ids = run.task.tokenizer.encode_lines(str(result))
    log_p = run.task.log_probabilities(run.model, np.array(ids, dtype=np.int32))
    assert result.log_probability == pytest.approx(float(log_p[-5:].sum()), abs=0.02)


def test_choices_of_sampling() -> None:
    run = trained("transformer")
    texts = [f.text for f in run.generate(["the"], max_length=20, num=4, temperature=2.0)]
    assert len(set(texts)) > 1, "each text of a prompt has numbers of its own"
    assert texts == [f.text for f in run.generate(["the"], max_length=20, num=4, temperature=2.0)]
    cold = run.generate(["the"], max_length=20, top_k=1)[0]
    assert cold.text == run.generate(["the"], max_length=20, beam_size=1)[0].text
    line = run.generate(["the"], max_length=50, whole_lines=True, top_k=1)[0]
    assert "\n" not in line.text and line.text.endswith(".")
    with pytest.raises(ConfigError, match="did you mean 'temperature'"):
        run.generate(["the"], temprature=1.0)
    with pytest.raises(TypeError, match=r"generate\(\[text\]\)"):
        run.generate("the")


@pytest.mark.parametrize(
    "tokenizer", [Character.Config(), Byte.Config(), BPE.Config(vocab_size=270)]
)
def test_a_text_is_its_prompt_and_what_follows(tokenizer: Tokenizer.Config) -> None:
    made = task(tokenizer)
    for text in ("the cat sat", "the cat\nsat\n", "", "\n", "a\n\nd"):
        ids = made.tokenizer.encode_lines(text)
        assert made.text_of(ids) == text
        for cut in range(len(ids)):
            assert made.text_of(ids[:cut]) + made.tokenizer.added(ids[:cut], ids[cut:]) == text


def test_the_verb_writes_texts_divided_by_a_rule() -> None:
    run, out = trained("lstm"), io.StringIO()
    write_texts(partial(run.generate, num=2, max_length=5), ["the cat", "a"], out, False)
    texts = out.getvalue().split(RULE + "\n")
    assert len(texts) == 4 and texts[0].startswith("the cat ") and texts[3].startswith("a ")


def test_a_terminal_shows_text_while_it_is_generated() -> None:
    run, out, heard = trained("lstm"), io.StringIO(), list[str]()
    out.isatty = lambda: True  # type: ignore[method-assign]
    result = run.generate(["the cat"], max_length=9, listen=heard.append)[0]
    assert len(heard) == 9 and all(result.text.startswith(text) for text in heard)
    write_texts(partial(run.generate, max_length=9), ["the cat"], out, False, stream=True)
    assert out.getvalue() == f"{result}\n"


def test_prompts_come_from_the_option_or_line_by_line() -> None:
    tally = Tally()
    assert prompts("a", None, tally) == ["a"]
    assert prompts(None, None, tally) == [""]
    assert prompts(None, io.BytesIO(b"a\nb\xff\n"), tally) == ["a", "b\ufffd"]
    assert tally.lines == {DAMAGED: [2]}
    assert prompts(None, io.BytesIO(b""), tally) == [""]


def test_the_command() -> None:
    arguments = ["generate", str(trained("lstm").path), "--max-length", "4", "--top-k", "2"]
    result = invoked(*arguments, "--json", text=b"the\na\n")
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert [line["prompt"] for line in lines] == ["the", "a"]
    assert {*lines[0]} == {"prompt", "text", "log_probability"}


def test_rows_are_what_is_produced_and_columns_what_was_read() -> None:
    record = trained("transformer").explain("the cat sat\nthe dog")
    (name,) = record.maps
    rows, columns = record.axes(name)
    assert rows == ["the", "cat", "sat", "⏎", "the", "dog", "⏎"]
    assert columns == ["⏎", "the", "cat", "sat", "⏎", "the", "dog"]
    weights = record.drawn(name)
    close(weights.sum(axis=2), 1)
    assert not np.triu(weights.mean(axis=0), 1).any(), "no row sees what comes after it"
    assert record.row_means(name) == "producing"


def test_pieces_make_words_and_what_is_too_long_is_cut_and_said() -> None:
    made = task(BPE.Config(vocab_size=264), block_length=12)
    model = model_of(made, "transformer")
    record = forced(made, model, "the dog").record()
    (name,) = record.maps
    assert record.axes(name)[0] == ["the", "dog", "⏎"]
    cut = forced(made, model, "the dog sat on the log .").record()
    length = len(made.tokenizer.encode_lines("the dog sat on the log ."))
    assert cut.notes == [
        f"the first 11 of {length} tokens: the model reads no more",
        "tokens are merged into words: 12 into 5",
    ]


def test_a_run_that_says_so_draws_its_answers() -> None:
    run = trained("lstm")
    other = run.decoding("sample", temperature=0.5)
    assert isinstance(other.search(None, None), Sample)
    assert isinstance(other.search(3, None), Beam)
    cold = other.generate(["the"], max_length=30, seed=1)[0]
    assert cold == run.generate(["the"], max_length=30, seed=1, temperature=0.5)[0]
