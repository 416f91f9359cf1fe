"""The code in the documentation runs as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from copier import copier
from foveate.cli import app
from foveate.cli.options import TaskName
from variants import translator

DOCS = Path(__file__).parent.parent / "docs"


def blocks(name: str, language: str) -> list[str]:
    text = (DOCS / name).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_one_sentence_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks("one-sentence.md", "python"))
    exec(compile(code, "one-sentence.md", "exec"), {})
    assert (tmp_path / "one-sentence" / "map.png").stat().st_size > 1000


def test_a_score_of_ones_own_is_in_every_model(tmp_path: Path, monkeypatch) -> None:
    import torch

    from foveate.config import kinds, load_tree, parse_tree
    from foveate.models.encoder_decoder import EncoderDecoder
    from foveate.run import RunConfig
    from foveate.spec import Tokens

    (tmp_path / "my_scores.py").write_text(blocks("add-a-score.md", "python")[0])
    config = tmp_path / "config.toml"
    text = blocks("add-a-score.md", "toml")[0]
    config.write_text(
        text.replace('kind = "transformer"\n', 'kind = "transformer"\nhidden_size = 16\n')
        + '[model]\nkind = "encoder_decoder"\n'
        + 'encoder = { kind = "transformer", hidden_size = 16 }\n'
        + '[task]\nkind = "translation"\nsource = "a.tsv"\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        parsed = parse_tree(RunConfig, load_tree(config), config)
        assert isinstance(parsed.model, EncoderDecoder.Config)
        model = parsed.model.build(Tokens(20), Tokens(20)).eval()
        assert model(torch.tensor([[4, 5, 3]]), torch.tensor([[2, 6]])).shape == (1, 2, 20)
    finally:
        kinds_of_score = __import__("foveate.config", fromlist=["_FAMILIES"])._FAMILIES["score"]
        kinds_of_score.pop("my_distance", None)
        sys.modules.pop("my_scores", None)
    assert "my_distance" not in kinds("score")["score"]


def test_a_position_of_ones_own_is_in_every_transformer(tmp_path: Path, monkeypatch) -> None:
    import torch

    from foveate.config import _FAMILIES, load_tree, parse_tree
    from foveate.models.encoder_decoder import EncoderDecoder
    from foveate.run import RunConfig
    from foveate.spec import Tokens

    (tmp_path / "my_positions.py").write_text(blocks("add-a-position.md", "python")[0])
    config = tmp_path / "config.toml"
    config.write_text(
        blocks("add-a-position.md", "toml")[0]
        + 'hidden_size = 16\n[model]\nkind = "encoder_decoder"\n'
        + 'encoder = { kind = "transformer", hidden_size = 16 }\n'
        + '[task]\nkind = "translation"\nsource = "a.tsv"\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        parsed = parse_tree(RunConfig, load_tree(config), config)
        assert isinstance(parsed.model, EncoderDecoder.Config)
        model = parsed.model.build(Tokens(20), Tokens(20)).eval()
        target = torch.arange(2, 12)[None]
        assert model(torch.tensor([[4, 5, 3]]), target).shape == (1, 10, 20)
        bias = model.decoder.position.bias(torch.arange(6), torch.arange(6))
        assert bias.shape == (1, 6, 6)
        assert float(bias[0, 0, 3]) == 0.0
        assert float(bias[0, 0, 4]) == -2.0
    finally:
        _FAMILIES["position"].pop("my_wall", None)
        sys.modules.pop("my_positions", None)


def test_every_python_block_of_the_readme_compiles() -> None:
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    result = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert result
    for block in result:
        compile(block, "README.md", "exec")


def test_looking_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = copier(tmp_path)
    (tmp_path / "runs").mkdir()
    run.path.rename(tmp_path / "runs" / "en-fr")
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks("looking.md", "python"))
    exec(compile(code, "looking.md", "exec"), {})
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {"map.png", "ablation.png", "rollout.png", "relevance.png", "surface.png"}


def test_a_view_of_ones_own_draws(tmp_path: Path) -> None:
    from foveate.views import _SPECS

    names: dict[str, Any] = {}
    try:
        exec(compile(blocks("add-a-view.md", "python")[0], "add-a-view.md", "exec"), names)
        run = copier(tmp_path)
        drawing = names["sharpness"](run, text="a b c")
        assert drawing.series[0].name == "largest weight"
        assert len(drawing.series[0].values) == len(drawing.labels)
    finally:
        _SPECS.pop("sharpness", None)


def test_documents_run() -> None:
    for code in blocks("documents.md", "python"):
        exec(compile(code, "documents.md", "exec"), {})


def test_exporting_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = translator(tmp_path, "character")  # of pieces that no untrained model can break
    (tmp_path / "runs").mkdir()
    run.path.rename(tmp_path / "runs" / "en-fr")
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks("exporting.md", "python"))
    exec(compile(code, "exporting.md", "exec"), {})
    assert (tmp_path / "en-fr.ct2" / "foveate.json").is_file()


OWN_DATA = (DOCS / "your-own-data.md").read_text(encoding="utf-8").split("\n## ")[1:]


@pytest.mark.parametrize("section", OWN_DATA, ids=lambda text: text.partition("\n")[0])
def test_the_example_of_each_task_runs(section: str, tmp_path: Path, monkeypatch) -> None:
    """Lines with ``foveate`` run in this process, what stands between them in a shell."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (block,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    for part in re.split(r"^(.*\bfoveate .*\n)", block, flags=re.MULTILINE):
        shell, ours, arguments = part.partition("foveate ")
        script = shell.removesuffix("| ")
        command = ["bash", "-ec", script]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if ours:
            result = CliRunner().invoke(app, shlex.split(arguments), input=output)
            assert result.exit_code == 0, (part, result.exception, result.output)


def test_every_task_has_an_example() -> None:
    page = "\n".join(OWN_DATA)
    assert {f"foveate new {task} " in page for task in get_args(TaskName)[1:]} == {True}
