"""Benchmarks measure what they say: training, decoding, memory, length, and this machine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import length
from foveate.config import ConfigError
from foveate.data import synthetic
from foveate.decode.engine import SearchRequest
from foveate.kinds import load_kinds
from foveate.measure import decoding, machine, training
from foveate.measure.decoding import batches_of, forced
from foveate.measure.machine import counting, group_of, shares
from foveate.measure.training import workload
from foveate.run import RunEngine
from foveate.train.config import resolve
from length import Variant, cost, exponent, variants, worth
from small_runs import invoked

TOML = """
[task]
kind = "translation"
source = "{folder}/{{split}}.en"
target = "{folder}/{{split}}.fr"
tokenizer = {{ kind = "word", min_frequency = 1 }}

[model]
kind = "transformer-tiny"
encoder = {{ hidden_size = 16, num_heads = 2, num_layers = 1, dropout = 0.0 }}
decoder = {{ hidden_size = 16, num_heads = 2, num_layers = 1, dropout = 0.0 }}

[train]
batch_tokens = 128
max_steps = 1
precision = "fp32"
"""


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    synthetic.write(tmp_path, {"train": 60, "valid": 4, "test": 40})
    (tmp_path / "tiny.toml").write_text(TOML.format(folder=tmp_path))
    return str(tmp_path / "tiny.toml")


@pytest.fixture
def work(tiny: str) -> Iterator[training.Workload]:
    with workload(tiny) as work:
        yield work


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings take seconds; here they are numbers."""
    monkeypatch.setattr(training, "ceilings", lambda *a: {"fp32": 100.0, "bf16": 200.0})
    monkeypatch.setattr(decoding, "ceilings", lambda *a: {"fp32": 100.0, "bf16": 200.0})
    monkeypatch.setattr(training, "COUNTED", 2)


def test_measure(work: training.Workload) -> None:
    assert machine.product_rate(torch.float32, 0.01, size=64) > 0
    messages: list[str] = []
    result = training.measure(work, 0.2, say=messages.append)
    assert any("a step takes" in message for message in messages)
    assert result["target_tokens_per_second"] > 0
    assert result["steps"] >= training.LEAST
    assert result["precision"] == "fp32" and result["peak_memory_mib"] > 50
    done = result["target_tokens_per_second"] * result["flops_per_target_token"] / 1e9
    assert result["product_gflops"] == pytest.approx(done, abs=0.06)
    assert result["utilisation"]["fp32"] == pytest.approx(done / 100, abs=1e-3)  # of three digits
    assert sum(result["time_shares"].values()) == pytest.approx(1, abs=0.02)
    assert result["machine"]["torch"] == torch.__version__


def test_no_step_takes_longer_than_is_said(work, monkeypatch) -> None:
    """The clock of the last of the counted steps decides, not that of the first."""
    real, allowed = training.train, list[float | None]()

    def slow(*work: Any, steps: int = 5, minutes: float | None = None) -> training.Steps:
        allowed.append(minutes)
        return [{**line, "seconds": 0.5 + 3.0 * line["step"]} for line in real(*work, steps=steps)]

    monkeypatch.setattr(training, "train", slow)
    messages: list[str] = []
    training.measure(work, 1.0, quick=True, say=messages.append)
    assert "training for 6 s; a step takes 3.2 s or less" in messages  # 6.5 s of two steps
    assert allowed == [None, (1.0 + 3.5) / 60]


def test_products_are_those_of_every_weight_and_of_attention(work: training.Workload) -> None:
    """Six FLOPs a weight and token that it meets; of attention 12 · width a query and key."""
    model, lengths = work.model(), work.task.lengths("train")
    weights = {n: w.numel() for n, w in model.named_parameters() if w.dim() > 1}
    output = weights.pop("encoder.stem.embedding.weight")  # that of the output layer too
    of_source = ("cross_attention.key.weight", "cross_attention.value.weight")
    source = sum(w for n, w in weights.items() if n.startswith("encoder") or n.endswith(of_source))
    target = sum(weights.values()) - source
    expected = targets = 0
    for chosen in work.batches()[: training.BATCHES]:
        s, t = lengths[chosen].max(axis=0).tolist()
        attention = 12 * 16 * (s * s + t * t + s * t)
        expected += len(chosen) * (6 * (source * s + target * t) + attention)
        targets += int(lengths[chosen][:, 1].sum())
    expected += 6 * output * targets
    assert training.products(work, model) == pytest.approx(expected / targets)


def test_the_steps_are_those_of_training_and_the_tokens_those_of_the_task(work) -> None:
    lengths = work.task.lengths("train")
    steps = training.train(work, work.model(), resolve("fp32"), steps=3)
    epoch = work.task.plan(lengths, work.config.train.batch_tokens, work.config.seed).epoch(0)
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert steps[-1]["target_tokens"] == sum(int(lengths[b][:, 1].sum()) for b in epoch[:3])
    places = sum(len(b) * int(np.sum(lengths[b].max(axis=0))) for b in epoch)
    assert work.padding() == pytest.approx(1 - lengths.sum() / places)


def test_rates_leave_the_warm_up_out() -> None:
    counts = ((9.0, 10), (9.5, 20), (10.0, 30), (11.0, 130), (12.0, 230))
    steps = [{"seconds": s, "target_tokens": t, "tokens_per_second": 1.0} for s, t in counts]
    result = training.rates(steps)
    assert result["target_tokens_per_second"] == 100 and result["steps"] == 2


@pytest.mark.parametrize(
    ("layer", "shape", "products"),
    [
        (torch.nn.Linear(5, 7, bias=False), (3, 5), 3 * 2 * 3 * 5 * 7),
        (torch.nn.LSTM(5, 7, batch_first=True).requires_grad_(False), (3, 4, 5), 2 * 12 * 28 * 12),
        *(  # of 9 - 4 + 1 places
            (torch.nn.Conv1d(6, 6, 4, groups=n, bias=False), (2, 6, 9), 3 * 864 * (6 // n) * 4 // 6)
            for n in (1, 3, 6)
        ),
    ],
    ids=["linear", "lstm", "convolution", "in 3 groups", "in 6 groups"],
)
def test_products_count_twice_m_k_n(layer: torch.nn.Module, shape: Any, products: int) -> None:
    """Forward; of what is trained the gradients of the input and of the weights too."""
    x = torch.randn(shape, requires_grad=not isinstance(layer, torch.nn.LSTM))
    with counting() as counted:
        output = layer(x)
        if x.requires_grad:
            output.sum().backward()
    assert counted.get_total_flops() == products


def test_shares_name_the_products() -> None:
    a = torch.randn(200, 200)
    with shares() as result:
        for _ in range(20):
            a @ a
    assert max(result, key=result.__getitem__) == "products"
    assert group_of("aten::bmm") == "products in batches"
    assert group_of("_MapBackward") == "products"  # what it does by itself is the native one
    assert group_of("aten::_softmax") == "softmax, loss"
    assert group_of("aten::add") == "other"


def test_a_config_is_measured_as_it_is_with_a_warm_up_of_any_length(tiny: str) -> None:
    schedule = 'train.schedule={kind="cosine", warmup_steps=800}'
    with workload(tiny, ["train.batch_tokens=64", "train.max_steps=900", schedule]) as work:
        assert work.name == "tiny" and work.summary()["batch_tokens"] == 64
        assert len(training.train(work, work.model(), resolve("fp32"), steps=2)) == 2
    with pytest.raises(ConfigError, match="transformer-smal"), workload("transformer-smal"):
        pass


def test_without_multi30k_the_embedded_corpus_is_taken(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    monkeypatch.setattr(training, "SYNTHETIC", {"train": 30, "valid": 2, "test": 2})
    chosen = ['task.tokenizer="word"', "model.tie=none"]
    with workload("transformer-tiny", chosen) as work:
        assert work.data.startswith("synthetic")
        assert len(work.task.lengths("train")) == 30


# ------------------------------ Decoding is measured with outputs of equal length
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_every_case_is_measured(work: training.Workload, precision: str) -> None:
    result = decoding.measure(work, 0.01, sentences=6, precision=precision)
    speeds = result["sentences_per_second"]
    assert list(speeds) == [
        "beam 5, batch 32", "greedy, batch 32", "beam 5, one by one", "greedy, one by one",
        "beam 5, whole corpus",
    ]  # fmt: skip
    assert min(speeds.values()) > 0
    assert (result["precision"], result["sentences"]) == (precision, 6)
    with pytest.raises(ConfigError, match=r"no precision 'int4'; there are: auto.*fp32.*, int8"):
        decoding.measure(work, 0.01, sentences=3, precision="int4")


@pytest.mark.parametrize("beam_size", [1, 3])
def test_outputs_are_as_long_as_they_are_forced_to_be(work, beam_size) -> None:
    engine = RunEngine(work.task, work.model().eval())
    result = engine.outputs([[5, 6, 7], [8]], SearchRequest(forced(beam_size, 7)))
    assert [len(outputs[0].ids) for outputs in result] == [7, 7]


def test_batches_hold_every_sentence_once() -> None:
    sources = [[1] * (n % 7 + 1) for n in range(20)]
    batches = batches_of(sources, 6)
    assert sorted(map(len, batches)) == [2, 6, 6, 6]
    assert sorted(len(ids) for batch in batches for ids in batch) == sorted(map(len, sources))
    assert batches == batches_of(sources, 6) and batches_of(sources, None) == [sources]


# ------------------------------ Time and memory against the length; exponents are fitted, and drawn
def test_every_kind_of_attention_is_there_with_lstm_and_mamba() -> None:
    load_kinds()
    names = {variant.name for variant in variants()}
    assert names >= {"full, fused", "full, explicit", "full, fused, causal", "local", "linear"}
    assert names >= {"performer", "linformer", "lstm", "mamba", "block_sparse"}
    assert "linformer, causal" not in names


@pytest.mark.parametrize(
    "variant",
    [
        Variant("full", length.attention, "full", True),
        Variant("explicit", length.explicit, "full"),
        Variant("lstm", length.lstm), Variant("mamba", length.mamba),
        Variant("linformer", length.attention, "linformer"),
    ],
    ids=lambda variant: variant.name,
)  # fmt: skip
def test_one_figure(variant: Variant) -> None:
    milliseconds, megabytes = cost(variant, 16, 16, 0.0)
    assert milliseconds > 0 and megabytes >= 0


def test_exponents_are_drawn_and_what_would_take_too_long_or_too_much_is_left_out() -> None:
    row = {"milliseconds": [1.0, 4.0], "megabytes": [2.0, None]}
    drawn = length.view({"lengths": [8, 16], "kinds": {"full": row, "full, causal": row}})
    assert [d.log for d in drawn.drawings()] == ["xy", "xy"]
    assert drawn.arrays()["megabytes: full"][0] == 2
    assert exponent((1, 2, 4, 8), (3.0, 12.0, 48.0, 192.0)) == 2
    assert exponent((1, 2, 4, 8), (5.0, 10.0, None, None)) == 1
    assert exponent((1, 2), (None, None)) is None
    slow, large = (1000 * length.PATIENCE / 2, 10.0), (100.0, length.ROOM / 2)
    measured = ([], [(100.0, 10.0)], [slow], [large], [None])
    tried = [worth(figures, (1024, 2048, 4096)) for figures in measured]
    assert tried == [True, True, False, False, False]


def test_training_holds_weights_gradients_and_twice_that_for_adam(work: training.Workload) -> None:
    model = work.model()
    parts = training.held_by(work, model, resolve("fp32"))
    sizes = [parameter.numel() * 4 / 2**20 for parameter in model.parameters()]
    assert parts["gradients"] == parts["weights"] == pytest.approx(sum(sizes))
    assert parts["optimiser"] == pytest.approx(2 * parts["weights"], rel=0.01)
    assert parts["kept activations"] == training.saved(work, work.model(), resolve("fp32")) > 0


def test_what_is_kept_grows_with_the_batch(tiny: str) -> None:
    result = []
    for tokens in (64, 512):
        with workload(tiny, [f"train.batch_tokens={tokens}"]) as work:
            result.append(training.saved(work, work.model(), resolve("fp32")))
    assert result[1] > 3 * result[0]


def test_the_verbs(tiny: str) -> None:
    done = invoked("bench", "train", tiny, "--seconds", "0.1", "--quick", "--json")
    result = json.loads(done.stdout)
    assert result["shape"] == "tiny" and result["target_tokens_per_second"] > 0
    options = ["--seconds", "0.1", "--sentences", "3", "--precision", "fp32"]
    done = invoked("bench", "decode", tiny, *options)
    assert "greedy, one by one" in done.stdout and "machine: " in done.stdout
    assert "its data and tokenizers" in done.stderr
    assert "greedy, one by one: 3 sentences" in done.stderr
