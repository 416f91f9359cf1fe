"""The table [train]: it comes back from TOML, and kinds may be named alone."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from foveate.config import ConfigError, parse_tree
from foveate.kinds import load_kinds
from foveate.run import RunConfig
from foveate.train.config import CHANGEABLE, FIXED, TrainConfig, changes, effect_of, resolve
from foveate.train.optim import AdamConfig, Noam


def test_a_train_config_comes_back_from_toml() -> None:
    tree = {
        "max_steps": 20_000, "optimizer": "adam", "clip_norm": 0.5, "average": 5,
        "schedule": {"kind": "noam", "hidden_size": 512}, "save": {"every": 500, "best": "bleu"},
    }  # fmt: skip
    config = TrainConfig.parse(tree)
    assert isinstance(config.optimizer, AdamConfig) and isinstance(config.schedule, Noam.Config)
    assert TrainConfig.parse(tomllib.loads(config.toml())) == config
    config.check()


@pytest.mark.parametrize(
    ("tree", "where"),
    [({"accumulate": 0}, "accumulate"), ({"validation": {"evry": 3}}, "validation.evry"),
     ({"average": 1}, "average"), ({"precision": "fp16"}, "precision")],
)  # fmt: skip
def test_wrong_values_are_named(tree: dict[str, object], where: str) -> None:
    with pytest.raises(ConfigError, match=f"^{where}: "):
        TrainConfig.parse(tree)


def test_training_needs_a_limit() -> None:
    for tree in ({"max_minutes": 1.5}, {"max_epochs": 1}, {"validation": {"patience": 3}}):
        TrainConfig.parse(tree).check()
    with pytest.raises(ConfigError, match="training would never end"):
        TrainConfig().check()


# Precision: said aloud, chosen by the machine, and real inside its context.
@pytest.mark.parametrize(("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_matrix_products_run_in_it(name: str, dtype: torch.dtype) -> None:
    precision = resolve(name)
    with precision.context():
        assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == dtype
    assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.float32
    assert precision.why == f"precision {name}, as the config says"


def test_auto_is_bf16_only_where_the_machine_has_it_and_says_why() -> None:
    able = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    precision = resolve("auto")
    assert precision.name in ({"fp32", "bf16"} if able else {"fp32"})
    assert "\n" not in precision.why and f"{precision.name} (auto): " in precision.why
    assert resolve("auto", "meta").name == "fp32"  # a device that is not known


# Every key is decided: what it changes when a run goes on, or why it may not change.


load_kinds()


LONG = {"kind": "linear", "warmup_steps": 150, "total_steps": 900}


def config(train: dict[str, Any], **more: Any) -> RunConfig:
    task = {"kind": "language", "text": "a.txt"}
    tree = {"task": task, "model": "language_model", "train": {"max_steps": 100, **train}}
    return parse_tree(RunConfig, tree | more)


def test_every_key_is_in_the_table_and_on_the_page() -> None:
    own = TrainConfig()
    tables = {"train": own, "train.save": own.save, "train.validation": own.validation}
    keys = [key for key in RunConfig.model_fields if key != "train"]
    keys += [f"{table}.{key}" for table, each in tables.items() for key in type(each).model_fields]
    assert [key for key in keys if effect_of(key)[1] == "the run depends on it"] == []
    known = {*keys, "train.optimizer.kind", "train.optimizer.momentum", "train.optimizer.nesterov"}
    assert {*CHANGEABLE, *FIXED} <= known, "the table names a key that is none"
    page = (Path(__file__).parent.parent / "docs/guide/continuing.md").read_text("utf-8")
    for key, effect in (CHANGEABLE | FIXED).items():
        assert f"| `{key}` | {effect} |" in page, key


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({"schedule": "cosine"}, {"schedule": "cosine", "max_steps": 200},
         "train.max_steps 100 → 200 (moves the cosine schedule)"),
        ({"schedule": "constant"}, {"schedule": "constant", "max_steps": 200},
         "train.max_steps 100 → 200 (changes where training ends)"),
        ({"schedule": LONG}, {"schedule": LONG, "max_steps": 200},
         "train.max_steps 100 → 200 (changes where training ends)"),
        ({}, {"optimizer": {"lr": 0.5}},
         "train.optimizer.lr 0.001 → 0.5 (changes the updates from the next step on)"),
        ({}, {"ema": {"decay": 0.9}},
         "train.ema.decay none → 0.9 (changes the moving mean, which starts from the current "
         "weights if new)"),
        ({"average": 3}, {}, "train.average 3 → none (changes which weights are tried at the end)"),
    ],
)  # fmt: skip
def test_what_a_change_means(before: dict[str, Any], after: dict[str, Any], message: str) -> None:
    (result,) = changes(Path("run"), config(before).tree(), config(after).tree())
    assert str(result) == message


@pytest.mark.parametrize(
    ("train", "more", "named"),
    [
        ({"batch_tokens": 64}, {}, "train.batch_tokens is 4096 there and 64 now"),
        ({"optimizer": "sgd"}, {}, "train.optimizer.kind is adamw there and sgd now"),
        ({}, {"seed": 7}, "seed is 1 there and 7 now"),
        ({}, {"objective": {"label_smoothing": 0.0}}, "objective.label_smoothing is 0.1 there"),
        ({}, {"model": {"kind": "language_model", "decoder": {"embedding_norm": "layer_norm"}}},
         "; set model.decoder.embedding_norm=none, or"),
    ],
)  # fmt: skip
def test_what_may_not_change_is_refused(train, more, named) -> None:
    with pytest.raises(ConfigError) as refused:
        changes(Path("runs/a"), config({}).tree(), config(train, **more).tree())
    assert named in str(refused.value) and "runs/a" in str(refused.value)
    assert "; set " in str(refused.value) and "--run" in str(refused.value)
