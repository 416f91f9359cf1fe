"""A packed file gives the record of attention that its run gives, and draws it without PyTorch."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from foveate.errors import UserError
from foveate.look.records import AttentionRecord
from foveate.run import Run
from foveate.run.pack import pack
from small_runs import trained, write_data
from stored_models import configs
from test_packed import packed, without_torch

FAMILIES = ("transformer_pre", "ssru", "guided", "gru_bahdanau", "lstm_luong", "without_attention",
            "decoder_only", "prefix", "recurrent_language", "classifier", "pooled")  # fmt: skip
TEXTS = ["the dog runs", "a cat sleeps", "the girl unknown eats"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    texts = {name: text for name, (_, text) in configs().items()}
    texts["pooled"] = texts["classifier"].rstrip() + '\npooling = "attention"\n'
    runs = {}
    for name in FAMILIES:
        write_data(folder := tmp_path_factory.mktemp(name))
        runs[name] = trained(folder, texts[name], steps=12)
    return runs


def same(own: AttentionRecord, other: AttentionRecord) -> None:
    assert list(own.maps) == list(other.maps)
    assert (own.title, own.notes) == (other.title, other.notes)
    for name, weights in own.maps.items():
        np.testing.assert_allclose(weights, other.maps[name], rtol=0, atol=1e-5)
        assert own.labels(name) == other.labels(name)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_record_of_attention_is_that_of_the_run(runs, tmp_path, name) -> None:
    run, model = runs[name], packed(runs[name], tmp_path)
    target = {"classifier": "human", "pooled": "human"}.get(name, "le chien dort mange")
    for text in TEXTS:
        for units in ("auto", "tokens", "words"):
            same(model.explain(text, None, units), run.explain(text, None, units))
            same(model.explain(text, target, units), run.explain(text, target, units))
    maps = model.explain(TEXTS[0]).maps
    assert bool(maps) == (name not in ("without_attention", "recurrent_language"))
    if model.header.task == "translation":
        answer, other = model.translate(TEXTS)[1], run.translate(TEXTS)[1]
        same(answer.record(), other.record())


def test_a_text_beyond_the_reach_of_a_model_is_cut(runs: dict[str, Run], tmp_path: Path) -> None:
    run, text = runs["decoder_only"], "the dog runs .\na cat sleeps .\n" * 3
    own = packed(run, tmp_path).explain(text)
    assert own.notes and "reads no more" in own.notes[0]
    same(own, run.explain(text))
    with pytest.raises(UserError, match="no label 'plant'; there are: animal, human"):
        packed(runs["classifier"], tmp_path).explain("the dog", "plant")


def test_views_of_a_packed_file_need_no_pytorch(runs, tmp_path, call) -> None:
    run = runs["gru_bahdanau"]
    file = pack(run, tmp_path / "m.safetensors")
    look = partial(without_torch, tmp_path, "look")
    for view in ("attention", "heads", "links"):
        own = look(view, file, "--text", "the dog runs")
        of_run = call("look", view, run.path, "--text", "the dog runs")
        assert own.stdout == of_run.out, own.stderr
    page = tmp_path / "map.html"
    assert look("attention", file, "--text", "a cat", "--out", page).returncode == 0
    assert "decoder.cross_attention" in page.read_text("utf-8")
    refused = look("attention", file)
    assert refused.returncode == 2 and "give --text" in refused.stderr
    refused = look("ablation", file)
    assert refused.returncode == 2 and "[train]" in refused.stderr
    by_torch = call("look", "masks", file, "--text", "a cat")
    assert by_torch.code == 2 and "for look attention, links, heads" in by_torch.err
