"""Tools and benchmarks: claims, peers, scaling."""

import ast
import dataclasses
import importlib.util
import json
import runpy
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path
from types import ModuleType

import fuzz
import pytest
import torch

import claims
import packaged_runs
import scaling
import scores
import speedrun
import start
from foveate.errors import FOR_THE_USER
from foveate.run import load
from small_runs import made

ROOT = Path(__file__).parent.parent


def test_every_name_that_a_program_of_ours_imports_is_there() -> None:
    """Programs of benchmarks and tools run once in months; a name that moved breaks them unseen."""
    missing = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.module}.{name.name}"
        for folder in ("benchmarks", "tools")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "foveate"
        for name in node.names
        if not hasattr(module := importlib.import_module(node.module or ""), name.name)
        and not importlib.util.find_spec(f"{module.__name__}.{name.name}")
    ]
    assert missing == []


# ---- The page of claims: verdicts that need no training, and that it is what the JSON gives
RECORD = json.loads((ROOT / "docs" / "results" / "claims.json").read_text("utf-8"))
VERDICTS = {row["name"]: row["verdict"] for row in RECORD["claims"]}


def test_every_claim_is_in_the_record_with_the_verdict_that_the_figures_give() -> None:
    assert set(VERDICTS) == set(claims.CLAIMS) and len(VERDICTS) >= 30
    assert all(row["criterion"] for row in RECORD["claims"])
    assert all(row["sample"] for row in RECORD["claims"] if row["result"])  # on how many seeds
    assert {row["name"]: row["verdict"] for row in claims.results()} == VERDICTS
    assert claims.verdict(False, "it is so") == "does not hold here"
    assert claims.verdict(True, "it is so") == "holds only if it is so"
    assert claims.verdict(True) == "holds"


def test_pages_are_what_their_records_give() -> None:
    assert (ROOT / "docs" / "reference" / "claims.md").read_text("utf-8") == claims.page(RECORD)
    rows = json.loads((ROOT / "docs" / "results" / "scores.json").read_text("utf-8"))["rows"]
    assert scores.table(rows) in scores.PAGE.read_text("utf-8"), "run make scores"
    result = json.loads(scaling.RESULT.read_text(encoding="utf-8"))
    again = json.loads(json.dumps(scaling.compute(result["plan_bytes_per_pair"])))
    assert again == result
    text = scaling.PAGE.read_text(encoding="utf-8")
    assert scaling.page(text, result) == text
    records = speedrun.harness.previous("records")["records"]
    assert speedrun.table(records) in speedrun.PAGE.read_text("utf-8")
    assert records and records.keys() <= speedrun.RECORDS.keys()
    assert all(each["reached"] for rows in records.values() for each in rows)


WORDS, ROWS, MODELS = "by_source_words", "rows", "models"
SLOPES = "chapters", "Length of the source", "Slope over length"
GAIN = {"before": [1.0, 2.0, 3.0], "after": [2.0, 3.0, 4.0], "gain": 1.0}
PAIR: dict[str, tuple[str, list[str | int], object, object]] = {  # file, key, and two values of it
    "long-sentences": ("multi30k-en-fr-rnnsearch", [WORDS, "over 20", "bleu"], 1.0, 48.0),
    "long-texts": ("lineage", [*SLOPES, "to"], [-6, 1, -1] * 2, [6, 1, -1] * 2),
    "transformer": ("multi30k-en-fr", ["test", "beam 5", "bleu"], 1.0, 90.0),
    "beam-bleu": ("multi30k-en-fr", ["test", "beam 5", "bleu"], 1.0, 90.0),
    "alignment": ("alignment", [ROWS, "ibm1", "aer"], 0.1, 0.9),
    "copy": ("learnt-attention", [MODELS, 0, "right"], 0.0, 0.9),
    "bias": ("learnt-attention", [MODELS, 14, "right"], 1.0, 0.5),  # T5's, copying
    "time": ("attention-length", ["kinds", "lstm", "exponent_time"], 1.0, 2.0),
    "quadratic-memory": ("attention-length", ["kinds", "full, explicit", "exponent_memory"], 1, 2),
    "int8": ("serving-presets", ["runs", "tiny", "int8", "bleu"], 50.0, 52.3),
    "shallow": ("serving-presets", ["runs", "shallow", "fp32", "bleu"], 1.0, 90.0),
    "order-sentiment": ("sst2-lstm", ["test", "accuracy"], 50.0, 99.0),
    "attention-sentiment": ("sst2-transformer", ["test", "accuracy"], 50.0, 99.0),
    "pretraining": ("sst2-finetuned", ["test", "accuracy"], 50.0, 99.0),
    "gpt-lstm": ("ptb-transformer", ["test", "perplexity"], 90.0, 110.0),
    "mamba": ("ptb-mamba", ["test", "perplexity"], 90.0, 110.0),
    "linear-forecast": ("etth1-linear", ["test", "mse"], 0.1, 0.9),
    "exposure": ("etth1-rnn", ["test", "teacher_forced_mse"], 0.1, 0.6),
    "hard": ("flickr8k-hard", ["test", "bleu"], 1.0, 90.0),
    "no-mask": ("no-mask", [ROWS, "without", 0, "training_loss"], 0.05, 1.5),
    "bigger-data": ("scaling-curve", ["sizes", "16", "losses"], [[0.5] * 9] * 3, [[9.0] * 9] * 3),
    "bigger-time": ("scaling-curve", ["sizes", "256", "losses"], [[0.5] * 9] * 3, [[9.0] * 9] * 3),
    "label-smoothing": (
        "smoothing-averaging", [ROWS, "label smoothing"], GAIN | {"p": 0.01}, GAIN | {"p": 0.5}
    ),
    "averaging": (
        "smoothing-averaging", [ROWS, "averaging, 1/√step"], GAIN | {"p": 0.01}, GAIN | {"p": 0.5}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIR)
def test_another_figure_gives_another_verdict(name: str, monkeypatch) -> None:
    assert set(PAIR) == {name for name, claim in claims.CLAIMS.items() if claim.result}
    file, (*keys, last), *values = PAIR[name]
    result, read, verdicts = claims.read(file), claims.read, set()
    place = result
    for key in keys:
        place = place[key]
    monkeypatch.setattr(claims, "read", lambda asked: result if asked == file else read(asked))
    for value in values:
        place[last] = value
        verdicts.add(claims.CLAIMS[name].measure()[1])
    assert len(verdicts) == 2


# ---- The comparison with peers: its tables come from results, its order is A B A B, failures stay
PEERS = ROOT / "benchmarks" / "peers"
NAMES = "data", "environments", "rows", "table", "starting", "common", "peer_foveate"


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The modules of benchmarks/peers, which are programs and no package."""
    monkeypatch.syspath_prepend(str(PEERS))
    monkeypatch.syspath_prepend(str(PEERS / "adapters"))
    before = set(sys.modules)
    result = {name: __import__(name) for name in NAMES}
    for name in set(sys.modules) - before:
        if name in NAMES:
            monkeypatch.delitem(sys.modules, name)
    return result


def test_the_page_is_made_of_the_results_and_every_row_has_an_adapter(peers) -> None:
    table = peers["table"]
    text = table.PAGE.read_text(encoding="utf-8")
    assert table.page(text, ROOT / "docs" / "results") == text, "run benchmarks/peers/table.py"
    for group in peers["rows"].GROUPS:
        assert f"{group.what}-{group.shape}" in table.TITLES
        for row in group.rows:
            adapter = PEERS / "adapters" / f"peer_{row.peer}.py"
            assert f'"{group.what}": {group.what}' in adapter.read_text(encoding="utf-8"), row
            own = row.peer == peers["environments"].OWN
            assert own or (PEERS / "requirements" / f"{row.peer}.txt").is_file()


def test_our_own_adapter_runs_on_the_data(peers, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path))  # nothing there: the embedded corpus
    monkeypatch.setattr("foveate.measure.training.SYNTHETIC", {"train": 800, "valid": 8, "test": 8})
    peers["data"].write(tmp_path)
    job = peers["common"].Job("tiny", "int8", 0.01, tmp_path, tmp_path, torch.get_num_threads())
    report = peers["peer_foveate"].decode(job)
    assert set(report["sentences_per_second"]) == set(peers["common"].CASES)
    for name, number in {"MOST_STEPS": 4, "WARM_UP": 1}.items():
        monkeypatch.setattr(peers["common"], name, number)
    job = dataclasses.replace(job, mode="fp32", every=2)
    peers["peer_foveate"].quality(job)
    looks = [json.loads(s) for s in capsys.readouterr().out.splitlines() if s.startswith("{")]
    assert [look["step"] for look in looks] == [2, 4] and all(look["bleu"] >= 0 for look in looks)


def test_an_adapter_finds_the_threads_and_sources_it_is_meant_to(peers) -> None:
    own, other = (peers["starting"].environment(peer, 3) for peer in ("foveate", "joeynmt"))
    assert own["OMP_NUM_THREADS"] == other["MKL_NUM_THREADS"] == "3"
    assert own["PYTHONPATH"].endswith("src") and other["PYTHONPATH"] == ""
    line = peers["starting"].command("torch", Path("python"), "train", shape="small", threads=2)
    assert line[:3] == ["python", str(PEERS / "adapters" / "peer_torch.py"), "train"]
    data = str(ROOT / "build" / "peers" / "data")
    assert line[3:] == ["--data", data, "--shape", "small", "--threads", "2"]


# ---- What scaling takes, by formulas
def test_the_formulas() -> None:
    base = scaling.MODELS[0]
    assert base.parameters == pytest.approx(63e6, rel=0.01)  # Vaswani et al. (2017): 65 million
    seconds, sent = scaling.replicas(scaling.MACHINE, base, 1)
    alone = base.batch * base.flops / (base.utilisation * scaling.MACHINE.flops)
    assert (seconds, sent) == (pytest.approx(alone), 0)
    _, two = scaling.replicas(scaling.MACHINE, base, 2)
    assert two == 4 * base.parameters  # a ring of two sends each half there and back
    _, parts = scaling.shards(scaling.MACHINE, base, 2)
    assert parts == 1.5 * two


# ---- What a start takes
def test_a_process_is_measured_without_the_one_that_started_it() -> None:
    code = "text = input(); filled = b'x' * 50_000_000; print(text)"
    seconds, processor, megabytes = start.started([sys.executable, "-S", "-c", code])
    assert 55 < megabytes < 90, "this process has more"
    assert processor > 0 and seconds > 0


def test_what_an_extra_needs_is_counted() -> None:
    found = dict[str, Distribution]()
    start.needed(distribution("fastapi"), [], found)
    assert {"fastapi", "pydantic_core"} <= found.keys() and "httpx" not in found
    sizes = start.sizes(found.values())
    assert sizes["pydantic_core"] > 1 and list(sizes.values()) == sorted(sizes.values())[::-1]


# ---- The fuzzer
def test_what_the_fuzzer_begins_with_is_read_or_refused_in_words_of_ours(tmp_path: Path) -> None:
    for name, (read, examples) in fuzz.targets(tmp_path).items():
        for example in examples:
            try:
                read(example)
            except Exception as error:
                assert isinstance(error, FOR_THE_USER), name


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda p: p.stem)
def test_every_benchmark_starts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claims_computed.CLAIMS", {**claims.CLAIMS})  # claims.py adds its own anew
    runpy.run_path(str(path), run_name="started")


def test_lectures_refuse_a_training_that_ends_while_its_rate_rises() -> None:
    enough = runpy.run_path(str(ROOT / "benchmarks" / "lectures.py"), run_name="started")["enough"]
    assert enough(201) == 201 and enough(None) is None
    with pytest.raises(Exception, match="rises for 200 steps: give more than 200, not 100"):
        enough(100)


def test_a_run_that_ships_answers_as_the_run_it_was_made_of(tmp_path: Path) -> None:
    run = made(tmp_path, ["transformer"], steps=4)["transformer"]
    packaged_runs.ship(run, tmp_path, tmp_path / "small" / run.path.name)
    small = load(tmp_path / "small" / run.path.name)
    for name, tensor in run.model.state_dict().items():
        assert torch.allclose(small.model.state_dict()[name], tensor, atol=1e-3), name
    assert small.config.task.tree()["source"] == "packaged/data/pairs.{split}.tsv"
    files = ([*each.path.rglob("*.safetensors")] for each in (small, run))
    small_size, size = (sum(file.stat().st_size for file in each) for each in files)
    assert small_size < size / 5  # half the bytes of the weights, and nothing of the optimiser
    logs = [(x.path / "log.jsonl").read_text("utf-8") for x in (small, run)]
    assert "seconds" in logs[1] and "seconds" not in logs[0] and logs[0].count("\n") > 1


def test_a_goal_is_reached_where_the_mean_of_the_seeds_is_beyond_it() -> None:
    """Student's table: t = 3.747 for ν = 4 is p = 0.01."""
    apart = [each * 0.1 / 2.5**0.5 for each in (-2.0, -1.0, 0.0, 1.0, 2.0)]  # s = 0.1
    mean = 3.747 * 0.1 / 5**0.5
    for name, sign in (("multi30k", 1), ("shakespeare-1.88", -1)):
        record = speedrun.RECORDS[name]
        scores = [record.goal + sign * mean + each for each in apart]
        assert record.beyond(scores) == pytest.approx(0.01, rel=1e-3)
        assert record.beyond([record.goal - sign * each - sign for each in apart]) > 0.99
    assert record.beyond([0.0]) == 1
