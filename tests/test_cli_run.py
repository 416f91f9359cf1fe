"""Every verb on one small run, trained by the command line itself."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from foveate.engine.compiled import CompiledSearch
from foveate.models.recurrent import RecurrentDecoder
from small_runs import CONFIGS, Call, config_file, invoked, write_data
from tolerances import MODEL, near

CONFIG = CONFIGS["rnn"].replace("[model]", "[data]\nmax_length = 12\n\n[model]", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_data(folder)
    config_file(folder, CONFIG, 60, name="small")
    invoked("train", folder / "small.toml", "train.log_every=20", "--run", folder / "run")
    return folder


def test_translate_with_all_that_stands_beside(folder: Path, call: Call, tmp_path: Path) -> None:
    printed = call("translate", folder / "run", text=b"the dog runs\n\na girl sings\r\n")
    assert printed == (0, "le chien court\n\nune fille chante\n", "")
    printed = call("translate", folder / "run", "--num-hypotheses", 3, text=b"the dog runs\n")
    rows = [line.split(" ||| ") for line in printed.out.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "0"] and len({row[1] for row in rows}) == 3
    links = tmp_path / "links"
    files = ["--alignments", links]
    options = ["--beam-size", 2, "--batch-tokens", 64, "--length-penalty", 0.0, "--threads", 1]
    verb = ["translate", folder / "run", "--scores"]
    first, second = call(*verb, *files, *options, text=b"the dog runs\n\n").out.splitlines()
    score, tab, text = first.partition("\t")
    assert float(score) < 0 and tab and text == "le chien court"
    assert second.endswith("\t") and len(links.read_text().splitlines()) == 2


def test_weights_in_eight_bits(folder: Path, call: Call) -> None:
    text = b"the dog runs\na girl sings\n"
    printed = call("translate", folder / "run", "--precision", "int8", text=text)
    assert printed.out == "le chien court\nune fille chante\n"
    in_torch = ("--precision", "int8", "--engine", "torch")
    in_torch = call("translate", folder / "run", *in_torch, text=text)
    assert in_torch.out == printed.out  # rounded from the run, as its packed file is
    assert not call("evaluate", folder / "run", "--precision", "int8").code
    both = ("--precision", "int8", "--ensemble", folder / "run")
    refused = call("translate", folder / "run", *both, text=text)
    assert refused.code == 2 and "leave out --precision int8" in refused.err


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
}  # fmt: skip


@pytest.mark.parametrize("name", ENGINES)
def test_the_engine_that_is_named_searches(folder, tmp_path, call, monkeypatch, name) -> None:
    options, file, searching, said = ENGINES[name]
    run = Path(shutil.copytree(folder / "run", tmp_path / "run"))
    if not file:
        (run / "packed.safetensors").unlink()
    searched = set()

    def watched(owner: type, method: str, name: str) -> None:
        def call(*args: Any, **kwargs: Any) -> Any:
            searched.add(name)
            return own(*args, **kwargs)

        own = getattr(owner, method)
        monkeypatch.setattr(owner, method, call)

    watched(CompiledSearch, "outputs", "C")
    watched(RecurrentDecoder, "forward", "PyTorch")
    printed = call("translate", run, "-v", *options, text=b"the dog runs\n")
    assert printed.code == 0 and searched == searching
    assert printed.err.startswith(said) and bool(printed.err) == bool(said)


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


def test_ensembles(folder: Path, call: Call) -> None:
    """A run and a checkpoint of it; twice the same is the same."""
    run = folder / "run"
    early, text = run / "checkpoints" / "step-00000030", b"the dog runs\na girl sings\n"
    printed = call("translate", run, "--ensemble", early, "--scores", text=text)
    assert printed.code == 0 and printed.out.count("\n") == 2
    twice = ["--ensemble", run, "--ensemble", run]
    printed = (call("translate", run, "--scores", *more, text=text).out for more in ([], twice))
    rows = [[line.split("\t") for line in out.splitlines()] for out in printed]
    for (score, alone), (other, same) in zip(*rows, strict=True):
        assert same == alone and float(other) == near(float(score), terms=MODEL)
    pair = b"the dog runs\tle chien court\n"
    both, first, second = (
        float(call("score", *where, text=pair).out)
        for where in ([run, "--ensemble", early], [run], [early])
    )
    assert min(first, second) < both < max(first, second)
    assert "chrf" in call("evaluate", run, "--ensemble", early).out


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
    report = ["data", "report", folder / "pairs.train.tsv", "--test", folder / "pairs.test.tsv"]
    printed = call(*report, "--config", folder / "small.toml")
    assert "train: 20 pairs" in printed.out and "pair also in train" in printed.out
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


def test_average_and_checkpoints(folder: Path, call: Call) -> None:
    printed = call("show", folder / "run")
    assert "model.encoder.hidden_size" in printed.out and "perplexity" in printed.out
    assert "seed" not in printed.out, "what is as by default is not shown"
    assert "2 checkpoints (30 to 60)" in call("average", folder / "run", "--last", 2).out
    for checkpoint in ("best", "last", "average", "30"):
        printed = call("translate", folder / "run", "--checkpoint", checkpoint, text=b"a cat\n")
        assert printed.out.count("\n") == 1, printed.err
