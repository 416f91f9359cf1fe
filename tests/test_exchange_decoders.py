"""Published decoders as language runs: ids, logits and texts as in transformers."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from foveate.data.tokenizer import BOS, EOS, PAD
from foveate.exchange.base import ExchangeError
from foveate.exchange.importing import import_from
from foveate.nn.native.kernels import without_kernels
from foveate.run import compiled
from piece_models import TEXT, hostile
from test_exchange_hub import Published, bytes_learnt, pieces

spm = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.1, "max_position_embeddings": 64,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 12,
}  # fmt: skip
CHUNKS = (  # as Llama 3 and Qwen cut texts
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LINES = [*TEXT, "ein Hund\nläuft, und\n\nschläft", "  two  blanks ", "42 men"]


def llama3(place: Path) -> tuple[Any, Any]:
    from tokenizers import processors

    learnt = bytes_learnt(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], CHUNKS)
    learnt.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
        special_tokens=[("<|begin_of_text|>", 0)],
    )  # fmt: skip
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=learnt, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>"
    )
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer) + 3, bos_token_id=0, eos_token_id=[1, 2],
        rope_parameters=LLAMA3, **SIZES,
    )  # fmt: skip
    return tokenizer, transformers.LlamaForCausalLM(config)


def qwen(kind: str, place: Path) -> tuple[Any, Any]:
    learnt = json.loads(bytes_learnt(["<|endoftext|>"], CHUNKS).to_str())["model"]
    tokenizer = transformers.Qwen2Tokenizer(
        vocab=learnt["vocab"], merges=[tuple(pair) for pair in learnt["merges"]]
    )
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(tokenizer) + 5, bos_token_id=None, eos_token_id=0, pad_token_id=0,
        tie_word_embeddings=kind == "Qwen2", **SIZES,
    )  # fmt: skip
    return tokenizer, getattr(transformers, f"{kind}ForCausalLM")(config)


def gemma(kind: str, config: str, place: Path, **fields: Any) -> tuple[Any, Any]:
    names = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3}
    read = pieces(place / "made", "bpe", byte_fallback=True, **names)
    tokenizer = transformers.GemmaTokenizer(vocab=read["vocab"], merges=read["merges"])
    fields |= {"vocab_size": len(tokenizer), "sliding_window": 7, "head_dim": 8}
    config = getattr(transformers, config)(query_pre_attn_scalar=16, **SIZES | fields)
    return tokenizer, getattr(transformers, f"{kind}ForCausalLM")(config)


def mistral(place: Path) -> tuple[Any, Any]:
    read = pieces(place / "made", "bpe", byte_fallback=True)
    tokenizer = transformers.LlamaTokenizer(vocab=read["vocab"], merges=read["merges"])
    config = transformers.MistralConfig(vocab_size=len(tokenizer), sliding_window=7, **SIZES)
    return tokenizer, transformers.MistralForCausalLM(config)


FAMILIES: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "llama3": llama3,
    "qwen2": partial(qwen, "Qwen2"),
    "qwen3": partial(qwen, "Qwen3"),
    "mistral": mistral,
    "gemma2": partial(gemma, "Gemma2", "Gemma2Config"),
    "gemma3": partial(gemma, "Gemma3", "Gemma3TextConfig", num_hidden_layers=7),
}
IN_C = {"qwen2", "gemma"}  # what the engine in C has all parts of


def trained(tokenizer: Any, model: Any, end: int) -> None:
    rows = [torch.tensor([*tokenizer(line)["input_ids"], end]) for line in TEXT]
    ids, labels = (pad_sequence(rows, batch_first=True, padding_value=i) for i in (end, -100))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(150):
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(scope="module", params=FAMILIES)
def opened(request, tmp_path_factory) -> Published:
    place = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(3)
    tokenizer, model = FAMILIES[request.param](place)
    end = model.config.eos_token_id
    trained(tokenizer, model, end[0] if isinstance(end, list) else end)
    out = place / request.param
    model.save_pretrained(out, max_shard_size="40KB")
    tokenizer.save_pretrained(out)
    assert len(list(out.glob("*.safetensors"))) > 1
    return Published(None, out, transformers.AutoModelForCausalLM)


def flores() -> list[str]:
    files = sorted(Path(os.environ.get("FOVEATE_DATA", "."), "flores-200-dev").glob("dev.*.gz"))
    return [line for path in files for line in gzip.open(path, "rt", encoding="utf-8")][::40]


def test_ids_are_those_of_transformers(opened: Published) -> None:
    theirs, task = opened.tokenizer, opened.run.task
    own = task.tokenizer
    begun = [] if own.startless else [own.published[BOS]]
    for line in [*LINES, *flores(), *hostile(1000)]:
        if not any(each in line for each in theirs.all_special_tokens):
            ids = [own.published[i] for i in own.encode_lines(line)]
            assert begun + ids == theirs(line)["input_ids"], line
    for line in TEXT:
        assert task.text_of(own.encode_lines(line)) == line


def test_logits_are_those_of_transformers(opened: Published) -> None:
    run = opened.run
    order = torch.tensor(run.task.tokenizer.published)
    real = [i for i in range(len(order)) if i == EOS or order.tolist().count(order[i]) == 1]
    for line in LINES:
        ids = torch.tensor([[BOS, *run.task.tokenizer.encode_lines(line)]])
        with torch.no_grad():
            ours, right = run.model(ids), opened.model(input_ids=order[ids]).logits
        np.testing.assert_allclose(ours[..., real], right[..., order[real]], rtol=1e-4, atol=1e-4)
        total = ours.logsumexp(dim=-1)  # pieces that have two rows count once
        np.testing.assert_allclose(total, right.logsumexp(dim=-1), rtol=1e-4, atol=1e-4)


# fifty beginnings of texts, of words and of parts of words
PROMPTS = [line[:cut] for line in TEXT for cut in (1, 4, 7, 11, 17)]


def test_greedy_texts_are_those_of_transformers(opened: Published) -> None:
    own = opened.run.task.tokenizer
    end = own.published[EOS]
    never = [i for i in {own.published[PAD], own.published[BOS]} if i != end]
    how = {"max_new_tokens": 20, "eos_token_id": end, "pad_token_id": end, "do_sample": False}
    run = opened.run.decoding(whole_characters=False)  # as theirs
    answers = run.generate(PROMPTS, max_length=20, beam_size=1)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        read = opened.tokenizer([prompt], return_tensors="pt", return_token_type_ids=False)
        made = opened.model.generate(**read, **how, suppress_tokens=never or None)[0].tolist()
        made = made[: made.index(end, 1)] if end in made[1:] else made
        ours = {theirs: n for n, theirs in reversed([*enumerate(own.published)])}
        right = own.decode([ours[i] for i in made])  # of broken characters, theirs shows more
        assert f"{answer}".strip() == right.strip(), prompt


def test_the_engine_in_c_runs_what_it_can(opened: Published) -> None:
    run = opened.run
    assert (compiled(run.model) is not None) == (opened.folder.name in IN_C)
    by_c = run.generate(PROMPTS, max_length=9, beam_size=1)
    with without_kernels():
        by_pytorch = run.generate(PROMPTS, max_length=9, beam_size=1)
    assert [each.text for each in by_c] == [each.text for each in by_pytorch]


def test_views_show_the_start_and_the_end_of_a_text(opened: Published) -> None:
    run, own = opened.run, opened.run.task.tokenizer
    record = run.explain("a dog\nruns", units="tokens")
    (columns, *_), (rows, *_) = record.columns.values(), record.rows.values()
    assert columns[0] == opened.tokenizer.convert_ids_to_tokens(own.published[BOS])
    assert rows[-1] == "</s>"
    assert "⏎" not in columns and len(columns) == len(rows)
    ids = np.array(own.encode_lines("a dog runs"))
    assert np.isfinite(run.task.log_probabilities(run.model, ids)).all()
    with pytest.raises(ValueError, match="no token that ends a line; leave out --whole-lines"):
        run.generate(["a"], whole_lines=True)


def test_a_folder_says_what_is_missing(opened: Published, tmp_path: Path, monkeypatch) -> None:
    broken = shutil.copytree(opened.folder, tmp_path / "broken")
    for name, match in {
        "tokenizer.json": r"tokenizer\.json: no such file; save the tokenizer as a fast one",
        "config.json": r"config\.json: no such file",
        max(each.name for each in broken.glob("*.safetensors")): "no such file; weights",
    }.items():
        (broken / name).rename(tmp_path / name)
        with pytest.raises(ExchangeError, match=match):
            import_from(broken, tmp_path / "out")
        (tmp_path / name).rename(broken / name)
    (broken / "generation_config.json").unlink(missing_ok=True)
    file = broken / "config.json"
    plain = json.loads(file.read_text("utf-8"))
    for changed, match in (
        ({"vocab_size": 12}, "are not those of|does not fit|asks for"),
        ({"num_hidden_layers": 10**6}, "the config asks for a larger model than is there"),
        ({"eos_token_id": 10**6}, "does not fit config.json"),
        ({"eos_token_id": None}, "does not fit config.json"),
    ):
        file.write_text(json.dumps(plain | changed), "utf-8")
        with pytest.raises(ExchangeError, match=match):
            import_from(broken, tmp_path / "out")
    file.write_text(json.dumps(plain), "utf-8")
    with monkeypatch.context() as patch:
        patch.setattr("foveate.exchange.importing.free_memory", lambda: 1000)
        with pytest.raises(ExchangeError, match=r"takes 0\.0 GiB of memory, twice its weights"):
            import_from(broken, tmp_path / "out")
    for path in broken.glob("*.safetensors*"):
        path.unlink()
    (broken / "pytorch_model.bin").write_bytes(b"no pickle is opened")
    with pytest.raises(ExchangeError, match=r"weights in other formats are not read: write it"):
        import_from(broken, tmp_path / "out")
