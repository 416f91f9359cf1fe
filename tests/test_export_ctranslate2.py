"""Runs in CTranslate2: every part that it has gives our tokens, and every other one is refused."""

import json
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from foveate.config import kinds
from foveate.decode.engine import SearchRequest
from foveate.exchange.base import POINTER, Different, ExchangeError, export, sample_of, targets
from foveate.exchange.ctranslate2 import CTranslate2, first_misfit, searched
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.nn.spec import Tokens
from foveate.run import Run
from tolerances import MODEL, near
from variants import transformer


def exported(run: Run, out: Path, **choices: Any) -> Any:
    return export(run, out, "ctranslate2", sample_of(run, 20), **choices)[1]


def test_a_run_is_exported_and_points_back(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["transformer"]
    checked = exported(run, tmp_path / "a")
    assert checked.sentences == 7 and checked.tokens > 7
    exported(run, tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), "made again"
    pointer = json.loads((tmp_path / "a" / POINTER).read_text())
    assert pointer["run"] == "transformer" and pointer["checkpoint"] == run.checkpoint
    assert str(tmp_path) not in (tmp_path / "a" / POINTER).read_text()
    with pytest.raises(FileExistsError, match="already exists"):
        exported(run, tmp_path / "a")


VARIANTS = {
    "norm_order": st.sampled_from(["pre", "post"]),
    "norm": st.sampled_from(["layer_norm", "rms_norm"]),
    "embedding_norm": st.booleans(),
    "position": st.sampled_from(["none", "sinusoidal", "sinusoidal_halves", "learned", "rope"]),
    "feed_forward": st.sampled_from(["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"]),
    "stem": st.sampled_from(["none", "sqrt"]),
    "score": st.sampled_from(["scaled_dot", "dot"]),
    "key_heads": st.sampled_from([None, 1]),
    "bias": st.booleans(),
    "tie": st.sampled_from(["all", "none", "target"]),
    "seed": st.integers(0, 99),
}


@settings(
    max_examples=12,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # to shrink takes longer than to read
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(chosen=st.fixed_dictionaries(VARIANTS))
def test_every_part_that_it_has_gives_the_same_tokens(runs, tmp_path_factory, chosen) -> None:
    chosen = dict(chosen)
    attention = {name: chosen.pop(name) for name in ("score", "key_heads", "bias")}
    chosen["attention"] = {k: v for k, v in attention.items() if v is not None}
    chosen["stem"] = {"kind": "tokens", "scale": chosen["stem"]}
    if chosen.pop("embedding_norm"):
        chosen["embedding_norm"] = {"kind": chosen["norm"]}
    chosen["feed_forward"] = {"kind": chosen["feed_forward"], "bias": attention["bias"]}
    run = transformer(runs["transformer"], **chosen)
    out = tmp_path_factory.mktemp("ct2") / "model"
    checked = exported(run, out)
    assert checked.ties <= 1, "random weights find two outputs equally probable now and then"
    search = run.search(3, 0.6, 3)
    ids = run.task.source_tokenizer.encode_ids(["the dog runs", "a girl the man"])
    model = ctranslate2.Translator(str(out))
    theirs = [searched(model, run, [source], search)[0] for source in ids]
    for item, other in zip(run.engine.outputs(ids, SearchRequest(search)), theirs, strict=True):
        assert (item[0].ids, item[0].ended) == (other[0].ids, other[0].ended)
        assert item[0].score == near(other[0].score, terms=MODEL)
        assert item[0].log_probability == near(other[0].log_probability, terms=MODEL)


ALL = [
    *((family, kind) for family in ("position", "feed_forward", "norm", "attention")
      for kind in kinds(family)[family]),
    ("norm_order", "plain"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "kind"), ALL, ids=lambda x: str(x))
def test_each_kind_is_exact_or_refused(runs: dict[str, Run], tmp_path, key: str, kind: str) -> None:
    try:
        run = transformer(runs["transformer"], **{key: kind})
    except ValueError:
        pytest.skip(f"no model of {kind} on both sides with these sizes")
    if first_misfit(run.model) is None:
        assert exported(run, tmp_path / "out").tokens
    else:
        with pytest.raises(ExchangeError, match=rf"ctranslate2 has no \w+\.?\w* = '{kind}'"):
            exported(run, tmp_path / "out")
    assert not list(tmp_path.glob(".*"))


def test_norms_of_heads_are_refused() -> None:
    side = {"kind": "transformer", "attention": {"head_norm": {"kind": "rms_norm"}}}
    config = EncoderDecoder.Config.parse({"encoder": side, "decoder": side})
    model = config.build(Tokens(20), Tokens(20))
    assert first_misfit(model) == "encoder.attention.head_norm = 'rms_norm'"


def test_what_does_not_fit_says_why(runs: dict[str, Run], tmp_path: Path) -> None:
    with pytest.raises(ExchangeError, match="takes translations, but this run has the task lang"):
        export(runs["language"], tmp_path / "x", "ctranslate2", sample_of(runs["rnn"], 2))
    assert CTranslate2(runs["transformer"]).instead().startswith("; it can be exported to onnx (")


def test_another_answer_leaves_nothing(runs: dict[str, Run], tmp_path: Path, monkeypatch) -> None:
    run = runs["transformer"]
    there = targets()["ctranslate2"]
    write = there.write

    def spoilt(self: Any, place: Path, pointer: dict[str, Any]) -> None:
        table = self.run.model.decoder.stem.embedding.weight
        before = table.detach().clone()
        with torch.no_grad():
            table.mul_(-1)
            write(self, place, pointer)
            table.copy_(before)

    monkeypatch.setattr(there, "write", spoilt)
    with pytest.raises(Different, match=r"\d+ of the sample comes out differently \(greedy"):
        exported(run, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("quantization", ["int8", "int16", "bfloat16", "float16"])
def test_rounded_weights_are_held_to_chrf(runs, tmp_path, quantization) -> None:
    before = {name: t.clone() for name, t in runs["transformer"].model.state_dict().items()}
    checked = exported(runs["transformer"], tmp_path / "out", quantization=quantization)
    after = runs["transformer"].model.state_dict()
    assert all(torch.equal(t, after[name]) for name, t in before.items()), "the run is as it was"
    assert checked.chrf is not None and checked.chrf[1] >= checked.chrf[0] - 0.3
    lines = tmp_path / "lines.txt"
    lines.write_text("the dog runs\n", "utf-8")
    sample = sample_of(runs["transformer"], 1, lines)
    with pytest.raises(ExchangeError, match="needs references"):
        export(runs["transformer"], tmp_path / "x", "ctranslate2", sample, quantization)
