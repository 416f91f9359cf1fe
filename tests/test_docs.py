"""The docs: links, commands and names that exist, the history with its pictures."""

import ast
import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from copier import copier
from foveate.cli.options import TaskName
from small_runs import invoked
from variants import translator

# ------------------------------ The code in the documentation runs as it stands
DOCS = Path(__file__).parent.parent / "docs"


def blocks(name: str, language: str) -> list[str]:
    text = (DOCS / "guide" / name).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_one_sentence_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks("one-sentence.md", "python"))
    exec(compile(code, "one-sentence.md", "exec"), {})
    assert (tmp_path / "one-sentence" / "map.png").stat().st_size > 1000


def test_the_loss_of_one_sentence_is_that_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding is not predicted, unknown pieces are: shown by two pairs of different lengths."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks("one-sentence.md", "python")[:5])
    one, two = "[source.ids], [target.ids]", "[source.ids, [5]], [[0, *target.ids], [6]]"
    assert one in code
    names: dict[str, Any] = {}
    exec(compile(code.replace(one, two), "one-sentence.md", "exec"), names)
    end = 3
    assert names["targets"].tolist() == [0, *names["target"].ids, end, 6, end]
    assert names["loss"].count == len(names["targets"])


def test_a_score_of_ones_own_is_in_every_model(tmp_path: Path, monkeypatch) -> None:
    import torch

    from foveate.config import kinds, load_tree, parse_tree
    from foveate.models.encoder_decoder import EncoderDecoder
    from foveate.nn.spec import Tokens
    from foveate.run import RunConfig

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
    from foveate.nn.spec import Tokens
    from foveate.run import RunConfig

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


def test_a_student_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_commands(blocks("a-student.md", "bash")[0])
    assert (tmp_path / "student" / "en-fr.safetensors").is_file()


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


OWN_DATA = (DOCS / "guide/your-own-data.md").read_text(encoding="utf-8").split("\n## ")[1:]


@pytest.mark.parametrize("section", OWN_DATA, ids=lambda text: text.partition("\n")[0])
def test_the_example_of_each_task_runs(section: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (block,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    run_commands(block)


def test_the_commands_of_a_task_of_ones_own_run(tmp_path: Path, monkeypatch) -> None:
    from foveate.config import _FAMILIES

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOVEATE_TRUST", "0")  # what --trust sets is put back
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_task.py").write_text(blocks("add-a-task.md", "python")[0])
    (tmp_path / "reviews.toml").write_text(blocks("add-a-task.md", "toml")[0])

    def forget() -> None:  # each command is a process of its own
        sys.modules.pop("my_task", None)
        _FAMILIES["task"].pop("regression", None)

    try:
        run_commands(blocks("add-a-task.md", "bash")[0], forget)
    finally:
        forget()


def run_commands(block: str, before: Callable[[], None] = lambda: None) -> None:
    """Lines with ``foveate`` in this process, what stands between them in a shell."""
    for part in re.split(r"^(.*\bfoveate .*\n)", block, flags=re.MULTILINE):
        shell, ours, arguments = part.partition("foveate ")
        script = shell.removesuffix("| ")
        command = ["bash", "-ec", script]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if ours:
            before()
            invoked(*shlex.split(arguments), text=output)


def test_every_task_has_an_example() -> None:
    page = "\n".join(OWN_DATA)
    assert {f"foveate new {task} " in page for task in get_args(TaskName)[1:]} == {True}


# ------------------------------ The pages of history name code, pictures and configs that exist
ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "history").glob("*.md"))


def names_of(module: Path) -> set[str]:
    """What a module defines at the top, and the methods of its classes as Class.method."""
    result = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            result.add(node.name)
        if isinstance(node, ast.ClassDef):
            result |= {f"{node.name}.{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
    return result


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`([\w/]+\.py)(?:::([\w.]+))?`", page.read_text("utf-8"))
    assert named, "a page says where its code lives: `models/….py::Class`"
    for path, name in named:
        places = [ROOT / "src" / "foveate" / path, ROOT / path]
        file = next((place for place in places if place.is_file()), None)
        assert file is not None, path
        assert not name or name in names_of(file), f"{path}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_configs_that_are_named_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    for link in links:
        assert (page.parent / link).is_file(), link
    for config in re.findall(r"configs/[\w/.-]+\.toml", text):
        assert (ROOT / config).is_file(), config


ALL = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_to_a_heading_has_one(page: Path) -> None:
    """GitHub makes the anchor of a heading from its letters, digits, hyphens and spaces."""
    for link, anchor in re.findall(r"\]\(([^)#:]*)#([\w-]+)\)", page.read_text("utf-8")):
        target = page.parent / link if link else page
        headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
        assert anchor in anchors, f"{link}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_pictures_that_exist(page: Path) -> None:
    shown = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text("utf-8"))
    assert shown, "a page shows its idea: python tools/pictures.py draws it"
    for messages, link in shown:
        assert len(messages) > 20, f"{link}: say what is seen, for those who do not see it"
        assert (page.parent / link).is_file(), link


def names_drawn() -> set[str]:
    """The keys of every ``DRAWN`` in tools/history: what the command can draw."""
    result: set[str] = set()
    for file in (ROOT / "tools" / "history").glob("*.py"):
        for node in ast.parse(file.read_text("utf-8")).body:
            named = isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "DRAWN"
            if named and isinstance(node.value, ast.Dict):
                result |= {k.value for k in node.value.keys if isinstance(k, ast.Constant)}
    return result


def test_every_picture_is_on_a_page_small_and_drawn_by_code() -> None:
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    drawn = names_drawn()
    for picture in sorted((ROOT / "docs" / "history" / "pictures").iterdir()):
        assert picture.stem in drawn, f"{picture.name}: no code draws it"
        assert f"pictures/{picture.name}" in pages, f"{picture.name} is on no page"
        assert picture.stat().st_size < 150_000, picture.name
        assert "<text" in picture.read_text("utf-8"), f"{picture.name}: text as text"


def test_the_commands_of_drafts_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packaged run stands in for that of quickstart, whose training takes minutes."""
    packaged = DOCS.parent / "src" / "foveate" / "packaged"
    shutil.copytree(packaged / "en-fr", tmp_path / "runs/quickstart/run")
    (tmp_path / "runs/quickstart/data").mkdir()
    for split in ("train", "valid"):
        for side in ("en", "fr"):
            text = gzip.decompress((packaged / "data" / f"valid.{side}.gz").read_bytes())
            (tmp_path / f"runs/quickstart/data/{split}.{side}").write_bytes(text)
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "guide" / "drafts.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"^    (.*\n)|^\n", page, re.MULTILINE))
    run_commands(code.replace("foveate quickstart\n", "").replace("= 200", "= 2"))
    assert "\\q1" in Path("rut.fr.usfm").read_text("utf-8")
    assert Path("messages.fr.po.trust.html").is_file()
    log = Path("runs/corrected/log.jsonl").read_text("utf-8")
    assert '"step": 2' in log and Path("runs/corrected/packed.safetensors").is_file()
