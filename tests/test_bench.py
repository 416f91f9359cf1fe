"""Benchmarks measure what they say: training, decoding, memory, length, and this machine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import length
from foveate.cli import app
from foveate.config import ConfigError, kinds
from foveate.data import synthetic
from foveate.decode.engine import SearchRequest
from foveate.kinds import load_kinds
from foveate.measure import decoding, machine, training
from foveate.measure.decoding import batches_of, forced
from foveate.measure.machine import counting, group_of, shares
from foveate.measure.training import SHAPES, workload
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
encoder = {{ hidden_size = 16, num_heads = 2, num_layers = 1, ffn_size = 32, dropout = 0.0 }}
decoder = {{ hidden_size = 16, num_heads = 2, num_layers = 1, ffn_size = 32, dropout = 0.0 }}

[train]
batch_tokens = 128
max_steps = 1
precision = "fp32"
"""


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A config that trains in milliseconds, with its data."""
    synthetic.write(tmp_path, {"train": 60, "valid": 4, "test": 40})
    (tmp_path / "tiny.toml").write_text(TOML.format(folder=tmp_path))
    return str(tmp_path / "tiny.toml")


@pytest.fixture
def work(tiny: str) -> Iterator[training.Workload]:
    with workload(tiny) as work:
        yield work


# ---- Training is measured on the trainer itself, and products are counted exactly
@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings take seconds; here they are numbers."""
    monkeypatch.setattr(training, "ceilings", lambda *a: {"fp32": 100.0, "bf16": 200.0})
    monkeypatch.setattr(decoding, "ceilings", lambda *a: {"fp32": 100.0, "bf16": 200.0})
    monkeypatch.setattr(training, "COUNTED", 2)


def test_measure(work: training.Workload) -> None:
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
    plan = work.task.plan(lengths, work.config.train.batch_tokens, work.config.seed)
    counts = [int(lengths[batch][:, 1].sum()) for batch in plan.epoch(0)[:3]]
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert steps[-1]["target_tokens"] == sum(counts)


def test_rates_leave_the_warm_up_out() -> None:
    counts = ((9.0, 10), (9.5, 20), (10.0, 30), (11.0, 130), (12.0, 230))
    steps = [{"seconds": s, "target_tokens": t, "tokens_per_second": 1.0} for s, t in counts]
    result = training.rates(steps)
    assert result["target_tokens_per_second"] == 100 and result["steps"] == 2


def test_products_count_twice_m_k_n() -> None:
    layer = torch.nn.Linear(5, 7, bias=False)
    x = torch.randn(3, 5, requires_grad=True)
    with counting() as counted:
        layer(x).sum().backward()
    assert (
        counted.get_total_flops() == 3 * 2 * 3 * 5 * 7
    )  # forward, gradient of the input, of the weights


def test_an_lstm_layer_is_counted() -> None:
    layer = torch.nn.LSTM(5, 7, batch_first=True)
    with counting() as counted, torch.no_grad():
        layer(torch.randn(3, 4, 5))
    assert counted.get_total_flops() == 2 * 3 * 4 * 4 * 7 * (5 + 7)


@pytest.mark.parametrize("groups", [1, 3, 6])
def test_gradients_of_a_convolution_count_twice_what_it_did(groups: int) -> None:
    layer = torch.nn.Conv1d(6, 6, 4, groups=groups, bias=False)
    x = torch.randn(2, 6, 9, requires_grad=True)
    with counting() as counted:
        layer(x).sum().backward()
    assert counted.get_total_flops() == 3 * 2 * 2 * 6 * 6 * (6 // groups) * 4  # of 9 - 4 + 1 places


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


def test_the_shapes_are_presets_of_the_sizes_that_they_name() -> None:
    load_kinds()
    presets = kinds("model")["model"]
    small, base = (presets[SHAPES[name]]() for name in ("small", "base"))
    for config, sizes in ((small, (256, 4, 1024, 3)), (base, (512, 8, 2048, 6))):
        for half in (config.encoder, config.decoder):
            assert (half.hidden_size, half.num_heads, half.ffn_size, half.num_layers) == sizes
    assert presets[SHAPES["rnnsearch"]]().decoder.hidden_size == 256


def test_a_config_is_measured_as_it_is(tiny: str) -> None:
    with workload(tiny, ["train.batch_tokens=64"]) as work:
        assert work.name == "tiny" and work.config.train.batch_tokens == 64
        assert sum(p.numel() for p in work.model().parameters()) > 1000
        assert work.summary()["batch_tokens"] == 64
        assert 0 <= work.padding() < 0.5


def test_the_warm_up_of_a_config_may_be_longer_than_the_measurement(tiny: str) -> None:
    schedule = 'train.schedule={kind="cosine", warmup_steps=800}'
    with workload(tiny, ["train.max_steps=900", schedule]) as work:
        assert len(training.train(work, work.model(), resolve("fp32"), steps=2)) == 2


def test_padding_is_what_the_batches_hold_beyond_the_tokens(work: training.Workload) -> None:
    lengths = work.task.lengths("train")
    plan = work.task.plan(lengths, work.config.train.batch_tokens, work.config.seed)
    places = sum(len(b) * int(np.sum(lengths[b].max(axis=0))) for b in plan.epoch(0))
    assert work.padding() == pytest.approx(1 - lengths.sum() / places)


def test_without_multi30k_the_embedded_corpus_is_taken(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    monkeypatch.setattr(training, "SYNTHETIC", {"train": 30, "valid": 2, "test": 2})
    chosen = ['task.tokenizer="word"', "model.tie=none"]
    with workload("transformer-tiny", chosen) as work:
        assert work.data.startswith("synthetic")
        assert len(work.task.lengths("train")) == 30


def test_a_name_that_is_nothing_is_an_error() -> None:
    with pytest.raises(ConfigError, match="transformer-smal"), workload("transformer-smal"):
        pass


# ------------------------------ Decoding is measured with outputs of equal length
def test_every_case_is_measured(work: training.Workload) -> None:
    result = decoding.measure(work, 0.01, sentences=6, precision="fp32")
    assert list(result["sentences_per_second"]) == [
        "beam 5, batch 32", "greedy, batch 32", "beam 5, one by one", "greedy, one by one",
        "beam 5, whole corpus",
    ]  # fmt: skip
    assert all(speed > 0 for speed in result["sentences_per_second"].values())
    assert result["sentences"] == 6


def test_int8_is_a_precision_of_decoding(work: training.Workload) -> None:
    result = decoding.measure(work, 0.01, sentences=3, precision="int8")
    assert result["precision"] == "int8" and min(result["sentences_per_second"].values()) > 0
    with pytest.raises(ConfigError, match=r"no precision 'int4'; there are: auto.*fp32.*, int8"):
        decoding.measure(work, 0.01, sentences=3, precision="int4")


@pytest.mark.parametrize("beam_size", [1, 3])
def test_outputs_are_as_long_as_they_are_forced_to_be(work, beam_size) -> None:
    sources = [[5, 6, 7], [8]]
    engine = RunEngine(work.task, work.model().eval())
    result = engine.outputs(sources, SearchRequest(forced(beam_size, 7)))
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
    assert {"full, fused", "full, explicit", "full, fused, causal", "local", "linear", "performer"}
    assert {"linformer", "lstm", "mamba", "block_sparse"} <= names
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


def test_the_exponent_of_a_square_is_two() -> None:
    assert exponent((1, 2, 4, 8), (3.0, 12.0, 48.0, 192.0)) == 2
    assert exponent((1, 2, 4, 8), (5.0, 10.0, None, None)) == 1
    assert exponent((1, 2), (None, None)) is None


def test_what_would_take_too_long_or_too_much_is_left_out() -> None:
    lengths = (1024, 2048, 4096)
    assert worth([], lengths)
    assert worth([(100.0, 10.0)], lengths)
    assert not worth([(1000 * length.PATIENCE / 2, 10.0)], lengths)
    assert not worth([(100.0, length.ROOM / 2)], lengths)
    assert not worth([None], lengths)


def test_the_picture_of_lengths() -> None:
    row = {"milliseconds": [1.0, 4.0], "megabytes": [2.0, None]}
    drawn = length.view({"lengths": [8, 16], "kinds": {"full": row, "full, causal": row}})
    assert [d.log for d in drawn.drawings()] == ["xy", "xy"]
    assert drawn.arrays()["megabytes: full"][0] == 2


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


# ------------------------------ What figures are measured on
def test_ceilings_are_rates_of_both_precisions() -> None:
    assert machine.product_rate(torch.float32, 0.01, size=64) > 0
    assert set(machine.DTYPES) == {"fp32", "bf16"}


def test_a_machine_is_described() -> None:
    result = machine.describe()
    assert result["torch"] == torch.__version__ and result["cpu"]
    assert result["commit"] is None or result["commit"]


# ------------------------------ ``foveate bench``: thin verbs over `foveate.measure`
def test_train_as_json(tiny: str) -> None:
    done = CliRunner().invoke(
        app, ["bench", "train", tiny, "--seconds", "0.1", "--quick", "--json"]
    )
    result = json.loads(done.stdout)
    assert result["shape"] == "tiny" and result["target_tokens_per_second"] > 0


def test_decode_for_people(tiny: str) -> None:
    arguments = ["bench", "decode", tiny, "--seconds", "0.1", "--sentences", "3"]
    done = invoked(*arguments, "--precision", "fp32")
    assert "greedy, one by one" in done.stdout and "machine: " in done.stdout
    assert "its data and tokenizers" in done.stderr
    assert "greedy, one by one: 3 sentences" in done.stderr


def test_help_names_both() -> None:
    done = CliRunner().invoke(app, ["bench", "--help"])
    for verb in ("train", "decode"):
        assert f" {verb} " in done.stdout
