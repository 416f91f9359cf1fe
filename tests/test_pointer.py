"""The pointer-generator: its equation, its extended vocabulary, copies of words never seen."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foveate.config import ConfigError
from foveate.data.tokenizer import UNK, WordTokenizer
from foveate.engine.program import CannotPack, Program
from foveate.errors import UserError
from foveate.look.hooks import capture
from foveate.models.encoder_decoder import DecoderSteps, Model
from foveate.models.pointer import PointerGenerator
from foveate.nn.scores import Normalizer
from foveate.nn.spec import Tokens
from foveate.run import Run
from foveate.run.training import train
from foveate.tasks.text_to_text import mean_nll
from tolerances import close

V = 12


def made(coverage: float | None = None, tie: str = "target", **fields: Any) -> PointerGenerator:
    torch.manual_seed(0)
    part = {"kind": "recurrent", "embedding_size": 8, "dropout": 0.0}
    tree = {
        "kind": "pointer_generator",
        "encoder": part | {"hidden_size": 8, "bidirectional": True},
        "decoder": part | {"hidden_size": 16},
        "tie": tie,
        "coverage": coverage,
    } | fields
    model = Model.Config.parse(tree).build(Tokens(V), Tokens(V)).eval()
    assert isinstance(model, PointerGenerator)
    if model.cross_attention.covered is not None:
        torch.nn.init.normal_(model.cross_attention.covered)
    return model


SOURCE = torch.tensor([[4, 13, 5, 12, 3], [12, 6, 6, 3, 1], [7, 8, 9, 3, 1]])  # 12 and 13: unknown
KEYS = SOURCE != 1
READ = torch.tensor([[2, 13, 5, 4], [2, 12, 6, 12], [2, 7, 7, 3]])


@pytest.mark.parametrize("coverage", [None, 1.0], ids=["plain", "coverage"])
@torch.no_grad()
def test_the_distribution_is_that_of_the_paper_in_numpy(coverage: float | None) -> None:
    model = made(coverage)
    memory = model.encode(SOURCE, KEYS)
    with capture(model, "cross_attention") as maps:
        p = model.predict(READ, memory).exp()
    close(p.sum(dim=-1), torch.ones(3, 4))
    alpha = maps["cross_attention"][:, 0].double().numpy()
    s = model.decoder(model.known(READ), memory).double().numpy()
    h = memory.values.double().numpy()
    weights = {n: w.double().numpy() for n, w in model.state_dict().items()}

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    covered = np.zeros((3, 5))
    for t in range(4):
        keys = linear("cross_attention.key", h)
        if coverage is not None:
            keys = keys + covered[..., None] * weights["cross_attention.covered"]
        hidden = np.tanh(linear("cross_attention.query", s[:, t])[:, None] + keys)
        e = np.where(KEYS.numpy(), hidden @ weights["cross_attention.score.weight"][0], -np.inf)
        a = np.exp(e) / np.exp(e).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(alpha[:, t], a, atol=1e-6)
        covered += a
        both = np.concatenate([s[:, t], np.einsum("bs,bsd->bd", a, h)], axis=1)
        logits = linear("join", both) @ weights["output.weight"].T
        generated = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        p_gen = 1 / (1 + np.exp(-linear("switch", both)))
        expected = np.concatenate([p_gen * generated, np.zeros((3, 2))], axis=1)
        for b in range(3):
            for i in range(5):
                expected[b, SOURCE[b, i]] += (1 - p_gen[b, 0]) * a[b, i]
        np.testing.assert_allclose(p[:, t].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("coverage", [None, 1.0], ids=["plain", "coverage"])
def test_the_loss_is_log_p_of_the_targets_and_has_the_gradient_of_differences(coverage) -> None:
    model = made(coverage).double()
    log_p, _, cost = model.score(READ, model.encode(SOURCE, KEYS), READ)
    whole = model.predict(READ, model.encode(SOURCE, KEYS))
    close(log_p, whole.gather(-1, READ[..., None]).squeeze(-1))
    assert bool((cost > 0).any()) == (coverage is not None)

    def total() -> Tensor:
        parts = model.score(READ, model.encode(SOURCE, KEYS), READ)
        return sum((part.sum() for part in parts), torch.zeros(()))

    total().backward()
    attention = model.cross_attention
    parameters = [model.switch.bias, model.join.bias, attention.score.weight]
    for parameter in [*parameters, *([] if coverage is None else [attention.covered])]:
        assert parameter is not None and parameter.grad is not None
        flat = parameter.data.view(-1)
        before, step = flat[0].item(), 1e-5
        ends = []
        for change in (step, -step):
            flat[0] = before + change
            with torch.no_grad():
                ends.append(float(total()))
        flat[0] = before
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(parameter.grad.view(-1)[0]) == pytest.approx(slope, rel=1e-5, abs=1e-8)
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_a_word_to_copy_that_has_no_weight_has_a_finite_loss() -> None:
    """Sparse weights are 0 at some places: no target may have −∞ that the source holds."""
    model = made()
    model.cross_attention.normalizer = Normalizer.Config.parse({"kind": "hardmax"}).build()
    log_p, _, _ = model.score(READ, model.encode(SOURCE, KEYS), READ)
    assert bool(log_p.isfinite().all())
    log_p.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_dropout_of_the_weights_is_refused() -> None:
    with pytest.raises(UserError, match=r"attention\.dropout = 0\.1.*copy\s+distribution"):
        made(attention={"dropout": 0.1})


@torch.no_grad()
def test_steps_of_hypotheses_are_the_whole_and_their_coverage_is_their_own() -> None:
    model = made(coverage=1.0)
    memory = model.encode(SOURCE, KEYS)
    whole = model.predict(READ, memory)
    steps = DecoderSteps(model, model.encode(SOURCE, KEYS))
    first = steps.step(READ[:, 0])
    close(first, whole[:, 0])
    steps.reorder(torch.tensor([0, 0, 1, 1, 2, 2]))  # two hypotheses of each source
    second = steps.step(torch.stack((READ[:, 1], READ[:, 2]), dim=1).flatten())
    close(second[::2], whole[:, 1])
    steps.reorder(torch.tensor([0, 2, 4]))
    close(steps.step(READ[:, 2]), whole[:, 2])
    steps.select(torch.tensor([0, 2]))
    steps.reorder(torch.tensor([0, 2]))
    close(steps.step(READ[[0, 2], 3])[:, : whole.shape[2]], whole[[0, 2], 3])


def test_words_that_the_vocabulary_lacks_have_ids_of_their_own_in_source_and_target() -> None:
    tokenizer = WordTokenizer.Config(lowercase=True, min_frequency=1).build()
    tokenizer.train(["the cat sat"])
    both = tokenizer.with_words("The Dog, the dog and a cat.")
    size = tokenizer.vocab_size
    ids = [size, tokenizer.encode("cat").ids[0], UNK, size + 2]
    assert both.encode_ids(["dog cat bird and"]) == [ids]
    assert both.decode([size, size + 1]) == "dog," and both.vocab_size == size + 5
    assert tokenizer.encode_ids(["dog"]) == [[UNK]]  # the tokenizer itself is as it was
    assert tokenizer.with_words("the cat") is tokenizer


TASK = """
[task]
kind = "summarisation"
source = "{folder}/{{split}}.tsv"
tokenizer = {{ kind = "word", min_frequency = 5 }}
metrics = ["exact_match"]

[model]
kind = "pointer_generator"
tie = "all"

[model.encoder]
kind = "recurrent"
embedding_size = 16
hidden_size = 16
bidirectional = true
dropout = 0.0

[model.decoder]
kind = "recurrent"
embedding_size = 16
hidden_size = 32
dropout = 0.0

[objective]
label_smoothing = 0.0

[train]
batch_tokens = 300
max_steps = 250
precision = "fp32"
optimizer = {{ kind = "adam", lr = 0.01 }}
schedule = {{ kind = "cosine", warmup_steps = 10 }}
save = {{ every = 250 }}
validation = {{ every = 250, samples = 1 }}

[decode]
kind = "greedy"
"""


def word(drawn: random.Random) -> str:
    return "".join(drawn.choice("bdgklmnprst") + drawn.choice("aeiou") for _ in range(4))


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained to write the word behind "name", which no other example has, and that it sleeps."""
    folder, drawn = tmp_path_factory.mktemp("copying"), random.Random(0)
    for split, count in (("train", 600), ("valid", 20), ("test", 50)):
        lines = []
        for _ in range(count):
            names = [word(drawn) for _ in range(4)]
            place = drawn.randrange(4)
            text = " ".join(f"name {n}" if i == place else n for i, n in enumerate(names))
            lines.append(f"{text}\t{names[place]} sleeps\n")
        (folder / f"{split}.tsv").write_text("".join(lines))
    (folder / "c.toml").write_text(TASK.format(folder=folder.as_posix()))
    return train(folder / "c.toml", folder=folder / "run")


def test_a_word_that_training_never_showed_is_copied_by_greedy_and_by_beam(copying: Run) -> None:
    assert copying.task.output_tokenizer.vocab_size == 6  # special tokens, name and sleeps
    sources, references = copying.pairs("test")
    assert copying.evaluate().figures["exact_match"] >= 90
    beam = copying.evaluate(beam_size=2).figures["exact_match"]
    assert beam >= 90
    (answer,) = copying.translate(sources[:1])
    assert str(answer) == references[0] and answer.alignment()
    record = answer.record()
    (name,) = record.names("cross_attention")
    _, columns = record.labels(name)
    assert columns[int(record.maps[name][0, 0].argmax())] == references[0].split()[0]
    scores = copying.score([(sources[0], references[0]), (sources[0], "tatatata sleeps")])
    assert scores[0].log_probability > scores[1].log_probability


def test_the_loss_of_validation_is_log_p_without_coverage(copying: Run) -> None:
    task = copying.task
    losses = []
    for coverage in (None, 1.0):
        tree = copying.config.tree()["model"] | {"coverage": coverage}
        model = task.build(Model.Config.parse(tree)).eval()
        losses.append(mean_nll(task, model, "valid", task.lengths("valid"), 300))
        model.load_state_dict(copying.model.state_dict(), strict=False)
        losses.append(mean_nll(task, model, "valid", task.lengths("valid"), 300))
    assert losses[1] == pytest.approx(losses[3], rel=1e-5) and losses[0] > losses[1]


def test_what_cannot_run_a_pointer_generator_names_it(copying: Run, tmp_path: Path) -> None:
    with pytest.raises(CannotPack, match="lacks PointerGenerator"):
        Program(copying.model)
    with pytest.raises(ConfigError, match="no shortlist"):
        copying.decoding("greedy", shortlist=True).translate(["name dabadaba"])
    tree = copying.config.tree()
    with pytest.raises(UserError, match="needs joint = true"):
        type(copying.config.task).parse(tree["task"] | {"joint": False})
    plain = Model.Config.parse("transformer-tiny")
    with pytest.raises(UserError, match="pointer_generator"):
        copying.task.build(plain)
    with pytest.raises(UserError, match="one vocabulary"):
        Model.Config.parse(tree["model"] | {"tie": "none"}).build(Tokens(9), Tokens(10))
