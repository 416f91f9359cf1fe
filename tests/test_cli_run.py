"""Every verb on one small run, trained by the command line itself."""

import itertools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from foveate import cli
from foveate.engine.compiled import CompiledSearch
from foveate.models.recurrent import RecurrentDecoder
from small_runs import CONFIGS, TRAIN, Call, write_data
from tolerances import MODEL, near

CONFIG = CONFIGS["rnn"].replace("[model]", "[data]\nmax_length = 12\n\n[model]", 1) + TRAIN


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a config, and the run that was trained on them."""
    folder = tmp_path_factory.mktemp("small")
    write_data(folder)
    text = CONFIG.format(folder=folder.as_posix(), steps=60, half=30)
    (folder / "small.toml").write_text(text)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as done:
        patch.setattr(
            sys, "argv",
            ["foveate", "train", str(folder / "small.toml"), "train.log_every=20",
             "--run", str(folder / "run")],
        )  # fmt: skip
        cli.main()
    assert not done.value.code
    return folder


def test_translate(folder: Path, call: Call) -> None:
    printed = call("translate", folder / "run", text=b"the dog runs\n\na girl sings\r\n")
    assert printed.out == "le chien court\n\nune fille chante\n"
    assert (printed.code, printed.err) == (0, "")


def test_translate_says_what_it_cut_and_what_it_could_not_read(folder: Path, call: Call) -> None:
    printed = call("translate", folder / "run", text=b"the dog runs\n" + b"dog " * 99 + b"\n\xff\n")
    assert printed.out.count("\n") == 3
    assert "1 line longer than the model allows, cut: 2" in printed.err
    assert "1 line not UTF-8, the bytes read as U+FFFD: 3" in printed.err


def test_translate_with_all_that_stands_beside(folder: Path, call: Call, tmp_path: Path) -> None:
    links, page = tmp_path / "links", tmp_path / "maps.html"
    printed = call(
        "translate", folder / "run", "--scores", "--alignments", links, "--attention", page,
        "--beam-size", 2, "--batch-tokens", 64, "--length-penalty", 0.0, "--threads", 1,
        text=b"the dog runs\n\n",
    )  # fmt: skip
    first, second = printed.out.splitlines()
    score, tab, text = first.partition("\t")
    assert float(score) < 0 and tab and text == "le chien court"
    assert second.endswith("\t")
    assert len(links.read_text().splitlines()) == 2
    assert "le" in page.read_text()


def test_lines_from_the_memory_are_not_drawn(folder: Path, call: Call, tmp_path: Path) -> None:
    memory, page = tmp_path / "m.tsv", tmp_path / "maps.html"
    memory.write_text("a girl sings\tde la mémoire\n", "utf-8")
    printed = call(
        "translate", folder / "run", "--memory", memory, "--attention", page,
        text=b"the dog runs\na girl sings\n",
    )  # fmt: skip
    assert printed.out == "le chien court\nde la mémoire\n"
    assert "1 line not drawn, its translation is from the memory: 2" in printed.err
    assert "chien" in page.read_text("utf-8")


def test_translate_with_a_silent_attention(folder: Path, call: Call) -> None:
    text = b"the dog runs\na girl sings\n"
    silent = ["translate", folder / "run", "--scores", "--silence"]
    plain = call("translate", folder / "run", "--scores", text=text).out
    printed = call(*silent, "cross_attention:0", text=text)
    assert printed.code == 0
    assert printed.out != plain
    assert call("translate", folder / "run", "--scores", text=text).out == plain
    assert "no head 1: there are 1" in call(*silent, "decoder:1", text=text).err
    assert "there are: decoder.cross_attention" in call(*silent, "encoder", text=text).err


def test_weights_in_eight_bits(folder: Path, call: Call) -> None:
    text = b"the dog runs\na girl sings\n"
    printed = call("translate", folder / "run", "--precision", "int8", text=text)
    assert printed.out == "le chien court\nune fille chante\n"
    in_torch = ("--precision", "int8", "--engine", "torch")
    in_torch = call("translate", folder / "run", *in_torch, text=text)
    assert in_torch.out == printed.out  # rounded from the run, as its packed file is
    assert not call("evaluate", folder / "run", "--precision", "int8").code
    for option in (("--silence", "decoder"), ("--ensemble", folder / "run")):
        refused = call("translate", folder / "run", "--precision", "int8", *option, text=text)
        assert refused.code == 2 and "leave out --precision int8" in refused.err
    printed = call("translate", folder / "run", "--precision", "int4", text=text)
    assert printed.code == 2 and "choose one of fp32, int8" in printed.err


ENGINES = {  # options, the packed file, what searches, and what -v says
    "the packed file": ((), True, {"C"}, "engine: packed"),
    "its name": (("--engine", "packed"), True, {"C"}, "engine: packed"),
    "no file": ((), False, {"C"}, "engine: the run, not its packed file, since it has no packed"),
    "last": (
        ("--checkpoint", "last"), True, {"C"},
        "engine: the run, not its packed file, since checkpoint last needs the run's weights",
    ),
    "torch": (("--engine", "torch"), True, {"PyTorch"}, ""),
    "both": (("--engine", "torch", "--checkpoint", "last"), True, {"PyTorch"}, ""),
    "silence": (("--silence", "decoder"), True, {"PyTorch"}, "engine: PyTorch, since --silence"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENGINES)
def test_the_engine_that_is_named_searches(
    folder: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    options, file, searching, said = ENGINES[name]
    run = Path(shutil.copytree(folder / "run", tmp_path / "run"))
    if not file:
        (run / "packed.safetensors").unlink()
    searched = set()
    in_c, in_torch = CompiledSearch.outputs, RecurrentDecoder.forward

    def outputs(*args: Any, **kwargs: Any) -> Any:
        searched.add("C")
        return in_c(*args, **kwargs)

    def forward(*args: Any, **kwargs: Any) -> Any:
        searched.add("PyTorch")
        return in_torch(*args, **kwargs)

    monkeypatch.setattr(CompiledSearch, "outputs", outputs)
    monkeypatch.setattr(RecurrentDecoder, "forward", forward)
    printed = call("translate", run, "-v", *options, text=b"the dog runs\n")
    assert printed.code == 0 and searched == searching
    assert printed.err.startswith(said) and bool(printed.err) == bool(said)


def test_n_best(folder: Path, call: Call) -> None:
    printed = call("translate", folder / "run", "--num-hypotheses", 3, text=b"the dog runs\n")
    rows = [line.split(" ||| ") for line in printed.out.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "0"]
    scores = [float(row[3]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert len({row[1] for row in rows}) == 3


def test_translate_with_beginnings(folder: Path, call: Call, tmp_path: Path) -> None:
    prefixes = tmp_path / "prefixes"
    prefixes.write_text("un chat\n\nune\n\n")
    arguments = ["translate", folder / "run", "--prefix-file", prefixes, "--scores"]
    printed = call(*arguments, text=b"the dog runs\na girl sings\n\n")
    assert printed.code == 0
    (score, first), second, third = (line.split("\t") for line in printed.out.splitlines())
    assert first.startswith("un chat") and second[1] == "une fille chante" and third[1] == ""
    assert "has 1 more lines than the input" in printed.err
    forced = call("score", folder / "run", text=f"the dog runs\t{first}\n".encode())
    length = len(first.split()) + 1
    assert float(score) * ((5 + length) / 6) ** 0.6 == near(float(forced.out), terms=MODEL)
    printed = call(*arguments, text=b"a\n" * 5)
    assert printed.code == 2 and f"{prefixes} ends after line 4" in printed.err
    prefixes.write_text("un zèbre\n")
    printed = call(*arguments, text=b"the dog runs\n")
    assert printed.code == 2 and "'un zèbre'" in printed.err


@pytest.mark.parametrize(
    "decode",
    [
        ["decode.kind=diverse_beam"],
        ["decode=minimum_bayes_risk", "decode.candidates.num_samples=32"],
        ["decode.kind=sample", "decode.temperature=0.1"],
        ["decode=greedy", "decode.rules=[{kind='min_length', length=3}]"],
    ],
)
def test_another_search_is_said_at_the_end(folder: Path, call: Call, decode: list[str]) -> None:
    printed = call("translate", folder / "run", *decode, text=b"the dog runs\n\na girl sings\n")
    assert (printed.out, printed.code) == ("le chien court\n\nune fille chante\n", 0)
    assert "100.00" in call("evaluate", folder / "run", *decode).out


def test_only_decoding_can_be_said_anew(folder: Path, call: Call) -> None:
    printed = call("translate", folder / "run", "model.num_layers=2", text=b"a\n")
    assert printed.code == 2 and "is fixed by training" in printed.err
    printed = call("translate", folder / "run", "decode.beam_syze=2", text=b"a\n")
    assert printed.code == 2 and "did you mean 'beam_size'" in printed.err


def test_ensembles(folder: Path, call: Call, tmp_path: Path) -> None:
    """A run and a checkpoint of it; twice the same is the same; other tokens are refused."""
    early = folder / "run" / "checkpoints" / "step-00000030"
    text = b"the dog runs\na girl sings\n"
    printed = call("translate", folder / "run", "--ensemble", early, "--scores", text=text)
    assert printed.code == 0 and printed.out.count("\n") == 2
    alone = call("translate", folder / "run", "--scores", text=text).out
    twice = ["--ensemble", folder / "run", "--ensemble", folder / "run", "--scores"]
    printed = (call("translate", folder / "run", *twice, text=text).out, alone)
    rows = [[line.split("\t") for line in out.splitlines()] for out in printed]
    for (item, same), (other, expected) in zip(*rows, strict=True):
        assert same == expected and float(item) == near(float(other), terms=MODEL)
    pair = b"the dog runs\tle chien court\n"
    both, first, second = (
        float(call("score", *where, text=pair).out)
        for where in ([folder / "run", "--ensemble", early], [folder / "run"], [early])
    )
    assert min(first, second) < both < max(first, second)
    assert "chrf" in call("evaluate", folder / "run", "--ensemble", early).out
    (tmp_path / "pairs.train.tsv").write_text("the dog runs\tle chien court\n")
    (tmp_path / "pairs.valid.tsv").write_text("the dog runs\tle chien court\n")
    (tmp_path / "other.toml").write_text(CONFIG.format(folder=tmp_path, steps=1, half=1))
    trained = call(
        "train", tmp_path / "other.toml", "--run", tmp_path / "other", "train.max_steps=1"
    )
    assert trained.code == 0
    printed = call("translate", folder / "run", "--ensemble", tmp_path / "other", text=text)
    assert printed.code == 2 and "one vocabulary" in printed.err
    assert "tokens in the encoder" in printed.err


def test_evaluate(folder: Path, call: Call, tmp_path: Path) -> None:
    out = tmp_path / "out"
    own = call("evaluate", folder / "run", "--json", "--output", out)
    inputs = call("evaluate", folder / "run", "--data", folder / "pairs.test.tsv", "--json")
    assert own.out == inputs.out
    tree = json.loads(own.out)
    assert tree["figures"]["chrf"] > 95 and "version:" in tree["signatures"]["bleu"]
    assert len(out.read_text().splitlines()) == tree["examples"]
    text = call("evaluate", folder / "run").out
    assert "chrf" in text and "(copying the source)" in text


def test_evaluate_without_test_data_asks_for_a_file(folder: Path, call: Call) -> None:
    test = folder / "pairs.test.tsv"
    test.rename(folder / "away.tsv")
    try:
        done = call("evaluate", folder / "run")
    finally:
        (folder / "away.tsv").rename(test)
    assert done.code == 2 and "no test data" in done.err and "data.splits" not in done.err
    assert "--data FILE, or measure on --split valid" in done.err


def test_score(folder: Path, call: Call) -> None:
    pairs = b"the dog runs\tle chien court\nthe dog runs\tun chat lit\n"
    lines = call("score", folder / "run", "--tokens", text=pairs).out.splitlines()
    right, wrong = (line.split("\t") for line in lines)
    assert float(right[0]) > float(wrong[0])
    tokens = [column.rsplit(" ", 1) for column in right[1:]]
    assert sum(float(value) for _, value in tokens) == near(float(right[0]), terms=MODEL)
    assert [token for token, _ in tokens] == ["le", "chien", "court", "</s>"]


def test_look(folder: Path, call: Call, tmp_path: Path) -> None:
    drawn = call("look", "attention", folder / "run", "--text", "the dog runs")
    assert all(word in drawn.out for word in ("dog", "chien"))
    files = [tmp_path / f"map.{ending}" for ending in ("png", "html", "txt", "svg")]
    printed = call(
        "look", "attention", folder / "run", "--text", "the dog runs", "--target", "un chat lit",
        *itertools.chain(*(("--out", file) for file in files)),
    )  # fmt: skip
    assert printed.code == 0 and all(file.stat().st_size for file in files)
    assert "chat" in files[2].read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--layer", "4"], "layer 4"),
        (["--block", "self"], "cross_attention"),
        (["--out", "map.gif"], ".png"),
    ],
)
def test_look_names_what_is_not_there(folder, call, arguments, expected) -> None:
    printed = call("look", "attention", folder / "run", "--text", "the dog runs", *arguments)
    assert printed.code == 2 and printed.err.startswith("error: ") and expected in printed.err


def test_show(folder: Path, call: Call) -> None:
    printed = call("show", folder / "run")
    assert "model.encoder.hidden_size" in printed.out and "perplexity" in printed.out
    assert "seed" not in printed.out, "what is as by default is not shown"


def test_average_and_checkpoints(folder: Path, call: Call) -> None:
    assert "2 checkpoints (30 to 60)" in call("average", folder / "run", "--last", 2).out
    for checkpoint in ("best", "last", "average", "30"):
        printed = call(
            "translate", folder / "run", "--checkpoint", checkpoint, text=b"a cat runs\n"
        )
        assert printed.out.count("\n") == 1, printed.err
    printed = call("translate", folder / "run", "--checkpoint", "31", text=b"a cat runs\n")
    assert printed.code == 2 and "30, 60" in printed.err


def test_report(folder: Path, call: Call) -> None:
    report = ["data", "report", folder / "pairs.train.tsv", "--test", folder / "pairs.test.tsv"]
    printed = call(*report, "--config", folder / "small.toml")
    assert "train: 20 pairs" in printed.out and "pair also in train" in printed.out
    tree = json.loads(call(*report, "--json").out)
    assert tree["splits"]["train"]["pairs"] == 20


def test_a_run_of_another_config_is_left_alone(folder: Path, call: Call) -> None:
    train = ["train", folder / "small.toml", "--run", folder / "run", "train.log_every=20"]
    printed = call(*train, "model.encoder.hidden_size=48")
    assert printed.code == 2 and "hidden_size" in printed.err
    printed = call(*train, "model.encoder.hiden_size=48")
    assert printed.code == 2 and "did you mean 'hidden_size'" in printed.err
