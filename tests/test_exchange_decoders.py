"""Published decoders as language runs: ids, logits and texts as in transformers."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foveate
from foveate.data.tokenizer import BOS, EOS, PAD
from foveate.exchange.base import ExchangeError
from foveate.exchange.importing import import_from
from foveate.run import Run, compiled
from piece_models import TEXT, hostile
from test_exchange_hub import pieces

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


def bytes_learnt(special: list[str]) -> Any:
    """A BPE over bytes, as its tokenizer.json stores it."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    learner = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(tokenizers.Regex(CHUNKS), "isolated")
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    learner.pre_tokenizer = pre_tokenizers.Sequence([split, letters])
    learner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    learner.train_from_iterator(TEXT * 3, trainer)
    return learner


def llama3(place: Path) -> tuple[Any, Any]:
    from tokenizers import processors

    learnt = bytes_learnt(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
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


def qwen(kind: str) -> Callable[[Path], tuple[Any, Any]]:
    def make(place: Path) -> tuple[Any, Any]:
        learnt = json.loads(bytes_learnt(["<|endoftext|>"]).to_str())["model"]
        tokenizer = transformers.Qwen2Tokenizer(
            vocab=learnt["vocab"], merges=[tuple(pair) for pair in learnt["merges"]]
        )
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=len(tokenizer) + 5, bos_token_id=None, eos_token_id=0, pad_token_id=0,
            tie_word_embeddings=kind == "Qwen2", **SIZES,
        )  # fmt: skip
        return tokenizer, getattr(transformers, f"{kind}ForCausalLM")(config)

    return make


def mistral(place: Path) -> tuple[Any, Any]:
    read = pieces(place / "made", "bpe", byte_fallback=True)
    tokenizer = transformers.LlamaTokenizer(vocab=read["vocab"], merges=read["merges"])
    config = transformers.MistralConfig(vocab_size=len(tokenizer), sliding_window=7, **SIZES)
    return tokenizer, transformers.MistralForCausalLM(config)


def gemma(kind: str, model: str, **fields: Any) -> Callable[[Path], tuple[Any, Any]]:
    def make(place: Path) -> tuple[Any, Any]:
        names = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3}
        read = pieces(place / "made", "bpe", byte_fallback=True, **names)
        tokenizer = transformers.GemmaTokenizer(vocab=read["vocab"], merges=read["merges"])
        config = getattr(transformers, kind)(
            vocab_size=len(tokenizer), sliding_window=7, head_dim=8, query_pre_attn_scalar=16,
            **SIZES | fields,
        )  # fmt: skip
        return tokenizer, getattr(transformers, model)(config)

    return make


FAMILIES: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "llama3": llama3,
    "qwen2": qwen("Qwen2"),
    "qwen3": qwen("Qwen3"),
    "mistral": mistral,
    "gemma2": gemma("Gemma2Config", "Gemma2ForCausalLM"),
    "gemma3": gemma("Gemma3TextConfig", "Gemma3ForCausalLM", num_hidden_layers=7),
}
IN_C = {"qwen2", "gemma"}  # what the engine in C has all parts of


def trained(tokenizer: Any, model: Any, end: int) -> None:
    """Let a model learn lines by heart, so that its texts are none of chance."""
    rows = [[*tokenizer(line)["input_ids"], end] for line in TEXT]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [end] * (longest - len(row)) for row in rows])
    labels = torch.tensor([row + [-100] * (longest - len(row)) for row in rows])
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(150):
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(scope="module", params=FAMILIES)
def opened(request, tmp_path_factory) -> tuple[str, Path, Run]:
    place = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(3)
    tokenizer, model = FAMILIES[request.param](place)
    end = model.config.eos_token_id
    trained(tokenizer, model, end[0] if isinstance(end, list) else end)
    out = place / request.param
    model.save_pretrained(out, max_shard_size="40KB")
    tokenizer.save_pretrained(out)
    assert len(list(out.glob("*.safetensors"))) > 1
    return request.param, out, foveate.load(out)


def flores() -> list[str]:
    files = sorted(Path(os.environ.get("FOVEATE_DATA", "."), "flores-200-dev").glob("dev.*.gz"))
    return [line for path in files for line in gzip.open(path, "rt", encoding="utf-8")][::40]


def test_ids_are_those_of_transformers(opened: tuple[str, Path, Run]) -> None:
    _, folder, run = opened
    theirs, own = transformers.AutoTokenizer.from_pretrained(folder), run.task.tokenizer
    special = theirs.all_special_tokens
    lines = [*LINES, *flores(), *hostile(1000)]
    for line in lines:
        if any(each in line for each in special):
            continue
        right, ids = theirs(line)["input_ids"], run.task.tokenizer.encode_lines(line)
        begun = [] if own.startless else [own.published[BOS]]
        assert begun + [own.published[i] for i in ids] == right, line
    for line in TEXT:
        assert run.task.text_of(run.task.tokenizer.encode_lines(line)) == line


def test_logits_are_those_of_transformers(opened: tuple[str, Path, Run]) -> None:
    _, folder, run = opened
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    order = torch.tensor(run.task.tokenizer.published)
    real = [i for i in range(len(order)) if i == EOS or order.tolist().count(order[i]) == 1]
    for line in LINES:
        ids = torch.tensor([[BOS, *run.task.tokenizer.encode_lines(line)]])
        with torch.no_grad():
            ours, right = run.model(ids), theirs(input_ids=order[ids]).logits
        np.testing.assert_allclose(ours[..., real], right[..., order[real]], rtol=1e-4, atol=1e-4)
        total = ours.logsumexp(dim=-1)  # pieces that have two rows count once
        np.testing.assert_allclose(total, right.logsumexp(dim=-1), rtol=1e-4, atol=1e-4)


def beginnings() -> list[str]:
    """Fifty beginnings of texts, of words and of parts of words."""
    return [line[:cut] for line in TEXT for cut in (1, 4, 7, 11, 17)]


def test_greedy_texts_are_those_of_transformers(opened: tuple[str, Path, Run]) -> None:
    _, folder, run = opened
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs, own = transformers.AutoModelForCausalLM.from_pretrained(folder), run.task.tokenizer
    end = own.published[EOS]
    never = [i for i in {own.published[PAD], own.published[BOS]} if i != end]
    prompts = beginnings()
    assert len(prompts) == 50
    decode = run.config.decode.model_copy(update={"whole_characters": False})  # as theirs
    whole, run.config = run.config, run.config.model_copy(update={"decode": decode})
    answers = run.generate(prompts, max_length=20, beam_size=1)
    run.config = whole
    for prompt, answer in zip(prompts, answers, strict=True):
        read = tokenizer([prompt], return_tensors="pt")
        made = theirs.generate(
            input_ids=read["input_ids"], attention_mask=read["attention_mask"], do_sample=False,
            max_new_tokens=20, eos_token_id=end, pad_token_id=end, suppress_tokens=never or None,
        )[0].tolist()  # fmt: skip
        made = made[: made.index(end, 1)] if end in made[1:] else made
        ours = {theirs: n for n, theirs in reversed([*enumerate(own.published)])}
        right = own.decode([ours[i] for i in made])  # of broken characters, theirs shows more
        assert f"{answer}".strip() == right.strip(), prompt


def test_the_engine_in_c_runs_what_it_can(opened: tuple[str, Path, Run]) -> None:
    name, _, run = opened
    assert (compiled(run.model) is not None) == (name in IN_C)
    by_c = run.generate(beginnings(), max_length=9, beam_size=1)
    handle = run.model.register_forward_hook(lambda *_: None)  # a hook keeps the engine away
    by_pytorch = run.generate(beginnings(), max_length=9, beam_size=1)
    handle.remove()
    assert [each.text for each in by_c] == [each.text for each in by_pytorch]


def test_views_show_the_start_and_the_end_of_a_text(opened: tuple[str, Path, Run]) -> None:
    _, folder, run = opened
    own, theirs = run.task.tokenizer, transformers.AutoTokenizer.from_pretrained(folder)
    record = run.explain("a dog\nruns", units="tokens")
    (columns, *_), (rows, *_) = record.columns.values(), record.rows.values()
    assert columns[0] == theirs.convert_ids_to_tokens(own.published[BOS])
    assert rows[-1] == "</s>"
    assert "⏎" not in columns and len(columns) == len(rows)
    ids = run.task.tokenizer.encode_lines("a dog runs")
    figures = run.task.log_probabilities(run.model, np.array(ids))
    assert np.isfinite(figures).all()
    with pytest.raises(ValueError, match="no token that ends a line; leave out --whole-lines"):
        run.generate(["a"], whole_lines=True)


def test_a_folder_says_what_is_missing(
    opened: tuple[str, Path, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder, _ = opened
    broken = tmp_path / "broken"
    for name, match in {
        "tokenizer.json": r"tokenizer\.json: no such file; save the tokenizer as a fast one",
        "config.json": r"config\.json: no such file",
        sorted(each.name for each in folder.glob("*.safetensors"))[1]: "no such file; weights",
    }.items():
        shutil.copytree(folder, broken)
        (broken / name).unlink()
        with pytest.raises(ExchangeError, match=match):
            import_from(broken, tmp_path / "out")
        shutil.rmtree(broken)
    shutil.copytree(folder, broken)
    for changed, match in (
        ({"vocab_size": 12}, "are not those of|does not fit|asks for"),
        ({"num_hidden_layers": 10**6}, "the config asks for a larger model than is there"),
        ({"eos_token_id": 10**6}, "does not fit config.json"),
        ({"eos_token_id": None}, "does not fit config.json"),
    ):
        file = broken / "config.json"
        plain = json.loads(file.read_text("utf-8"))
        file.write_text(json.dumps(plain | changed), "utf-8")
        (broken / "generation_config.json").unlink(missing_ok=True)
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
