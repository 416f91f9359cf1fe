"""Texts continued: prompts, searches, neighbours, the verb, and maps of what was seen."""

from __future__ import annotations

import io
import json
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from foveate.cli.answers import RULE, prompts, write_texts
from foveate.cli.looking import saved
from foveate.cli.options import DAMAGED, Tally
from foveate.config import ConfigError
from foveate.data.tokenizer import BPE, EOS, PAD, Byte, Character, Tokenizer
from foveate.decode.beam import Beam, Greedy
from foveate.decode.sample import Sample
from foveate.draw.maps import attention
from foveate.errors import UserError
from foveate.models.language_model import LanguageSteps
from foveate.run import Run
from foveate.views.maps import block_in
from test_language import DECODERS, each_decoder, model_of, task, trained
from tolerances import MODEL, close, near

SHORT = {"max_ratio": 0.0, "max_extra": 12}
PROMPTS = ["the cat", "", "a dog saw", "the dog", "the mat .\nthe"]


class Terminal(io.StringIO):
    """Output that someone looks on at."""

    def isatty(self) -> bool:
        return True


@torch.no_grad()
@each_decoder
def test_steps_read_the_prompt_and_go_on_as_the_whole_text_does(name: str) -> None:
    made = task()
    model = model_of(made, name)
    prompt, more = torch.tensor([[4, 5, 6], [7, 8, 9]]), torch.tensor([[6, 5], [4, 9]])
    steps = LanguageSteps(model, prompt, never=(PAD,))
    result = steps.step(torch.tensor([EOS, EOS]))
    assert bool(result[:, PAD].isneginf().all())
    steps.step(more[:, 0])
    steps.reorder(torch.tensor([1, 0, 1]))
    result = steps.step(more[[1, 0, 1], 1])
    rows = torch.tensor([1, 0, 1])
    whole = torch.cat((torch.full((3, 1), EOS), prompt[rows], more[rows]), dim=1)
    expected = model(whole)[:, -1]
    expected[:, PAD] = -torch.inf
    close(result, expected)


@torch.no_grad()
def test_past_its_reach_a_model_reads_the_last_half_anew() -> None:
    made = task()
    model = model_of(made, "transformer")
    text = torch.randint(4, 14, (1, 11))
    steps = LanguageSteps(model, text[:, :0], reach=6)
    result = [steps.step(ids) for ids in text.T]
    begins = [0] * 6 + [4, 4, 4, 4, 8]  # the step at 6 reads tokens 4 to 6 as a beginning, …
    for place, begin in enumerate(begins):
        expected = model(text[:, begin : place + 1])[:, -1]
        close(result[place], expected)


@each_decoder
@pytest.mark.parametrize("kind", ["greedy", "beam", "sample"])
def test_every_search_goes_on_whatever_stands_beside(name: str, kind: str) -> None:
    made = task()
    model = model_of(made, name)
    configs: dict[str, Any] = {"greedy": Greedy, "beam": Beam, "sample": Sample}
    config, engine = configs[kind].Config.parse(SHORT), made.engine(model)
    together = made.generate(engine, PROMPTS, config)
    assert [result.prompt for result in together] == PROMPTS
    alone = made.generate(engine, PROMPTS[:1], config)[0]
    assert alone.text == together[0].text
    assert alone.log_probability == near(together[0].log_probability, terms=MODEL)


@each_decoder
def test_a_trained_model_writes_what_it_read(name: str) -> None:
    result = trained(name).generate(["the cat sat on"], max_length=4, beam_size=1)[0]
    assert str(result) == "the cat sat on the mat .\n" or str(result).startswith(
        "the cat sat on the"
    )
    assert result.log_probability < 0


def test_the_log_probability_is_that_of_the_text() -> None:
    run = trained("lstm")
    result = run.generate(["a cat"], max_length=5, seed=3)[0]
    ids = run.task.ids_of(str(result))
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
        ids = made.ids_of(text)
        assert made.text_of(ids) == text
        for cut in range(len(ids)):
            assert made.text_of(ids[:cut]) + made._after(ids[:cut], ids[cut:]) == text


# ------------------------------------------------------------------------------ the verb


def test_the_verb_writes_texts_divided_by_a_rule_or_json() -> None:
    run, out = trained("lstm"), io.StringIO()
    write_texts(partial(run.generate, num=2, max_length=5), ["the cat", "a"], out, False)
    texts = out.getvalue().split(RULE + "\n")
    assert len(texts) == 4 and texts[0].startswith("the cat ") and texts[3].startswith("a ")
    out = io.StringIO()
    write_texts(partial(run.generate, max_length=5, seed=1), ["the cat"], out, True)
    result = json.loads(out.getvalue())
    assert set(result) == {"prompt", "text", "log_probability"}


def test_on_a_terminal_a_text_appears_as_it_is_made() -> None:
    run, out = trained("lstm"), Terminal()
    heard: list[str] = []
    result = run.generate(["the cat"], max_length=9, listen=heard.append)[0]
    assert len(heard) == 9 and all(result.text.startswith(text) for text in heard)
    write_texts(partial(run.generate, max_length=9), ["the cat"], out, False, stream=True)
    assert out.getvalue() == f"{result}\n"


def test_prompts_come_from_the_option_or_line_by_line() -> None:
    tally = Tally()
    assert prompts("a", None, tally) == ["a"]
    assert prompts(None, None, tally) == [""]
    assert prompts(None, io.BytesIO(b"a\nb\xff\n"), tally) == ["a", "b\ufffd"]
    assert tally.first == {DAMAGED: [2]}
    assert prompts(None, io.BytesIO(b""), tally) == [""]


def test_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from foveate.cli import app

    arguments = ["generate", str(trained("lstm").path), "--max-length", "4", "--top-k", "2"]
    result = CliRunner().invoke(app, [*arguments, "--json"], input=b"the\na\n")
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["prompt"] for line in result.output.splitlines()] == ["the", "a"]


# ------------------------------------------------------------------------------ looking


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


def test_characters_are_labels_where_the_model_reads_characters() -> None:
    made = task(Character.Config())
    record = made.explain(model_of(made, "transformer"), "a d")
    (name,) = record.maps
    assert record.axes(name) == (["a", "␣", "d", "⏎"], ["⏎", "a", "␣", "d"])
    assert record.maps[name].shape == (2, 4, 4)


def test_pieces_make_words_and_what_is_too_long_is_cut_and_said() -> None:
    made = task(BPE.Config(vocab_size=264), block_length=12)
    model = model_of(made, "transformer")
    record = made.explain(model, "the dog")
    (name,) = record.maps
    assert record.axes(name)[0] == ["the", "dog", "⏎"]
    cut = made.explain(model, "the dog sat on the log .")
    assert cut.notes == [
        f"the first 11 of {len(made.ids_of('the dog sat on the log .'))} tokens: "
        "the model reads no more"
    ]


@pytest.mark.parametrize("name", [name for name in DECODERS if name != "transformer"])
def test_without_attention_there_is_no_map_and_it_is_said(name: str) -> None:
    record = trained(name).explain("the cat")
    assert not record.maps
    with pytest.raises(UserError, match="this model has no attention"):
        record.layers("self_attention")


def test_the_verb_draws_the_only_attention_there_is() -> None:
    record = trained("transformer").explain("the cat")
    (text,) = saved(attention(record, block_in(record, None)), [])
    assert "cat" in text and "⏎" in text
    with pytest.raises(UserError, match="this model has no attention"):
        attention(trained("lstm").explain("the cat"))


def test_a_run_that_says_so_draws_its_answers() -> None:
    run = trained("lstm")
    drawing = run.config.model_copy(update={"decode": Sample.Config(temperature=0.5)})
    other = Run(run.path, drawing, run.task, run.model, run.checkpoint)
    assert isinstance(other.search(None, None), Sample)
    assert isinstance(other.search(3, None), Beam)
    cold = other.generate(["the"], max_length=30, seed=1)[0]
    assert cold == run.generate(["the"], max_length=30, seed=1, temperature=0.5)[0]
