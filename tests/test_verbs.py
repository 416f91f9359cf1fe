"""The verbs of the command line, for texts, pictures and views."""

import gzip
import io
import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import small_runs
from foveate.cli import app
from foveate.cli.answers import answered, evaluation_text, prompts, score_lines
from foveate.cli.looking import write
from foveate.cli.options import CHUNK, Tally
from foveate.cli.translate import LineOutputs, translate_lines
from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.text import Inflection
from foveate.look.draw.maps import attention
from foveate.look.records import AttentionRecord
from foveate.look.views import find
from foveate.look.views.examples import picture_of
from foveate.look.views.options import Question
from foveate.run import Run, load
from foveate.run.evaluation import Evaluation
from foveate.run.training import train
from foveate.tasks.captioning import Captioning
from pictures import png
from small_runs import invoked
from tolerances import near


# ---- Streams: a line for a line, in order, whatever is in the lines; what happened is reported
class Shout:
    """A translator whose model is ``str.upper``: of at most 5 words, spoken at once."""

    def __init__(self) -> None:
        self.requested = list[int]()

    def translate(self, lines: Sequence[str], num_hypotheses: int = 1, **search: Any) -> list[Any]:
        self.requested.append(len(lines))
        return [self.answer(line, num_hypotheses) for line in lines]

    def answer(self, line: str, count: int) -> Any:
        words = line.split(" ")
        hypotheses = [" ".join(words[:5]).upper() + "!" * i for i in range(count)]
        links = [(i, i) for i in range(min(5, len(words)))]
        weights = {"decoder.cross_attention": np.eye(3, dtype=np.float32)[None]}
        labels = {"": ["a", "b", "c"]}
        return SimpleNamespace(
            source=line, hypotheses=hypotheses, outputs=hypotheses, cut=max(0, len(words) - 5),
            scores=[-0.5 - i for i in range(count)], alignment=lambda: links,
            record=lambda: AttentionRecord(weights, labels, labels, title=line),
        )  # fmt: skip

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        names = "log_probability", "tokens", "token_log_probabilities"
        rows = ((-float(len(t)), list(t), [-1.0] * len(t)) for _, t in pairs)
        return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in rows]


def run(data: bytes, reference: LineOutputs | None = None) -> tuple[list[str], Tally]:
    out = io.StringIO(newline="")
    source, lines = io.BytesIO(data), reference or LineOutputs()
    tally = translate_lines(cast(Any, Shout()), source, out, lines, {})
    text = out.getvalue()
    assert text == "" or text.endswith("\n")
    return text.split("\n")[:-1], tally


@given(st.binary().map(lambda data: data.replace(b"\0", b"\1")))
def test_any_bytes_but_nul_are_lines(data: bytes) -> None:
    out, tally = run(data)
    assert len(out) == data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    bad = [line for line in data.split(b"\n") if not is_utf8(line.removesuffix(b"\r"))]
    assert sum(len(n) for what, n in tally.lines.items() if "UTF-8" in what) == len(bad)


BINARIES = {
    "mo": struct.pack("<7I", 0x950412DE, 0, 1, 28, 36, 0, 44) + b"hello\0bonjour\0",
    "gzip": gzip.compress(b"a dog runs\n" * 9),
    "zip": b"PK\x03\x04\x14\x00\x06\x00",
    "png": png("red"),
    "utf-16": "a dog runs\nthe cat sleeps\n".encode("utf-16"),
    "stray": b"a\tb\n" * 5000 + b"a\0\tb\n",
}


@pytest.mark.parametrize("kind", BINARIES)
@pytest.mark.parametrize("verb", ["translate", "score", "generate", "answer and classify"])
def test_what_is_not_text_is_refused_with_a_remedy(verb: str, kind: str, monkeypatch) -> None:
    """By every verb that reads lines of standard input: a NUL byte tells text from a binary."""
    source, shout = io.BytesIO(BINARIES[kind]), cast(Any, Shout())
    with pytest.raises(ConfigError, match=r"line \d+ of standard input has a NUL byte.* iconv"):
        if verb == "translate":
            translate_lines(shout, source, io.StringIO(), LineOutputs(), {})
        elif verb == "score":
            score_lines(shout, source, io.StringIO())
        elif verb == "generate":
            prompts(None, source, Tally())
        else:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(source))
            list(answered(lambda lines, _: [], "text", [], None, Tally()))


def is_utf8(line: bytes) -> bool:
    return line.decode("utf-8", errors="ignore").encode() == line


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("a b\r\n\n\r\nc", ["A B", "", "", "C"]),
        ("", []),
        ("a\u2028b\x85c\x0bd\n", ["A\u2028B\x85C\x0bD"]),  # are no ends of lines
        ("a\rb\n", ["A B"]),  # a returned carriage makes no new line
    ],
)
def test_only_line_feeds_end_a_line(data: str, lines: list[str]) -> None:
    assert run(data.encode())[0] == lines


def test_many_lines_are_taken_in_chunks_and_stay_in_order() -> None:
    shout, out = Shout(), io.StringIO()
    lines = [f"line {i}" for i in range(2 * CHUNK + 3)]
    source = io.BytesIO("\n".join(lines).encode())
    translate_lines(cast(Any, shout), source, out, LineOutputs(), {})
    assert shout.requested == [CHUNK, CHUNK, 3]
    assert out.getvalue().splitlines() == [line.upper() for line in lines]


def test_what_is_cut_is_counted_and_named() -> None:
    tally = run(b"a b c d e f\nshort\n" * 12)[1]
    [sentence] = tally.report()
    assert sentence.startswith("12 lines longer than the model allows, cut: 1, 3, 5")
    assert sentence.endswith("19, …")
    assert Tally().report() == []


def test_scores_and_n_best_lists_have_the_form_of_the_field() -> None:
    assert run(b"a\n", LineOutputs(scores=True))[0] == ["-0.500000\tA"]
    lines = run(b"a\nb\n", LineOutputs(num_hypotheses=2))[0]
    assert [line.split(" ||| ")[0] for line in lines] == ["0", "0", "1", "1"]
    assert lines[1] == "0 ||| A! ||| model= -1.500000 ||| -1.500000"


def test_alignments_are_a_pharaoh_line_for_a_line(tmp_path: Path) -> None:
    path = tmp_path / "links"
    run(b"a b\n\nc\n", LineOutputs(alignments=path))
    assert path.read_text() == "0-0 1-1\n0-0\n0-0\n"


def test_scores_of_pairs() -> None:
    out = io.StringIO()
    score_lines(cast(Any, Shout()), io.BytesIO(b"a\txyz\nb\t\n"), out, tokens=True)
    assert out.getvalue() == "-3.000000\tx -1.0000\ty -1.0000\tz -1.0000\n-0.000000\n"


def test_a_pair_that_is_none_is_named() -> None:
    check = Inflection.Config().build().source
    for text, options, message in (
        (b"a\tb\nab\n", {}, "line 2 has no tab"),
        (b"Hahn<N>\tHahn\nHahn\tHahnes\tN;GEN;SG\n", {"check": check},
         r"line 2 .* write Hahn<N><GEN><SG> TAB Hahnes"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            score_lines(cast(Any, Shout()), io.BytesIO(text), io.StringIO(), **options)


def test_small_figures_keep_four_digits() -> None:
    figures = {"mse": 0.38451, "bleu": 31.5, "accuracy": 100.0, "loss": 0.00001234, "none": 0.0}
    lines = evaluation_text(Evaluation(figures, {"bleu": "nrefs:1"}, ["a"]), False).splitlines()
    rows = "mse         0.3845", "bleu       31.50       nrefs:1", "accuracy  100.00"
    assert lines == ["1 examples", *rows, "loss        1.234e-05", "none        0.00"]


def test_pictures_are_told_by_their_endings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = Shout().answer("a b c", 1).record()
    paths = [tmp_path / f"map.{ending}" for ending in ("png", "svg", "txt")]
    write(attention(record), paths)
    assert capsys.readouterr().out.splitlines() == [f"wrote {path}" for path in paths]
    assert all(path.stat().st_size > 50 for path in paths)
    write(attention(record), None)
    assert "a" in capsys.readouterr().out


# ---- The verbs that draw positions, schedules, gradients and gates, from a run to a picture
LSTM = """
[model]
kind = "language_model"
decoder.kind = "recurrent"
decoder.cell = "lstm"
decoder.embedding_size = 8
decoder.hidden_size = 8
decoder.readout = "state"
"""
GLIMPSE = """
[model]
kind = "glimpse"
patch_size = 4
scales = 2
num_glimpses = 2
hidden_size = 8
glimpse_size = 6

[objective]
kind = "reinforce"
"""


def made(folder: Path, data: str, model: str, *overrides: str) -> Run:
    """A run of two steps, with the task of a small run and another model."""
    small_runs.write_data(folder)
    config = small_runs.config_file(folder, data.partition("[model]")[0] + model, steps=2)
    return train(config, overrides, folder=folder / "run")


@pytest.fixture(scope="module")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    words = "task.tokenizer=word", "task.block_length=4"
    return made(tmp_path_factory.mktemp("lstm"), small_runs.LANGUAGE, LSTM, *words)


@pytest.fixture(scope="module")
def labeller(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("labeller"), small_runs.VIT, GLIMPSE)


def test_gradients_of_two_runs_together(lstm: Run, runs, tmp_path: Path) -> None:
    words = ["look", "gradients", lstm.path, runs["language"].path, "--text", "a cat runs"]
    invoked(*words, "--out", tmp_path / "g.npz")
    assert len(find("gradients").draw([lstm], Question(text="the dog runs .")).arrays()["x"]) == 5


def test_gates_over_the_words_of_a_text(lstm: Run) -> None:
    view: Any = find("gates").draw([lstm], Question(text="the dog runs"))
    assert list(view.arrays()) == ["input gate", "forget gate", "output gate"]
    assert view.arrays()["input gate"].shape == (8, 4)
    assert view.sheets[0].columns == ["⏎", "the", "dog", "runs"]
    with pytest.raises(ConfigError, match="layer 1"):
        find("gates").draw([lstm], Question(text="the dog", layer=1))


# ------------------------------ The verbs of pictures, from a training of two steps to a drawing
def test_answer_and_look(runs, tmp_path: Path) -> None:
    run, out = runs["captioner"].path, tmp_path / "x.svg"
    image = run.parent.parent / "pictures" / "deep" / "red.png"
    records = [*map(json.loads, invoked("answer", run, image, "1", "--json").stdout.splitlines())]
    assert [record["name"] for record in records] == ["red.png", "green.png"]
    assert all(record["score"] < 0 for record in records)
    invoked("look", "picture", run, image, "--target", "A red square .", "--out", out)
    assert "square" in out.read_text(encoding="utf-8")


def test_a_run_of_labels_has_glimpses(labeller: Run) -> None:
    (answer,) = labeller.classify([3])
    with pytest.raises(ValueError, match="has no attention over patches"):
        answer.record()
    view = find("picture").draw([load(labeller.path)], Question(image="3"))
    assert "glimpse      x      y" in view.text()
    with pytest.raises(ConfigError, match="cannot caption"):
        labeller.need(Captioning, "caption")


def classify(run: Run, *words: object) -> list[str]:
    return invoked("classify", run.path, *words).stdout.splitlines()


def test_classify_pictures(labeller: Run, tmp_path: Path) -> None:
    image = tmp_path / "a b.png"
    image.write_bytes(png("red"))
    lines = classify(labeller, 3, image, 3)
    assert [line.split("\t")[0] for line in lines] == ["3", str(image), "3"]
    assert lines[0] == lines[2] != lines[1]
    _, label, p = lines[0].split("\t")
    assert label in ("0", "1")
    assert 0.5 <= float(p) <= 1
    (line,) = classify(labeller, image, "--scores", "--batch-tokens", 1)
    name, *pairs = line.split("\t")
    assert name == str(image)
    assert sorted(pairs[::2]) == ["0", "1"]
    assert sum(map(float, pairs[1::2])) == near(1)
    first, second = (json.loads(line) for line in classify(labeller, 0, 1, "--json"))
    assert (first["picture"], second["picture"]) == ("0", "1")
    assert max(first["probabilities"], key=first["probabilities"].__getitem__) == first["label"]


def test_a_bad_picture_is_named_before_a_line_is_written(labeller: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    for names, error, message in (
        ([3, bad], DataError, r"bad\.png cannot be read as a picture \(neither JPEG nor PNG\)"),
        ([3, "missing.png"], ConfigError, r"missing\.png: file not found; give a JPEG or PNG"),
        ([3, 24], ValueError, r"picture 24: the test data has 0 to 23"),
        ([], ConfigError, r"run labels pictures: name some behind it"),
        ([3, "--json", "--scores"], ConfigError, r"two output formats"),
    ):
        words = ["classify", str(labeller.path), *map(str, names)]
        call = CliRunner().invoke(app, words, input="3\n")
        assert isinstance(call.exception, error) and call.stdout == ""
        assert re.search(message, str(call.exception))


def test_a_run_of_other_things_takes_no_pictures(runs) -> None:
    call = CliRunner().invoke(app, ["classify", str(runs["captioner"].path), "0"])
    assert "captioning: it cannot classify pictures" in str(call.exception)


def test_pictures_are_files_or_numbers(tmp_path: Path) -> None:
    (tmp_path / "7").write_bytes(b"x")
    assert [picture_of(each) for each in ("7", str(tmp_path / "7"))] == [7, tmp_path / "7"]
