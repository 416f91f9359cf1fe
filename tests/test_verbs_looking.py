"""The verbs that draw positions, schedules, gradients and gates, from a run to a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from foveate.cli import app, looking
from foveate.config import ConfigError
from foveate.errors import UserError
from foveate.run import Run
from foveate.training import train
from foveate.views import find
from foveate.views.options import Question

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


def test_positions_of_every_kind_that_has_any(tmp_path: Path) -> None:
    out = tmp_path / "p.svg"
    result = CliRunner().invoke(app, ["look", "positions", "alibi", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "head 3 adds to score" in out.read_text("utf-8")
    with pytest.raises(ConfigError, match="sinusoidal"):
        looking.positions("sinusoids", 8, 8, 2)
    with pytest.raises(UserError, match="nothing to draw"):
        looking.positions("none", 8, 8, 2)


def test_schedules_of_configs_and_runs(lstm: Run, tmp_path: Path) -> None:
    config = ROOT / "configs" / "vision" / "mnist-vit.toml"
    looking.schedule([config, lstm.path], out=[tmp_path / "rates.npz"])
    with np.load(tmp_path / "rates.npz") as rates:
        assert {"x", "mnist-vit", "run"} <= set(rates)
        assert rates["x"][-1] == 4300
        assert rates["mnist-vit"].max() == pytest.approx(2e-3)
    result = CliRunner().invoke(app, ["look", "schedule", str(config), "--steps", "10"])
    assert result.exit_code == 0, result.output
    assert "mnist-vit" in result.stdout


def test_gradients_of_two_runs_together(lstm: Run, gpt: Run, tmp_path: Path) -> None:
    out = tmp_path / "g.npz"
    words = ["look", "gradients", str(lstm.path), str(gpt.path), "--text", "a cat sat", "--out"]
    assert CliRunner().invoke(app, [*words, str(out)]).exit_code == 0
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
    result = CliRunner().invoke(app, ["look", "gates", str(lstm.path), "--text", "a cat"])
    assert result.exit_code == 0, result.output
