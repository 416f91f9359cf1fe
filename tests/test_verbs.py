"""The verbs of the command line, for texts, pictures and views."""

import gzip
import io
import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from foveate.cli import app
from foveate.cli.answers import (
    answered,
    evaluation_text,
    pictures_of,
    prompts,
    score_lines,
)
from foveate.cli.looking import saved
from foveate.cli.options import CHUNK, Tally
from foveate.cli.translate import LineOutputs, translate_lines
from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.text import Inflection, portions
from foveate.errors import UserError
from foveate.look.draw.maps import attention
from foveate.look.records import AttentionRecord
from foveate.look.views import find
from foveate.look.views.options import Question
from foveate.run import Run, load
from foveate.run.evaluation import Evaluation
from foveate.run.training import train
from foveate.tasks.captioning import Captioning
from pictures import png, write_bars, write_squares
from small_runs import invoked
from tolerances import near


# ---- Streams: a line for a line, in order, whatever is in the lines; what happened is reported
@dataclass
class Shout:
    """A translator whose model is ``str.upper``: of at most 5 words, spoken at once."""

    requested: list[int] = field(default_factory=list)
    engine: Any = field(default_factory=lambda: SimpleNamespace(processes=0))

    def translate(self, lines: Sequence[str], num_hypotheses: int = 1, **search: Any) -> list[Any]:
        self.requested.append(len(lines))
        if "prefix" in search:
            lines = [f"{p} {line}" for p, line in zip(search["prefix"], lines, strict=True)]
        return [self.answer(line, num_hypotheses) for line in lines]

    def answer(self, line: str, count: int) -> Any:
        words = line.split(" ")
        hypotheses = [" ".join(words[:5]).upper() + "!" * i for i in range(count)]
        links = [(i, i) for i in range(min(5, len(words)))]
        weights = {"decoder.cross_attention": np.eye(3, dtype=np.float32)[None]}
        labels = {"": ["a", "b", "c"]}
        return SimpleNamespace(
            source=line,
            hypotheses=hypotheses,
            outputs=hypotheses,
            scores=[-0.5 - i for i in range(count)],
            cut=max(0, len(words) - 5),
            alignment=lambda: links,
            record=lambda: AttentionRecord(weights, labels, labels, title=line),
        )

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        return [
            SimpleNamespace(
                log_probability=-float(len(target)),
                tokens=list(target),
                token_log_probabilities=[-1.0] * len(target),
            )
            for _, target in pairs
        ]


def run(data: bytes, reference: LineOutputs | None = None) -> tuple[list[str], Tally]:
    out = io.StringIO(newline="")
    source, lines = io.BytesIO(data), reference or LineOutputs()
    tally = translate_lines(cast(Any, Shout()), source, out, lines, {})
    text = out.getvalue()
    assert text == "" or text.endswith("\n")
    return text.split("\n")[:-1], tally


@given(st.lists(st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]))))
def test_output_has_as_many_lines_as_input(lines: list[str]) -> None:
    out, _ = run("".join(line + "\n" for line in lines).encode())
    assert len(out) == len(lines)


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


def test_empty_lines_windows_ends_and_no_last_end() -> None:
    assert run(b"a b\r\n\n\r\nc")[0] == ["A B", "", "", "C"]
    assert run(b"")[0] == []


def test_line_separators_of_unicode_are_no_lines() -> None:
    assert run("a\u2028b\x85c\x0bd\n".encode())[0] == ["A\u2028B\x85C\x0bD"]


def test_a_returned_carriage_makes_no_new_line() -> None:
    assert run(b"a\rb\n")[0] == ["A B"]


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


def test_prefixes_keep_step_with_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "prefixes"
    count = CHUNK + 2
    path.write_bytes(b"".join(b"%d\r\n" % n for n in range(count + 3)))
    out, tally = run(b"a\n" * count, LineOutputs(prefix_file=path))
    assert out == [f"{n} A" for n in range(count)]
    assert tally.report() == [f"{path} has 3 more lines than the input: ignored"]
    with pytest.raises(ConfigError, match=f"ends after line {count + 3}"):
        run(b"a\n" * (count + 4), LineOutputs(prefix_file=path))


def test_prefixes_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "prefixes"
    with pytest.raises(ConfigError, match="cannot read the prefixes"):
        run(b"a\n", LineOutputs(prefix_file=path))
    path.write_bytes(b"x\n\xff\n")
    with pytest.raises(ConfigError, match=r"prefixes:2 is not UTF-8"):
        run(b"a\nb\n", LineOutputs(prefix_file=path))


def test_scores_stand_before_the_line() -> None:
    assert run(b"a\n", LineOutputs(scores=True))[0] == ["-0.500000\tA"]


def test_n_best_lists_have_the_form_of_the_field() -> None:
    lines = run(b"a\nb\n", LineOutputs(num_hypotheses=2))[0]
    assert [line.split(" ||| ")[0] for line in lines] == ["0", "0", "1", "1"]
    assert lines[1] == "0 ||| A! ||| model= -1.500000 ||| -1.500000"


def test_alignments_are_a_pharaoh_line_for_a_line(tmp_path: Path) -> None:
    path = tmp_path / "links"
    run(b"a b\n\nc\n", LineOutputs(alignments=path))
    assert path.read_text() == "0-0 1-1\n0-0\n0-0\n"


def test_the_page_of_maps_is_written_and_its_limit_told(tmp_path: Path) -> None:
    path = tmp_path / "maps.html"
    tally = run(b"\n" + b"a b c\n" * 203, LineOutputs(attention=path))[1]
    assert "<html" in path.read_text().lower()
    [sentence] = tally.report()
    assert sentence.startswith("3 lines not drawn") and sentence.endswith("202, 203, 204")


def test_a_page_that_is_no_page_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.html"):
        run(b"a\n", LineOutputs(attention=tmp_path / "maps.png"))


def test_scores_of_pairs() -> None:
    out = io.StringIO()
    score_lines(cast(Any, Shout()), io.BytesIO(b"a\txyz\nb\t\n"), out, tokens=True)
    assert out.getvalue() == "-3.000000\tx -1.0000\ty -1.0000\tz -1.0000\n-0.000000\n"


def test_a_raw_line_of_the_data_is_named_with_its_pair() -> None:
    raw = io.BytesIO(b"Hahn<N>\tHahn\nHahn\tHahnes\tN;GEN;SG\n")
    with pytest.raises(ConfigError, match=r"line 2 .* write Hahn<N><GEN><SG> TAB Hahnes"):
        check = Inflection.Config().build().source
        score_lines(cast(Any, Shout()), raw, io.StringIO(), check=check)


def test_a_pair_without_tab_is_named() -> None:
    with pytest.raises(ConfigError, match="line 2 has no tab"):
        score_lines(cast(Any, Shout()), io.BytesIO(b"a\tb\nab\n"), io.StringIO())


def test_small_figures_keep_four_digits() -> None:
    figures = {"mse": 0.38451, "bleu": 31.5, "accuracy": 100.0, "loss": 0.00001234, "none": 0.0}
    lines = evaluation_text(Evaluation(figures, {"bleu": "nrefs:1"}, ["a"]), False).splitlines()
    assert lines == [
        "1 examples",
        "mse         0.3845",
        "bleu       31.50       nrefs:1",
        "accuracy  100.00",
        "loss        1.234e-05",
        "none        0.00",
    ]


def test_pictures_are_told_by_their_endings(tmp_path: Path) -> None:
    record = Shout().answer("a b c", 1).record()
    paths = [tmp_path / f"map.{ending}" for ending in ("png", "svg", "txt")]
    output = saved(attention(record), paths)
    assert output == [f"wrote {path}" for path in paths]
    assert all(path.stat().st_size > 50 for path in paths)
    [text] = saved(attention(record), [])
    assert "a" in text


@pytest.mark.parametrize(
    ("requested", "expected"),
    [({"block": "self"}, "cross_attention"), ({"layer": 3}, "layer 3"), ({"head": 7}, "head 7")],
)
def test_a_map_that_is_not_there_is_named(requested: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        attention(Shout().answer("a", 1).record(), **requested)


def test_chunks() -> None:
    assert list(portions("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]


# ---- The verbs that draw positions, schedules, gradients and gates, from a run to a picture
ROOT = Path(__file__).parent.parent
CONFIG = """
[task]
kind = "language"
text = "{folder}/text.txt"
tokenizer = {{ kind = "word", min_frequency = 1 }}
block_length = 4

[model]
kind = "language_model"
decoder = {{ {decoder}, hidden_size = 8, dropout = 0.0 }}

[train]
batch_tokens = 16
max_steps = 2
precision = "fp32"
save = {{ every = 2 }}
validation = {{ every = 2, samples = 0 }}
"""
LSTM = 'kind = "recurrent", cell = "lstm", embedding_size = 8, readout = "state"'
GPT = 'kind = "transformer", num_heads = 2, num_layers = 1'


def made(folder: Path, decoder: str) -> Run:
    (folder / "text.txt").write_text("a cat sat on a mat .\nthe dog saw a cat .\n" * 20)
    (folder / "c.toml").write_text(CONFIG.format(folder=folder.as_posix(), decoder=decoder))
    return train(folder / "c.toml", folder=folder / "run")


@pytest.fixture(scope="module")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("lstm"), LSTM)


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("gpt"), GPT)


def test_gradients_of_two_runs_together(lstm: Run, gpt: Run, tmp_path: Path) -> None:
    out = tmp_path / "g.npz"
    words = ["look", "gradients", str(lstm.path), str(gpt.path), "--text", "a cat sat", "--out"]
    invoked(*words, out)
    assert len(find("gradients").draw([lstm], Question(text="a cat sat on")).arrays()["x"]) == 5


def test_gates_over_the_words_of_a_text(lstm: Run, gpt: Run) -> None:
    view = find("gates").draw([lstm], Question(text="the dog sat"))
    assert list(view.arrays()) == ["input gate", "forget gate", "output gate"]
    assert view.arrays()["input gate"].shape == (8, 4)
    assert view.sheets[0].columns == ["⏎", "the", "dog", "sat"]  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="no recurrent cells"):
        find("gates").draw([gpt], Question(text="the dog"))
    with pytest.raises(ConfigError, match="layer 1"):
        find("gates").draw([lstm], Question(text="the dog", layer=1))
    invoked("look", "gates", lstm.path, "--text", "a cat")


# ------------------------------ The verbs of pictures, from a training of two steps to a drawing
TRAIN = """
[train]
batch_tokens = 64
max_steps = 2
precision = "fp32"
save = { every = 2 }
validation = { every = 2, samples = 1 }
"""


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = write_squares(tmp_path_factory.mktemp("captioner"))
    (folder / "c.toml").write_text(
        f"""
[task]
kind = "captioning"
tokenizer = {{ kind = "word", min_frequency = 1 }}

[task.pictures]
kind = "files"
files = "{folder}/pictures.tar"
table = "{folder}/table.tsv"
size = 8

[model]
kind = "show-attend-tell"
encoder = {{ channels = [4, 4], hidden_size = 8 }}
decoder = {{ hidden_size = 8, embedding_size = 8, attention = {{ normalizer = "sampled" }} }}

[objective]
kind = "reinforce"
{TRAIN}""",
        encoding="utf-8",
    )
    return train(folder / "c.toml", folder=folder / "run")


@pytest.fixture(scope="module")
def labeller(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("labeller")
    pattern = write_bars(folder)
    (folder / "c.toml").write_text(
        f"""
[task]
kind = "image_classification"

[task.pictures]
kind = "idx"
images = "{pattern}-images"
labels = "{pattern}-labels"
held_out = 4

[model]
kind = "glimpse"
patch_size = 4
scales = 2
num_glimpses = 2
hidden_size = 8
glimpse_size = 6

[objective]
kind = "reinforce"
{TRAIN}""",
        encoding="utf-8",
    )
    return train(folder / "c.toml", folder=folder / "run")


def test_answer_and_look(captioner: Run, tmp_path: Path) -> None:
    image = captioner.path.parent / "pictures" / "deep" / "red.png"
    call = invoked("answer", captioner.path, image, "1", "--json")
    records = [json.loads(line) for line in call.stdout.splitlines()]
    assert [record["name"] for record in records] == ["red.png", "green.png"]
    assert all(record["score"] < 0 for record in records)
    out = tmp_path / "x.svg"
    words = ["look", "picture", str(captioner.path), str(image), "--target", "A red square ."]
    call = invoked(*words, "--out", out)
    assert "square" in out.read_text(encoding="utf-8")


def test_a_run_of_labels(labeller: Run) -> None:
    again = load(labeller.path)
    assert 0 <= again.evaluate(split="test").figures["accuracy"] <= 100
    (answer,) = again.classify([3])
    assert answer.label in ("0", "1")
    with pytest.raises(ValueError, match="has no attention over patches"):
        answer.record()
    view = find("picture").draw([again], Question(image="3"))
    assert "glimpse      x      y" in view.text()
    with pytest.raises(ConfigError, match="cannot caption"):
        again.need(Captioning, "caption")


def classify(run: Run, *words: object) -> list[str]:
    call = invoked("classify", run.path, *words)
    return call.stdout.splitlines()


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
        assert isinstance(call.exception, error)
        assert re.search(message, str(call.exception))
        assert call.stdout == ""


def test_a_run_of_other_things_takes_no_pictures(captioner: Run) -> None:
    call = CliRunner().invoke(app, ["classify", str(captioner.path), "0"])
    assert "captioning: it cannot classify pictures" in str(call.exception)


def test_pictures_are_files_or_numbers(tmp_path: Path) -> None:
    (tmp_path / "7").write_bytes(b"x")
    assert pictures_of(["7", str(tmp_path / "7")]) == [7, tmp_path / "7"]
    with pytest.raises(ConfigError, match=r"seven\.png: file not found; give a JPEG or PNG"):
        pictures_of(["seven.png"])
