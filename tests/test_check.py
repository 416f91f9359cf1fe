"""`foveate check`: right and wrong fillings of every exercise, and what a user's file may do."""

import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foveate import config
from foveate.cli import app
from foveate.config import ConfigError, kinds
from foveate.measure.laws.check import KindReport, check, write_exercises
from small_runs import invoked, python

ROOT = Path(__file__).parent.parent
EXERCISES = ROOT / "docs" / "exercises"
GAP = re.compile(
    r"^( +)(?:raise NotImplementedError|\w+(?:, \w+)* = \.\.\.(?:, \.\.\.)?(?:  #.*)?)$", re.M
)
ADD = "return (torch.tanh(query[:, :, :, None] + key[:, :, None]) @ v).squeeze(-1)"
EXP = "e = (scores - scores.amax(dim=-1, keepdim=True)).exp()\n"
SPARSE = """support = (1 + rank * ordered > ordered.cumsum(dim=-1)).sum(dim=-1, keepdim=True)
tau = (ordered.cumsum(dim=-1).gather(-1, support - 1) - 1) / support
return (scores - tau).clamp(min=0)"""
WAVES = """size = x.shape[-1]
angles = at[:, None] * 10_000.0 ** (-torch.arange(0, size, 2) / size)
return x + torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)"""
TURN = """c, s = angles.cos(), angles.sin()
return torch.cat((a * c - b * s, b * c + a * s), dim=-1)"""
STEP = "return (torch.tanh(projected + linear(hidden[0], self.weight_hh, self.bias_hh)),)"
GATES = """c = f.sigmoid() * c + i.sigmoid() * candidate.tanh()
return o.sigmoid() * c.tanh(), c"""
EXTEND = """sums = total[:, 0, :, None] + log_p
values, index = sums.flatten(1).topk(count)
token, parent = index % log_p.shape[-1], index // log_p.shape[-1]"""

RIGHT = {
    "01_dot": "return query @ key.mT",
    "02_scaled_dot": "return query @ key.mT / key.shape[-1] ** 0.5",
    "03_additive": ADD,
    "04_softmax": EXP + "return e / e.sum(dim=-1, keepdim=True)",
    "05_sparsemax": SPARSE,
    "06_sinusoidal": WAVES,
    "07_rotary": TURN,
    "08_causal_mask": "visible = s <= t",
    "09_elman": STEP,
    "10_lstm": GATES,
    "11_greedy": "return logits.argmax(dim=-1)",
    "12_beam": EXTEND,
}
WRONG = [  # by the number of the exercise, with what the report says
    (1, "return key @ query.mT", "query 0 changes when query 1 changes"),
    (1, "return query * key", "the shape (1, 1, 1, 2), not (B, H, T, S) = (1, 1, 1, 1)"),
    (1, "return -query @ key.mT", "it is −1 times what 'dot' gives"),
    (2, "return query @ key.mT", "it is 1.41 times what 'scaled_dot' gives"),
    (2, "return query @ key.mT / key.shape[-1]", "it is 0.707 times what 'scaled_dot'"),
    (2, "return (query @ key.mT / key.shape[-1] ** 0.5).softmax(-1)", "key 0 changes when"),
    (3, ADD.replace("torch.tanh", ""), "'additive': vᵀ tanh(q + k)"),
    (3, ADD.replace(" @ v).squeeze", ").sum"), "weight has no gradient: it takes no part"),
    (3, ADD.replace("torch.tanh(", "(").replace("@ v)", "@ v).tanh()"), "'additive': vᵀ tanh"),
    (4, EXP + "return e / e.sum(dim=-2, keepdim=True)", "weights of a query must sum to 1"),
    (4, "e = scores.exp()\nreturn e / e.sum(-1, keepdim=True)", "subtract the highest score"),
    (4, EXP + "return e / e.sum()", "row 0 sums to"),
    (5, SPARSE.replace(" - 1) / support", ") / support"), "sums to 0, not 1"),
    (5, SPARSE.replace(".clamp(min=0)", ""), "weights must not be negative"),
    (5, "return scores.softmax(dim=-1)", "'sparsemax': [e − τ]₊ with τ such that"),
    (6, WAVES.replace("return x + ", "return 0 * x + "), "the same for other vectors"),
    (6, WAVES.replace("at[:, None]", "torch.arange(len(at))[:, None]"), "use `at`"),
    (6, WAVES.replace("angles.sin(), angles.cos()", "angles.cos(), angles.sin()"), "sin(t /"),
    (7, TURN.replace("b * c + a * s", "b * c - a * s"), "another length after its rotation"),
    (7, "return torch.cat((a + angles, b), dim=-1)", "qᵀk at equal distance differs"),
    (7, TURN.replace("angles.sin()", "-angles.sin()"), "'rope': Turns each pair"),
    (8, "visible = s >= t", "the weight of a masked key is 0.678, not 0"),
    (8, "visible = s <= t + 1", "changes: it looks ahead of the causal mask"),
    (8, "visible = s < t", "row 0 sums to 0, not 1"),
    (9, "return (torch.tanh(projected),)", "h_{t−1} is not used"),
    (9, STEP.replace("torch.tanh", ""), "tanh gives numbers from −1 to 1"),
    (9, STEP.replace("torch.tanh", "torch.sigmoid"), "'rnn': h_t = f(W x_t + b + U h_{t"),
    (10, GATES.replace("f.sigmoid() * c", "c"), "'lstm': i, f, o = sigmoid(…)"),
    (10, GATES.replace("f.sig", "i.sig", 1), "c is not handed on: c_t = f ⊙ c_{t−1} + i ⊙ c̃"),
    (10, GATES.replace(" * c.tanh(), c", " * c.tanh(),"), "not 2 of (B, H) = (1, 2)"),
    (11, "return logits.argmin(dim=-1)", "'greedy': y_t = argmax p(y | y_<t, x)"),
    (11, "return logits[:1].argmax(dim=-1).expand(len(logits))", "source 1 has another output"),
    (11, "return torch.full((len(logits),), 3)", "'greedy': y_t = argmax p(y | y_<t, x)"),
    (12, EXTEND.replace("total[:, 0, :, None] + ", ""), "its tokens' log p sum to"),
    (12, EXTEND.replace("// log_p.shape[-1]", "* 0"), "its tokens' log p sum to"),
    (12, EXTEND.replace("topk(count)", "topk(1)"), "other outputs than 'beam': Keeps the k"),
]


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """The kinds of a test are gone after it."""
    before, modules, path = kinds(), set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for family, members in config._FAMILIES.items():
        for kind in members.keys() - before.get(family, members).keys():
            if members[kind].__module__.startswith("checked_"):
                del members[kind]
    for name in set(sys.modules) - modules:
        if name.startswith("checked_"):
            del sys.modules[name]


def filled(name: str, text: str, folder: Path) -> Path:
    source = (EXERCISES / f"{name}.py").read_text("utf-8")
    first = GAP.search(source)
    assert first is not None
    body = textwrap.indent(text, first[1])
    rest = GAP.sub("", source[first.end() :])
    path = folder / f"{name}.py"
    path.write_text(source[: first.start()] + body + rest, "utf-8")
    return path


def only(reports: list[KindReport]) -> KindReport:
    (report,) = reports
    return report


def test_every_exercise_has_fillings_and_is_short() -> None:
    names = sorted(path.stem for path in EXERCISES.glob("*.py"))
    assert names == sorted(RIGHT) and len(names) == 12
    for name in names:
        text = (EXERCISES / f"{name}.py").read_text("utf-8")
        assert len(text.splitlines()) <= 35 and GAP.search(text), name
        assert f"foveate check docs/exercises/{name}.py" in text
        assert re.search(r"(19|20)\d\d", text), "its paper"
    assert sorted(number for number, *_ in WRONG) == sorted([*range(1, 13)] * 3)


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_filling_is_accepted(name: str, tmp_path: Path) -> None:
    report = only(check(str(filled(name, RIGHT[name], tmp_path))))
    assert report.good, report.text()


@pytest.mark.parametrize(("number", "text", "reason"), WRONG)
def test_a_wrong_filling_is_refused_with_the_reason(number, text, reason, tmp_path) -> None:
    report = only(check(str(filled([*RIGHT][number - 1], text, tmp_path))))
    assert not report.good and reason in report.text(), report.text()


@pytest.mark.parametrize("name", RIGHT)
def test_a_gap_that_is_not_filled_is_named_with_its_line(name: str) -> None:
    path = EXERCISES / f"{name}.py"
    text = only(check(str(path))).text()
    assert re.search(rf"{name}\.py:\d+: .*fill the gap", text), text


# ------------------------------------------------------------------------------ a file of one's own
SCORE = """import torch
from foveate.nn.scores import Score

class Mine(Score):
    class Config(Score.Config, kind="mine"):
        pass

    def forward(self, query, key):
        {}
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.py"
    path.write_text(text, "utf-8")
    return str(path)


PAGES = (
    "add-a-score.md", "add-a-position.md", "add-an-attention.md", "add-a-feed-forward.md",
    "add-a-model.md",
)  # fmt: skip


def test_the_kinds_of_the_docs_keep_every_law(tmp_path: Path) -> None:
    for page in PAGES:
        text = (ROOT / "docs/guide" / page).read_text("utf-8")
        code = text.partition("```python\n")[2].partition("```")[0]
        report = only(check(written(tmp_path, code), seconds=200))
        assert report.good and report.verdicts, report.text()
        config = tomllib.loads(text.partition("```toml\n")[2].partition("```")[0])
        assert re.search(r"\bmy_\w+", str(config["model"])), page


HEAD = """import torch
from foveate.{module} import {base}
class Mine({base}):
    class Config({base}.Config, kind="mine"):
        pass
"""
ATTENTION = ("nn.attention", "Attention")
BROKEN = {
    "a gate that counts rows": (
        *ATTENTION,
        "def _attend(self, x, memory, context):\n"
        "        return super()._attend(x, memory, context) * context.hypotheses",
        "two hypotheses of a source get something else than each with a memory of its own",
    ),
    "weights of another sum": (
        *ATTENTION,
        "def _weights(self, *inputs):\n        return 0.5 * super()._weights(*inputs)",
        "row 0 sums to 0.5, not 1: the weights of a query must sum to 1; set sums_to_one = False",
    ),
    "a scale that is not true": (
        "nn.scores",
        "Score",
        "scale = 2.0\n    def forward(self, query, key):\n        return query @ key.mT",
        "scale = 2, but the score is not 2 · qᵀk",
    ),
    "positions that are mixed": (
        "nn.linear",
        "ReLU",
        "def forward(self, x):\n        return super().forward(x + x.mean(1, keepdim=True))",
        "position 0 changes when position 1 changes: a feed-forward layer",
    ),
    "something else in training": (
        "nn.linear",
        "ReLU",
        "def activate(self, x):\n        return x * (2 if self.training else 1)",
        "forward computes something else in training",
    ),
    "padding that is read": (
        "models.transformer",
        "TransformerEncoder",
        "def forward(self, inputs, keys=None):\n        return super().forward(inputs, None)",
        "the output changes when padding changes",
    ),
    "a look ahead": (
        "models.transformer",
        "TransformerDecoder",
        "def forward(self, ids, memory, state=None):\n"
        "        x = super().forward(ids, memory, state)\n        return x + x.roll(-1, 1)",
        "it looks ahead of the causal mask",
    ),
    "answers of its own": (
        "models.encoder_decoder",
        "EncoderDecoder",
        "def forward(self, *inputs):\n        return 2 * super().forward(*inputs)",
        "predict gives other scores than forward: training and answers would differ",
    ),
    "labels of its own": (
        "models.classifier",
        "Classifier",
        'scored_by = ("forward",)\n'
        "    def forward(self, *inputs):\n        return 2 * super().forward(*inputs)",
        "the output layer gives other scores than forward",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kind_of_each_family_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    module, base, methods, reason = BROKEN[name]
    text = HEAD.format(module=module, base=base) + f"    {methods}\n"
    report = only(check(written(tmp_path, text), seconds=200))
    assert not report.good and reason in report.text(), report.text()


@pytest.mark.parametrize(
    ("module", "base", "why"),
    [
        ("nn.linear", "Norm", "the laws do not cover kinds of norm"),
        ("models.encoder_decoder", "Model", "it is derived from none of EncoderDecoder, Language"),
        ("models.vision", "ConvolutionalEncoder", "it does not read tokens"),
    ],
)
def test_a_kind_without_laws_is_named_as_not_tried(module, base, why, tmp_path: Path) -> None:
    target = written(tmp_path, HEAD.format(module=module, base=base))
    report = only(check(target))
    assert not report.good and f"'mine'\n  not tried: {why}" in report.text()
    assert CliRunner().invoke(app, ["check", target]).exit_code == 1


def test_the_smallest_counterexample_is_shown_with_its_numbers(tmp_path: Path) -> None:
    report = only(check(written(tmp_path, SCORE.format("return query @ key.mT + key.sum()"))))
    text = report.text()
    assert "key 0 changes when key 1 changes: the score of a key depends on this key" in text
    assert "smallest counterexample (1 batch row, 2 positions, 1 head of size 2, seed 0):" in text
    verdict = next(v for v in report.verdicts if v.law.sentence.startswith("keys do not"))
    assert verdict.counterexample is not None
    assert set(verdict.counterexample.shown) == {
        "query", "key", "key, changed", "came out", "came out after the change",
    }  # fmt: skip


def test_laws_hold_only_so_far_if_an_error_ends_the_test(tmp_path: Path) -> None:
    """An error with two heads: no law was tried on them."""
    code = (
        "if query.shape[1] > 1:\n            query = query[..., 1:]\n        return query @ key.mT"
    )
    target = written(tmp_path, SCORE.format("return query @ key"))
    text = only(check(target)).text()
    assert f"{target}:9: RuntimeError: Expected size" in text and "Traceback" not in text
    text = only(check(written(tmp_path, SCORE.format(code)))).text()
    assert re.search(r"first error \(.*, 2 heads of size 2, seed \d\):\n +.*:11: RuntimeErr", text)
    assert "  so far heads do not change each other" in text and "holds" not in text
    assert re.search(r"\d of \d+ laws hold so far: an error ended the test", text)


def test_a_kind_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    loop = "while query.shape[2] > 1:\n            pass\n        return query @ key.mT + 1"
    target = written(tmp_path, SCORE.format(loop).replace("mT + 1", "mT - query.sum()"))
    report = only(check(target, seconds=2.0))
    assert not report.good
    assert re.search(rf"stopped after 2 s in {re.escape(target)}:\d+", report.text())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "defines no kind: it needs a class derived from Score, Normalizer, Position"),
        ("x = (\n", r"mine.py:1: '\(' was never closed"),
        ("import torch\ny = 1 / 0\n", r"mine.py:2: ZeroDivisionError: division by zero"),
        ("import nothing_of_this_name\n", "No module named 'nothing_of_this_name'"),
        (SCORE.replace('"mine"', '"dot"'), "mine.py: .*foveate has the score 'dot' already"),
        (SCORE.replace("    class", "    reimplements = 'dott'\n    class"), "no score 'dott'"),
        (SCORE.replace("        pass", "        width: float"), "needs a default for width"),
    ],
)
def test_a_file_without_a_kind_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    before = kinds("score")["score"]
    try:
        with pytest.raises(ConfigError, match=message):
            check(written(tmp_path, text))
    finally:
        config._FAMILIES["score"].update(before)
    with pytest.raises(ConfigError, match="no such file"):
        check(str(tmp_path / "other.py"))


def test_the_command_writes_exercises_and_exits_with_1_where_a_law_fails(tmp_path: Path) -> None:
    own = tmp_path / "own"
    assert len(invoked("check", "--exercises", own).output.splitlines()) == 13  # with their README
    assert write_exercises(own) == []
    assert f"foveate check {own}/01" in (own / "01_dot.py").read_text("utf-8")
    result = CliRunner().invoke(app, ["check", str(own), "--seconds", "0.1"])
    assert result.exit_code == 1 and "02_scaled_dot.py" in result.output  # a folder: all its files
    path = filled("01_dot", RIGHT["01_dot"], tmp_path)
    assert "11 of 11 laws hold" in invoked("check", path).output


def test_a_module_is_named_by_its_dotted_name(tmp_path: Path) -> None:
    (tmp_path / "checked_scores.py").write_text(SCORE.format("return query @ key.mT"), "utf-8")
    done = python("-m", "foveate", "check", "checked_scores", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "checked_scores: score 'mine'" in done.stdout
