"""Several ranks == one process: losses, weights, checkpoints; and what befalls a rank.

Real processes, started by torchrun. One start plays many scenes, for starting costs seconds.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from foveate.config import ConfigError
from foveate.run.training import train
from foveate.train import checkpoint
from foveate.train.distributed import Ranks, layers, ranks_of
from foveate.train.journal import read
from small_runs import Once
from tolerances import MODEL, close, near
from train_toy import Toy, final, toy_config

TESTS = Path(__file__).parent
STEPS = 12
Scenes = list[dict[str, Any]]


def torchrun(folder: Path, scenes: Scenes, ranks: int = 2, restarts: int = 0) -> Any:
    """Play scenes as so many ranks, to their end."""
    messages = folder / "scenes.json"
    messages.write_text(json.dumps([s | {"folder": str(folder / s["folder"])} for s in scenes]))
    done = started([str(TESTS / "ranks_toy.py"), str(messages)], ranks, restarts)
    assert done.returncode == 0, done.stderr[-4000:]
    return done


def started(program: list[str], ranks: int = 2, restarts: int = 0) -> Any:
    own = filter(None, [os.environ.get("PYTHONPATH")])
    path = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS), *own])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    command += [str(ranks), "--max-restarts", str(restarts), *program]
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in read(run) if line["event"] == "train"]


def tensors(run: Path, step: int = STEPS) -> dict[str, torch.Tensor]:
    folder = checkpoint.path_of(run, step)
    loaded = ((f.name, load_file(f)) for f in folder.glob("*.safetensors"))
    return {f"{name}/{key}": v for name, each in loaded for key, v in each.items()}


def same_up_to_rounding(run: Path, other: Path, step: int = STEPS) -> None:
    """Equal losses and weights, up to the rounding of sums in another order."""
    assert losses(run) == near(losses(other))
    ours, theirs = tensors(run, step), tensors(other, step)
    assert ours.keys() == theirs.keys()
    # "seen" counts batches, of which rank 0 saw its own; a key's bias adds the same to all scores
    # of a query, so that its gradient is the rounding of 0, and Adam makes steps of whatever it is
    for name, tensor in theirs.items():
        if "seen" not in name and not name.endswith("key.bias"):
            close(ours[name], tensor, terms=MODEL, why=name)


def same_bits(run: Path, other: Path) -> None:
    """Equal losses and weights, and so does what the optimiser remembers."""
    ours, theirs = tensors(run), tensors(other)
    assert all(torch.equal(ours[n], t) for n, t in theirs.items() if "seen" not in n)
    assert losses(run) == losses(other)


SHORT = {"log_every": 1, "max_steps": STEPS}
EMA = {"ema": {"decay": 0.9}, "average": 2}
CLIPPED = {"clip_norm": 0.5, "optimizer": {"kind": "sgd", "lr": 0.5, "momentum": 0.9}}
RAGGED = {"max_epochs": 2, "batch_tokens": 60, "save": {"every": 100}}  # 5 batches an epoch
TRANSFORMER = '{ kind = "transformer", hidden_size = 16, num_layers = 2, num_heads = 2 }'
MODELS = {
    "transformer": f"encoder = {TRANSFORMER}\ndecoder = {TRANSFORMER}",
    "recurrent": 'encoder = { kind = "recurrent", hidden_size = 16 }\n'
    'decoder = { kind = "recurrent", hidden_size = 16, attention = { score = "additive" } }',
    "mamba": 'encoder = { kind = "mamba", hidden_size = 16, num_layers = 2 }\n'
    'decoder = { kind = "mamba", hidden_size = 16, num_layers = 2 }',
}


ADAPTERS = {
    kind: f'train.adapter={{kind="{kind}", rank=2, whole=["*.norm.weight"]}}'
    for kind in ("lora", "dora")
}


def config_of(folder: Path, name: str) -> Path:
    """A model that learns to say three words backwards."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    pairs = [(words[i % 10], words[i // 10 % 10], words[i * 7 % 10]) for i in range(90)]
    text = "".join(f"{' '.join(p)}\t{' '.join(reversed(p))}\n" for p in pairs)
    for split in ("train", "valid", "test"):
        (folder / f"{split}.tsv").write_text(text)
    config = folder / f"{name}.toml"
    config.write_text(
        f'[task]\nkind = "translation"\nsource = "{folder}/{{split}}.tsv"\n'
        'tokenizer = { kind = "word" }\n'
        f'[model]\nkind = "encoder_decoder"\n{MODELS[name]}\n'
        '[train]\nbatch_tokens = 64\nmax_steps = 6\nlog_every = 1\nprecision = "fp32"\n'
        'schedule = "constant"\nvalidation = { every = 3 }\nsave = { every = 3 }\n'
        'optimizer = { kind = "sgd", lr = 0.1 }\n'  # Adam makes steps of a gradient that is noise
    )
    return config


def command(folder: Path) -> list[str]:
    """The arguments of ``foveate`` that train the recurrent model."""
    return ["train", str(folder / "recurrent.toml"), "--run", str(folder / "command")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A run of one process with as many batches in a step, made once."""
    made: dict[str, Path] = {}

    def run(**changes: Any) -> Path:
        key = json.dumps(changes, sort_keys=True)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("alone")
            Toy(made[key], toy_config(**SHORT | changes)).train()
        return made[key]

    return run


@pytest.fixture(scope="module")
def played(once: Once) -> Path:
    """The scenes that two ranks play in one start; no two tests train on in the same folder."""
    return once("ranks", play_all)


def play_all(folder: Path) -> None:
    begun = SHORT | {"max_steps": 6}
    Toy(folder / "one-two", toy_config(**begun | {"accumulate": 2})).train()
    for name in ("idle", "idle-fsdp"):
        Toy(folder / name, toy_config(**begun)).train()
    ddp, fsdp = SHORT | {"parallel": "ddp"}, SHORT | {"parallel": "fsdp"}
    stop = {"how": "stop", "rank": 1, "number": 5}  # the first was the rehearsal's
    look = {"how": "stop", "rank": 0, "what": "measure", "number": 1}
    scenes: Scenes = [
        {"folder": "ddp", "changes": ddp},
        {"folder": "fsdp", "changes": fsdp},
        {"folder": "fsdp-mean", "changes": fsdp | EMA},
        {"folder": "ddp-mean", "changes": ddp | EMA},
        {"folder": "ddp-twice", "changes": ddp | {"accumulate": 2}},
        {"folder": "fsdp-twice", "changes": fsdp | CLIPPED | {"accumulate": 2}},
        {"folder": "ragged", "changes": ddp | RAGGED},
        {"folder": "ragged-fsdp", "changes": fsdp | RAGGED},
        {"folder": "one-two", "changes": fsdp | {"accumulate": 2, "max_steps": 9}},
        {"folder": "two-one", "changes": ddp | {"max_steps": 6}},
        {"folder": "stopped", "changes": ddp, "harm": [stop]},
        {"folder": "stopped", "changes": ddp},
        {"folder": "validating", "changes": ddp, "harm": [look]},
        {"folder": "validating", "changes": ddp},
        {"folder": "idle", "changes": ddp},
        {"folder": "idle-fsdp", "changes": fsdp},
    ]  # fmt: skip
    scenes += [
        {"folder": f"{name}-{kind}", "config": str(config_of(folder, name)), "overrides": [over]}
        for name in MODELS
        for kind in ("ddp", "fsdp")
        for over in [f'train.parallel="{kind}"']
    ]
    base = train(config_of(folder, "transformer"), ["train.max_steps=1"], folder / "base")
    for kind, adapter in ADAPTERS.items():
        own = [adapter, f'start.run="{base.path}"', 'train.parallel="fsdp"']
        scene = {"folder": f"{kind}-fsdp", "config": str(folder / "transformer.toml")}
        for steps in (3, 6):  # the second start resumes the run
            scenes.append(scene | {"overrides": [*own, f"train.max_steps={steps}"]})
    scenes.append({"folder": "command", "command": [*command(folder), "train.max_steps=2"]})
    done = torchrun(folder, scenes)
    (folder / "said").write_text(done.stderr)


def outcome(run: Path, rank: int = 0) -> dict[str, Any]:
    return dict(json.loads((run / f"outcome-{rank}.json").read_text()))


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_ranks_are_one_process(played: Path, alone: Callable[..., Path], kind: str) -> None:
    """With dropout and noise: they are functions of the place in the step."""
    same_up_to_rounding(played / kind, alone(accumulate=2))
    same_up_to_rounding(played / f"{kind}-mean", alone(accumulate=2, **EMA))
    clipped = CLIPPED if kind == "fsdp" else {}
    same_up_to_rounding(played / f"{kind}-twice", alone(accumulate=4, **clipped))
    lines = [line for line in read(played / kind) if line["event"] == "valid"]
    assert [line["step"] for line in lines] == [4, 8, 12]
    assert outcome(played / kind) == outcome(played / kind, rank=1)


def test_two_replicas_are_one_process_bit_for_bit(played: Path, alone: Callable[..., Path]) -> None:
    """A sum of two has one order only."""
    same_bits(played / "ddp", alone(accumulate=2))
    runs = [played / "ddp", alone(accumulate=2)]
    files = [sorted(p.name for p in checkpoint.path_of(r, STEPS).iterdir()) for r in runs]
    assert files[0] == files[1] and checkpoint.steps(runs[0]) == checkpoint.steps(runs[1])


def test_where_batches_do_not_suffice_a_rank_adds_nothing(played, alone) -> None:
    own = alone(accumulate=2, **RAGGED)
    last = checkpoint.steps(own)[-1]
    state = json.loads((checkpoint.path_of(own, last) / "state.json").read_text())
    counted = [line for line in read(own) if line["event"] == "train"]
    assert (state["epoch"], state["position"]) == (2, 0) and len(counted) == last
    for run in (played / "ragged", played / "ragged-fsdp"):
        same_up_to_rounding(run, own, last)
        result = json.loads((checkpoint.path_of(run, last) / "state.json").read_text())
        for name in ("epoch", "position", "targets", "batches"):
            assert result[name] == state[name], name


def test_a_run_goes_on_with_more_ranks_and_with_fewer(played, alone) -> None:
    """1 process → 2 with shards → 1; and 2 with replicas → 1, whose config says nothing of 2."""
    Toy(played / "one-two", toy_config(**SHORT | {"accumulate": 2})).train()
    same_up_to_rounding(played / "one-two", alone(accumulate=2))
    Toy(played / "two-one", toy_config(**SHORT)).train()
    same_up_to_rounding(played / "two-one", alone(accumulate=2))
    starts = [line for line in read(played / "two-one") if line["event"] == "start"]
    assert [line.get("ranks") for line in starts] == [2, None]


@pytest.mark.parametrize("run", ["idle", "idle-fsdp"])
def test_a_rank_may_have_nothing_to_do_in_a_step(played, alone, run) -> None:
    assert "a step of this run has 1 batches for 2 ranks" in (played / "said").read_text()
    same_up_to_rounding(played / run, alone())


@pytest.mark.parametrize("run", ["stopped", "validating"])
def test_a_signal_to_one_rank_stops_all_after_the_same_step(played: Path, run: str) -> None:
    output = (played / "said").read_text()
    assert output.count("stopped by SIGTERM after step 4") == 2
    assert outcome(played / run)["reason"] == "max_steps"
    starts = [line["step"] for line in read(played / run) if line["event"] == "start"]
    assert starts == [0, 4]
    assert final(played / run) == final(played / "ddp")


@pytest.mark.scale
@pytest.mark.parametrize("killed", [False, True])
def test_a_hang_is_reported_and_a_killed_rank_costs_little(tmp_path, alone, killed) -> None:
    """Rank 1 hangs in step 7, then dies in step 10; each time all goes on from the last save."""
    harm = [
        {"how": "hang", "rank": 1, "attempt": 0, "number": 8},  # one more: the rehearsal
        {"how": "kill", "rank": 1, "attempt": 1, "number": 5},
    ][: 1 + killed]
    changes = SHORT | {"parallel": "ddp", "hang_minutes": 0.1}
    scenes = [{"folder": "run", "changes": changes, "harm": harm}]
    done = torchrun(tmp_path, scenes, restarts=len(harm))
    assert re.search(r"rank 0 lost the others in step 7 \(.*: one hangs", done.stderr), done.stderr
    starts = [line["step"] for line in read(tmp_path / "run") if line["event"] == "start"]
    assert starts == [0, 6, 9][: 2 + killed]
    same_bits(tmp_path / "run", alone(accumulate=2))


@pytest.mark.scale
def test_four_ranks_are_one_process(tmp_path: Path, alone: Callable[..., Path]) -> None:
    """Also where four go on that were two, and some have nothing to do in a step."""
    scenes: Scenes = []
    for kind in ("ddp", "fsdp"):
        begun = SHORT | {"max_steps": 6, "accumulate": 2}
        Toy(tmp_path / f"more-{kind}", toy_config(**begun)).train()
        changes = SHORT | {"parallel": kind}
        scenes.append({"folder": f"four-{kind}", "changes": changes})
        scenes.append({"folder": f"more-{kind}", "changes": changes | {"accumulate": 2}})
    done = torchrun(tmp_path, scenes, ranks=4)
    assert "a step of this run has 2 batches for 4 ranks" in done.stderr
    for kind in ("ddp", "fsdp"):
        same_up_to_rounding(tmp_path / f"four-{kind}", alone(accumulate=4))
        same_up_to_rounding(tmp_path / f"more-{kind}", alone(accumulate=2))


@pytest.mark.parametrize("name", MODELS)
def test_families_train_in_shards_and_as_replicas(played: Path, name: str) -> None:
    """What the command calls, on text: tokenizers by rank 0, decoding in validation."""
    run = train(played / f"{name}.toml", ["train.accumulate=2"], played / name)
    assert run.translate(["one two"])[0].hypotheses
    for kind in ("ddp", "fsdp"):
        same_up_to_rounding(played / f"{name}-{kind}", played / name, step=6)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_adapters_train_in_shards(played: Path, kind: str) -> None:
    own = [ADAPTERS[kind], f'start.run="{played / "base"}"', "train.accumulate=2"]
    train(played / "transformer.toml", own, played / kind)
    same_up_to_rounding(played / f"{kind}-fsdp", played / kind, step=6)


@pytest.mark.slow
def test_the_command_under_torchrun(played: Path) -> None:
    """As the README writes it; an error of the user's is one line and ends all ranks."""
    run = played / "command"
    assert [line.get("ranks") for line in read(run) if line["event"] == "start"] == [2]
    done = started(["-m", "foveate", "--", *command(played), "seed=2"])
    assert done.returncode and done.stderr.count("error: ") == 1, done.stderr[-4000:]
    assert "holds a run with another config" in done.stderr


def test_without_torchrun_there_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("auto", "none", "ddp", "fsdp"):
        with ranks_of(toy_config(parallel=kind)) as ranks:
            assert type(ranks) is Ranks and ranks.is_rank_zero and ranks.world == 1
    address = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in address.items():
        monkeypatch.setenv(name, value)
    refused = pytest.raises(ConfigError, match=r"torchrun has started 2 ranks")
    with refused, ranks_of(toy_config(parallel="none")):
        pass


def test_what_waits_for_torchrun_says_so(tmp_path: Path, capsys) -> None:
    Toy(tmp_path, toy_config(max_steps=1, parallel="fsdp")).train()
    assert "needs torchrun: this is a single process" in capsys.readouterr().err
    assert "ranks" not in read(tmp_path)[0]


def test_only_layers_with_weights_of_their_own_are_sharded_apart() -> None:
    class Stack(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
            self.layers[2].weight = self.layers[1].weight  # type: ignore[union-attr]
            self.cells = torch.nn.ModuleList([torch.nn.Linear(2, 2)])

    stack = Stack()
    assert layers(stack) == [stack.layers[0]]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_one_rank_on_a_gpu_is_one_process(tmp_path: Path, kind: str) -> None:
    """NCCL and the GPU's own optimiser; as many ranks as there are GPUs, at most two."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU that PyTorch can use is here")
    ranks = min(2, torch.cuda.device_count())
    torchrun(tmp_path, [{"folder": "run", "changes": SHORT | {"parallel": kind}}], ranks)
    Toy(tmp_path / "alone", toy_config(**SHORT | {"accumulate": ranks})).train()
    same_up_to_rounding(tmp_path / "run", tmp_path / "alone")
