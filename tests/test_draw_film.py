"""Films of a training and of steps: they change nothing, and are drawn in every form."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from foveate.config import ConfigError
from foveate.errors import UserError
from foveate.look.draw.scene import ScenePanel
from foveate.look.views import find
from foveate.look.views.options import Question
from foveate.look.views.training import film
from foveate.run import Run, load
from foveate.run.training import Snapshots, train
from foveate.train import checkpoint
from foveate.train.journal import MOST_SNAPSHOTS, SNAPSHOTS, interval, read
from small_runs import made
from train_toy import final

STEPS, EVERY = 12, 3
ON = f"snapshots = {{ every = {EVERY} }}\n"
CHANGES = ["model.encoder.dropout=0.3", "train.save.every=5", "train.ema.decay=0.9"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    names = ["transformer", "rnn", "language", "classifier", "vit", "forecaster", "captioner"]
    names += ["rnn_forecaster"]
    return made(tmp_path_factory.mktemp("filmed"), names, STEPS, ON)


def config_of(run: Run) -> Path:
    return run.path.parent.parent / f"{run.path.name}.toml"


def test_training_with_snapshots_is_bit_identical_after_a_kill(runs, tmp_path, monkeypatch) -> None:
    config = config_of(runs["transformer"])
    plain = tmp_path / "plain.toml"
    plain.write_text(config.read_text("utf-8").replace(ON, ""), "utf-8")
    for name, path in {"without": plain, "with": config}.items():
        train(path, CHANGES, tmp_path / name)
    assert not (tmp_path / "without" / SNAPSHOTS).exists()

    take = Snapshots.take

    def killed(self: Snapshots, step: int) -> None:
        if step == 9:
            raise MemoryError("killed")
        take(self, step)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(Snapshots, "take", killed)
        train(config, CHANGES, tmp_path / "resumed")
    file = tmp_path / "resumed" / SNAPSHOTS
    assert [line["step"] for line in read(file.parent, SNAPSHOTS)] == [0, 3, 6]
    with file.open("a") as torn:
        torn.write('{"event": "snapshot", "ste')
    train(config, CHANGES, tmp_path / "resumed")
    assert final(tmp_path / "without") == final(tmp_path / "with") == final(tmp_path / "resumed")
    lines = read(tmp_path / "with", SNAPSHOTS)
    assert [line["step"] for line in lines] == [0, 3, 6, 9, 12]
    assert read(file.parent, SNAPSHOTS) == lines


@pytest.mark.parametrize("name", ["transformer", "rnn"])
def test_the_last_snapshot_is_what_the_model_attends_to(runs: dict[str, Run], name: str) -> None:
    run = load(runs[name].path, str(checkpoint.steps(runs[name].path)[-1]))
    source, target = (side[0] for side in run.pairs("valid"))
    record = run.explain(source, target)
    drawing = film(run.path)
    assert drawing.title == record.title == f"{source} → {target}"
    assert [frame.step for frame in drawing.frames] == [0, 3, 6, 9, 12]
    for block in drawing.frames[-1].blocks:
        for layer, map_name in zip(block.layers, record.blocks()[block.name], strict=True):
            np.testing.assert_allclose(layer.array, record.maps[map_name], atol=1e-4)
    loss = -np.mean(run.score([(source, target)])[0].token_log_probabilities)
    assert drawing.frames[-1].loss == pytest.approx(loss, abs=1e-4)
    [valid] = [line for line in read(run.path) if line["event"] == "valid"]
    assert [frame.validation for frame in drawing.frames] == [None] * 4 + [valid["loss"]]
    assert [frame.step for frame in film(run.path, after=6).frames] == [9, 12]


@pytest.mark.parametrize("name", ["classifier", "vit", "forecaster", "captioner"])
def test_every_task_with_attention_has_a_film(runs: dict[str, Run], name: str) -> None:
    drawing = find("learning").draw([runs[name]], Question())
    arrays = drawing.arrays()
    assert arrays["step"].tolist() == [0, 3, 6, 9, 12]
    assert arrays["weights"].shape == (5, len(arrays["rows"]), len(arrays["columns"]))
    assert np.isnan(arrays["loss"]).all() == (name == "forecaster")


def test_a_model_without_attention_trains_without_snapshots(runs, tmp_path, capsys) -> None:
    train(config_of(runs["language"]), ["train.max_steps=1"], tmp_path / "run")
    assert "no snapshots: the model has no attention" in capsys.readouterr().err
    assert not (tmp_path / "run" / SNAPSHOTS).exists()
    with pytest.raises(ConfigError, match=r"train with train\.snapshots"):
        find("learning").draw([runs["language"]], Question())


def test_a_film_is_written_in_every_format(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["transformer"]
    view = find("learning").draw([run], Question(layer=0, head=1))
    assert view.caption.startswith("decoder cross-attention · layer 0 · head 1 · ")
    with Image.open(view.save(tmp_path / "film.webp")) as picture:
        assert picture.n_frames == 5  # type: ignore[attr-defined]
    assert view.save(tmp_path / "film.png").read_bytes().startswith(b"\x89PNG")
    assert '"kind":"film"' in view.save(tmp_path / "film.html").read_text("utf-8")
    arrays = json.loads(view.save(tmp_path / "film.json").read_text("utf-8"))
    blocks = {block.name: block for block in film(run.path).frames[2].blocks}
    exact = blocks["decoder.cross_attention"].layers[0].array[1]
    np.testing.assert_array_equal(np.float32(arrays["weights"][2]), exact)
    text = view.text(width=120)
    assert "step 12" in text and f"columns: {' '.join(arrays['columns'])}" in text
    still = find("attention").draw([run], Question(text="the dog runs"))
    assert still.save(tmp_path / "map.webp").read_bytes()[8:12] == b"WEBP"


def test_what_the_snapshots_lack_is_refused(runs: dict[str, Run], tmp_path: Path) -> None:
    for question, message in (
        (Question(block="middle"), "unknown block 'middle'; choose one of"),
        (Question(layer=2), "there are 2"),
        (Question(head=2), "the snapshots have 2"),
    ):
        with pytest.raises(UserError, match=message):
            find("learning").draw([runs["transformer"]], question)
    with pytest.raises(ConfigError, match="the same target must be forced"):
        train(config_of(runs["transformer"]), ["train.snapshots.source=the dog runs"], tmp_path)


def test_long_trainings_have_snapshots_further_apart(tmp_path: Path) -> None:
    assert [interval(25, step) for step in (0, 5000, 5001, 20_000)] == [25, 25, 50, 100]
    lines = [
        {"event": "snapshot", "step": step, "title": "a", "loss": 1.0, "blocks": []}
        for step in range(0, 6000)
        if step % interval(10, step) == 0
    ]
    (tmp_path / SNAPSHOTS).write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    steps = [frame.step for frame in film(tmp_path).frames]
    assert len(lines) > MOST_SNAPSHOTS >= len(steps) > 100 and steps[-1] == lines[-1]["step"]
    assert np.diff(steps).max() <= 40


# ---- One step with its numbers, and all steps as a film, of models that read no words too


def panel(run: Run, **asked: Any) -> ScenePanel:
    drawing = find("scene").draw([run], Question(**asked))
    stop = next(stop for stop in drawing.stops if stop.name.endswith(" numbers"))
    return drawing.panels[stop.panel]


def test_keys_are_cells_of_a_picture_patches_or_dates(runs: dict[str, Run]) -> None:
    caption = panel(runs["captioner"], target="The square is red .", block="cross_attention")
    assert caption.columns[:5] == ["0,0", "0,1", "0,2", "0,3", "1,0"]
    assert caption.rows[1:3] == ["The", "square"]
    patches = panel(runs["vit"])
    assert patches.columns[1:3] == ["0,0", "0,1"] and patches.rows == patches.columns
    assert all("-" in date for date in panel(runs["forecaster"]).columns)
    cell = panel(runs["rnn_forecaster"], query=3)  # its steps are its rows
    assert len(cell.rows) == 12 + 6 - 1 and cell.row == 3 and "state" in cell.values
    assert cell.rows[0].startswith("2") and cell.rows[0] < cell.rows[-1]


def test_steps_of_a_decoder_say_what_it_reads_and_what_it_writes(runs) -> None:
    asked = {"text": "the dog sat", "target": "le chien", "block": "cross_attention"}
    attention = panel(runs["rnn"], stop="decoder cross-attention numbers", **asked)
    assert attention.rows == ["<s>", "le", "chien"]
    assert [word for [word] in attention.tokens["writes"]] == ["le", "chien", "</s>"]
    assert attention.letters["own"] == "s_{t−1}" and attention.letters["v"] == "h_i"
