"""The docs: links, commands and names that exist, the history with its pictures."""

import ast
import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from copier import copier
from foveate.cli.options import TaskName
from foveate.config import _FAMILIES, kinds, parse_tree
from foveate.kinds import load_kinds
from foveate.nn.spec import Tokens
from foveate.run import RunConfig, load
from small_runs import invoked
from variants import translator

DOCS = Path(__file__).parent.parent / "docs"


def blocks(name: str, language: str) -> list[str]:
    text = (DOCS / "guide" / name).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_one_sentence_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks("one-sentence.md", "python"))
    exec(compile(code, "one-sentence.md", "exec"), {})
    assert (tmp_path / "one-sentence" / "map.png").stat().st_size > 1000


def test_the_loss_of_one_sentence_is_that_of_several(tmp_path: Path, monkeypatch) -> None:
    """Padding is not predicted, unknown pieces are: shown by two pairs of different lengths."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks("one-sentence.md", "python")[:5])
    one, two = "[source.ids], [target.ids]", "[source.ids, [5]], [[0, *target.ids], [6]]"
    assert one in code
    names: dict[str, Any] = {}
    exec(compile(code.replace(one, two), "one-sentence.md", "exec"), names)
    end, targets = 3, names["targets"].tolist()
    assert targets == [0, *names["target"].ids, end, 6, end]
    assert names["loss"].count == len(targets)


@pytest.mark.parametrize(
    ("page", "module", "family"),
    [("add-a-score.md", "my_scores", "score"), ("add-a-position.md", "my_positions", "position")],
)
def test_a_part_of_ones_own_is_in_every_model(page, module, family, tmp_path, monkeypatch) -> None:
    load_kinds()
    before = kinds(family)[family]
    (tmp_path / f"{module}.py").write_text(blocks(page, "python")[0])
    tree = tomllib.loads(blocks(page, "toml")[0])
    tree["task"] = {"kind": "translation", "source": "a.tsv"}
    tree["model"]["decoder"]["hidden_size"] = 16
    encoder = {"kind": "transformer", "hidden_size": 16}
    tree["model"] |= {"kind": "encoder_decoder", "encoder": encoder}
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        config = parse_tree(RunConfig, tree).model
        [own] = kinds(family)[family].keys() - before.keys()
        assert f"'{own}'" in str(config.tree()["decoder"])
        model = config.build(Tokens(20), Tokens(20))
        assert model.eval()(torch.tensor([[4, 5, 3]]), torch.tensor([[2, 6]])).shape == (1, 2, 20)
        if family == "position":
            bias = model.decoder.position.bias(torch.arange(6), torch.arange(6))
            assert bias.shape == (1, 6, 6) and bias[0, 0, 3:5].tolist() == [0, -2]
    finally:
        for name in kinds(family)[family].keys() - before.keys():
            del _FAMILIES[family][name]
        sys.modules.pop(module, None)


def test_every_python_block_of_the_readme_compiles() -> None:
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    codes = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert [compile(code, "README.md", "exec") for code in codes]


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
        good, bad = load("runs/reviews", trust=True).answer(["a good film", "a bad film"])
        assert good.json()["value"] > 3.5 > 2.5 > bad.json()["value"]
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
def test_a_page_names_code_and_configs_and_shows_pictures_that_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    assert re.search(r"`[\w/]+\.py", text), "a page says where its code is: `models/….py::Class`"
    for config in re.findall(r"configs/[\w/.-]+\.toml", text):
        assert (ROOT / config).is_file(), config
    shown = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text)
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
