"""Time and memory against the length; exponents are fitted, and drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

import bench_tiny
from foveate.bench import growth
from foveate.bench.growth import Growth, Variant, cost, exponent, variants, worth
from foveate.bench.training import workload
from foveate.cli.bench import draw_growth, growth_view
from foveate.kinds import load_kinds
from foveate.train.config import resolve


def test_every_kind_of_attention_is_there_with_lstm_and_mamba() -> None:
    load_kinds()
    names = {variant.name for variant in variants()}
    assert {"full, fused", "full, explicit", "full, fused, causal", "local", "linear", "performer"}
    assert {"linformer", "lstm", "mamba", "block_sparse"} <= names
    assert "linformer, causal" not in names


@pytest.mark.parametrize(
    "variant",
    [
        Variant("full", growth.attention, "full", True),
        Variant("explicit", growth.explicit, "full"),
        Variant("lstm", growth.lstm), Variant("mamba", growth.mamba),
        Variant("linformer", growth.attention, "linformer"),
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
    assert worth(Growth(), lengths)
    assert worth(Growth([100.0], [10.0]), lengths)
    assert not worth(Growth([1000 * growth.PATIENCE / 2], [10.0]), lengths)
    assert not worth(Growth([100.0], [growth.ROOM / 2]), lengths)
    assert not worth(Growth([None], [None]), lengths)


def test_the_picture_and_its_text(tmp_path: Path) -> None:
    row = {"milliseconds": [1.0, 4.0], "megabytes": [2.0, None]}
    row |= {"exponent_time": 2.0, "exponent_memory": None}
    result = {"lengths": [8, 16], "kinds": {"full": row, "full, causal": row}}
    [wrote] = draw_growth(result, [tmp_path / "growth.svg"])
    assert "growth.svg" in wrote and "<svg" in (tmp_path / "growth.svg").read_text()
    text = "\n".join(draw_growth(result, []))
    assert "full, causal" in text and "2.0" in text and "-" in text
    assert [d.log for d in growth_view(result).drawings()] == ["xy", "xy"]
    assert growth_view(result).arrays()["megabytes: full"][0] == 2


def test_training_holds_weights_gradients_and_twice_that_for_adam(tmp_path: Path) -> None:
    output, parts = growth.of_training(str(bench_tiny.write(tmp_path)), [])
    assert parts is not None and output["precision"] == "fp32"
    assert parts["gradients MiB"] == parts["weights MiB"] > 0
    assert parts["optimiser MiB"] == pytest.approx(2 * parts["weights MiB"], abs=0.11)
    assert parts["kept activations MiB"] > 0
    assert sum(v for k, v in parts.items() if k != "peak MiB") == pytest.approx(
        parts["peak MiB"], abs=0.5
    )


def test_what_is_kept_grows_with_the_batch(tmp_path: Path) -> None:
    path = str(bench_tiny.write(tmp_path))
    result = []
    for tokens in (64, 512):
        with workload(path, [f"train.batch_tokens={tokens}"]) as work:
            result.append(growth.saved(work, work.model(), resolve("fp32")))
    assert result[1] > 3 * result[0]


def test_decoding_keeps_no_gradients(tmp_path: Path) -> None:
    _, parts = growth.of_decoding(str(bench_tiny.write(tmp_path)), [])
    assert parts is not None and list(parts) == [
        "program and data MiB", "weights MiB", "temporaries and allocator MiB", "peak MiB",
    ]  # fmt: skip
