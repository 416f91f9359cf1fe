"""What a config may hold: every table, kind and field has a name that finds it and a meaning."""

import re
import tomllib
from pathlib import Path

import jsonschema_rs
import numpy as np
import pytest

import differences
from foveate.config import Config, ConfigError, kinds, read
from foveate.kinds import config_schema, described, kinds_table, load_kinds, metric_kinds
from foveate.run import RunConfig
from foveate.tasks.classification import figures_of_labels

ROOT = Path(__file__).parent.parent
load_kinds()


def is_shipped(config: type[Config] | None) -> bool:
    """Whether a kind is one of foveate's, or a table, which is in no family."""
    return config is None or config.__module__.startswith("foveate.")


def test_every_field_has_a_meaning() -> None:
    registered = kinds()  # other tests register kinds of their own
    missing = [
        f"{kind.family}.{kind.name}.{name}"
        for kind in described(None, RunConfig)
        for name, field in kind.fields.items()
        if not field.meaning and is_shipped(registered.get(kind.family, {}).get(kind.name))
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "owner", "fields"),
    [
        ("train", "train", ["batch_tokens", "max_minutes", "save"]),
        ("train.save", "train.save", ["every", "keep", "best"]),
        ("validation", "train.validation", ["patience"]),
        ("data", "data", ["holdout", "splits"]),
        ("series", "task.series", ["path", "rows", "shares"]),
        ("config", "config", ["task", "seed"]),
        ("decode", "beam", ["beam_size"]),
        ("train.optimizer", "adamw", ["lr", "betas"]),
        ("adamw", "adamw", ["weight_decay"]),
        ("max_minutes", "train", ["max_minutes"]),
        ("train.save.best", "train.save", ["best"]),
        ("train.optimizer.lr", "sgd", ["lr"]),
        ("beam.beam_size", "beam", ["beam_size"]),
    ],
)
def test_a_name_finds_its_table_kind_or_field(name: str, owner: str, fields: list[str]) -> None:
    owners = {kind.name: kind for kind in described(name, RunConfig)}
    assert set(fields) <= set(owners[owner].fields)
    if name.endswith(fields[0]):
        assert list(owners[owner].fields) == fields
    text = kinds_table(list(owners.values()))
    assert all(owners[owner].fields[field].meaning in text for field in fields)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean .*max_minutes"):
        described("train.max_minuts", RunConfig)


def test_a_kind_says_how_it_differs_from_its_paper() -> None:
    assert differences.PAGE.read_text("utf-8") == differences.page(), "make differences"
    cells = {kind.name: kind for kind in described("cell", RunConfig)}
    assert cells["gru"].differs.endswith("gru_cho") and cells["gru_cho"].differs
    assert f"differs from the paper: {cells['gru'].differs}" in kinds_table(list(cells.values()))
    scores = {kind.name: kind for kind in described("score", RunConfig)}
    assert scores["location"].differs and not scores["affine_location"].differs  # not inherited
    (preset,) = described("bahdanau-2015", RunConfig)
    assert "maxout" in preset.differs and not described("vaswani-base", RunConfig)[0].differs


def test_metrics_name_what_a_validation_measures() -> None:
    figures = {kind.name: kind.meaning.split(";")[0].split(", ") for kind in metric_kinds()}
    log_p = np.log(np.full((2, 2), 0.5, dtype=np.float32))
    assert figures["classification"] == list(figures_of_labels(log_p, [0, 1]))
    assert {"loss", "mse", "mase", "crps"} <= set(figures["forecasting"])
    assert {"loss", "perplexity", "bleu", "chrf"} <= set(figures["translation"])
    assert "ter" not in figures["translation"]  # left to evaluate


# ---- the JSON Schema of configs
SCHEMA = jsonschema_rs.validator_for(config_schema(RunConfig))
SHIPPED = [
    *sorted((ROOT / "configs").rglob("*.toml")),
    *sorted((ROOT / "src/foveate/packaged").glob("*/config.toml")),
    ROOT / "src/foveate/quickstart.toml",
]


def test_every_shipped_config_fits_the_schema() -> None:
    assert len(SHIPPED) > 40
    wrong = [
        f"{path}: {'.'.join(map(str, error.instance_path))}: {error.message}"
        for path in SHIPPED
        for error in SCHEMA.iter_errors(tomllib.loads(path.read_text("utf-8")))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        "[train]\nmax_step = 3",
        "[train]\nmax_steps = '3'",
        "[train]\nmax_steps = 0",
        "[train.optimizer]\nkind = 'adamw'\nbetas = [0.9]",
        "[decode]\nkind = 'beem'",
        "[decode]\nkind = 'greedy'\nbeam_size = 2",
        "[decode]\nbeam_sise = 2",
        "[decode]\nbeam_size = 2\nseed = 3",
        "[model.encoder]\nnum_layer = 2",
    ],
)
def test_the_schema_refuses_what_reading_refuses(wrong: str, tmp_path: Path) -> None:
    assert not SCHEMA.is_valid({"base": "en-fr.toml", **tomllib.loads(wrong)})
    base = (ROOT / "configs/translation/multi30k-en-fr.toml").read_text("utf-8")
    (tmp_path / "en-fr.toml").write_text(base)
    path = tmp_path / "config.toml"
    path.write_text(f'base = "en-fr.toml"\n{wrong}')
    with pytest.raises(ConfigError):
        read(RunConfig, path)


def test_the_schema_knows_what_may_be_left_out() -> None:
    assert not SCHEMA.is_valid({"task": "translation"})  # no model, and no base that has one
    assert SCHEMA.is_valid({"task": "translation", "model": "transformer-tiny"})
    partial = {"train": {"max_steps": "none"}, "decode": {"beam_size": 2}}
    assert SCHEMA.is_valid({"base": "a.toml", **partial})


def test_a_symbol_at_the_start_of_a_meaning_keeps_its_case() -> None:
    found = [f.meaning for kind in described(None, RunConfig) for f in kind.fields.values()]
    assert [text for text in found if text.startswith("o in lp = ((o")]
    assert all(text[0].isupper() for text in found if re.match(r"[a-z]{2}\w* (?!=)", text))
