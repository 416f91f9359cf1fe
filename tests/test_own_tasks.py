"""Tasks of one's own: every verb, route and method answers for them, or says why not in a sentence.

One is that of the guide; the others each derive from a task of foveate and change nothing.
"""

import re
import sys
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from foveate.config import _FAMILIES
from foveate.errors import UserError
from foveate.look.views import VIEWS
from foveate.run import Run, load
from foveate.run.training import train
from foveate.studio.api import studio_application
from small_runs import Once, made
from test_docs import blocks
from test_hostile_verbs import BUSY, LONG, LONGEST, SECONDS, answered, right
from test_hostile_verbs import VERBS as COMMANDS

BASES = {  # the small run of each task that one's own derives from
    "transformer": "foveate.tasks.translation.Translation",
    "language": "foveate.tasks.language.Language",
    "classifier": "foveate.tasks.classification.TextClassification",
    "masked": "foveate.tasks.masked.MaskedLanguage",
    "forecaster": "foveate.tasks.forecasting.Forecasting",
    "captioner": "foveate.tasks.captioning.Captioning",
    "vit": "foveate.tasks.image_classification.ImageClassification",
}
OWN = ("reviews", "bare", *BASES)
MODULES = ("my_task", "my_bare", *(f"my_{name}" for name in BASES))
each_task = pytest.mark.parametrize("name", OWN)
DERIVED = '''"""A task that changes nothing of the one below it."""

from {module} import {name}


class Own({name}):
    """The same."""

    class Config({name}.Config, kind="my_{kind}"):
        """The same."""
'''
BARE = '''"""A task of nothing but what must be defined."""

import numpy as np
import torch

from foveate.nn.spec import Labels, Tokens
from foveate.tasks.base import Loss, Measures, Task


class Bare(Task):
    """The sum of three numbers."""

    class Config(Task.Config, kind="my_bare"):
        """Nothing to choose."""

    def prepare(self, folder, seed):
        pass

    def restore(self, folder):
        pass

    def lengths(self, split):
        return np.full((16, 1), 3, np.int32)

    def batch(self, split, indices, noise=0):
        return torch.tensor([[5 + i % 4, 6, 7] for i in indices])

    def build(self, model):
        return model.build(Tokens(9), Labels(["sum"]))

    def loss(self, model, batch, objective):
        errors = model(batch, None)[:, 0] - batch.sum(1)
        return Loss(errors.square().sum(), len(errors))

    def measure(self, model, split, search, samples=3):
        return Measures({"loss": float(self.loss(model, self.batch(split, range(16)), None).total)})
'''
__all__ = ["answered"]


def make(folder: Path) -> None:
    """Runs of all these tasks, as ``runs/NAME``, with the config of each."""
    made(folder, list(BASES), steps=4, more="snapshots = {}\nhealth_every = 2\n")
    for name, path in BASES.items():
        module, _, base = path.rpartition(".")
        text = DERIVED.format(module=module, name=base, kind=name)
        (folder / f"my_{name}.py").write_text(text, "utf-8")
        for file in (folder / f"{name}.toml", folder / "runs" / name / "config.toml"):
            text = re.sub(r'(\[task\]\nkind = )"\w+"', rf'\1"my_{name}"', file.read_text("utf-8"))
            text = re.sub(r"^imports = .*\n", "", text, flags=re.M)
            file.write_text(f'imports = ["my_{name}"]\n{text}', "utf-8")
        (folder / "runs" / name / "packed.safetensors").unlink(missing_ok=True)
    (folder / "my_task.py").write_text(blocks("add-a-task.md", "python")[0], "utf-8")
    (folder / "reviews.toml").write_text(blocks("add-a-task.md", "toml")[0], "utf-8")
    (folder / "my_bare.py").write_text(BARE, "utf-8")
    text = (folder / "reviews.toml").read_text("utf-8").replace("my_task", "my_bare")
    text = re.sub(r"(?s)\[task\].*?\n\n", '[task]\nkind = "my_bare"\n\n', text)
    (folder / "bare.toml").write_text(text, "utf-8")
    for split in ("train", "valid", "test"):
        lines = (f"a {'good' if n % 2 else 'bad'} film {n}\t{n % 5}\n" for n in range(20))
        (folder / f"reviews.{split}.tsv").write_text("".join(lines), "utf-8")
    (folder / "FILE").write_text("the dog runs\na cat sleeps\n", "utf-8")
    (folder / "links").write_text("0-0\n0-0\n", "utf-8")
    (folder / "keys").write_text('{"keys": []}', "utf-8")


@pytest.fixture(scope="module")
def place(once: Once) -> Iterator[Path]:
    """The folder, from which modules are imported until the tests of this file are over."""
    folder = once("own-tasks", make)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOVEATE_TRUST", "1")
        patch.syspath_prepend(str(folder))
        patch.chdir(folder)
        for name in ("reviews", "bare"):
            if not (folder / "runs" / name / "best.json").is_file():
                train(f"{name}.toml", ["train.max_steps=4", "train.save.every=2"], f"runs/{name}")
        yield folder
    for name in MODULES:
        sys.modules.pop(name, None)
    for kind in ("regression", *MODULES[1:]):
        _FAMILIES["task"].pop(kind, None)


def typed(verb: str, name: str) -> list[str]:
    """The words after a verb, about the run of a task of one's own."""
    words = [*chain(*right(verb).values())]
    return [re.sub(r"^(?:runs/\w+|\w+\.toml)$", f"runs/{name}", word) for word in words]


@pytest.mark.filterwarnings("ignore")
@each_task
def test_every_verb_answers_or_refuses_in_a_sentence(name: str, answered: Any, place: Path) -> None:
    for verb in COMMANDS:
        words = typed(verb, name)
        if verb == "train":
            words = [f"{name}.toml", "--run", f"again/{name}"]
        elif not any(name in word for word in words):
            continue  # it takes no run
        words = 2 * words if verb == "compare" else words
        words = [*words, "--out", f"page/{name}"] if verb == "publish" else words
        words = [f"{name}-{word}" if word == "written" else word for word in words]
        codes, long = (0, 1, 2) if verb in ("check", "doctor") else (0, 2), verb.startswith(LONG)
        code = answered([*verb.split(), *words], SECONDS if long else LONGEST)
        assert code in ((*codes, BUSY) if long else codes), (verb, words)


LINES, PAIRS = ["the dog runs"], [("the dog runs", "le chien court")]
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "addressed": (LINES, None), "answer": (LINES,), "by": (None,), "classify": (LINES,),
    "decoding": (), "evaluate": (), "explain": ("the dog runs",), "forced": ("the dog runs",),
    "generate": (LINES, 3), "links": (PAIRS,), "need": (Run, "jump"), "pairs": (),
    "score": (PAIRS,), "search": (), "sides": ("jump",), "token_counts": (LINES,),
    "translate": (LINES,), "width": (1,),
}  # fmt: skip


@each_task
def test_every_method_answers_or_raises_a_sentence(name: str, place: Path) -> None:
    run = load(f"runs/{name}", trust=True)
    if name != "bare":
        assert run.evaluate(split="valid").figures
        given = {"text": "the dog runs", "picture": 0, "series": None}[run.task.reads]
        [answer] = run.answer([given])
        assert isinstance(str(answer), str)
    for method in [each for each in dir(Run) if not each.startswith("_")]:
        try:
            value = getattr(run, method)
            if callable(value):
                value(*ARGUMENTS[method])
        except (UserError, OSError) as error:
            assert str(error), method


@each_task
def test_every_route_of_the_studio_answers_or_refuses(name: str, place: Path) -> None:
    app = studio_application([place / "runs" / name])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        about = client.get(f"/api/v1/runs/{name}")
        assert about.status_code == 200, about.text
        reads = about.json()["reads"]
        assert client.get(f"/api/v1/runs/{name}/examples").status_code == 200
        given = {"text": {"text": "the dog runs"}, "picture": {"picture": "0"}, "series": {}}[reads]
        answer = client.post(f"/api/v1/runs/{name}/answer", json=given)
        assert answer.status_code == (422 if name == "bare" else 200), answer.text
        for path, method in product(
            ("evaluation", *(f"views/{v}" for v in VIEWS)), ("GET", "POST")
        ):
            options = {} if method == "GET" else {"json": {}}
            reply = client.request(method, f"/api/v1/runs/{name}/{path}", **options)
            assert reply.status_code < 500, (path, reply.text)


def test_a_task_without_evaluate_has_the_figures_of_its_validation(place: Path) -> None:
    run = load("runs/reviews", trust=True)
    measured = run.task.measure(run.model, "valid", run.search()).figures
    assert run.evaluate(split="valid").figures == measured
    with pytest.raises(UserError, match=r"register read_examples .* for Regression"):
        run.evaluate(files=[Path("FILE")])
    with pytest.raises(UserError, match="evaluated on a split"):
        run.evaluate(["a"], ["1"])
